// What one consumer warpgroup of attention_fwd.cu does with a tile: scores, softmax, products, and the
// two orders of them.
#pragma once
#include "attention_config.cuh"

TC_DEVICE void scores(float (&s)[TILE_N / 2], u64 q, u64 k) {
#pragma unroll
  for (int step = 0; step < HEAD_DIM / 16; ++step)
    WGMMA_QK<0, 0>(s, descriptor_advance(q, (step / 4) * kQPanel + (step % 4) * 32),
                   descriptor_advance(k, (step / 4) * kKVPanel + (step % 4) * 32), step > 0);
}

TC_DEVICE void weighted_values(float (&o)[HEAD_DIM / 2], const u32 (&p)[TILE_N / 4], u64 v,
                               int accumulate) {
#pragma unroll
  for (int step = 0; step < TILE_N / 16; ++step)
    WGMMA_PV<1>(o, p + 4 * step, descriptor_advance(v, 2048 * step), step > 0 ? 1 : accumulate);
}

struct Softmax {
  float row_max[2];
  float row_sum[2];  // of this thread's columns only
};

// Columns at or past the row's limit take no part. `limit` is relative to this thread's first column.
TC_DEVICE void mask(float (&s)[TILE_N / 2], const int (&limit)[2]) {
#pragma unroll
  for (int i = 0; i < TILE_N / 2; ++i)
    if (8 * (i / 4) + (i & 1) >= limit[(i >> 1) & 1]) s[i] = -kInfinity;
}

TC_DEVICE void block_max(const float (&s)[TILE_N / 2], float (&out)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float even = s[2 * row], odd = s[2 * row + 1];
#pragma unroll
    for (int j = 1; j < TILE_N / 8; ++j) {
      even = fmaxf(even, s[4 * j + 2 * row]);
      odd = fmaxf(odd, s[4 * j + 2 * row + 1]);
    }
    out[row] = quad_max(fmaxf(even, odd));
  }
}

TC_DEVICE void exponentiate(float (&s)[TILE_N / 2], Softmax& state, float scale_log2, bool guard) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float shift = state.row_max[row] * scale_log2;
    if (guard && state.row_max[row] == -kInfinity) shift = 0.0f;
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
      float& a = s[4 * j + 2 * row];
      float& b = s[4 * j + 2 * row + 1];
      a = exp2_approx(fmaf(a, scale_log2, -shift));
      b = exp2_approx(fmaf(b, scale_log2, -shift));
      even += a;
      odd += b;
    }
    state.row_sum[row] += even + odd;
  }
}

// One online-softmax step: scores become unnormalised weights, `rescale` is what older sums shrink by.
// Returns whether any row of this warp must be rescaled.
TC_DEVICE bool softmax_step(float (&s)[TILE_N / 2], Softmax& state, float (&rescale)[2],
                            float scale_log2, bool guard) {
  float candidate[2];
  block_max(s, candidate);
  bool changed = true;
  if (LAZY_RESCALE) {
    bool grows = false;
#pragma unroll
    for (int row = 0; row < 2; ++row)
      grows |= (candidate[row] - state.row_max[row]) * scale_log2 > kLagLog2;
    changed = __any_sync(0xffffffffu, grows);
  }
  if (changed) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float old = state.row_max[row];
      float now = fmaxf(old, candidate[row]);
      float shift = guard && now == -kInfinity ? 0.0f : now;
      rescale[row] = exp2_approx((old - shift) * scale_log2);
      state.row_max[row] = now;
      state.row_sum[row] *= rescale[row];
    }
  }
  exponentiate(s, state, scale_log2, guard);
  return changed;
}

TC_DEVICE void round_weights(const float (&s)[TILE_N / 2], u32 (&p)[TILE_N / 4]) {
#pragma unroll
  for (int i = 0; i < TILE_N / 4; ++i) p[i] = pack_16bit<ELEMENT>(s[2 * i], s[2 * i + 1]);
}

TC_DEVICE void scale_rows(float (&o)[HEAD_DIM / 2], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 2; ++i) o[i] *= factor[(i >> 1) & 1];
}

TC_DEVICE void release(u32 barrier, u32 lane) {
  if (lane == 0) mbarrier_arrive(barrier);
}
// K and V tiles are shared by the cluster: every block's producer hears of it.
TC_DEVICE void release_kv(u32 barrier, u32 lane) {
  if (CLUSTER == 1) {
    release(barrier, lane);
  } else if (lane < CLUSTER) {
    mbarrier_arrive_remote(barrier, lane);
  }
}

