// Lanes that meet: barriers of the block, of part of it and of the cluster, and functions that a
// warp (or several) executes together.
#include "internal.h"

namespace tc::emulator {

// The lanes of a warp stand at one place: accesses before it and after it are ordered.
void warp_met(Block& block, int warp) {
  block.clocks->met(block, warp);
  block.clocks->advance(block.first_clock + warp);
  flush_banks(block, warp);
}

// ---------------------------------------------------------------- functions of a whole warp
static Rendezvous& rendezvous_of(Block& block, const Lane& lane, int size, int width) {
  if (size == 0 || size == width) return block.warps[size_t(lane.warp)];
  std::vector<Rendezvous>& groups = block.groups[size];
  if (groups.empty()) {
    for (int first = 0; first < block.lane_count; first += size) {
      Rendezvous meeting;
      meeting.first = first;
      meeting.expected = block.lane_count - first < size ? block.lane_count - first : size;
      meeting.operands.resize(size_t(meeting.expected));
      groups.push_back(meeting);
    }
  }
  return groups[size_t(lane.index / size)];
}

void collective(const CollectiveKind& kind, void* operands, int text_line) {
  Lane& lane = self();
  Block& block = *lane.owner;
  const int width = block.worker->launch->config->lanes_per_warp;
  Rendezvous& meeting = rendezvous_of(block, lane, kind.lanes, width);
  if (meeting.arrived == 0) {
    meeting.kind = &kind;
    meeting.text_line = text_line;
    meeting.line = lane.line;
  } else if (meeting.kind != &kind || meeting.text_line != text_line) {
    report(lane, Fault::warp_divergence, text_line, meeting.line,
           "lane %d executes %s while %d lanes of its group wait in %s (text line %d)", lane.index,
           kind.name, meeting.arrived, meeting.kind->name, meeting.text_line);
    abandon();
  }
  meeting.operands[size_t(lane.index - meeting.first)] = operands;
  if (++meeting.arrived < meeting.expected) {
    sleep(lane, Wait::collective, text_line, meeting.first);
    return;
  }
  meeting.arrived = 0;
  for (int i = 0; i < meeting.expected; i += width)
    warp_met(block, (meeting.first + i) / width);
  kind.body({block.heads + meeting.first, meeting.operands.data(), meeting.expected, text_line});
  for (int i = 0; i < meeting.expected; i += width)
    warp_met(block, (meeting.first + i) / width);
  Lane* others[1024];
  int count = 0;
  for (int i = 0; i < meeting.expected; ++i)
    if (Lane* other = &block.lanes[meeting.first + i]; other != &lane) others[count++] = other;
  block.worker->wake(others, count);
}

// ---------------------------------------------------------------- barriers
// Everything that the participants did is known to all of them afterwards.
static void finish_barrier(Block& block, NamedBarrier& barrier, Lane* last) {
  auto& waiting = barrier.waiting;
  if (last != nullptr) waiting.push_back(last);
  bool seen[1024] = {};
  for (const Lane* lane : waiting) {
    if (seen[lane->warp]) continue;
    seen[lane->warp] = true;
    block.clocks->acquire(block.clock_index(*lane), barrier.clocks);
    warp_met(block, lane->warp);
  }
  if (last != nullptr) waiting.pop_back();
  block.worker->wake(waiting.data(), int(waiting.size()));
  waiting.clear();
  barrier.arrived = 0;
  barrier.clocks.clear();
}

void barrier(int text_line) {
  Lane& lane = self();
  Block& block = *lane.owner;
  NamedBarrier& all = block.barriers[0];
  if (all.arrived == 0) {
    all.text_line = text_line;
    all.line = lane.line;
  } else if (all.text_line != text_line) {
    report(lane, Fault::barrier_divergence, text_line, all.line,
           "lane %d is at a barrier while %d lanes wait at another one (text line %d)", lane.index,
           all.arrived, all.text_line);
    abandon();
  }
  block.clocks->release(lane, all.clocks);
  if (++all.arrived == block.lane_count) {
    finish_barrier(block, all, &lane);
    return;
  }
  all.waiting.push_back(&lane);
  sleep(lane, Wait::barrier, text_line, 0);
}

void named_barrier(int id, int lanes, bool wait, int text_line) {
  Lane& lane = self();
  Block& block = *lane.owner;
  const int width = block.worker->launch->config->lanes_per_warp;
  if (id < 0 || id > 15 || lanes <= 0 || lanes % width != 0 || lanes > block.lane_count) {
    report(lane, Fault::barrier_misuse, text_line, 0,
           "barrier %d among %d lanes: the id must be 0 to 15, the count a multiple of %d up to %d",
           id, lanes, width, block.lane_count);
    abandon();
  }
  NamedBarrier& named = block.barriers[size_t(id)];
  if (named.arrived == 0) {
    named.expected = lanes;
    named.line = lane.line;
    named.text_line = text_line;
  } else if (named.expected != lanes) {
    report(lane, Fault::barrier_misuse, text_line, named.line,
           "barrier %d among %d lanes, while others wait for it among %d", id, lanes,
           named.expected);
    abandon();
  }
  const int clock = block.clock_index(lane);
  block.clocks->release(lane, named.clocks);
  if (!wait) block.clocks->advance(clock);
  if (++named.arrived == lanes) {
    finish_barrier(block, named, wait ? &lane : nullptr);
    return;
  }
  if (!wait) return;
  named.waiting.push_back(&lane);
  sleep(lane, Wait::barrier, text_line, id);
}

void cluster_barrier_arrive(int text_line) {
  Lane& lane = self();
  Block& block = *lane.owner;
  Cluster& cluster = *block.cluster;
  cluster.text_line = text_line;
  block.clocks->release(lane, cluster.joined);
  block.clocks->advance(block.clock_index(lane));
  lane.wait_parity = cluster.generation;
  if (++cluster.arrived < cluster.blocks * block.lane_count) return;
  cluster.arrived = 0;
  ++cluster.generation;
  cluster.completed = cluster.joined;
  cluster.joined.clear();
  for (Lane* waiter : cluster.waiting)
    waiter->owner->clocks->acquire(*waiter, cluster.completed);
  block.worker->wake(cluster.waiting.data(), int(cluster.waiting.size()));
  cluster.waiting.clear();
}

void cluster_barrier_wait(int text_line) {
  Lane& lane = self();
  Block& block = *lane.owner;
  Cluster& cluster = *block.cluster;
  if (cluster.generation != lane.wait_parity) {
    block.clocks->acquire(lane, cluster.completed);
    return;
  }
  cluster.waiting.push_back(&lane);
  sleep(lane, Wait::cluster, text_line, 0);
}

}  // namespace tc::emulator
