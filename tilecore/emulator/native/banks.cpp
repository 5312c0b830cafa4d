// Bank conflicts of shared memory. Lanes run one after another here, so accesses of a warp are
// gathered until its lanes meet: the n-th access of each lane at one place is one warp-wide access.
//
// Cost model: 32 banks of 4 bytes serve one wavefront (128 bytes) at a time. An access of b bytes a
// lane is split into phases of 128 / b lanes (at most 32); a phase needs as many wavefronts as the
// busiest bank has different words; lanes that want the same word share it.
#include "internal.h"

namespace tc::emulator {

static constexpr int bank_count = 32;
static constexpr int bank_bytes = 4;
static constexpr int wavefront_bytes = bank_count * bank_bytes;

// The usual case, without any list: no bank is asked for two words. -1 when one is.
static int wavefronts_if_free(const BankAccess& access, int bytes, int first_lane, int last_lane) {
  int32_t word_of[bank_count];
  uint32_t busy = 0;
  for (int i = 0; i < access.count; ++i) {
    if (access.lane[i] < first_lane || access.lane[i] >= last_lane) continue;
    const int32_t last = (access.offset[i] + bytes - 1) / bank_bytes;
    for (int32_t word = access.offset[i] / bank_bytes; word <= last; ++word) {
      const int bank = word % bank_count;
      if (busy >> bank & 1 && word_of[bank] != word) return -1;
      busy |= 1u << bank;
      word_of[bank] = word;
    }
  }
  return busy != 0;
}

static int wavefronts_of_phase(const BankAccess& access, int bytes, int first_lane, int last_lane) {
  const int free = wavefronts_if_free(access, bytes, first_lane, last_lane);
  if (free >= 0) return free;
  int32_t words[bank_count][bank_count * 2];
  int depth[bank_count] = {};
  int deepest = 0;
  for (int i = 0; i < access.count; ++i) {
    if (access.lane[i] < first_lane || access.lane[i] >= last_lane) continue;
    const int32_t first = access.offset[i] / bank_bytes;
    const int32_t last = (access.offset[i] + bytes - 1) / bank_bytes;
    for (int32_t word = first; word <= last; ++word) {
      const int bank = word % bank_count;
      bool known = false;
      for (int j = 0; j < depth[bank]; ++j) known = known || words[bank][j] == word;
      if (known) continue;
      words[bank][depth[bank]++] = word;
      if (depth[bank] > deepest) deepest = depth[bank];
    }
  }
  return deepest;
}

static void evaluate(Worker& worker, const BankGroup& group, const BankAccess& access) {
  BankSite& site =
      worker.bank_sites[{group.text_line, group.bytes * 2 + (group.is_write ? 1 : 0)}];
  site.line = group.line;
  site.text_line = group.text_line;
  site.bytes = group.bytes;
  site.is_write = group.is_write;
  ++site.accesses;
  int lanes = wavefront_bytes / (group.bytes < bank_bytes ? bank_bytes : group.bytes);
  if (lanes < 1) lanes = 1;
  for (int first = 0; first < max_lanes_per_warp; first += lanes) {
    const int wavefronts = wavefronts_of_phase(access, group.bytes, first, first + lanes);
    site.wavefronts += wavefronts;
    site.ideal += wavefronts > 0;
  }
}

void flush_banks(Block& block, int warp) {
  WarpBanks& banks = block.banks[size_t(warp)];
  for (size_t i = 0; i < banks.used; ++i) {
    BankGroup& group = banks.groups[i];
    for (size_t j = 0; j < group.used; ++j) evaluate(*block.worker, group, group.accesses[j]);
    group.used = 0;
  }
  banks.used = 0;
}

void count_banks(Block& block, LaneHead& lane, int32_t offset, uint32_t bytes, bool is_write,
                 int text_line) {
  if (bytes > 16) return;  // agents are not lanes
  if (as_lane(lane).owner != &block) return;
  WarpBanks& banks = block.banks[size_t(lane.warp)];
  BankGroup* group = nullptr;
  for (size_t i = 0; i < banks.used && group == nullptr; ++i) {
    BankGroup& other = banks.groups[i];
    if (other.text_line == text_line && other.bytes == int(bytes) && other.is_write == is_write)
      group = &other;
  }
  if (group == nullptr) {
    if (banks.used == banks.groups.size()) banks.groups.emplace_back();
    group = &banks.groups[banks.used++];
    group->text_line = text_line;
    group->line = lane.line;
    group->bytes = int(bytes);
    group->is_write = is_write;
    for (uint16_t& count : group->occurrence) count = 0;
  }
  const size_t turn = group->occurrence[lane.in_warp]++;
  if (turn >= 4096) return;  // a warp that never meets: the beginning is enough
  while (group->used <= turn) {
    if (group->accesses.size() == group->used) group->accesses.emplace_back();
    group->accesses[group->used++].count = 0;
  }
  BankAccess& access = group->accesses[turn];
  access.offset[access.count] = offset;
  access.lane[access.count++] = uint8_t(lane.in_warp);
}

}  // namespace tc::emulator
