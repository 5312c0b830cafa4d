// Configuration, shared-memory plan and tile order of attention_fwd.cu.
#pragma once
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
