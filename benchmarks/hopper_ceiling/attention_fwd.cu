// Attention forward, 16-bit, float32 softmax and accumulation: the schedule that a generated Hopper
// attention has to reproduce. O = softmax(Q K^T * scale) V per (batch, head), and LSE.
//
// One producer warp; WARPGROUPS consumer warpgroups of 64 query rows each. Inside a warpgroup the
// softmax of block j runs under P(j+1) V and the next Q K^T; across warpgroups named barriers hand the
// tensor cores round (PINGPONG), so that one softmax runs under the other's products. Persistent grid;
// causal tiles are taken longest first from an atomic counter.
// Configuration (preprocessor): ELEMENT, HEAD_DIM, TILE_N, WARPGROUPS, CAUSAL, Q_STAGES, KV_STAGES,
// INTRA_OVERLAP, PINGPONG, LAZY_RESCALE, DYNAMIC, WGMMA_QK, WGMMA_PV.
#include "hopper.cuh"
#include "wgmma.cuh"

#ifndef ELEMENT
#define ELEMENT Float16
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef Q_STAGES
#define Q_STAGES 2
#endif
#ifndef KV_STAGES
#define KV_STAGES 2
#endif
#ifndef PINGPONG
#define PINGPONG 1
#endif
#ifndef INTRA_OVERLAP
#define INTRA_OVERLAP 1
#endif
#ifndef DEFER_PV
#define DEFER_PV 0
#endif
#ifndef LAZY_RESCALE
#define LAZY_RESCALE 0
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef DYNAMIC
#define DYNAMIC (CAUSAL && CLUSTER == 1)
#endif

using namespace tc;

constexpr int kTileM = 64 * WARPGROUPS;
constexpr int kPanels = HEAD_DIM / 64;                  // 128-byte panels along the head dimension
constexpr u32 kQBytes = 64 * HEAD_DIM * 2;              // of one warpgroup
constexpr u32 kQPanel = 64 * 128;
constexpr u32 kKVBytes = TILE_N * HEAD_DIM * 2;
constexpr u32 kKVPanel = TILE_N * 128;
constexpr u32 kQOffset = 0;
constexpr u32 kKOffset = kQOffset + Q_STAGES * WARPGROUPS * kQBytes;
constexpr u32 kVOffset = kKOffset + KV_STAGES * kKVBytes;
constexpr u32 kBarrierOffset = kVOffset + KV_STAGES * kKVBytes;
// Barriers, 8 bytes each; the pair (full, empty) of each ring lies together.
constexpr u32 kQFull = kBarrierOffset;
constexpr u32 kQEmpty = kQFull + 8 * Q_STAGES;
constexpr u32 kKFull = kQEmpty + 8 * Q_STAGES;
constexpr u32 kKEmpty = kKFull + 8 * KV_STAGES;
constexpr u32 kVFull = kKEmpty + 8 * KV_STAGES;
constexpr u32 kVEmpty = kVFull + 8 * KV_STAGES;
constexpr u32 kTileFull = kVEmpty + 8 * KV_STAGES;      // the ring of two tile indices
constexpr u32 kTileEmpty = kTileFull + 16;
constexpr u32 kTileSlot = kTileEmpty + 16;
constexpr u32 kSharedBytes = kTileSlot + 8;
static_assert(kSharedBytes <= 232448, "shared memory of one block");
static_assert(TILE_N % 16 == 0, "P is consumed in k-steps of 16");
static_assert(CLUSTER == 1 || (!DYNAMIC && kPanels % CLUSTER == 0),
              "a cluster walks one static list of tiles and splits K and V by panels");
// A block may hand out only what it got at launch: floor(65536 / threads / 8) * 8 registers a thread, so
// 168 * 384 = 504 * 128 or 128 * 512 = 512 * 128. Asking for more never returns.
constexpr int kProducerRegisters = CLUSTER > 1 ? 56 : WARPGROUPS == 3 ? 32 : 40;
constexpr int kConsumerRegisters =
    ((WARPGROUPS == 3 ? 512 : 504) - kProducerRegisters) / WARPGROUPS / 8 * 8;
constexpr u32 kNoTile = 0xffffffffu;
constexpr float kLn2 = 0.6931471805599453f;
// LAZY_RESCALE: a row maximum may lag behind by this factor of two; P stays below 2^8.
constexpr float kLagLog2 = 8.0f;

struct Problem {
  int batch, heads, heads_kv, seq_q, seq_k;
  int section;      // (batch, head) pairs whose K and V stay in L2 together
  float scale_log2; // softmax scale times log2(e)
};

