// wgmma over emulated lanes: an asynchronous instruction whose operands are decoded from descriptors.
//
// Operands are read when the instruction is issued, and stay guarded against overwriting until the
// wait that completes it. Accumulators hold poison until then. Layouts: PTX ISA, sections "Matrix
// Descriptor Format" and "Register Fragments and Shared Memory Matrix Layouts" of wgmma.
#include <algorithm>
#include <map>
#include <vector>

#include "hopper_emulated.h"

namespace hopper {

using tc::emulator::CollectiveKind;
using tc::emulator::Fault;
using tc::emulator::LaneHead;
using tc::emulator::Meeting;

namespace {

constexpr int kLanes = 128, kRows = 64, kWarp = 32, kWarps = 4;

struct Accumulator {
  uint8_t* registers[kLanes];
  int n = 0, group = 0;
  bool integer = false, half_sums = false;
  std::vector<float> values;  // kRows x n; integers by their bits
  int width() const { return half_sums ? 2 : 4; }
  float read(int lane, int i) const {
    float value;
    uint16_t half;
    if (!half_sums) return memcpy(&value, registers[lane] + 4 * i, 4), value;
    memcpy(&half, registers[lane] + 2 * i, 2);
    return tc::primitive::f32_of_f16(half);
  }
  void write(int lane, int i, float value) const {
    const uint16_t half = tc::primitive::f16_of_f32(value);
    if (half_sums) memcpy(registers[lane] + 2 * i, &half, 2);
    else memcpy(registers[lane] + 4 * i, &value, 4);
  }
  bool is_poison(int lane, int i) const {
    return memcmp(registers[lane] + width() * i, "\xff\xff\xff\xff", size_t(width())) == 0;
  }
};
struct OperandRegisters {
  const u32* registers;
  u32 words[4];
  int lane, group, line;
};
struct GuardedRead {
  SharedPlace place;
  int group;
};
// What one warpgroup has under way.
struct Warpgroup {
  uint64_t run = 0;
  int group = 0;  // the open one
  int waited[kWarps] = {};  // by warp: the first group that may not have ended
  bool fenced = false;
  std::vector<Accumulator> accumulators;
  std::vector<OperandRegisters> registers;
  std::vector<GuardedRead> reads;
};
thread_local std::map<const LaneHead*, Warpgroup> warpgroups;

// The state of a warpgroup, whole or one of its warps. Lanes' memory is used again by later blocks
// and launches: what an abandoned block, or one that never waited, left behind is dropped.
Warpgroup& state_of(const Meeting& meeting) {
  LaneHead& first = *meeting.lanes[-(meeting.lanes[0]->index % kLanes)];
  Warpgroup& state = warpgroups[&first];
  if (state.run != first.place->run) {
    state = Warpgroup();
    state.run = first.place->run;
  }
  return state;
}

bool is_whole(const Meeting& meeting) {
  if (meeting.count == kLanes) return true;
  report(*meeting.lanes[0], Fault::warp_divergence, meeting.text_line, 0,
         "a wgmma instruction in a warpgroup of %d lanes", meeting.count);
  return false;
}

int bytes_of(Element type) {
  switch (type) {
    case Element::f16: case Element::bf16: return 2;
    case Element::tf32: return 4;
    default: return 1;
  }
}

float value_of(Element type, const uint8_t* p) {
  uint16_t half;
  uint32_t word;
  switch (type) {
    case Element::f16: memcpy(&half, p, 2); return tc::primitive::f32_of_f16(half);
    case Element::bf16: memcpy(&half, p, 2); return tc::primitive::f32_of_bf16(half);
    case Element::tf32: memcpy(&word, p, 4); return tc::bit_cast<float>(word & 0xffffe000u);
    case Element::e4m3: return tc::convert<float>(tc::e4m3{*p});
    case Element::e5m2: return tc::convert<float>(tc::e5m2{*p});
    case Element::s8: return float(int8_t(*p));
    case Element::u8: return float(*p);
  }
  return 0;
}

// Reads one operand tile from shared memory by its descriptor.
struct TileReader {
  const Meeting& meeting;
  Warpgroup& state;
  u64 descriptor;

