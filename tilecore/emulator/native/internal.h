// The engine's own records: launch, worker (one OS thread), block, lane.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "fiber.h"

namespace tc::emulator {

constexpr int max_lanes_per_warp = 64;

struct Block;
struct Worker;

// ---------------------------------------------------------------- launch (C interface of run.py)
struct MemoryRange {
  uint64_t begin;
  uint64_t bytes;
  int32_t writable;
  int32_t padding;
};

struct LaunchConfig {
  void (*entry)(void* const* arguments);
  void* const* arguments;
  const MemoryRange* ranges;
  int32_t range_count;
  int32_t grid[3];
  int32_t shape[3];
  int32_t cluster[3];
  int32_t shared_bytes;
  int32_t lanes_per_warp;
  int32_t workers;
  int32_t max_faults;
  int32_t resident;  // 1: all blocks run together, so that they may wait for each other
  uint64_t seed;
  double time_limit_seconds;
};

struct FaultRecord {
  Fault kind;
  int32_t line, text_line, other_line;
  int32_t block[3];
  int64_t count;
  std::vector<bool> lanes;  // of the first block, `block`
  std::string message;
};

struct BankSite {
  int32_t line, text_line, bytes;
  int32_t is_write;
  int64_t accesses, wavefronts, ideal;
};

struct Launch {
  const LaunchConfig* config;
  std::mutex mutex;
  std::vector<FaultRecord> faults;
  std::vector<MemoryRange> attached;  // memory at addresses that the program found
  std::map<std::pair<int, int>, BankSite> bank_sites;  // (text line, bytes and direction)
  std::string prints;
  std::atomic<int64_t> next_unit{0};
  std::atomic<int64_t> fault_count{0};
  std::atomic<bool> stopped{false};
  int64_t switches = 0;
};

// ---------------------------------------------------------------- clocks
// Logical time, one row per warp of a cluster: row[w] is what this warp knows of warp w.
// A warp's own entry grows whenever it releases and whenever its lanes meet.
struct Clocks {
  int warps = 0;
  std::vector<uint32_t> rows;
  uint32_t* row(int warp) { return rows.data() + size_t(warp) * warps; }
  uint32_t now(int warp) { return row(warp)[warp]; }
  void advance(int warp) { ++row(warp)[warp]; }
  void acquire(int warp, const std::vector<uint32_t>& from);
  // What one lane learns is the warp's when its lanes meet, and what it passes on before that is
  // what it knows itself: other lanes of the warp may be far ahead.
  void acquire(struct Lane& lane, const std::vector<uint32_t>& from);
  void release(const struct Lane& lane, std::vector<uint32_t>& into);
  void met(struct Block& block, int warp);
  std::vector<uint32_t> common;     // rows as they were when the lanes of the warp last met
  std::vector<uint8_t> has_news;    // [warp] a row has grown since
  void reset(int warps, uint32_t epoch);
};

// ---------------------------------------------------------------- shared memory's shadow
// One stamp per byte: who wrote it last, and when. Stamps of earlier blocks are older than
// `Block::birth`, so that nothing has to be cleared between blocks.
struct Stamp {
  uint64_t bits;
  static constexpr uint64_t make(uint32_t clock, int lane, int warp, bool atomic, int line) {
    return uint64_t(clock) << 38 | uint64_t(lane) << 31 | uint64_t(warp) << 21 |
           uint64_t(atomic) << 20 | uint64_t(line & 0xfffff);
  }
  uint32_t clock() const { return uint32_t(bits >> 38); }
  int lane() const { return int(bits >> 31 & 127); }
  int warp() const { return int(bits >> 21 & 1023); }
  bool atomic() const { return bits >> 20 & 1; }
  int line() const { return int(bits & 0xfffff); }
};
constexpr uint32_t last_clock = (1u << 25) - 1;  // a reader's stamp has 25 bits for it
constexpr uint32_t many_lanes = 127;
constexpr int agent_lane = 126;

enum ByteFlag : uint8_t { in_flight = 1, barrier_object = 2, agent_reader = 4 /* and above: count */ };

struct Shadow {
  uint32_t bytes = 0;
  int warps = 0;
  std::vector<uint64_t> written;
  std::vector<uint8_t> flags;
  std::vector<std::vector<uint32_t>> read;       // [warp][byte]: clock << 7 | lane
  std::vector<std::vector<int32_t>> read_line;   // [warp][byte / 16]
  std::vector<uint32_t> last_read;               // [warp] clock of its newest read
  std::vector<std::vector<uint32_t>> read_by_lanes;  // [warp][byte / 16]: clock; not by agents
  void resize(uint32_t bytes, int warps);
};

// ---------------------------------------------------------------- bank conflicts
struct BankAccess {
  int count = 0;
  int32_t offset[max_lanes_per_warp];
  uint8_t lane[max_lanes_per_warp];
};
struct BankGroup {  // accesses of one warp at one place since its lanes last met
  int text_line = -1, bytes = 0, line = 0;
  bool is_write = false;
  std::vector<BankAccess> accesses;
  size_t used = 0;
  uint16_t occurrence[max_lanes_per_warp];
};
struct WarpBanks {
  std::vector<BankGroup> groups;
  size_t used = 0;
};

// ---------------------------------------------------------------- synchronisation
enum class Wait : uint8_t { none, barrier, collective, transaction, cluster, yielded };

struct Rendezvous {
  const CollectiveKind* kind = nullptr;
  int text_line = 0, line = 0;
  int first = 0, expected = 0, arrived = 0;
  std::vector<void*> operands;
};

struct NamedBarrier {
  int expected = 0, arrived = 0;
  int text_line = 0, line = 0;
  std::vector<struct Lane*> waiting;
  std::vector<uint32_t> clocks;
};

struct TransactionBarrier {
  int32_t offset = 0;
  int expected = 0, pending = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
  uint32_t created = 0;  // clock of its initialisation, by warp `creator`
  int creator = 0;
  bool published = false;  // to agents and other blocks
  std::vector<struct Lane*> waiting;
  std::vector<uint32_t> clocks, completed;
};

struct PendingCopy {
  SharedPlace to;
  const void* from;
  uint32_t bytes, valid;
  int64_t group, serial;
};

// An access of another block's shared memory, which must still exist then.
struct Visit {
  uint32_t clock = 0;
  struct Lane* lane = nullptr;
  int line = 0, text_line = 0;
};

struct AgentWork {
  void (*perform)(void*);
  struct Lane* lane;
  alignas(16) unsigned char payload[192];
};

// ---------------------------------------------------------------- lane, block, worker
struct Lane : LaneHead {
  void* stack_pointer = nullptr;
  Block* owner = nullptr;
  Wait wait = Wait::none;
  bool returned = false;
  int wait_line = 0, wait_text_line = 0;
  int wait_detail = 0;  // barrier id, or byte offset of a transaction barrier
  int wait_parity = 0;
  int64_t copy_group = 0, copy_serial = 0;
  std::vector<PendingCopy> copies;
  std::vector<uint32_t> acquired;  // what it learnt since the lanes of its warp last met
};

struct Block {
  BlockPlace place;
  Worker* worker = nullptr;
  Lane* lanes = nullptr;
  LaneHead** heads = nullptr;
  int lane_count = 0, warp_count = 0, first_clock = 0;
  struct Cluster* cluster = nullptr;
  Clocks* clocks = nullptr;  // of the cluster
  uint32_t birth = 0;
  std::vector<uint32_t>* published = nullptr;  // per warp of the cluster
  uint8_t* memory = nullptr;
  Shadow* shadow = nullptr;
  std::vector<WarpBanks> banks;
  std::vector<Rendezvous> warps;
  std::map<int, std::vector<Rendezvous>> groups;  // by group size
  std::vector<NamedBarrier> barriers;
  std::vector<TransactionBarrier> transactions;
  std::map<int32_t, std::vector<uint32_t>> flag_clocks;  // by shared byte: what its releases publish
  std::vector<Visit> visits;  // by warp of the cluster: its newest access from another block
  int clock_index(const LaneHead& lane) const { return first_clock + lane.warp; }
};

struct Cluster {
  Clocks clocks;
  std::vector<uint32_t> published;
  int first_block = 0, blocks = 0;
  int arrived = 0, generation = 0;
  int text_line = 0;
  std::vector<Lane*> waiting;
  std::vector<uint32_t> joined, completed;
};

struct Worker {
  Launch* launch = nullptr;
  void* main = nullptr;  // context of the OS thread's own stack
  StackPool stacks;
  uint64_t random_state = 1;
  uint32_t epoch = 1;  // newest logical time handed out; blocks are born after it
  bool abandoned = false;
  int live_lanes = 0;
  int64_t switches = 0;
  int64_t progress = 0, spins = 0, spin_progress = 0;
  double spin_start = 0;
  double deadline = 0;  // of this launch, on this thread's clock
  alignas(16) unsigned char nowhere[65536];  // see poison()
  std::vector<Lane> lanes;
  std::vector<LaneHead*> heads;
  std::vector<Block> blocks;
  std::vector<Cluster> clusters;
  std::vector<Shadow> shadows;
  std::vector<uint8_t*> memories;
  size_t memory_bytes = 0;  // of each of them
  std::vector<AgentWork> agents;
  std::map<std::pair<int, int>, BankSite> bank_sites;
  // ready lanes: a ring whose size is a power of two
  std::vector<Lane*> ready;
  size_t ready_begin = 0, ready_count = 0;