template <int Stages>
struct Ring {
  int stage = 0;
  u32 phase = 0;
  TC_DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

struct Tile {
  int m_block, head, batch, blocks;
};

// Tile order over `m_blocks` groups of CLUSTER query blocks: sections of `section` (batch, head) pairs; within one, longest query block first.
TC_DEVICE Tile tile_at(int index, const Problem& p, int m_blocks, u32 rank) {
  int pairs = p.batch * p.heads;
  int section = index / (p.section * m_blocks);
  int within = index - section * p.section * m_blocks;
  int width = min(p.section, pairs - section * p.section);
  int row = within / width;
  int pair = section * p.section + within - row * width;
  Tile tile;
  tile.m_block = (m_blocks - 1 - row) * CLUSTER + static_cast<int>(rank);
  tile.batch = pair / p.heads;
  tile.head = pair - tile.batch * p.heads;
  tile.blocks = (p.seq_k + TILE_N - 1) / TILE_N;
  if (CAUSAL) {
    // A cluster shares K and V, so all its blocks walk as far as its last.
    int columns = (m_blocks - row) * CLUSTER * kTileM + p.seq_k - p.seq_q;
    tile.blocks = max(1, min(tile.blocks, (columns + TILE_N - 1) / TILE_N));
  }
  return tile;
}

// ---------------------------------------------------------------- producer
// Each block of a cluster loads its share of the panels and multicasts it to all.
TC_DEVICE void load_kv(u32 base, u32 tiles, u32 full_ring, u32 empty_ring, const TensorMap& map,
                       Ring<KV_STAGES> ring, int block, int head, int batch, u32 rank) {
  u32 full = base + full_ring + 8 * ring.stage;
  mbarrier_wait(base + empty_ring + 8 * ring.stage, ring.phase ^ 1);
  mbarrier_arrive_expect_bytes(full, kKVBytes);
  u32 tile = base + tiles + ring.stage * kKVBytes;
  if (CLUSTER == 1) {
    tma_load(tile, map, full, kEvictLast, 0, block * TILE_N, 0, head, batch);
  } else {
    constexpr int kShare = kPanels / CLUSTER;
    tma_load_multicast(tile + rank * kShare * kKVPanel, map, full, kEvictLast, (1 << CLUSTER) - 1, 0,
                       block * TILE_N, rank * kShare, head, batch);
  }
}

TC_DEVICE void produce(u32 base, const TensorMap& q_map, const TensorMap& k_map,
                       const TensorMap& v_map, const Problem& p, int m_blocks, int* counter, u32 rank) {
  int tiles = p.batch * p.heads * m_blocks;
  int group = p.heads / p.heads_kv;
  Ring<Q_STAGES> q_ring;
  Ring<KV_STAGES> ring;  // of V; K runs one block ahead
  Ring<2> tile_ring;
  u32 index = blockIdx.x / CLUSTER < tiles ? blockIdx.x / CLUSTER : kNoTile;
  u32 round = 0;
  while (true) {
    mbarrier_wait(base + kTileEmpty + 8 * tile_ring.stage, tile_ring.phase ^ 1);
    shared_store(base + kTileSlot + 4 * tile_ring.stage, index);
    mbarrier_arrive(base + kTileFull + 8 * tile_ring.stage);
    tile_ring.advance();
    if (index == kNoTile) break;
    // Static lists go back and forth, so that no worker gets the longer tile of every round.
    ++round;
    u32 workers = gridDim.x / CLUSTER, worker = blockIdx.x / CLUSTER;
    u32 next = DYNAMIC ? atomicAdd(counter, 1) + workers
                       : round * workers + (round & 1 ? workers - 1 - worker : worker);
    Tile tile = tile_at(index, p, m_blocks, rank);
    int head_kv = tile.head / group;
    load_kv(base, kKOffset, kKFull, kKEmpty, k_map, ring, tile.blocks - 1, head_kv, tile.batch, rank);
    u32 q_full = base + kQFull + 8 * q_ring.stage;
    mbarrier_wait(base + kQEmpty + 8 * q_ring.stage, q_ring.phase ^ 1);
    mbarrier_arrive_expect_bytes(q_full, WARPGROUPS * kQBytes);
#pragma unroll 1
    for (int i = 0; i < WARPGROUPS; ++i)
      tma_load(base + kQOffset + (q_ring.stage * WARPGROUPS + i) * kQBytes, q_map, q_full,
               kEvictFirst, 0, tile.m_block * kTileM + 64 * i, 0, tile.head, tile.batch);
    q_ring.advance();
#pragma unroll 1
    for (int block = tile.blocks - 1; block > 0; --block) {
      Ring<KV_STAGES> ahead = ring;
      ahead.advance();
      load_kv(base, kKOffset, kKFull, kKEmpty, k_map, ahead, block - 1, head_kv, tile.batch, rank);
      load_kv(base, kVOffset, kVFull, kVEmpty, v_map, ring, block, head_kv, tile.batch, rank);
      ring = ahead;
    }
    load_kv(base, kVOffset, kVFull, kVEmpty, v_map, ring, 0, head_kv, tile.batch, rank);
    ring.advance();
    index = next < tiles ? next : kNoTile;
  }
  if (DYNAMIC) {  // the last block to finish makes the counter ready for the next launch
    __threadfence();
    if (atomicAdd(counter + 1, 1) == gridDim.x - 1) {
      counter[0] = 0;
      counter[1] = 0;
    }
  }
}

// ---------------------------------------------------------------- consumer
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

TC_DEVICE void stage_output(const float (&o)[HEAD_DIM / 2], u32 tile, u32 warp, u32 lane) {
  u32 row = 16 * warp + (lane & 15);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float* d = &o[panel * 32 + pair * 8];
      u32 chunk = (2 * pair + (lane >> 4)) ^ (row & 7);
      store_matrix_x4(tile + panel * kQPanel + row * 128 + chunk * 16,
                      pack_16bit<ELEMENT>(d[0], d[1]), pack_16bit<ELEMENT>(d[2], d[3]),
                      pack_16bit<ELEMENT>(d[4], d[5]), pack_16bit<ELEMENT>(d[6], d[7]));
    }
  }
}