  u32 field(int shift) const { return u32(descriptor >> shift & 0x3fff) << 4; }
  // Bytes of a swizzled row; 16 without swizzle.
  u32 row_bytes() const {
    constexpr u32 widths[4] = {16, 128, 64, 32};
    return widths[descriptor >> 62];
  }
  u32 swizzled(u32 address) const {
    const u32 mask = row_bytes() / 16 - 1;
    return address ^ ((address >> 7 & mask) << 4);
  }
  // Address of the 16-byte chunk that holds byte `byte` of row `row` of the major direction:
  // K-major: row is m or n, bytes run along k. MN-major: row is k, bytes run along m or n.
  u32 chunk(u32 row, u32 byte, bool mn_major) const {
    const u32 leading = field(16), stride = field(32), width = row_bytes();
    u32 address = field(0);
    if (descriptor >> 62 == 0)
      address += row % 8 * 16 + row / 8 * (mn_major ? leading : stride) +
                 byte / 16 * (mn_major ? stride : leading);
    else
      address += row % 8 * width + row / 8 * stride +
                 (mn_major ? byte / width * leading + byte % width : byte);
    return swizzled(address & ~15u);
  }
  const uint8_t* read(u32 address) {
    SharedPlace place = tc::emulator::shared_base();
    place.offset = int32_t(address);
    LaneHead& lane = *meeting.lanes[0];
    tc::emulator::check_published(place, 16, meeting.text_line, lane);
    tc::emulator::begin_async_read(place, 16, meeting.text_line, lane);
    state.reads.push_back({place, state.group});
    const uint8_t* bytes = tc::emulator::shared_bytes(place.offset, 16, -1, lane);
    static const uint8_t nothing[16] = {};
    return bytes != nullptr ? bytes : nothing;
  }
  // to[row * row_step + k * k_step] for `rows` rows along m or n and `depth` elements along k.
  void tile(float* to, int rows, int depth, int row_step, int k_step, Element type, bool mn_major) {
    const int size = bytes_of(type), per_chunk = 16 / size;
    const int outer = mn_major ? depth : rows, inner = mn_major ? rows : depth;
    for (int o = 0; o < outer; ++o)
      for (int i = 0; i < inner; i += per_chunk) {
        const uint8_t* bytes = read(chunk(u32(o), u32(i * size), mn_major));
        const int count = inner - i < per_chunk ? inner - i : per_chunk;
        for (int e = 0; e < count; ++e) {
          const int row = mn_major ? i + e : o, k = mn_major ? o : i + e;
          to[row * row_step + k * k_step] = value_of(type, bytes + e * size);
        }
      }
  }
};

const WgmmaOperands& operands_of(const Meeting& meeting, int lane) {
  return *static_cast<const WgmmaOperands*>(meeting.operands[lane]);
}

int row_of(int lane, int i) { return 16 * (lane / 32) + lane % 32 / 4 + 8 * (i / 2 % 2); }
int column_of(int lane, int i) { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }

// A from registers: word i holds 4 bytes of row g + 8 * (i % 2) in half i / 2 of the 32 bytes of k.
void gather_a(const Meeting& meeting, Warpgroup& state, float* a, int depth) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const WgmmaOperands& op = operands_of(meeting, lane);
    const int size = bytes_of(op.a_type), per_word = 4 / size;
    OperandRegisters kept{op.a_registers, {}, lane, state.group, meeting.text_line};
    memcpy(kept.words, op.a_registers, sizeof kept.words);
    state.registers.push_back(kept);
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < per_word; ++e) {
        const int row = 16 * (lane / 32) + lane % 32 / 4 + 8 * (i % 2);
        const int k = depth / 2 * (i / 2) + per_word * (lane % 4) + e;
        const auto* bytes = reinterpret_cast<const uint8_t*>(&kept.words[i]) + e * size;
        a[row * depth + k] = value_of(op.a_type, bytes);
      }
  }
}

