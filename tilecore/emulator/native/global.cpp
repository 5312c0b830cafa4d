// Checks of global memory against the buffers of the launch.
#include <string.h>

#include "internal.h"

namespace tc::emulator {

unsigned char* poison() {
  auto& nowhere = self().owner->worker->nowhere;
  memset(nowhere, 0xff, sizeof nowhere);  // an earlier illegal write may have gone there
  return nowhere;
}

// The buffer nearest to an address, to say what it missed.
static const MemoryRange* nearest(const LaunchConfig& config, uint64_t address) {
  const MemoryRange* best = nullptr;
  uint64_t best_distance = ~0ull;
  for (int i = 0; i < config.range_count; ++i) {
    const MemoryRange& range = config.ranges[i];
    const uint64_t end = range.begin + range.bytes;
    const uint64_t distance =
        address < range.begin ? range.begin - address : address < end ? 0 : address - end;
    if (distance < best_distance) {
      best_distance = distance;
      best = &range;
    }
  }
  return best;
}

// To the largest power of two that divides the bytes, at most 16.
static bool is_aligned(uint64_t address, uint32_t bytes) {
  const uint32_t unit = bytes & (0 - bytes);
  return address % (unit > 16 ? 16 : unit) == 0;
}

static bool is_attached(uint64_t address, uint32_t bytes) {
  Launch& launch = *self().owner->worker->launch;
  const std::lock_guard<std::mutex> lock(launch.mutex);
  for (const MemoryRange& range : launch.attached) {
    if (address >= range.begin && address + bytes <= range.begin + range.bytes) return true;
  }
  return false;
}

void global_attach(uint64_t address, uint64_t bytes) {
  Launch& launch = *self().owner->worker->launch;
  const std::lock_guard<std::mutex> lock(launch.mutex);
  for (const MemoryRange& range : launch.attached) {
    if (range.begin == address && range.bytes >= bytes) return;
  }
  launch.attached.push_back(MemoryRange{address, bytes, 1, 0});
}

static bool check(const void* p, uint32_t bytes, bool writes, int text_line) {
  const LaunchConfig& config = *self().owner->worker->launch->config;
  const uint64_t address = reinterpret_cast<uint64_t>(p);
  for (int i = 0; i < config.range_count; ++i) {
    const MemoryRange& range = config.ranges[i];
    const uint64_t offset = address - range.begin;
    if (offset >= range.bytes) continue;
    if (offset + bytes > range.bytes) break;
    if (writes && !range.writable) {
      report(self(), Fault::global_read_only, text_line, 0,
             "write of %u bytes at byte %llu of argument buffer %d, which is read-only", bytes,
             static_cast<unsigned long long>(offset), i);
      return false;
    }
    if (!is_aligned(address, bytes)) {
      report(self(), Fault::global_misaligned, text_line, 0,
             "%s of %u bytes at byte %llu of argument buffer %d", writes ? "write" : "read", bytes,
             static_cast<unsigned long long>(offset), i);
      return false;
    }
    return true;
  }
  if (is_attached(address, bytes)) {
    if (is_aligned(address, bytes)) return true;
    report(self(), Fault::global_misaligned, text_line, 0, "%s of %u bytes at address %p",
           writes ? "write" : "read", bytes, p);
    return false;
  }
  const MemoryRange* near = nearest(config, address);
  if (near == nullptr) {
    report(self(), Fault::global_out_of_bounds, text_line, 0,
           "%s of %u bytes at address %p, but the launch has no buffers",
           writes ? "write" : "read", bytes, p);
    return false;
  }
  report(self(), Fault::global_out_of_bounds, text_line, 0,
         "%s of %u bytes at byte %lld of argument buffer %d, which has %llu bytes",
         writes ? "write" : "read", bytes, static_cast<long long>(address - near->begin),
         int(near - config.ranges), static_cast<unsigned long long>(near->bytes));
  return false;
}

const void* global_read(const void* p, uint32_t bytes, int text_line) {
  return check(p, bytes, false, text_line) ? p : poison();
}

void* global_write(void* p, uint32_t bytes, int text_line) {
  return check(p, bytes, true, text_line) ? p : poison();
}

}  // namespace tc::emulator
