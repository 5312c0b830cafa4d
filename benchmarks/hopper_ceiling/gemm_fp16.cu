// C[M,N] = A[M,K] * B, 16-bit operands and result, float32 accumulation: the schedule that a generated
// Hopper GEMM has to reproduce. A is row-major; B is [N,K] (K-major) or, with B_MN_MAJOR, [K,N].
//
// One producer warp, WARPGROUPS consumer warpgroups of 64 x TILE_N each, clusters of CLUSTER blocks
// along M that multicast the shared B tile, persistent grid, TMA-store epilogue.
// Configuration (preprocessor): ELEMENT, TILE_N, STAGES, CLUSTER, WARPGROUPS, RASTER_ROWS, B_MN_MAJOR,
// STORE_PANELS.
#include "hopper.cuh"
#include "wgmma.cuh"

#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef TILE_N
#define TILE_N 256
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER
#define CLUSTER 2
#endif
#ifndef RASTER_ROWS
#define RASTER_ROWS 8
#endif
#ifndef STORE_PANELS
#define STORE_PANELS 2
#endif
#ifndef B_MN_MAJOR
#define B_MN_MAJOR 0
#endif
#ifndef DEFER_STORE
#define DEFER_STORE 1
#endif
#ifndef A_POLICY
#define A_POLICY kEvictNormal
#endif
#ifndef B_POLICY
#define B_POLICY kEvictNormal
#endif
#ifndef ELEMENT
#define ELEMENT Float16
#endif

using namespace tc;

constexpr int kTileM = 64 * WARPGROUPS;
constexpr int kTileK = 64;
constexpr int kPanelColumns = 64;                       // 128 bytes of 16-bit elements
constexpr u32 kABytes = kTileM * kTileK * 2;
constexpr u32 kBBytes = TILE_N * kTileK * 2;
constexpr u32 kStoreBytes = STORE_PANELS * 64 * 128;    // staging of one consumer warpgroup
constexpr u32 kAOffset = 0;
constexpr u32 kBOffset = kAOffset + STAGES * kABytes;
constexpr u32 kStoreOffset = kBOffset + STAGES * kBBytes;
constexpr u32 kFullOffset = kStoreOffset + WARPGROUPS * kStoreBytes;
constexpr u32 kEmptyOffset = kFullOffset + 8 * STAGES;
constexpr int kPanels = TILE_N / kPanelColumns;
static_assert(kEmptyOffset + 8 * STAGES <= 232448, "shared memory of one block");
static_assert(TILE_N % kPanelColumns == 0 && kPanels % STORE_PANELS == 0, "store rounds cover the tile");

// Position in the ring of stages; `phase` is the parity that the next wait on a full barrier expects.
struct PipelineState {
  int stage = 0;
  u32 phase = 0;
  TC_DEVICE void advance() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
};

struct TileCoordinate {
  int m;  // first row of this block's tile
  int n;
};

// Walks the grid of (CLUSTER * kTileM) x TILE_N cluster tiles in bands of RASTER_ROWS rows, so that the
// tiles in flight form a compact rectangle whose operands stay in L2.
TC_DEVICE TileCoordinate tile_coordinate(int tile, int rows, int columns, u32 rank) {
  int band_tiles = RASTER_ROWS * columns;
  int band = tile / band_tiles;
  int within = tile - band * band_tiles;
  int band_rows = min(RASTER_ROWS, rows - band * RASTER_ROWS);
  int column = within / band_rows;
  int row = band * RASTER_ROWS + within - column * band_rows;
#ifdef RASTER_SNAKE
  if (band & 1) column = columns - 1 - column;
#endif
  return {(row * CLUSTER + static_cast<int>(rank)) * kTileM, column * TILE_N};
}

TC_DEVICE void load_stage(u32 base, const TensorMap& a_map, const TensorMap& b_map, int stage,
                          TileCoordinate at, int k, u32 rank) {
  u32 full = base + kFullOffset + 8 * stage;
  u32 b_tile = base + kBOffset + stage * kBBytes;
  mbarrier_arrive_expect_bytes(full, kABytes + kBBytes);
  tma_load(base + kAOffset + stage * kABytes, a_map, full, A_POLICY, k, at.m);
#if CLUSTER == 1
#if B_MN_MAJOR
  tma_load(b_tile, b_map, full, B_POLICY, 0, k, at.n / kPanelColumns);
#else
  tma_load(b_tile, b_map, full, B_POLICY, k, at.n);
#endif
#else
  constexpr u16 kEveryBlock = (1 << CLUSTER) - 1;
  u32 part = b_tile + rank * (kBBytes / CLUSTER);
#if B_MN_MAJOR
  int panel = at.n / kPanelColumns + rank * (kPanels / CLUSTER);
  tma_load_multicast(part, b_map, full, B_POLICY, kEveryBlock, 0, k, panel);
#else
  tma_load_multicast(part, b_map, full, B_POLICY, kEveryBlock, k, at.n + rank * (TILE_N / CLUSTER));
#endif
#endif
}

