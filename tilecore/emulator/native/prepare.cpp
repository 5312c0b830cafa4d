// Fresh blocks, lanes and clocks for one unit. Buffers are reused from unit to unit.
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "internal.h"

namespace tc::emulator {

void Clocks::acquire(int warp, const std::vector<uint32_t>& from) {
  uint32_t* mine = row(warp);
  for (int i = 0; i < warps; ++i) mine[i] = mine[i] > from[i] ? mine[i] : from[i];
  has_news[size_t(warp)] = 1;
}

void Clocks::acquire(Lane& lane, const std::vector<uint32_t>& from) {
  acquire(lane.owner->clock_index(lane), from);
  lane.acquired.resize(size_t(warps), 0);
  for (int i = 0; i < warps; ++i)
    if (lane.acquired[size_t(i)] < from[size_t(i)]) lane.acquired[size_t(i)] = from[size_t(i)];
}

void Clocks::release(const Lane& lane, std::vector<uint32_t>& into) {
  const int warp = lane.owner->clock_index(lane);
  const uint32_t* known = common.data() + size_t(warp) * warps;
  into.resize(size_t(warps), 0);
  for (int i = 0; i < warps; ++i) {
    uint32_t newest = i == warp ? now(warp) : known[i];
    if (!lane.acquired.empty() && newest < lane.acquired[size_t(i)])
      newest = lane.acquired[size_t(i)];
    if (into[size_t(i)] < newest) into[size_t(i)] = newest;
  }
}

void Clocks::met(Block& block, int warp) {
  const int index = block.first_clock + warp;
  if (!has_news[size_t(index)]) return;
  has_news[size_t(index)] = 0;
  memcpy(common.data() + size_t(index) * warps, row(index), size_t(warps) * sizeof(uint32_t));
  const int width = block.worker->launch->config->lanes_per_warp;
  for (int i = warp * width; i < (warp + 1) * width && i < block.lane_count; ++i)
    block.lanes[i].acquired.clear();
}

void Clocks::reset(int count, uint32_t epoch) {
  warps = count;
  rows.assign(size_t(count) * count, epoch);
  common = rows;
  has_news.assign(size_t(count), 0);
}

void Shadow::resize(uint32_t new_bytes, int new_warps) {
  if (new_bytes > bytes) {
    bytes = new_bytes;
    written.assign(bytes, 0);
    flags.assign(bytes, 0);
    warps = 0;
  }
  if (new_warps > warps) {
    read.resize(size_t(new_warps));
    read_line.resize(size_t(new_warps));
    read_by_lanes.resize(size_t(new_warps));
    for (int warp = warps; warp < new_warps; ++warp) {
      read[size_t(warp)].assign(bytes, 0);
      read_line[size_t(warp)].assign(bytes / 16 + 1, 0);
      read_by_lanes[size_t(warp)].assign(bytes / 16 + 1, 0);
    }
    warps = new_warps;
    last_read.assign(size_t(warps), 0);
  }
}

static std::atomic<uint64_t> runs{0};

static void place_block(Block& block, const LaunchConfig& config, int64_t linear, int rank) {
  int64_t rest = linear;
  for (int axis = 0; axis < 3; ++axis) {
    block.place.block[axis] = int32_t(rest % config.grid[axis]);
    rest /= config.grid[axis];
    block.place.grid[axis] = config.grid[axis];
    block.place.shape[axis] = config.shape[axis];
    block.place.cluster[axis] = config.cluster[axis];
  }
  block.place.run = ++runs;
  block.place.rank = rank;
  block.place.lanes = config.shape[0] * config.shape[1] * config.shape[2];
}

// Linear index of block `rank` of cluster `cluster` (clusters are boxes of the grid).
static int64_t block_of_cluster(const LaunchConfig& config, int64_t cluster, int rank) {
  int64_t linear = 0, step = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t clusters = config.grid[axis] / config.cluster[axis];
    const int64_t at = cluster % clusters * config.cluster[axis] + rank % config.cluster[axis];
    cluster /= clusters;
    rank /= config.cluster[axis];
    linear += at * step;
    step *= config.grid[axis];
  }
  return linear;
}

static void place_lanes(Worker& worker, Block& block, size_t first_lane) {
  const LaunchConfig& config = *worker.launch->config;
  block.lanes = &worker.lanes[first_lane];
  block.heads = &worker.heads[first_lane];
  for (int i = 0; i < block.lane_count; ++i) {
    Lane& lane = block.lanes[i];
    lane.copies.clear();
    lane.acquired.clear();
    lane = Lane{};
    lane.patience = 100000;
    lane.index = i;
    lane.x = i % config.shape[0];
    lane.y = i / config.shape[0] % config.shape[1];
    lane.z = i / config.shape[0] / config.shape[1];
    lane.warp = i / config.lanes_per_warp;
    lane.in_warp = i % config.lanes_per_warp;
    lane.place = &block.place;
    lane.owner = &block;
    block.heads[i] = &lane;
  }
}

