// Decoding with one shared latent cache: O = softmax(Q K^T) K[:, :512] for 128 heads, rows of 512 + 64
// elements, fp16: the schedule that generated latent decoding has to reproduce.
//
// A block has 64 heads of one sequence. One warpgroup makes the scores of every tile of 48 keys, with
// HELD panels of 64 columns of Q in registers; two add up, 256 columns of O each. A tile is added only
// when the next one's scores are done (DELAYED): it then runs under the work on them. One producer
// lane; clusters of two blocks, the halves of a sequence's heads, load for one another.
#include "hopper.cuh"
#include "wgmma.cuh"
#ifndef HELD
#define HELD 4
#endif
#ifndef DELAYED
#define DELAYED 1
#endif
using namespace tc;

constexpr int kKeys = 48, kSlots = 3, kPanels = 9, kInMemory = kPanels - HELD, kHeads = 128, kWide = 512;
constexpr u32 kPanelBytes = kKeys * 128, kSlotBytes = kPanels * kPanelBytes, kQueryPanel = 64 * 128;
constexpr u32 kQueries = kSlots * kSlotBytes, kWeights = kQueries + kInMemory * kQueryPanel;
constexpr u32 kRows = kWeights + 2 * kQueryPanel, kBarriers = kRows + 1024;
constexpr float kFarBelow = -1e30f, kSlack = 8.0f;
#define kNone __int_as_float(0xff800000)

// Places of the barriers, 8 bytes each. A slot is free again when both adding groups of both blocks
// are done with it; `scored` counts tiles whose scores are done, and one more at the end.
struct Barriers {
  u32 full, empty, weights_full, weights_empty, scored, queries, held, ended;
};
TC_DEVICE Barriers barriers_at(u32 at) {
  return {at, at + 24, at + 48, at + 64, at + 80, at + 88, at + 96, at + 104};
}
TC_DEVICE void set_up(const Barriers& b) {
  for (int s = 0; s < kSlots; ++s) mbarrier_init(b.full + 8 * s, 1), mbarrier_init(b.empty + 8 * s, 16);
  for (int s = 0; s < 2; ++s) mbarrier_init(b.weights_full + 8 * s, 4), mbarrier_init(b.weights_empty + 8 * s, 8);
  mbarrier_init(b.scored, 4), mbarrier_init(b.queries, 1), mbarrier_init(b.held, 8), mbarrier_init(b.ended, 4);
  mbarrier_init_fence();
}
TC_DEVICE void arrive_both(u32 barrier) {
  __syncwarp();
  if (lane_index() < 2) mbarrier_arrive_remote(barrier, lane_index());
}
TC_DEVICE void arrive(u32 barrier) {
  __syncwarp();
  if (lane_index() == 0) mbarrier_arrive(barrier);
}
struct Turn {
  int slot = 0, phase = 0;
  TC_DEVICE void next() {
    phase ^= slot == kSlots - 1;
    slot = slot == kSlots - 1 ? 0 : slot + 1;
  }
};

// Panels of Q that scores will hold wait in the last slot until they have been read.
TC_DEVICE void produce(const TensorMap& q, const TensorMap& cache, u32 base, const Barriers& b, int tiles,
                       int half, int batch) {
  const u32 rank = cluster_rank();
  mbarrier_arrive_expect_bytes(b.queries, kPanels * kQueryPanel);
  for (int p = 0; p < kPanels; ++p) {
    const u32 to = p < kInMemory ? kQueries + p * kQueryPanel : 2 * kSlotBytes + (p - kInMemory) * kQueryPanel;
    tma_load(base + to, q, b.queries, kEvictNormal, p * 64, half * 64, batch);
  }
  Turn turn;
#pragma unroll 1
  for (int t = 0; t < tiles; ++t, turn.next()) {
    if (t == kSlots - 1) mbarrier_wait(b.held, 0);
    mbarrier_wait(b.empty + 8 * turn.slot, turn.phase ^ 1);
    const u32 full = b.full + 8 * turn.slot;
    mbarrier_arrive_expect_bytes(full, kSlotBytes);
#pragma unroll 1
    for (int p = 0; p < kPanels; ++p)
      tma_load_multicast(base + turn.slot * kSlotBytes + p * kPanelBytes + rank * (kPanelBytes / 2), cache, full,
                         kEvictNormal, 3, p * 64, t * kKeys + rank * (kKeys / 2), batch);
  }
}

