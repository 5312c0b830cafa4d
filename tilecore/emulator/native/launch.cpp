// The C interface that run.py calls: run a launch, hand back a report as JSON.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <thread>

#include "internal.h"

namespace tc::emulator {

// Workers keep their stacks and shadows for the next launch: touching fresh pages would cost more
// than running a small kernel. As many are kept as have run at the same time.
class WorkerPool {
 public:
  std::unique_ptr<Worker> take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return std::make_unique<Worker>();
    std::unique_ptr<Worker> worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }
  void give_back(std::unique_ptr<Worker> worker) {
    worker->switches = 0;
    worker->bank_sites.clear();
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(worker));
  }
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_;
};

static WorkerPool& pool() {
  static WorkerPool* const pool = new WorkerPool;  // never destroyed: threads may outlive main
  return *pool;
}

// Made when the library is loaded. A fork holds the pool's mutex: a child of a process in which
// another thread just took a worker would wait for it forever.
[[maybe_unused]] static const int held_around_forks =
    pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });

static void run_worker(Launch& launch, int64_t units) {
  std::unique_ptr<Worker> owned = pool().take();
  Worker& worker = *owned;
  worker.launch = &launch;
  worker.deadline = seconds() + launch.config->time_limit_seconds;
  const int64_t seed = int64_t(launch.config->seed);
  while (!launch.stopped.load()) {
    const int64_t turn = launch.next_unit.fetch_add(1);
    if (turn >= units) break;
    // Seeds visit the units in different orders: from another start, in either direction.
    const int64_t at = (turn + seed) % units;
    worker.run_unit(seed & 1 ? units - 1 - at : at);
  }
  std::unique_lock<std::mutex> lock(launch.mutex);
  launch.switches += worker.switches;
  for (const auto& [key, site] : worker.bank_sites) {
    BankSite& sum = launch.bank_sites[key];
    BankSite total = site;
    total.accesses += sum.accesses;
    total.wavefronts += sum.wavefronts;
    total.ideal += sum.ideal;
    sum = total;
  }
  lock.unlock();
  pool().give_back(std::move(owned));
}

static void append(std::string& text, const char* key, int64_t value) {
  text += "\"" + std::string(key) + "\":" + std::to_string(value) + ",";
}

static void append(std::string& text, const char* key, const std::string& value) {
  text += "\"" + std::string(key) + "\":\"";
  for (const char c : value) {
    char code[8];
    if (c == '"' || c == '\\') (text += '\\') += c;
    else if (static_cast<unsigned char>(c) < 32) {
      snprintf(code, sizeof code, "\\u%04x", c);
      text += code;
    } else text += c;
  }
  text += "\",";
}

static std::string make_report(const Launch& launch) {
  std::string text = "{\"faults\":[";
  for (const FaultRecord& fault : launch.faults) {
    text += text.back() == '[' ? "{" : ",{";
    append(text, "kind", int64_t(fault.kind));
    append(text, "line", fault.line);
    append(text, "text_line", fault.text_line);
    append(text, "other_line", fault.other_line);
    append(text, "count", fault.count);
    append(text, "message", fault.message);
    text += "\"block\":[" + std::to_string(fault.block[0]) + "," + std::to_string(fault.block[1]) +
            "," + std::to_string(fault.block[2]) + "],\"lanes\":[";
    for (size_t i = 0; i < fault.lanes.size(); ++i)
      if (fault.lanes[i]) text += (text.back() == '[' ? "" : ",") + std::to_string(i);
    text += "]}";
  }
  text += "],\"shared_accesses\":[";
  for (const auto& [key, site] : launch.bank_sites) {
    text += text.back() == '[' ? "{" : ",{";
    append(text, "line", site.line);
    append(text, "text_line", site.text_line);
    append(text, "bytes", site.bytes);
    append(text, "is_write", site.is_write);
    append(text, "accesses", site.accesses);
    append(text, "wavefronts", site.wavefronts);
    append(text, "ideal", site.ideal);
    text.back() = '}';
  }
  text += "],";
  append(text, "prints", launch.prints);
  append(text, "fault_count", launch.fault_count.load());
  append(text, "switches", launch.switches);
  text.back() = '}';
  return text;
}

}  // namespace tc::emulator

using namespace tc::emulator;

// Runs a launch. Returns a JSON text to be freed with tc_emulator_free, or null when memory ran out.
extern "C" __attribute__((visibility("default"))) char* tc_emulator_launch(
    const LaunchConfig* config) {
  try {
    Launch launch;
    launch.config = config;
    const int64_t blocks = int64_t(config->grid[0]) * config->grid[1] * config->grid[2];
    const int64_t cluster = config->cluster[0] * config->cluster[1] * config->cluster[2];
    const int64_t units = config->resident ? (blocks > 0 ? 1 : 0) : blocks / cluster;
    const int64_t workers = units < config->workers ? units : config->workers;
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < workers; ++i) threads.emplace_back([&] { run_worker(launch, units); });
    if (units > 0) run_worker(launch, units);
    for (std::thread& thread : threads) thread.join();
    sort_by_block(launch.faults);
    return strdup(make_report(launch).c_str());
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

extern "C" __attribute__((visibility("default"))) void tc_emulator_free(char* text) { free(text); }