void take(Accumulator& c, int lane) {
  for (int i = 0; i < c.n / 2; ++i)
    c.values[size_t(row_of(lane, i) * c.n + column_of(lane, i))] = c.read(lane, i);
}

// The accumulator that an instruction continues, or a new one with the registers' values.
Accumulator& accumulator_of(const Meeting& meeting, Warpgroup& state) {
  const WgmmaOperands& first = operands_of(meeting, 0);
  for (Accumulator& one : state.accumulators) {
    if (one.registers[0] != static_cast<uint8_t*>(first.d) || one.n != first.n) continue;
    for (int lane = 0; lane < kLanes; ++lane)
      if (one.group < state.waited[lane / kWarp]) take(one, lane);
    return one;
  }
  state.accumulators.emplace_back();
  Accumulator& made = state.accumulators.back();
  made.n = first.n;
  made.integer = first.integer;
  made.half_sums = first.half_sums;
  made.values.resize(size_t(kRows * first.n));
  for (int lane = 0; lane < kLanes; ++lane) {
    made.registers[lane] = static_cast<uint8_t*>(operands_of(meeting, lane).d);
    take(made, lane);
  }
  return made;
}

void multiply(Accumulator& c, const float* a, const float* b, int depth) {
  if (c.integer) {  // products of 8-bit integers are exact in float, their sums are not
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < c.n; ++column) {
        int32_t sum;
        memcpy(&sum, &c.values[size_t(row * c.n + column)], 4);
        for (int k = 0; k < depth; ++k)
          sum = int32_t(uint32_t(sum) + uint32_t(int32_t(a[row * depth + k] * b[k * c.n + column])));
        memcpy(&c.values[size_t(row * c.n + column)], &sum, 4);
      }
    return;
  }
  for (int row = 0; row < kRows; ++row) {
    float* to = &c.values[size_t(row * c.n)];
    for (int k = 0; k < depth; ++k) {
      const float factor = a[row * depth + k];
      const float* line = b + k * c.n;
      for (int column = 0; column < c.n; ++column) to[column] += factor * line[column];
    }
    if (c.half_sums)  // rounded once an instruction
      for (int column = 0; column < c.n; ++column)
        to[column] = tc::primitive::f32_of_f16(tc::primitive::f16_of_f32(to[column]));
  }
}

bool agree(const Meeting& meeting) {
  const WgmmaOperands& first = operands_of(meeting, 0);
  for (int lane = 1; lane < kLanes; ++lane) {
    const WgmmaOperands& op = operands_of(meeting, lane);
    if (op.a == first.a && op.b == first.b && op.accumulate == first.accumulate) continue;
    report(*meeting.lanes[lane], Fault::not_uniform, meeting.text_line, 0,
           "a wgmma whose descriptors or predicate differ between lanes 0 and %d of its warpgroup",
           lane);
    return false;
  }
  return true;
}

void mma_body(const Meeting& meeting) {
  if (!is_whole(meeting) || !agree(meeting)) return;
  Warpgroup& state = state_of(meeting);
  const WgmmaOperands& op = operands_of(meeting, 0);
  if (!state.fenced)
    report(*meeting.lanes[0], Fault::barrier_misuse, meeting.text_line, 0,
           "wgmma with no wgmma.fence since the last group was closed");
  const int depth = 32 / bytes_of(op.a_type);
  std::vector<float> a(size_t(kRows * depth)), b(size_t(depth * op.n));
  if (op.a_registers != nullptr) gather_a(meeting, state, a.data(), depth);
  else
    TileReader{meeting, state, op.a}.tile(a.data(), kRows, depth, depth, 1, op.a_type,
                                          op.a_mn_major);
  TileReader{meeting, state, op.b}.tile(b.data(), op.n, depth, 1, op.n, op.b_type, op.b_mn_major);
  Accumulator& c = accumulator_of(meeting, state);
  c.group = state.group;
  if (op.accumulate == 0) memset(c.values.data(), 0, c.values.size() * 4);
  multiply(c, a.data(), b.data(), depth);
  for (int lane = 0; lane < kLanes; ++lane) memset(c.registers[lane], 0xff, size_t(c.n / 2 * c.width()));
}