TC_DEVICE void score(float (&s)[24], const u32 (&held)[HELD * 16], u32 base, int slot) {
  const u64 keys = matrix_descriptor(base + slot * kSlotBytes, 16, 1024, Swizzle::k128B);
  const u64 queries = matrix_descriptor(base + kQueries, 16, 1024, Swizzle::k128B);
  pin_fragment(s);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kInMemory * 4; ++k)
    wgmma_f32_f16_n48_ss<0, 0>(s, descriptor_advance(queries, k % 4 * 32 + k / 4 * kQueryPanel),
                               descriptor_advance(keys, k % 4 * 32 + k / 4 * kPanelBytes), k > 0);
#pragma unroll
  for (int k = 0; k < HELD * 4; ++k)
    wgmma_f32_f16_n48_rs<0>(s, held + k * 4,
                            descriptor_advance(keys, k % 4 * 32 + (kInMemory + k / 4) * kPanelBytes), 1);
  wgmma_commit();
  wgmma_wait<0>();
  pin_fragment(s);
}

struct Rows {
  float anchor[2] = {kFarBelow, kFarBelow}, total[2] = {0.0f, 0.0f}, rescale[2];
  TC_DEVICE void weigh(float (&s)[24], float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float peak = s[2 * h];
#pragma unroll
      for (int r = 0; r < 24; ++r) peak = r / 2 % 2 == h ? fmaxf(peak, s[r]) : peak;
      const float top = quad_max(peak) * scale, before = anchor[h];
      anchor[h] = top - before > kSlack ? top : before;
      rescale[h] = exp2_approx(before - anchor[h]);
    }
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int r = 0; r < 24; ++r) sum[r / 2 % 2] += s[r] = exp2_approx(s[r] * scale - anchor[r / 2 % 2]);
#pragma unroll
    for (int h = 0; h < 2; ++h) total[h] = total[h] * rescale[h] + sum[h];
  }
};

TC_DEVICE void make_scores(u32 base, unsigned char* shared, const Barriers& b, int tiles, int limit, float scale,
                           float* lse) {
  const u32 lane = lane_index(), warp = threadIdx.x / 32 % 4, row = warp * 16 + lane / 4;
  const u32 own_row = (warp * 16 + lane % 16) * 128, chunk = lane / 16 ^ lane % 8;
  u32 held[HELD * 16];
  mbarrier_wait(b.queries, 0);
#pragma unroll
  for (int k = 0; k < HELD * 4; ++k)
    load_matrix_x4(reinterpret_cast<u32(&)[4]>(held[k * 4]),
                   base + 2 * kSlotBytes + k / 4 * kQueryPanel + own_row + (chunk ^ k % 4 * 2) * 16);
  pin_fragment(held);
  arrive_both(b.held);
  Rows rows;
  Turn turn;
  float* row_values = reinterpret_cast<float*>(shared + kRows);
#pragma unroll 1
  for (int t = 0; t < tiles; ++t, turn.next()) {
    float s[24];
    mbarrier_wait(b.full + 8 * turn.slot, turn.phase);
    score(s, held, base, turn.slot);
    arrive(b.scored);
    if ((t + 1) * kKeys > limit) {
#pragma unroll
      for (int r = 0; r < 24; ++r) s[r] = t * kKeys + r / 4 * 8 + lane % 4 * 2 + r % 2 < limit ? s[r] : kNone;
    }
    rows.weigh(s, scale);
    mbarrier_wait(b.weights_empty + t % 2 * 8, t / 2 + 1 & 1);
#pragma unroll
    for (int j = 0; j < 3; ++j)
      store_matrix_x4(base + kWeights + t % 2 * kQueryPanel + own_row + (chunk ^ j * 2) * 16,
                      pack_16bit<Float16>(s[8 * j], s[8 * j + 1]), pack_16bit<Float16>(s[8 * j + 2], s[8 * j + 3]),
                      pack_16bit<Float16>(s[8 * j + 4], s[8 * j + 5]), pack_16bit<Float16>(s[8 * j + 6], s[8 * j + 7]));
    if (lane % 4 == 0) row_values[t % 2 * 64 + row] = rows.rescale[0], row_values[t % 2 * 64 + row + 8] = rows.rescale[1];
    fence_async_proxy();
    arrive(b.weights_full + t % 2 * 8);
  }
  arrive(b.scored);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = quad_sum(rows.total[h]);
    if (lane % 4 == 0) {
      row_values[128 + row + 8 * h] = total;
      lse[row + 8 * h] = total == 0.0f ? kNone : (log2_approx(total) + rows.anchor[h]) * 0.69314718f;
    }
  }
  arrive(b.ended);
}