// One stage: four k-steps of 64 x TILE_N x 16.
TC_DEVICE void multiply_stage(float (&acc)[TILE_N / 2], u64 a, u64 b, int accumulate) {
#pragma unroll
  for (int step = 0; step < kTileK / 16; ++step) {
    constexpr u32 kBStep = B_MN_MAJOR ? 2048 : 32;
    WGMMA<0, B_MN_MAJOR>(acc, descriptor_advance(a, 32 * step), descriptor_advance(b, kBStep * step),
                         step > 0 ? 1 : accumulate);
  }
}

TC_DEVICE void release_stage(u32 base, int stage, u32 lane) {
  u32 empty = base + kEmptyOffset + 8 * stage;
#if CLUSTER == 1
  if (lane == 0) mbarrier_arrive(empty);
#else
  if (lane < CLUSTER) mbarrier_arrive_remote(empty, lane);
#endif
}

constexpr int kRounds = kPanels / STORE_PANELS;

// The rounded tile of one warpgroup on its way to global memory, STORE_PANELS panels a round.
struct PendingStore {
  u32 packed[TILE_N / 4];
  u32 row_base, chunk_of_lane, staging, barrier_id;
  bool issuer;
  int m, n;
};

TC_DEVICE void round_tile(const float (&acc)[TILE_N / 2], PendingStore& store) {
#pragma unroll
  for (int i = 0; i < TILE_N / 4; ++i)
    store.packed[i] = pack_16bit<ELEMENT>(acc[2 * i], acc[2 * i + 1]);
}

template <int Round>
TC_DEVICE void store_round(const PendingStore& store, const TensorMap& c_map) {
  if (store.issuer) tma_store_wait_read<0>();
  named_barrier_sync(store.barrier_id, 128);
#pragma unroll
  for (int panel = 0; panel < STORE_PANELS; ++panel) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const u32* p = &store.packed[(Round * STORE_PANELS + panel) * 16 + pair * 4];
      u32 chunk = (2 * pair + store.chunk_of_lane) ^ ((store.row_base >> 7) & 7);
      store_matrix_x4(store.row_base + panel * 8192 + chunk * 16, p[0], p[1], p[2], p[3]);
    }
  }
  fence_async_proxy();
  named_barrier_sync(store.barrier_id, 128);
  if (store.issuer) {
#pragma unroll
    for (int panel = 0; panel < STORE_PANELS; ++panel)
      tma_store(c_map, store.staging + panel * 8192,
                store.n + (Round * STORE_PANELS + panel) * kPanelColumns, store.m);
    tma_store_commit();
  }
}

template <int Round>
TC_DEVICE void store_rounds(const PendingStore& store, const TensorMap& c_map) {
  store_round<Round>(store, c_map);
  if constexpr (Round + 1 < kRounds) store_rounds<Round + 1>(store, c_map);
}

struct Consumer {
  u32 base, lane;
  u64 a_base, b_base;
  PipelineState state;
  int previous;  // stage whose products are in flight
};

TC_DEVICE void issue_stage(Consumer& c, float (&acc)[TILE_N / 2], int accumulate) {
  mbarrier_wait(c.base + kFullOffset + 8 * c.state.stage, c.state.phase);
  pin_fragment(acc);
  wgmma_fence();
  multiply_stage(acc, descriptor_advance(c.a_base, c.state.stage * kABytes),
                 descriptor_advance(c.b_base, c.state.stage * kBBytes), accumulate);
  wgmma_commit();
}

// Issue one stage; when it is the only one in flight, release the one before.
TC_DEVICE void mainloop_step(Consumer& c, float (&acc)[TILE_N / 2]) {
  issue_stage(c, acc, 1);
  wgmma_wait<1>();
  pin_fragment(acc);
  release_stage(c.base, c.previous, c.lane);
  c.previous = c.state.stage;
  c.state.advance();
}

// Round r of the previous tile's store runs under the products of this tile's step r; by then the copy
// engine has read what round r - 1 staged.
template <int Round>
TC_DEVICE void store_under_steps(Consumer& c, float (&acc)[TILE_N / 2], const PendingStore& store,
                                 const TensorMap& c_map, int& step, int k_steps) {
  store_round<Round>(store, c_map);
  if constexpr (Round + 1 < kRounds) {
    if (step < k_steps) {
      mainloop_step(c, acc);
      ++step;
    }
    store_under_steps<Round + 1>(c, acc, store, c_map, step, k_steps);
  }
}

