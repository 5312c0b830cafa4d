// Runs the lanes of one unit (the blocks that must be resident together) on one OS thread.
#include <string.h>
#include <time.h>

#include "internal.h"

namespace tc::emulator {

thread_local LaneHead* current_lane __attribute__((tls_model("initial-exec"))) = nullptr;

double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

uint32_t Worker::random() {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return uint32_t(random_state * 0x2545f4914f6cdd1dull >> 32);
}

void Worker::push_back(Lane* lane) {
  ready[(ready_begin + ready_count++) & (ready.size() - 1)] = lane;
}

void Worker::push_front(Lane* lane) {
  ready_begin = (ready_begin - 1) & (ready.size() - 1);
  ready[ready_begin] = lane;
  ++ready_count;
}

Lane* Worker::pop() {
  if (ready_count == 0) return nullptr;
  Lane* lane = ready[ready_begin];
  ready_begin = (ready_begin + 1) & (ready.size() - 1);
  --ready_count;
  return lane;
}

// In an order drawn anew each time: a random start and a random direction; at the front of the
// ring (this group runs ahead of the others) or at its back (it falls behind).
void Worker::wake(Lane* const* woken, int count) {
  if (count == 0) return;
  ++progress;
  const uint32_t draw = random();
  const int start = int((draw >> 8) % uint32_t(count));
  const bool forward = draw & 1, front = draw & 2;
  for (int i = 0; i < count; ++i) {
    int at = forward ? start + i : start - i;
    at += at < 0 ? count : at >= count ? -count : 0;
    woken[at]->wait = Wait::none;
    front ? push_front(woken[at]) : push_back(woken[at]);
  }
}

static void switch_away(Lane& lane) {
  Worker& worker = *lane.owner->worker;
  ++worker.switches;
  Lane* next = worker.pop();
  if (next == &lane) return;
  current_lane = next;
  switch_stack(&lane.stack_pointer, next != nullptr ? next->stack_pointer : worker.main);
}

void sleep(Lane& lane, Wait wait, int text_line, int detail) {
  lane.wait = wait;
  lane.wait_line = lane.line;
  lane.wait_text_line = text_line;
  lane.wait_detail = detail;
  switch_away(lane);
}

void abandon() {
  Worker& worker = *self().owner->worker;
  worker.abandoned = true;
  void* dropped = self().stack_pointer;
  current_lane = nullptr;
  switch_stack(&dropped, worker.main);
  __builtin_unreachable();
}

// Polling that nothing can ever answer is a deadlock, not work.
static void look_at_spinning(Worker& worker) {
  look_at_clock();
  const double now = seconds();
  if (worker.progress != worker.spin_progress || worker.spin_start == 0) {
    worker.spin_progress = worker.progress;
    worker.spin_start = now;
  } else if (now - worker.spin_start > 5.0) {
    Lane& lane = self();
    report(lane, Fault::deadlock, 0, 0, "lanes poll memory that no lane writes any more");
    abandon();
  }
}

void let_others_run() {
  Lane& lane = self();
  Worker& worker = *lane.owner->worker;
  if ((++worker.spins & 1023) == 0) look_at_spinning(worker);
  if ((worker.random() & 7) == 0) perform_one_agent(worker);
  worker.push_back(&lane);
  sleep(lane, Wait::yielded, 0, 0);
  lane.wait = Wait::none;
}

void look_at_clock() {
  Lane& lane = self();
  Worker& worker = *lane.owner->worker;
  Launch& launch = *worker.launch;
  lane.patience = 100000;
  if (launch.stopped.load(std::memory_order_relaxed)) abandon();
  if (seconds() < worker.deadline) return;
  report(lane, Fault::timeout, 0, 0, "the launch ran longer than its limit of %g seconds of a processor",
         launch.config->time_limit_seconds);
  launch.stopped.store(true);
  abandon();
}

// First and last words of every lane's fiber.
static void lane_main() {
  {
    Lane& lane = self();
    const LaunchConfig& config = *lane.owner->worker->launch->config;
    config.entry(config.arguments);
  }
  Lane& lane = self();
  if (!lane.copies.empty()) {
    report(lane, Fault::copy_never_waited, 0, 0,
           "the lane returned with %d asynchronous copies under way; the first goes to shared byte %d",
           int(lane.copies.size()), lane.copies.front().to.offset);
    lane.copies.clear();
  }
  lane.returned = true;
  ++lane.owner->worker->progress;
  --lane.owner->worker->live_lanes;
  switch_away(lane);
  __builtin_unreachable();
}

void Worker::run_unit(int64_t unit) {
  prepare_blocks(*this, unit);
  abandoned = false;
  live_lanes = int(lanes.size());
  main = stacks.home();
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i].stack_pointer = stacks.start(i, lane_main);
  // Warps start in random order, lanes of a warp too.
  size_t size = 1;
  while (size < lanes.size() + 1) size *= 2;
  ready.assign(size, nullptr);
  ready_begin = ready_count = 0;
  std::vector<Lane*> order;
  for (Block& block : blocks)
    for (const Rendezvous& warp : block.warps) {
      order.clear();
      for (int i = 0; i < warp.expected; ++i) order.push_back(&block.lanes[warp.first + i]);
      wake(order.data(), int(order.size()));
    }
  while (!abandoned) {
    Lane* next = pop();
    if (next == nullptr) {
      if (perform_one_agent(*this)) continue;
      break;
    }
    current_lane = next;
    switch_stack(&main, next->stack_pointer);
  }
  current_lane = nullptr;
  if (!abandoned && live_lanes > 0) report_stuck(*this);
  for (Block& block : blocks) {
    if (!abandoned && live_lanes == 0) check_visits(block);
    for (int warp = 0; warp < block.warp_count; ++warp) flush_banks(block, warp);
  }
  for (Cluster& cluster : clusters)
    for (int warp = 0; warp < cluster.clocks.warps; ++warp) {
      const uint32_t now = cluster.clocks.now(warp);
      if (now > epoch) epoch = now;
    }
  agents.clear();
}

void enqueue_async(void (*perform)(void*), const void* payload, size_t bytes) {
  Lane& lane = self();
  AgentWork work;
  work.perform = perform;
  work.lane = &lane;
  memcpy(work.payload, payload, bytes);
  lane.owner->worker->agents.push_back(work);
}

bool perform_one_agent(Worker& worker) {
  if (worker.agents.empty()) return false;
  ++worker.progress;
  const size_t chosen = worker.random() % worker.agents.size();
  AgentWork work = worker.agents[chosen];
  worker.agents.erase(worker.agents.begin() + long(chosen));
  LaneHead* before = current_lane;
  current_lane = work.lane;  // faults of the copy are the issuing lane's
  work.perform(work.payload);
  current_lane = before;
  return true;
}

}  // namespace tc::emulator
