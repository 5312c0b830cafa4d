// Bodies of Ampere's warp-wide instructions, compiled once with the engine. Fragment layouts are
// those of the PTX ISA's section on matrix fragments for mma; g = lane / 4, t = lane % 4.
#include "ampere_emulated.h"

namespace ampere {

using tc::emulator::Meeting;

// row(i, g), column(i, t) of element i: `per` elements of one 32-bit register lie side by side.
// A: registers 0, 1 are rows g, g + 8; registers 2, 3 the same rows in the second half of k.
// B: register r is the r-th part of k. D: two columns a row, rows g and g + 8.
template <int Rows, int K, int Per>
struct Layout {
  static constexpr int rows = Rows, k = K, columns = 8;
  static constexpr int row_registers = Rows / 8;
  static constexpr int a_count = Rows * K / 32, b_count = K * 8 / 32, d_count = Rows * 8 / 32;
  static constexpr int a_row(int i, int g) { return g + 8 * (i / Per % row_registers); }
  static constexpr int a_k(int i, int t) {
    return Per * t + i % Per + 4 * Per * (i / (Per * row_registers));
  }
  static constexpr int b_k(int i, int t) { return Per * t + i % Per + 4 * Per * (i / Per); }
  static constexpr int d_row(int i, int g) { return g + 8 * (i / 2); }
  static constexpr int d_column(int i, int t) { return 2 * t + i % 2; }
};

static float widen(float v, float) {  // tf32: the hardware does not see the low 13 bits
  return tc::bit_cast<float>(tc::bit_cast<uint32_t>(v) & 0xffffe000u);
}
static float widen(tc::half v, float) { return tc::to_float(v); }
static float widen(tc::bfloat16 v, float) { return tc::to_float(v); }
static float widen(tc::e4m3 v, float) { return tc::to_float(v); }
static float widen(tc::e5m2 v, float) { return tc::to_float(v); }
static int32_t widen(int8_t v, int32_t) { return v; }
static int32_t widen(uint8_t v, int32_t) { return v; }
static double widen(double v, double) { return v; }

static bool is_whole_warp(const Meeting& meeting) {
  if (meeting.count == 32) return true;
  report(*meeting.lanes[0], tc::emulator::Fault::warp_divergence, meeting.text_line, 0,
         "a warp-wide instruction in a warp of %d lanes", meeting.count);
  return false;
}

// 16-bit fragments: pairs that lie side by side in k move as one, and whole rows are widened.
template <class T>
static void widen_row(float (&to)[16], const T (&from)[16]) {
  for (int i = 0; i < 16; ++i) to[i] = tc::to_float(from[i]);
}
#ifdef __F16C__
static void widen_row(float (&to)[16], const tc::half (&from)[16]) {
  using Halves = short __attribute__((vector_size(16)));
  for (int i = 0; i < 16; i += 8) {
    Halves halves;
    memcpy(&halves, from + i, sizeof halves);
    const auto floats = __builtin_ia32_vcvtph2ps256(halves);
    memcpy(to + i, &floats, sizeof floats);
  }
}
#endif

template <class L, class T>
static void gather(const Meeting& meeting, float (&a)[16][16], float (&b)[16][8]) {
  T rows[16][16], columns[8][16];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& operands = *static_cast<const MmaOperands*>(meeting.operands[lane]);
    const int g = lane / 4, t = lane % 4;
    const T* from_a = static_cast<const T*>(operands.a);
    const T* from_b = static_cast<const T*>(operands.b);
    for (int i = 0; i < 8; i += 2)
      memcpy(&rows[L::a_row(i, g)][L::a_k(i, t)], from_a + i, 2 * sizeof(T));
    for (int i = 0; i < 4; i += 2) memcpy(&columns[g][L::b_k(i, t)], from_b + i, 2 * sizeof(T));
  }
  float wide[8][16];
  for (int row = 0; row < 16; ++row) widen_row(a[row], rows[row]);
  for (int column = 0; column < 8; ++column) widen_row(wide[column], columns[column]);
  for (int k = 0; k < 16; ++k)
    for (int column = 0; column < 8; ++column) b[k][column] = wide[column][k];
}