TC_DEVICE void consume(u32 base, u32 consumer, const TensorMap& o_map, float* lse,
                       const Problem& p, int m_blocks, u32 rank) {
  Consumer c;
  c.base = base;
  c.lane = lane_index();
  c.consumer = consumer;
  c.next_consumer = consumer + 1 == WARPGROUPS ? 0 : consumer + 1;
  c.k_tile = matrix_descriptor(base + kKOffset, 16, 1024);
  c.v_tile = matrix_descriptor(base + kVOffset, kKVPanel, 1024);
  c.scale_log2 = p.scale_log2;
  u32 warp = warp_index() % 4;
  c.issuer = warp == 0 && elect_one();
  c.pending_q = 0;
  Ring<Q_STAGES> q_ring;
  Ring<2> tile_ring;
  float s[TILE_N / 2], o[HEAD_DIM / 2];
  u32 weights[TILE_N / 4];
  if (PINGPONG && consumer == WARPGROUPS - 1) named_barrier_arrive(1, 256);
  while (true) {
    mbarrier_wait(base + kTileFull + 8 * tile_ring.stage, tile_ring.phase);
    u32 index = shared_load(base + kTileSlot + 4 * tile_ring.stage);
    release(base + kTileEmpty + 8 * tile_ring.stage, c.lane);
    tile_ring.advance();
    index = __shfl_sync(0xffffffffu, index, 0);
    if (index == kNoTile) break;
    Tile tile = tile_at(index, p, m_blocks, rank);
    int row0 = tile.m_block * kTileM + 64 * consumer;
    int row = row0 + 16 * warp + (c.lane >> 2);
    u32 q_slot = base + kQOffset + (q_ring.stage * WARPGROUPS + consumer) * kQBytes;
    u64 q_tile = matrix_descriptor(q_slot, 16, 1024);
    int block = tile.blocks - 1;
    // Last column each row may see, relative to this thread's first column of `block`.
    int limit[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int last = p.seq_k;
      if (CAUSAL) last = min(last, row + 8 * i + 1 + p.seq_k - p.seq_q);
      limit[i] = last - block * TILE_N - 2 * static_cast<int>(c.lane & 3);
    }
    int unmasked = CAUSAL ? max(0, row0 + 1 + p.seq_k - p.seq_q) / TILE_N : block;

    mbarrier_wait(base + kQFull + 8 * q_ring.stage, q_ring.phase);
    Softmax state = {{-kInfinity, -kInfinity}, {0.0f, 0.0f}};
    // The last block that this warpgroup's rows see: none past the end of the queries. Under PINGPONG all
    // warpgroups take every block, because each hands on the turn.
    int last_block = PINGPONG || row0 < p.seq_q ? block : -1;
    if (CAUSAL && !PINGPONG)
      last_block = min(last_block, (row0 + 63 + p.seq_k - p.seq_q) / TILE_N);
    if (INTRA_OVERLAP)
      overlapped_tile(c, q_tile, s, weights, o, state, limit, block, unmasked, last_block);
    else
      serial_tile(c, q_tile, s, weights, o, state, limit, block, unmasked, last_block);
    bool active = last_block >= 0;
    // Decode the tile once more instead of keeping four registers alive through the main loop.
    asm volatile("" : "+r"(index));
    tile = tile_at(index, p, m_blocks, rank);
    row0 = tile.m_block * kTileM + 64 * consumer;
    row = row0 + 16 * warp + (c.lane >> 2);
    float rescale[2], row_lse[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = quad_sum(state.row_sum[i]);
      rescale[i] = sum > 0.0f ? reciprocal_approx(sum) : 0.0f;
      row_lse[i] = (state.row_max[i] * c.scale_log2 + log2_approx(sum)) * kLn2;  // -inf if none
    }
    if ((c.lane & 3) == 0) {
      float* out = lse + (static_cast<u64>(tile.batch) * p.heads + tile.head) * p.seq_q;
      if (row < p.seq_q) out[row] = row_lse[0];
      if (row + 8 < p.seq_q) out[row + 8] = row_lse[1];
    }
    wgmma_wait<0>();
    pin_fragment(o);
    pin_fragment(weights);
    if (active) {
      release_kv(base + kVEmpty + 8 * c.v_ring.stage, c.lane);
      c.v_ring.advance();
    }
    scale_rows(o, rescale);
    stage_output(o, q_slot, warp, c.lane);
    fence_async_proxy();
    named_barrier_sync(5 + consumer, 128);
    if (c.issuer) {
      tma_store(o_map, q_slot, 0, row0, 0, tile.head, tile.batch);
      tma_store_commit();
      if (Q_STAGES == 1) {
        tma_store_wait_read<0>();
        mbarrier_arrive(base + kQEmpty);
      }
    }
    c.pending_q = base + kQEmpty + 8 * q_ring.stage;
    q_ring.advance();
  }
  if (c.issuer) tma_store_wait<0>();
}