void fence_body(const Meeting& meeting) {
  if (is_whole(meeting)) state_of(meeting).fenced = true;
}

void group_body(const Meeting& meeting) {
  if (!is_whole(meeting)) return;
  Warpgroup& state = state_of(meeting);
  ++state.group;
  state.fenced = false;
}

// A warp's part. Accumulators that anybody wrote while the instruction ran are undefined on the
// device.
void complete(const Accumulator& c, int warp, const Meeting& meeting) {
  for (int lane = warp * kWarp; lane < (warp + 1) * kWarp; ++lane) {
    for (int i = 0; i < c.n / 2; ++i) {
      if (!c.is_poison(lane, i)) {
        report(*meeting.lanes[lane % kWarp], Fault::shared_in_flight, meeting.text_line, 0,
               "accumulator register %d was written while a wgmma was under way", i);
        return;
      }
      c.write(lane, i, c.values[size_t(row_of(lane, i) * c.n + column_of(lane, i))]);
    }
  }
}

// Each warp waits for itself (PTX ISA, "wgmma.wait_group": all threads in the warp execute it), so
// that one may do so in a branch that others do not take. What is read is read for all of them.
void wait_body(const Meeting& meeting) {
  Warpgroup& state = state_of(meeting);
  const int warp = meeting.lanes[0]->index % kLanes / kWarp;
  const int before = state.waited[warp];
  const int first_left =
      std::max(before, state.group - *static_cast<const int*>(meeting.operands[0]));
  state.waited[warp] = first_left;
  const int left_by_all = *std::min_element(state.waited, state.waited + kWarps);
  std::vector<Accumulator> running;
  for (Accumulator& one : state.accumulators) {
    if (one.group >= before && one.group < first_left) complete(one, warp, meeting);
    if (one.group >= left_by_all) running.push_back(static_cast<Accumulator&&>(one));
  }
  state.accumulators.swap(running);
  size_t kept = 0;
  for (const OperandRegisters& one : state.registers) {
    if (one.group >= first_left || one.lane / kWarp != warp) state.registers[kept++] = one;
    else if (memcmp(one.words, one.registers, sizeof one.words) != 0)
      report(*meeting.lanes[one.lane % kWarp], Fault::shared_in_flight, one.line, 0,
             "a register operand of wgmma was written before the wait that completes it");
  }
  state.registers.resize(kept);
  kept = 0;
  for (const GuardedRead& one : state.reads) {
    if (one.group >= left_by_all) state.reads[kept++] = one;
    else tc::emulator::end_async_read(one.place, 16, *meeting.lanes[0]);
  }
  state.reads.resize(kept);
}

const CollectiveKind mma_kind{"wgmma.mma_async", mma_body, kLanes};
const CollectiveKind fence_kind{"wgmma.fence", fence_body, kLanes};
const CollectiveKind group_kind{"wgmma.commit_group", group_body, kLanes};
const CollectiveKind wait_kind{"wgmma.wait_group", wait_body, 0};

}  // namespace

void wgmma(const WgmmaOperands& operands, int text_line) {
  tc::emulator::collective(mma_kind, const_cast<WgmmaOperands*>(&operands), text_line);
}
void wgmma_fence(int text_line) { tc::emulator::collective(fence_kind, nullptr, text_line); }
void wgmma_group(int text_line) { tc::emulator::collective(group_kind, nullptr, text_line); }
void wgmma_wait_group(int pending, int text_line) {
  tc::emulator::collective(wait_kind, &pending, text_line);
}

}  // namespace hopper