template <class L, class A, class B, class Sum>
static void gather(const Meeting& meeting, Sum (&a)[L::rows][L::k], Sum (&b)[L::k][L::columns]) {
  for (int lane = 0; lane < 32; ++lane) {
    const auto& operands = *static_cast<const MmaOperands*>(meeting.operands[lane]);
    const int g = lane / 4, t = lane % 4;
    const A* from_a = static_cast<const A*>(operands.a);
    const B* from_b = static_cast<const B*>(operands.b);
    for (int i = 0; i < L::a_count; ++i) a[L::a_row(i, g)][L::a_k(i, t)] = widen(from_a[i], Sum());
    for (int i = 0; i < L::b_count; ++i) b[L::b_k(i, t)][g] = widen(from_b[i], Sum());
  }
}

template <class T>
struct EightOf {
  typedef T type __attribute__((vector_size(8 * sizeof(T))));
};

// Products are exact; sums are rounded in `Sum`, in the order of k.
template <class L, class D, class A, class B, class Sum>
static void mma_body(const Meeting& meeting) {
  if (!is_whole_warp(meeting)) return;
  Sum a[L::rows][L::k], b[L::k][L::columns], d[L::rows][L::columns];
  if constexpr (sizeof(A) == 2 && L::k == 16) gather<L, A>(meeting, a, b);
  else gather<L, A, B, Sum>(meeting, a, b);
  for (int lane = 0; lane < 32; ++lane) {
    const D* from_d = static_cast<const D*>(static_cast<MmaOperands*>(meeting.operands[lane])->d);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < L::d_count; ++i)
      d[L::d_row(i, g)][L::d_column(i, t)] = tc::convert<Sum>(from_d[i]);
  }
  using Row = typename EightOf<Sum>::type;
  Row rows_of_b[L::k], sum;
  memcpy(rows_of_b, b, sizeof b);
  for (int row = 0; row < L::rows; ++row) {
    memcpy(&sum, d[row], sizeof sum);
    for (int k = 0; k < L::k; ++k) sum += rows_of_b[k] * a[row][k];
    memcpy(d[row], &sum, sizeof sum);
  }
  for (int lane = 0; lane < 32; ++lane) {
    D* to = static_cast<D*>(static_cast<const MmaOperands*>(meeting.operands[lane])->d);
    for (int i = 0; i < L::d_count; ++i)
      to[i] = tc::convert<D>(d[L::d_row(i, lane / 4)][L::d_column(i, lane % 4)]);
  }
}

using tc::bfloat16;
using tc::half;
const CollectiveKind mma_16816_f32_f16{"mma_m16n8k16",
    mma_body<Layout<16, 16, 2>, float, half, half, float>, 0};
const CollectiveKind mma_16816_f32_bf16{"mma_m16n8k16",
    mma_body<Layout<16, 16, 2>, float, bfloat16, bfloat16, float>, 0};
const CollectiveKind mma_16816_f16_f16{"mma_m16n8k16",
    mma_body<Layout<16, 16, 2>, half, half, half, float>, 0};
const CollectiveKind mma_1688_f32_f16{"mma_m16n8k8",
    mma_body<Layout<16, 8, 2>, float, half, half, float>, 0};
const CollectiveKind mma_1688_f32_bf16{"mma_m16n8k8",
    mma_body<Layout<16, 8, 2>, float, bfloat16, bfloat16, float>, 0};
const CollectiveKind mma_1688_f32_tf32{"mma_m16n8k8_tf32",
    mma_body<Layout<16, 8, 1>, float, float, float, float>, 0};
const CollectiveKind mma_16832_s8_s8{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, int32_t, int8_t, int8_t, int32_t>, 0};
const CollectiveKind mma_16832_u8_u8{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, int32_t, uint8_t, uint8_t, int32_t>, 0};
const CollectiveKind mma_16832_s8_u8{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, int32_t, int8_t, uint8_t, int32_t>, 0};
const CollectiveKind mma_16832_u8_s8{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, int32_t, uint8_t, int8_t, int32_t>, 0};
using tc::e4m3;
using tc::e5m2;
const CollectiveKind mma_16832_e4m3_e4m3{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, float, e4m3, e4m3, float>, 0};
const CollectiveKind mma_16832_e4m3_e5m2{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, float, e4m3, e5m2, float>, 0};
const CollectiveKind mma_16832_e5m2_e4m3{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, float, e5m2, e4m3, float>, 0};
const CollectiveKind mma_16832_e5m2_e5m2{"mma_m16n8k32",
    mma_body<Layout<16, 32, 4>, float, e5m2, e5m2, float>, 0};
