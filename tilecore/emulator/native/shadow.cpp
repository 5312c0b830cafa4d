// Checks of shared memory: bounds, alignment, bytes never written, bytes in flight, and races.
#include <stdio.h>
#include <string.h>

#include "internal.h"

namespace tc::emulator {

struct Access {
  Block& block;  // that owns the memory
  Lane& lane;
  int mine;       // warp of the lane in the cluster
  uint32_t now;   // its clock
  const uint32_t* known;
  SharedPlace place;
  uint32_t bytes;
  int text_line;
  size_t at() const { return size_t(place.offset); }
};

static Access make_access(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head,
                          bool is_issued_now = true) {
  Lane& lane = as_lane(head);
  const int mine = lane.owner->clock_index(lane);
  const uint32_t* known = lane.owner->clocks->row(mine);
  Block& owner = owner_of(lane, place.rank);
  if (is_issued_now) note_visit(owner, lane, known[mine], text_line);
  return {owner, lane, mine, known[mine], known, place, bytes, text_line};
}

static bool is_inside(const Access& a) {
  const SharedPlace& p = a.place;
  const int64_t end = int64_t(p.offset) + a.bytes;
  const int32_t size = a.block.worker->launch->config->shared_bytes;
  if (p.offset < p.begin || end > p.end || p.offset < 0 || end > size) {
    report(a.lane, Fault::shared_out_of_bounds, a.text_line, 0,
           "%u bytes at byte %d of a buffer of %d bytes (shared bytes %d to %d; the block has %d)",
           a.bytes, p.offset - p.begin, p.end - p.begin, p.begin, p.end, size);
    return false;
  }
  const uint32_t unit = a.bytes & (0 - a.bytes);
  const uint32_t alignment = unit > 16 ? 16 : unit;
  if (uint32_t(p.offset) % alignment != 0) {
    report(a.lane, Fault::shared_misaligned, a.text_line, 0,
           "%u bytes at shared byte %d, which is not a multiple of %u", a.bytes, p.offset,
           alignment);
    return false;
  }
  return true;
}

static bool check_flags(const Access& a, bool writes) {
  const uint8_t* flags = &a.block.shadow->flags[a.at()];
  uint8_t any = 0;
  for (uint32_t i = 0; i < a.bytes; ++i) any |= flags[i];
  if (any == 0) return true;
  if (any & in_flight) {
    report(a.lane, Fault::shared_in_flight, a.text_line,
           Stamp{a.block.shadow->written[a.at()]}.line(),
           "%s of shared byte %d, to which an asynchronous copy is still under way",
           writes ? "write" : "read", a.place.offset);
    return false;
  }
  if (any & barrier_object) {
    report(a.lane, Fault::barrier_misuse, a.text_line, 0,
           "plain %s of shared byte %d, which holds a transaction barrier",
           writes ? "write" : "read", a.place.offset);
    return false;
  }
  if (writes) {
    report(a.lane, Fault::shared_in_flight, a.text_line, 0,
           "write of shared byte %d, which an asynchronous agent may still be reading",
           a.place.offset);
    return false;
  }
  return true;
}

static void report_race(const Access& a, uint32_t byte, const char* what, int other_lane,
                        int other_warp, int other_line) {
  const bool same_warp = other_warp == a.mine;
  char who[48];
  if (other_lane >= agent_lane) snprintf(who, sizeof who, "warp %d", other_warp);
  else snprintf(who, sizeof who, "lane %d of warp %d", other_lane, other_warp);
  report(a.lane, Fault::shared_race, a.text_line, other_line,
         "%s of shared byte %d (byte %d of its buffer) by lane %d of warp %d against %s, with no "
         "%s between",
         what, a.place.offset + int(byte), a.place.offset + int(byte) - a.place.begin,
         a.lane.in_warp, a.mine, who, same_warp ? "warp-wide function" : "barrier");
}

// True when the write behind `stamp` happened before this access.
static bool is_ordered_after(const Access& a, Stamp stamp) {
  if (stamp.warp() != a.mine) return a.known[stamp.warp()] >= stamp.clock();
  return stamp.clock() < a.now || stamp.lane() == a.lane.in_warp || stamp.lane() == agent_lane;
}

// The bytes, or null where the access is illegal.
static const void* read(Access& a) {
  const SharedPlace& place = a.place;
  const uint32_t bytes = a.bytes;
  if (!is_inside(a) || !check_flags(a, false)) return nullptr;
  Shadow& shadow = *a.block.shadow;
  const uint64_t* written = &shadow.written[a.at()];
  for (uint32_t i = 0; i < bytes; ++i) {
    if (i > 0 && written[i] == written[i - 1]) continue;
    const Stamp stamp{written[i]};
    if (stamp.clock() < a.block.birth) {
      report(a.lane, Fault::shared_uninitialised, a.text_line, 0,
             "read of shared byte %d (byte %d of its buffer), which this block never wrote",
             place.offset + int(i), place.offset + int(i) - place.begin);
      break;
    }
    if (is_ordered_after(a, stamp)) continue;
    report_race(a, i, "read", stamp.lane(), stamp.warp(), stamp.line());
    break;
  }
  uint32_t* read = &shadow.read[size_t(a.mine)][a.at()];
  const uint32_t fresh = a.now << 7 | uint32_t(a.lane.in_warp);
  const uint32_t shared_by_many = a.now << 7 | many_lanes;
  for (uint32_t i = 0; i < bytes; ++i)
    read[i] = (read[i] >> 7) == a.now && read[i] != fresh ? shared_by_many : fresh;
  shadow.read_line[size_t(a.mine)][a.at() / 16] = a.lane.line;
  shadow.last_read[size_t(a.mine)] = a.now;
  count_banks(a.block, a.lane, place.offset, bytes, false, a.text_line);
  return a.block.memory + place.offset;
}

const void* shared_read(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  const void* data = read(a);
  if (data == nullptr) return poison();
  std::vector<uint32_t>& by_lanes = a.block.shadow->read_by_lanes[size_t(a.mine)];
  for (size_t unit = a.at() / 16; unit <= (a.at() + bytes - 1) / 16; ++unit) by_lanes[unit] = a.now;
  return data;
}

// Reads that the coming write would disturb.
static void check_readers(const Access& a) {
  const Shadow& shadow = *a.block.shadow;
  for (int warp = 0; warp < a.block.clocks->warps; ++warp) {
    const bool same = warp == a.mine;
    const uint32_t last = shadow.last_read[size_t(warp)];
    if (last == 0 || (same ? last < a.now : a.known[warp] >= last)) continue;
    const uint32_t* read = &shadow.read[size_t(warp)][a.at()];
    for (uint32_t i = 0; i < a.bytes; ++i) {
      const uint32_t clock = read[i] >> 7;
      const int lane = int(read[i] & 127);
      if (same ? clock < a.now || lane == a.lane.in_warp : clock <= a.known[warp]) continue;
      report_race(a, i, "write", lane, warp, shadow.read_line[size_t(warp)][(a.at() + i) / 16]);
      return;
    }
  }
}

// Writes of others that are not ordered before this one. Two writes of one value do no harm.
static void check_writers(const Access& a, const uint8_t* data, bool atomic) {
  const uint64_t* written = &a.block.shadow->written[a.at()];
  for (uint32_t i = 0; i < a.bytes; ++i) {
    if (i > 0 && written[i] == written[i - 1] && data == nullptr) continue;
    const Stamp stamp{written[i]};
    if (stamp.clock() < a.block.birth || is_ordered_after(a, stamp)) continue;
    if (atomic && stamp.atomic()) continue;
    if (data != nullptr && data[i] == a.block.memory[a.at() + i]) continue;
    report_race(a, i, "write", stamp.lane(), stamp.warp(), stamp.line());
    return;
  }
}

static void stamp_bytes(const Access& a, int lane, uint32_t clock, bool atomic) {
  uint64_t* written = &a.block.shadow->written[a.at()];
  const uint64_t stamp = Stamp::make(clock, lane, a.mine, atomic, a.lane.line);
  for (uint32_t i = 0; i < a.bytes; ++i) written[i] = stamp;
}

void shared_write(SharedPlace place, const void* data, uint32_t bytes, int text_line,
                  LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  if (!is_inside(a) || !check_flags(a, true)) return;
  check_writers(a, static_cast<const uint8_t*>(data), false);
  check_readers(a);
  stamp_bytes(a, a.lane.in_warp, a.now, false);
  count_banks(a.block, a.lane, place.offset, bytes, true, text_line);
  memcpy(a.block.memory + place.offset, data, bytes);
}

void* shared_atomic(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  if (!is_inside(a) || !check_flags(a, true)) return poison();
  if (Stamp{a.block.shadow->written[a.at()]}.clock() < a.block.birth)
    report(a.lane, Fault::shared_uninitialised, text_line, 0,
           "atomic operation on shared byte %d, which this block never wrote", place.offset);
  check_writers(a, nullptr, true);
  check_readers(a);
  stamp_bytes(a, a.lane.in_warp, a.now, true);
  return a.block.memory + place.offset;
}

uint8_t* shared_bytes(int32_t offset, uint32_t bytes, int32_t rank, LaneHead& head) {
  Block& block = owner_of(as_lane(head), rank);
  const int64_t size = block.worker->launch->config->shared_bytes;
  if (offset < 0 || int64_t(offset) + bytes > size) return nullptr;
  return block.memory + offset;
}

SharedPlace shared_base() {
  return {0, 0, self().owner->worker->launch->config->shared_bytes, -1};
}

// ---------------------------------------------------------------- asynchronous agents
void begin_async_write(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  if (!is_inside(a) || !check_flags(a, true)) return;
  check_writers(a, nullptr, false);
  check_readers(a);
  stamp_bytes(a, agent_lane, a.now, false);
  memset(&a.block.shadow->flags[a.at()], in_flight, bytes);
  count_banks(a.block, a.lane, place.offset, bytes, true, text_line);
  memset(a.block.memory + place.offset, 0xff, bytes);
}

void deliver(SharedPlace place, const void* data, uint32_t bytes, uint32_t clock, bool by_agent,
             LaneHead& head) {
  Access a = make_access(place, bytes, 0, head, false);  // noted when it was issued
  uint8_t* flags = &a.block.shadow->flags[a.at()];
  if (place.offset < 0 || int64_t(place.offset) + bytes > a.block.shadow->bytes) return;
  if (!(flags[0] & in_flight)) return;  // its issue was refused
  memset(flags, 0, bytes);
  stamp_bytes(a, by_agent ? agent_lane : a.lane.in_warp, clock, false);
  memcpy(a.block.memory + place.offset, data, bytes);
}

void begin_async_read(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  if (read(a) == nullptr) return;
  Block& block = owner_of(as_lane(head), place.rank);
  for (uint32_t i = 0; i < bytes; ++i) block.shadow->flags[size_t(place.offset) + i] += agent_reader;
}

void end_async_read(SharedPlace place, uint32_t bytes, LaneHead& head) {
  Block& block = owner_of(as_lane(head), place.rank);
  if (place.offset < 0 || int64_t(place.offset) + bytes > block.shadow->bytes) return;
  for (uint32_t i = 0; i < bytes; ++i) {
    uint8_t& flag = block.shadow->flags[size_t(place.offset) + i];
    if (flag >= agent_reader) flag = uint8_t(flag - agent_reader);
  }
}

uint32_t warp_clock(LaneHead& head) {
  Lane& lane = as_lane(head);
  return lane.owner->clocks->now(lane.owner->clock_index(lane));
}

uint32_t issue_clock(LaneHead& head) {
  Lane& lane = as_lane(head);
  const int mine = lane.owner->clock_index(lane);
  const uint32_t issued = lane.owner->clocks->now(mine);
  lane.owner->clocks->advance(mine);
  return issued;
}

void publish_to_agents() {
  Lane& lane = self();
  const int mine = lane.owner->clock_index(lane);
  (*lane.owner->published)[size_t(mine)] = lane.owner->clocks->now(mine);
  lane.owner->clocks->advance(mine);
}

void check_published(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  if (!is_inside(a)) return;
  const uint64_t* written = &a.block.shadow->written[a.at()];
  for (uint32_t i = 0; i < bytes; ++i) {
    const Stamp stamp{written[i]};
    if (stamp.clock() < a.block.birth || stamp.lane() == agent_lane) continue;
    if ((*a.block.published)[size_t(stamp.warp())] >= stamp.clock()) continue;
    report(a.lane, Fault::shared_race, text_line, stamp.line(),
           "an asynchronous agent reads shared byte %d, whose writer (warp %d) has not made its "
           "writes visible to agents",
           place.offset + int(i), stamp.warp());
    return;
  }
}

void check_reads_published(SharedPlace place, uint32_t bytes, int text_line, LaneHead& head) {
  Access a = make_access(place, bytes, text_line, head);
  if (!is_inside(a) || bytes == 0) return;
  const Shadow& shadow = *a.block.shadow;
  for (int warp = 0; warp < a.block.clocks->warps; ++warp) {
    const uint32_t newest = (*a.block.published)[size_t(warp)];
    if (shadow.last_read[size_t(warp)] <= newest) continue;
    const uint32_t* by_lanes = shadow.read_by_lanes[size_t(warp)].data();
    for (size_t unit = a.at() / 16; unit <= (a.at() + bytes - 1) / 16; ++unit) {
      if (by_lanes[unit] < a.block.birth || by_lanes[unit] <= newest) continue;
      report(a.lane, Fault::shared_race, text_line, shadow.read_line[size_t(warp)][unit],
             "an asynchronous agent overwrites shared byte %d, whose readers (lanes of warp %d) "
             "have not ordered their reads with agents",
             int(unit * 16), warp);
      return;
    }
  }
}

}  // namespace tc::emulator
