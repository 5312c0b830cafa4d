// Bodies of the MFMA atoms, compiled once with the engine. Layouts are those of AMD's "Instinct MI300
// Instruction Set Architecture", matrix arithmetic instructions, with operands exchanged (README.md).
#include "cdna3_emulated.h"

namespace cdna3 {

using tc::emulator::Meeting;

struct Reduced {};  // xf32: the hardware drops the low 13 bits of float operands
struct Whole {};

static float widen(float v, Whole) { return v; }
static float widen(float v, Reduced) {
  return tc::bit_cast<float>(tc::bit_cast<uint32_t>(v) & 0xffffe000u);
}
static double widen(double v, Whole) { return v; }
static int32_t widen(int8_t v, Whole) { return v; }
template <class T>
static float widen(T v, Whole) { return tc::to_float(v); }

static bool is_whole_wave(const Meeting& meeting) {
  if (meeting.count == 64) return true;
  report(*meeting.lanes[0], tc::emulator::Fault::warp_divergence, meeting.text_line, 0,
         "a matrix instruction in a wavefront of %d lanes", meeting.count);
  return false;
}

// Result v of a lane in the lane's row: which column.
template <int side, class D>
static int column_of(int v, int group) {
  if (sizeof(D) == 8) return 4 * v + group;  // float64: neighbouring results are 4 apart
  return (64 / side) * 4 * (v / 4) + 4 * group + v % 4;
}

template <class T>
struct EightOf {
  typedef T type __attribute__((vector_size(8 * sizeof(T))));
};

// Products and sums are rounded in D, in the order of k.
template <int side, int depth, class D, class A, class B, class Width>
static void mfma_body(const Meeting& meeting) {
  if (!is_whole_wave(meeting)) return;
  constexpr int run = depth * side / 64, results = side * side / 64;
  D a[side][depth], b[depth][side], d[side][side];
  for (int lane = 0; lane < 64; ++lane) {
    const auto& operands = *static_cast<const MfmaOperands*>(meeting.operands[lane]);
    const int row = lane % side, group = lane / side;
    const A* from_a = static_cast<const A*>(operands.a);
    const B* from_b = static_cast<const B*>(operands.b);
    const D* from_d = static_cast<const D*>(operands.d);
    for (int i = 0; i < run; ++i) {
      a[row][run * group + i] = widen(from_a[i], Width());
      b[run * group + i][row] = widen(from_b[i], Width());
    }
    for (int v = 0; v < results; ++v) d[row][column_of<side, D>(v, group)] = from_d[v];
  }
  using Part = typename EightOf<D>::type;
  for (int row = 0; row < side; ++row) {
    Part sums[side / 8];
    memcpy(sums, d[row], sizeof sums);
    for (int k = 0; k < depth; ++k) {
      Part from[side / 8];
      memcpy(from, b[k], sizeof from);
      for (int part = 0; part < side / 8; ++part) sums[part] += from[part] * a[row][k];
    }
    memcpy(d[row], sums, sizeof sums);
  }
  for (int lane = 0; lane < 64; ++lane) {
    D* to = static_cast<D*>(static_cast<const MfmaOperands*>(meeting.operands[lane])->d);
    for (int v = 0; v < results; ++v)
      to[v] = d[lane % side][column_of<side, D>(v, lane / side)];
  }
}

#define CDNA3_WIDTH_f16 Whole
#define CDNA3_WIDTH_bf16 Whole
#define CDNA3_WIDTH_fp8_fp8 Whole
#define CDNA3_WIDTH_fp8_bf8 Whole
#define CDNA3_WIDTH_bf8_fp8 Whole
#define CDNA3_WIDTH_bf8_bf8 Whole
#define CDNA3_WIDTH_i8 Whole
#define CDNA3_WIDTH_xf32 Reduced
#define CDNA3_WIDTH_f32 Whole
#define CDNA3_WIDTH_f64 Whole
#define CDNA3_ATOM(side, k, suffix, D, A, B, per_lane, builtin, operand)            \
  static_assert(per_lane == k * side / 64, "elements a lane");                      \
  const CollectiveKind mfma_kind_##side##x##k##_##suffix{                           \
      "mfma_" #side "x" #side "x" #k "_" #suffix,                                   \
      mfma_body<side, k, D, A, B, CDNA3_WIDTH_##suffix>, 0};
#include "cdna3_mfma.h"
#undef CDNA3_ATOM

}  // namespace cdna3
