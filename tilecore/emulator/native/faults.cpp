// Faults and prints are gathered for the whole launch.
#include <stdarg.h>
#include <stdio.h>

#include <algorithm>

#include "internal.h"

namespace tc::emulator {

// Whether one block comes before another in the order of the grid, x fastest.
static bool before(const int32_t (&left)[3], const int32_t (&right)[3]) {
  for (int axis = 2; axis >= 0; --axis)
    if (left[axis] != right[axis]) return left[axis] < right[axis];
  return false;
}

static std::string formatted(const char* format, va_list arguments) {
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  return text;
}

// A kind and place is told of its first block in the order of the grid, whichever OS thread was
// faster: with one seed a launch tells the same every time.
void report(LaneHead& head, Fault kind, int text_line, int other_line, const char* format, ...) {
  Lane& lane = as_lane(head);
  Launch& launch = *lane.owner->worker->launch;
  const BlockPlace& place = lane.owner->place;
  std::lock_guard<std::mutex> lock(launch.mutex);
  ++launch.fault_count;
  std::vector<FaultRecord>& faults = launch.faults;
  const auto known = std::find_if(faults.begin(), faults.end(), [&](const FaultRecord& fault) {
    return fault.kind == kind && fault.line == lane.line && fault.text_line == text_line &&
           fault.other_line == other_line;
  });
  int64_t count = 1;
  if (known != faults.end()) {
    count = ++known->count;
    if (!before(place.block, known->block)) {
      if (!before(known->block, place.block)) known->lanes[size_t(lane.index)] = true;
      return;
    }
    faults.erase(known);  // and stands after those that its block has told already
  } else if (int(faults.size()) >= launch.config->max_faults) {
    launch.stopped.store(true);
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  FaultRecord fault{kind, lane.line, text_line, other_line, {}, count, {}, formatted(format, arguments)};
  va_end(arguments);
  std::copy_n(place.block, 3, fault.block);
  fault.lanes.assign(size_t(place.lanes), false);
  fault.lanes[size_t(lane.index)] = true;
  faults.push_back(std::move(fault));
}

void sort_by_block(std::vector<FaultRecord>& faults) {
  std::stable_sort(faults.begin(), faults.end(), [](const FaultRecord& a, const FaultRecord& b) {
    return before(a.block, b.block);
  });
}

void print(const char* format, ...) {
  Launch& launch = *self().owner->worker->launch;
  va_list arguments;
  va_start(arguments, format);
  const std::string text = formatted(format, arguments);
  va_end(arguments);
  std::lock_guard<std::mutex> lock(launch.mutex);
  launch.prints += text;
}

}  // namespace tc::emulator