struct Consumer {
  u32 base, lane, consumer, next_consumer;
  bool issuer;    // the one lane of the warpgroup that stores the output
  u32 pending_q;  // barrier to arrive on once the previous output has left shared memory, or 0
  u64 k_tile, v_tile;
  Ring<KV_STAGES> k_ring, v_ring;
  float scale_log2;
};

// Steady state, with the next K at hand: issue the next scores, then this block's products, and do the next softmax under them.
template <bool Masked>
TC_DEVICE void mainloop_step(Consumer& c, u64 q_tile, float (&s)[TILE_N / 2], u32 (&p)[TILE_N / 4],
                             float (&o)[HEAD_DIM / 2], Softmax& state, int accumulate,
                             const int (&limit)[2], bool last) {
  if (PINGPONG) named_barrier_sync(1 + c.consumer, 256);
  pin_fragment(s);
  pin_fragment(p);
  pin_fragment(o);
  wgmma_fence();
  scores(s, q_tile, descriptor_advance(c.k_tile, c.k_ring.stage * kKVBytes));
  wgmma_commit();
  mbarrier_wait(c.base + kVFull + 8 * c.v_ring.stage, c.v_ring.phase);
  wgmma_fence();
  weighted_values(o, p, descriptor_advance(c.v_tile, c.v_ring.stage * kKVBytes), accumulate);
  wgmma_commit();
  if (PINGPONG) named_barrier_arrive(1 + c.next_consumer, 256);
  wgmma_wait<1>();
  pin_fragment(s);
  release_kv(c.base + kKEmpty + 8 * c.k_ring.stage, c.lane);
  c.k_ring.advance();
  if (Masked) mask(s, limit);
  float rescale[2];
  bool changed = softmax_step(s, state, rescale, c.scale_log2, Masked);
  // Without a branch here the compiler hoists the wait below into the maximum, and no exponential runs
  // under the products. The branch does work: it waits for the next step's K. In the last step it finds
  // this step's V, which has long arrived.
  pin_fragment(s);
  mbarrier_wait(c.base + (last ? kVFull + 8 * c.v_ring.stage : kKFull + 8 * c.k_ring.stage),
                last ? c.v_ring.phase : c.k_ring.phase);
  wgmma_wait<0>();
  pin_fragment(o);
  pin_fragment(p);
  release_kv(c.base + kVEmpty + 8 * c.v_ring.stage, c.lane);
  c.v_ring.advance();
  round_weights(s, p);
  if (changed) scale_rows(o, rescale);
}

// Lets the producer refill the Q slot that staged the previous tile's output. Called one softmax into a
// tile, when the store has long read its source.
TC_DEVICE void release_previous_q(Consumer& c) {
  if (Q_STAGES > 1 && c.issuer && c.pending_q) {
    tma_store_wait_read<0>();
    mbarrier_arrive(c.pending_q);
  }
}

// Passes over one block that none of this warpgroup's rows can see.
TC_DEVICE void skip_block(Consumer& c) {
  mbarrier_wait(c.base + kKFull + 8 * c.k_ring.stage, c.k_ring.phase);
  release_kv(c.base + kKEmpty + 8 * c.k_ring.stage, c.lane);
  c.k_ring.advance();
  mbarrier_wait(c.base + kVFull + 8 * c.v_ring.stage, c.v_ring.phase);
  release_kv(c.base + kVEmpty + 8 * c.v_ring.stage, c.lane);
  c.v_ring.advance();
}

// Passes over the blocks after `last_block`; the result is the block to start with.
TC_DEVICE int skip_blocks(Consumer& c, int (&limit)[2], int block, int last_block) {
#pragma unroll 1
  for (; block > last_block; --block) {
    skip_block(c);
    limit[0] += TILE_N;
    limit[1] += TILE_N;
  }
  if (block < 0) release_previous_q(c);
  return block;
}

