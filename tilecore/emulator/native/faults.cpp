// Faults and prints are gathered for the whole launch.
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

namespace tc::emulator {

void report(LaneHead& head, Fault kind, int text_line, int other_line, const char* format, ...) {
  Lane& lane = as_lane(head);
  Launch& launch = *lane.owner->worker->launch;
  const BlockPlace& place = lane.owner->place;
  std::lock_guard<std::mutex> lock(launch.mutex);
  ++launch.fault_count;
  for (FaultRecord& known : launch.faults) {
    if (known.kind != kind || known.line != lane.line || known.text_line != text_line ||
        known.other_line != other_line)
      continue;
    ++known.count;
    if (known.block[0] == place.block[0] && known.block[1] == place.block[1] &&
        known.block[2] == place.block[2])
      known.lanes[size_t(lane.index)] = true;
    return;
  }
  if (int(launch.faults.size()) >= launch.config->max_faults) {
    launch.stopped.store(true);
    return;
  }
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  FaultRecord fault{kind, lane.line, text_line, other_line, {}, 1, {}, text};
  for (int axis = 0; axis < 3; ++axis) fault.block[axis] = place.block[axis];
  fault.lanes.assign(size_t(place.lanes), false);
  fault.lanes[size_t(lane.index)] = true;
  launch.faults.push_back(fault);
}

void print(const char* format, ...) {
  Launch& launch = *self().owner->worker->launch;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::lock_guard<std::mutex> lock(launch.mutex);
  launch.prints += text;
}

}  // namespace tc::emulator
