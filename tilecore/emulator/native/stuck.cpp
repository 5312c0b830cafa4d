// What to say when no lane can run.
#include <stdio.h>

#include "internal.h"

namespace tc::emulator {

static std::string describe_wait(const Lane& lane) {
  char text[160];
  switch (lane.wait) {
    case Wait::barrier:
      snprintf(text, sizeof text, "barrier %d (%d of %d arrived)", lane.wait_detail,
               lane.owner->barriers[size_t(lane.wait_detail)].arrived,
               lane.wait_detail == 0 ? lane.owner->lane_count
                                     : lane.owner->barriers[size_t(lane.wait_detail)].expected);
      return text;
    case Wait::collective: {
      const Rendezvous* meeting = &lane.owner->warps[size_t(lane.warp)];
      for (const auto& [size, groups] : lane.owner->groups) {
        const Rendezvous& group = groups[size_t(lane.index / size)];
        if (group.arrived > 0 && group.text_line == lane.wait_text_line) meeting = &group;
      }
      snprintf(text, sizeof text, "%s (%d of %d lanes)", meeting->kind->name, meeting->arrived,
               meeting->expected);
      return text;
    }
    case Wait::transaction: {
      for (const TransactionBarrier& barrier : lane.owner->transactions)
        if (barrier.offset == lane.wait_detail) {
          snprintf(text, sizeof text,
                   "transaction barrier at shared byte %d, parity %d (phase %u: %d of %d arrivals and "
                   "%lld bytes missing)",
                   barrier.offset, lane.wait_parity, barrier.phase, barrier.pending,
                   barrier.expected, static_cast<long long>(barrier.bytes));
          return text;
        }
      return "an invalidated transaction barrier";
    }
    case Wait::cluster:
      return "cluster barrier";
    default:
      return "nothing";
  }
}

static bool same_wait(const Lane& a, const Lane& b) {
  return a.wait == b.wait && a.wait_line == b.wait_line && a.wait_text_line == b.wait_text_line &&
         a.wait_detail == b.wait_detail;
}

// True when lanes that the wait needs have returned: then it is divergence, not a cycle.
static bool partner_returned(const Lane& lane) {
  const Block& block = *lane.owner;
  if (lane.wait == Wait::collective) {
    const Rendezvous& warp = block.warps[size_t(lane.warp)];
    for (int i = 0; i < warp.expected; ++i)
      if (block.lanes[warp.first + i].returned) return true;
  }
  if (lane.wait == Wait::barrier && lane.wait_detail == 0)
    for (int i = 0; i < block.lane_count; ++i)
      if (block.lanes[i].returned) return true;
  return false;
}

static void report_block(Block& block) {
  std::vector<const Lane*> groups;  // one lane of each kind of wait
  int returned = 0;
  for (int i = 0; i < block.lane_count; ++i) {
    const Lane& lane = block.lanes[i];
    if (lane.returned) {
      ++returned;
      continue;
    }
    bool known = false;
    for (const Lane* group : groups) known = known || same_wait(*group, lane);
    if (!known) groups.push_back(&lane);
  }
  std::string others;
  for (const Lane* group : groups) {
    char text[96];
    snprintf(text, sizeof text, "; lane %d (line %d) waits for ", group->index, group->wait_line);
    others += text + describe_wait(*group);
  }
  for (const Lane* group : groups)
    for (int i = 0; i < block.lane_count; ++i) {
      Lane& lane = block.lanes[i];
      if (lane.returned || !same_wait(*group, lane)) continue;
      Fault kind = Fault::deadlock;
      if (partner_returned(lane))
        kind = lane.wait == Wait::barrier ? Fault::barrier_divergence : Fault::warp_divergence;
      report(lane, kind, lane.wait_text_line, 0, "no lane can run; %d of %d lanes returned%s",
             returned, block.lane_count, others.c_str());
    }
}

void report_stuck(Worker& worker) {
  for (Block& block : worker.blocks)
    for (int i = 0; i < block.lane_count; ++i)
      if (!block.lanes[i].returned) {
        report_block(block);
        break;
      }
}

}  // namespace tc::emulator