// Cycles and nanoseconds that block 0's producer ran, summed over launches: the clock the kernel saw.
__device__ u64 clock_record[2];

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
    attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
              const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map,
              float* lse, int* counter, const __grid_constant__ Problem problem) {
  extern __shared__ __align__(1024) unsigned char shared[];
  u32 base = shared_address(shared);
  u32 warp = warp_index();
  u32 warpgroup = warpgroup_index();
  u32 rank = CLUSTER == 1 ? 0 : cluster_rank();
  int m_blocks = (problem.seq_q + CLUSTER * kTileM - 1) / (CLUSTER * kTileM);
  if (warp == 0 && elect_one()) {
    tensor_map_prefetch(q_map);
    tensor_map_prefetch(k_map);
    tensor_map_prefetch(v_map);
    tensor_map_prefetch(o_map);
    for (int i = 0; i < Q_STAGES; ++i) {
      mbarrier_init(base + kQFull + 8 * i, 1);
      mbarrier_init(base + kQEmpty + 8 * i, WARPGROUPS);
    }
    for (int i = 0; i < KV_STAGES; ++i) {
      mbarrier_init(base + kKFull + 8 * i, 1);
      mbarrier_init(base + kKEmpty + 8 * i, 4 * WARPGROUPS * CLUSTER);
      mbarrier_init(base + kVFull + 8 * i, 1);
      mbarrier_init(base + kVEmpty + 8 * i, 4 * WARPGROUPS * CLUSTER);
    }
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(base + kTileFull + 8 * i, 1);
      mbarrier_init(base + kTileEmpty + 8 * i, 4 * WARPGROUPS);
    }
    mbarrier_init_fence();
  }
  if (CLUSTER == 1) {
    __syncthreads();
  } else {
    cluster_arrive();
    cluster_wait();
  }
  if (warpgroup == 0) {
    register_decrease<kProducerRegisters>();
    if (warp == 0 && elect_one()) {
      u64 begin_cycles = clock_cycles(), begin_nanoseconds = global_nanoseconds();
      produce(base, q_map, k_map, v_map, problem, m_blocks, counter, rank);
      if (blockIdx.x == 0) {
        clock_record[0] += clock_cycles() - begin_cycles;
        clock_record[1] += global_nanoseconds() - begin_nanoseconds;
      }
    }
  } else {
    register_increase<kConsumerRegisters>();
    consume(base, warpgroup - 1, o_map, lse, problem, m_blocks, rank);
  }
  if (CLUSTER > 1) {  // no block leaves while another may still arrive on its barriers
    cluster_arrive();
    cluster_wait();
  }
}