const CollectiveKind mma_884_f64{"mma_m8n8k4",
    mma_body<Layout<8, 4, 1>, double, double, double, double>, 0};

// ---------------------------------------------------------------- 8x8 matrices of 16-bit elements
// Lane 8j + r names row r of matrix j. The 32-bit register j of a lane holds row g, bytes 4t..4t+3;
// transposed, it holds rows 2t and 2t + 1 of column g.
static void take(uint16_t* pair, const uint16_t (&matrix)[8][8], int lane, bool transposed) {
  const int g = lane / 4, t = lane % 4;
  pair[0] = transposed ? matrix[2 * t][g] : matrix[g][2 * t];
  pair[1] = transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
}
static void put(const uint16_t* pair, uint16_t (&matrix)[8][8], int lane, bool transposed) {
  const int g = lane / 4, t = lane % 4;
  (transposed ? matrix[2 * t][g] : matrix[g][2 * t]) = pair[0];
  (transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1]) = pair[1];
}

template <int n, bool transposed>
static void load_body(const Meeting& meeting) {
  if (!is_whole_warp(meeting)) return;
  for (int j = 0; j < n; ++j) {
    uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      const auto& operands = *static_cast<MatrixOperands*>(meeting.operands[8 * j + r]);
      memcpy(matrix[r], tc::emulator::shared_read(operands.row, 16, meeting.text_line,
                                                  *meeting.lanes[8 * j + r]), 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      uint16_t pair[2];
      take(pair, matrix, lane, transposed);
      void* regs = static_cast<MatrixOperands*>(meeting.operands[lane])->regs;
      memcpy(static_cast<unsigned char*>(regs) + 4 * j, pair, 4);
    }
  }
}

template <int n, bool transposed>
static void store_body(const Meeting& meeting) {
  if (!is_whole_warp(meeting)) return;
  for (int j = 0; j < n; ++j) {
    uint16_t matrix[8][8];
    for (int lane = 0; lane < 32; ++lane) {
      uint16_t pair[2];
      const void* regs = static_cast<MatrixOperands*>(meeting.operands[lane])->regs;
      memcpy(pair, static_cast<const unsigned char*>(regs) + 4 * j, 4);
      put(pair, matrix, lane, transposed);
    }
    for (int r = 0; r < 8; ++r) {
      const auto& operands = *static_cast<MatrixOperands*>(meeting.operands[8 * j + r]);
      tc::emulator::shared_write(operands.row, matrix[r], 16, meeting.text_line,
                                 *meeting.lanes[8 * j + r]);
    }
  }
}

const CollectiveKind ldmatrix_kinds[3] = {{"ldmatrix", load_body<1, false>, 0},
                                          {"ldmatrix", load_body<2, false>, 0},
                                          {"ldmatrix", load_body<4, false>, 0}};
const CollectiveKind ldmatrix_trans_kinds[3] = {{"ldmatrix_trans", load_body<1, true>, 0},
                                                {"ldmatrix_trans", load_body<2, true>, 0},
                                                {"ldmatrix_trans", load_body<4, true>, 0}};
const CollectiveKind stmatrix_kinds[3] = {{"stmatrix", store_body<1, false>, 0},
                                          {"stmatrix", store_body<2, false>, 0},
                                          {"stmatrix", store_body<4, false>, 0}};
const CollectiveKind stmatrix_trans_kinds[3] = {{"stmatrix_trans", store_body<1, true>, 0},
                                                {"stmatrix_trans", store_body<2, true>, 0},
                                                {"stmatrix_trans", store_body<4, true>, 0}};

}  // namespace ampere
