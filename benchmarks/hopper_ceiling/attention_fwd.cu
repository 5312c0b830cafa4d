// Attention forward, 16-bit, float32 softmax and accumulation: the schedule that a generated Hopper
// attention has to reproduce. O = softmax(Q K^T * scale) V per (batch, head), and LSE.
//
// One producer warp; WARPGROUPS consumer warpgroups of 64 query rows each. Inside a warpgroup the
// softmax of block j runs under P(j+1) V and the next Q K^T; across warpgroups named barriers hand the
// tensor cores round (PINGPONG), so that one softmax runs under the other's products. Persistent grid;
// causal tiles are taken longest first from an atomic counter.
// Configuration (preprocessor): ELEMENT, HEAD_DIM, TILE_N, WARPGROUPS, CAUSAL, Q_STAGES, KV_STAGES,
// INTRA_OVERLAP, PINGPONG, LAZY_RESCALE, DYNAMIC, WGMMA_QK, WGMMA_PV.
#include "attention_config.cuh"
#include "attention_mainloop.cuh"

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