  uint32_t random();
  void push_back(Lane* lane);
  void push_front(Lane* lane);
  Lane* pop();
  void wake(Lane* const* lanes, int count);
  void run_unit(int64_t unit);
};

inline Lane& self() { return static_cast<Lane&>(*current_lane); }
inline Lane& as_lane(LaneHead& head) { return static_cast<Lane&>(head); }

// Illegal accesses are sent here, so that the kernel can go on and show its other faults.
unsigned char* poison();

// The block of the lane's cluster that owns shared memory of `rank` (-1: the lane's own).
Block& owner_of(Lane& lane, int32_t rank);
// Blocks may not end before what other blocks of the cluster do to their shared memory.
void note_visit(Block& visited, Lane& lane, uint32_t clock, int text_line);
void check_visits(Block& block);

// Switches away until somebody puts the lane into the ready ring again.
void sleep(Lane& lane, Wait wait, int text_line, int detail);
void report_stuck(Worker& worker);
bool perform_one_agent(Worker& worker);
void warp_met(Block& block, int warp);
void flush_banks(Block& block, int warp);
void count_banks(Block& block, LaneHead& lane, int32_t offset, uint32_t bytes, bool is_write,
                 int text_line);
void prepare_blocks(Worker& worker, int64_t unit);
// Faults of an earlier block first; those of one block as it met them.
void sort_by_block(std::vector<FaultRecord>& faults);
// Processor time of this OS thread: a machine that is busy with other work makes no launch late.
double seconds();

}  // namespace tc::emulator