TC_DEVICE void add_up(u32 base, const unsigned char* shared, const Barriers& b, int tiles, u32 group, u16* out) {
  const u32 lane = lane_index(), row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const float* row_values = reinterpret_cast<const float*>(shared + kRows);
  float o[2][64] = {};
  Turn turn;
#pragma unroll 1
  for (int t = 0; t < tiles; ++t, turn.next()) {
    mbarrier_wait(b.weights_full + t % 2 * 8, t / 2 & 1);
    if (DELAYED) mbarrier_wait(b.scored, t + 1 & 1);
    const float low = row_values[t % 2 * 64 + row], high = row_values[t % 2 * 64 + row + 8];
    if (__any_sync(0xffffffffu, low != 1.0f || high != 1.0f)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) o[i / 64][i % 64] *= i / 2 % 2 ? high : low;
    }
    const u64 weights = matrix_descriptor(base + kWeights + t % 2 * kQueryPanel, 16, 1024, Swizzle::k128B);
    const u64 values = matrix_descriptor(base + turn.slot * kSlotBytes + group * 4 * kPanelBytes, kPanelBytes, 1024,
                                         Swizzle::k128B);
    pin_fragment(o[0]), pin_fragment(o[1]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 6; ++k)  // one instruction of 256 columns wants more registers than launches give
      wgmma_f32_f16_n128_ss<0, 1>(o[k % 2], descriptor_advance(weights, k / 2 * 32),
                                  descriptor_advance(values, k / 2 * 2048 + k % 2 * 2 * kPanelBytes), 1);
    wgmma_commit();
    wgmma_wait<0>();
    pin_fragment(o[0]), pin_fragment(o[1]);
    arrive_both(b.empty + 8 * turn.slot);
    arrive(b.weights_empty + t % 2 * 8);
  }
  mbarrier_wait(b.ended, 0);
  const float low = row_values[128 + row], high = row_values[128 + row + 8];
  const float share[2] = {low == 0.0f ? 0.0f : 1.0f / low, high == 0.0f ? 0.0f : 1.0f / high};
#pragma unroll
  for (int i = 0; i < 128; i += 2) {
    const float f = share[i / 2 % 2];
    *reinterpret_cast<u32*>(out + (row + i / 2 % 2 * 8) * kWide + group * 256 + i / 4 * 8 + lane % 4 * 2) =
        pack_16bit<Float16>(o[i / 64][i % 64] * f, o[i / 64][i % 64 + 1] * f);
  }
}

__device__ u64 clock_record[2];

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(512, 1)
    latent_decode(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap cache, const int* lengths,
                  u16* out, float* lse, int capacity, float scale) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = shared_address(shared);
  const u64 begin_cycles = clock_cycles(), begin_nanoseconds = global_nanoseconds();
  const Barriers b = barriers_at(base + kBarriers);
  const int half = blockIdx.x % 2, batch = blockIdx.x / 2;
  const int limit = min(lengths[batch], capacity), tiles = (limit + kKeys - 1) / kKeys;
  if (threadIdx.x == 0) set_up(b);
  cluster_arrive();
  cluster_wait();
  const u32 group = warpgroup_index();
  if (group == 3) {
    register_decrease<32>();
    if (warp_index() == 12 && elect_one()) produce(q, cache, base, b, tiles, half, batch);
  }
  if (group < 3) {
    register_increase<160>();
    const int first = batch * kHeads + half * 64;
    if (group == 2) make_scores(base, shared, b, tiles, limit, scale, lse + first);
    else add_up(base, shared, b, tiles, group, out + first * kWide);
  }
  cluster_arrive();
  cluster_wait();
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    clock_record[0] += clock_cycles() - begin_cycles;
    clock_record[1] += global_nanoseconds() - begin_nanoseconds;
  }
}