// One tile, softmax of a block under the products of the one before. Returns with the last products in
// flight and their V unreleased.
TC_DEVICE void overlapped_tile(Consumer& c, u64 q_tile, float (&s)[TILE_N / 2], u32 (&p)[TILE_N / 4],
                               float (&o)[HEAD_DIM / 2], Softmax& state, int (&limit)[2], int block,
                               int unmasked, int last_block) {
  block = skip_blocks(c, limit, block, last_block);
  if (block < 0) return;
  mbarrier_wait(c.base + kKFull + 8 * c.k_ring.stage, c.k_ring.phase);
  pin_fragment(s);
  wgmma_fence();
  scores(s, q_tile, descriptor_advance(c.k_tile, c.k_ring.stage * kKVBytes));
  wgmma_commit();
  wgmma_wait<0>();
  pin_fragment(s);
  release_kv(c.base + kKEmpty + 8 * c.k_ring.stage, c.lane);
  c.k_ring.advance();
  mask(s, limit);
  block_max(s, state.row_max);
  exponentiate(s, state, c.scale_log2, true);
  round_weights(s, p);
  release_previous_q(c);
  if (block > 0) mbarrier_wait(c.base + kKFull + 8 * c.k_ring.stage, c.k_ring.phase);
  int accumulate = 0;
  if (CAUSAL) {
#pragma unroll 1
    for (; block > 0 && block - 1 >= unmasked; --block) {
      limit[0] += TILE_N;
      limit[1] += TILE_N;
      mainloop_step<true>(c, q_tile, s, p, o, state, accumulate, limit, block == 1);
      accumulate = 1;
    }
  }
#pragma unroll 1
  for (; block > 0; --block) {
    mainloop_step<false>(c, q_tile, s, p, o, state, accumulate, limit, block == 1);
    accumulate = 1;
  }
  mbarrier_wait(c.base + kVFull + 8 * c.v_ring.stage, c.v_ring.phase);
  pin_fragment(o);
  pin_fragment(p);
  wgmma_fence();
  weighted_values(o, p, descriptor_advance(c.v_tile, c.v_ring.stage * kKVBytes), accumulate);
  wgmma_commit();
}

// One block of the serial form: scores, softmax, products, one after the other. Enters and leaves with
// the products of the block before in flight.
template <bool Masked>
TC_DEVICE void serial_step(Consumer& c, u64 q_tile, float (&s)[TILE_N / 2], u32 (&p)[TILE_N / 4],
                           float (&o)[HEAD_DIM / 2], Softmax& state, const int (&limit)[2],
                           bool first) {
  mbarrier_wait(c.base + kKFull + 8 * c.k_ring.stage, c.k_ring.phase);
  if (!DEFER_PV && !first) {
    wgmma_wait<0>();
    pin_fragment(o);
    pin_fragment(p);
    release_kv(c.base + kVEmpty + 8 * c.v_ring.stage, c.lane);
    c.v_ring.advance();
  }
  pin_fragment(s);
  wgmma_fence();
  scores(s, q_tile, descriptor_advance(c.k_tile, c.k_ring.stage * kKVBytes));
  wgmma_commit();
  wgmma_wait<0>();
  pin_fragment(s);
  pin_fragment(o);
  release_kv(c.base + kKEmpty + 8 * c.k_ring.stage, c.lane);
  c.k_ring.advance();
  if (DEFER_PV && !first) {
    pin_fragment(p);
    release_kv(c.base + kVEmpty + 8 * c.v_ring.stage, c.lane);
    c.v_ring.advance();
  }
  if (Masked) mask(s, limit);
  float rescale[2];
  bool changed = softmax_step(s, state, rescale, c.scale_log2, Masked);
  round_weights(s, p);
  if (changed) scale_rows(o, rescale);
  mbarrier_wait(c.base + kVFull + 8 * c.v_ring.stage, c.v_ring.phase);
  pin_fragment(o);
  pin_fragment(p);
  wgmma_fence();
  weighted_values(o, p, descriptor_advance(c.v_tile, c.v_ring.stage * kKVBytes), 1);
  wgmma_commit();
}

// One tile without overlap inside the warpgroup: the other warpgroups fill the tensor cores. Needs fewer
// registers, so three warpgroups fit. Returns like overlapped_tile.
TC_DEVICE void serial_tile(Consumer& c, u64 q_tile, float (&s)[TILE_N / 2], u32 (&p)[TILE_N / 4],
                           float (&o)[HEAD_DIM / 2], Softmax& state, int (&limit)[2], int block,
                           int unmasked, int last_block) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 2; ++i) o[i] = 0.0f;
  block = skip_blocks(c, limit, block, last_block);
  if (block < 0) return;
  serial_step<true>(c, q_tile, s, p, o, state, limit, true);
  release_previous_q(c);
  --block;
  if (CAUSAL) {
#pragma unroll 1
    for (; block >= 0 && block >= unmasked; --block) {
      limit[0] += TILE_N;
      limit[1] += TILE_N;
      serial_step<true>(c, q_tile, s, p, o, state, limit, false);
    }
  }
#pragma unroll 1
  for (; block >= 0; --block) serial_step<false>(c, q_tile, s, p, o, state, limit, false);
}