static void prepare_block(Worker& worker, Block& block, size_t index, Cluster& cluster) {
  const LaunchConfig& config = *worker.launch->config;
  const int width = config.lanes_per_warp;
  block.worker = &worker;
  block.lane_count = block.place.lanes;
  block.warp_count = (block.lane_count + width - 1) / width;
  block.cluster = &cluster;
  block.clocks = &cluster.clocks;
  block.published = &cluster.published;
  block.first_clock = block.place.rank * block.warp_count;
  block.birth = worker.epoch + 1;
  if (worker.memories.size() <= index) {
    worker.memories.push_back(static_cast<uint8_t*>(aligned_alloc(1024, worker.memory_bytes)));
    worker.shadows.emplace_back();
  }
  worker.shadows[index].resize(uint32_t(worker.memory_bytes), block.warp_count * cluster.blocks);
  block.memory = worker.memories[index];
  block.shadow = &worker.shadows[index];
  memset(block.memory, 0xff, size_t(config.shared_bytes));
  memset(block.shadow->flags.data(), 0, size_t(config.shared_bytes));
  std::fill(block.shadow->last_read.begin(), block.shadow->last_read.end(), 0u);
  block.banks.resize(size_t(block.warp_count));
  block.warps.assign(size_t(block.warp_count), Rendezvous{});
  for (int warp = 0; warp < block.warp_count; ++warp) {
    Rendezvous& meeting = block.warps[size_t(warp)];
    meeting.first = warp * width;
    meeting.expected = block.lane_count - meeting.first < width ? block.lane_count - meeting.first
                                                                : width;
    meeting.operands.resize(size_t(meeting.expected));
  }
  block.groups.clear();
  block.barriers.assign(16, NamedBarrier{});
  block.transactions.clear();
  block.flag_clocks.clear();
  block.visits.assign(size_t(cluster.clocks.warps), Visit{});
}

void prepare_blocks(Worker& worker, int64_t unit) {
  const LaunchConfig& config = *worker.launch->config;
  const int cluster_blocks = config.cluster[0] * config.cluster[1] * config.cluster[2];
  const int64_t all_blocks = int64_t(config.grid[0]) * config.grid[1] * config.grid[2];
  const int64_t clusters = config.resident ? all_blocks / cluster_blocks : 1;
  const size_t blocks = size_t(clusters * cluster_blocks);
  const size_t lanes = size_t(config.shape[0]) * config.shape[1] * config.shape[2];
  worker.random_state = (config.seed + 1) * 0x9e3779b97f4a7c15ull ^ uint64_t(unit + 1) << 20;
  worker.random();
  const size_t memory_bytes = (size_t(config.shared_bytes) + 1023) / 1024 * 1024 + 1024;
  if (worker.epoch > last_clock / 2 || memory_bytes > worker.memory_bytes) {
    worker.epoch = 1;  // stamps would overflow, or are too few: forget all of them
    worker.shadows.clear();
    for (uint8_t* memory : worker.memories) free(memory);
    worker.memories.clear();
    worker.memory_bytes = memory_bytes;
  }
  worker.lanes.resize(blocks * lanes);
  worker.heads.resize(blocks * lanes);
  worker.blocks.resize(blocks);
  worker.clusters.resize(size_t(clusters));
  worker.shadows.reserve(blocks);  // blocks keep pointers to them
  worker.stacks.reserve(blocks * lanes, 768 * 1024);  // pages that no frame touches cost nothing
  const int warps = (int(lanes) + config.lanes_per_warp - 1) / config.lanes_per_warp;
  for (int64_t c = 0; c < clusters; ++c) {
    Cluster& cluster = worker.clusters[size_t(c)];
    cluster = Cluster{};
    cluster.first_block = int(c) * cluster_blocks;
    cluster.blocks = cluster_blocks;
    cluster.clocks.reset(warps * cluster_blocks, worker.epoch);
    const size_t count = size_t(cluster.clocks.warps);
    cluster.published.assign(count, worker.epoch);
    for (size_t warp = 0; warp < count; ++warp) cluster.clocks.advance(int(warp));
    for (int rank = 0; rank < cluster_blocks; ++rank) {
      const size_t index = size_t(c * cluster_blocks + rank);
      const int64_t number = config.resident ? c : unit;
      Block& block = worker.blocks[index];
      place_block(block, config, block_of_cluster(config, number, rank), rank);
      prepare_block(worker, block, index, cluster);
      place_lanes(worker, block, index * lanes);
    }
  }
}

}  // namespace tc::emulator