TC_DEVICE void consume(u32 base, u32 consumer, const TensorMap& c_map, int rows, int columns,
                       int first_tile, int tile_stride, int k_steps, u32 rank) {
  u32 warp = warp_index() % 4;
  Consumer c;
  c.base = base;
  c.lane = lane_index();
  c.a_base = matrix_descriptor(base + kAOffset + consumer * 64 * 128, 16, 1024);
  c.b_base = matrix_descriptor(base + kBOffset, B_MN_MAJOR ? 64 * 128 : 16, 1024);
  c.previous = 0;
  PendingStore store;
  store.staging = base + kStoreOffset + consumer * kStoreBytes;
  store.row_base = store.staging + (16 * warp + (c.lane & 15)) * 128;
  store.chunk_of_lane = c.lane >> 4;
  store.barrier_id = 1 + consumer;
  store.issuer = warp == 0 && elect_one();
  bool pending = false;
  float acc[TILE_N / 2];
  for (int tile = first_tile; tile < rows * columns; tile += tile_stride) {
    issue_stage(c, acc, 0);
    c.previous = c.state.stage;
    c.state.advance();
    int step = 1;
    if (DEFER_STORE && pending) store_under_steps<0>(c, acc, store, c_map, step, k_steps);
#pragma unroll 1
    for (; step < k_steps; ++step) mainloop_step(c, acc);
    wgmma_wait<0>();
    pin_fragment(acc);
    release_stage(c.base, c.previous, c.lane);
    TileCoordinate at = tile_coordinate(tile, rows, columns, rank);
    store.m = at.m + consumer * 64;
    store.n = at.n;
    round_tile(acc, store);
    pending = true;
    if (!DEFER_STORE) store_rounds<0>(store, c_map);
  }
  if (DEFER_STORE && pending) store_rounds<0>(store, c_map);
  if (store.issuer) tma_store_wait<0>();
}

// Cycles and nanoseconds that block 0 ran, summed over launches: the clock the kernel saw.
__device__ u64 clock_record[2];

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128 * (WARPGROUPS + 1), 1)
    gemm(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
         const __grid_constant__ TensorMap c_map, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char shared[];
  u32 base = shared_address(shared);
  u64 begin_cycles = clock_cycles(), begin_nanoseconds = global_nanoseconds();
  u32 warp = warp_index();
  u32 warpgroup = warpgroup_index();
  u32 rank = CLUSTER == 1 ? 0 : cluster_rank();
  if (warp == 0 && elect_one()) {
    tensor_map_prefetch(a_map);
    tensor_map_prefetch(b_map);
    tensor_map_prefetch(c_map);
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(base + kFullOffset + 8 * stage, 1);
      mbarrier_init(base + kEmptyOffset + 8 * stage, CLUSTER * WARPGROUPS * 4);
    }
    mbarrier_init_fence();
  }
  if (CLUSTER > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  int rows = (m + CLUSTER * kTileM - 1) / (CLUSTER * kTileM);
  int columns = (n + TILE_N - 1) / TILE_N;
  int tiles = rows * columns;
  int first_tile = blockIdx.x / CLUSTER;
  int tile_stride = gridDim.x / CLUSTER;
  int k_steps = (k + kTileK - 1) / kTileK;

  if (warpgroup == 0) {
    register_decrease<WARPGROUPS == 3 ? 32 : 40>();
    if (warp == 0 && elect_one()) {
      PipelineState state;
      for (int tile = first_tile; tile < tiles; tile += tile_stride) {
        TileCoordinate at = tile_coordinate(tile, rows, columns, rank);
        for (int step = 0; step < k_steps; ++step) {
          mbarrier_wait(base + kEmptyOffset + 8 * state.stage, state.phase ^ 1);
          load_stage(base, a_map, b_map, state.stage, at, step * kTileK, rank);
          state.advance();
        }
      }
    }
  } else {
    register_increase<WARPGROUPS == 3 ? 160 : 232>();
    consume(base, warpgroup - 1, c_map, rows, columns, first_tile, tile_stride, k_steps, rank);
  }
  if (CLUSTER > 1) {
    cluster_arrive();
    cluster_wait();
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    clock_record[0] += clock_cycles() - begin_cycles;
    clock_record[1] += global_nanoseconds() - begin_nanoseconds;
  }
}
