// What kernels and a backend's emulated header may ask of the emulator. Vendor-neutral, and free
// of standard containers, because every kernel's translation unit includes it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
namespace tc::emulator {

// Where a block stands. Coordinates are x, y, z; `rank` numbers the blocks of one cluster.
struct BlockPlace {
  int32_t block[3];
  int32_t grid[3];
  int32_t shape[3];
  int32_t cluster[3];
  int32_t rank;
  int32_t lanes;
  uint64_t run;  // another one for every block that is run, in this launch or in any other
};

// The part of a lane that inlined code reads. The engine's own part follows it in memory.
struct LaneHead {
  int32_t line;      // last TC_LINE
  int32_t patience;  // TC_LINEs left until the time limit is looked at
  int32_t index;     // in the block
  int32_t x, y, z;
  int32_t warp;      // in the block
  int32_t in_warp;
  const BlockPlace* place;
};

// initial-exec: one load instead of a call per access; fibers never change their OS thread. The space
// for such variables is scarce in a process that loads libraries late: this one must stay alone.
extern thread_local LaneHead* current_lane __attribute__((tls_model("initial-exec")));

inline LaneHead& here() { return *current_lane; }

void look_at_clock();

inline void at_line(int line) {
  LaneHead& lane = here();
  lane.line = line;
  if (--lane.patience < 0) look_at_clock();
}

// --- faults -----------------------------------------------------------------------------------
// The order is that of FAULT_KINDS in run.py.
enum class Fault : int32_t {
  global_out_of_bounds,
  global_misaligned,
  global_read_only,
  shared_out_of_bounds,
  shared_misaligned,
  shared_uninitialised,
  shared_in_flight,
  shared_race,
  barrier_divergence,
  warp_divergence,
  deadlock,
  barrier_misuse,
  copy_never_waited,
  not_uniform,
  registers_out_of_bounds,
  assertion,
  timeout,
};

// Records a fault of one lane (`text_line`: line of the generated text; `other_line`: author's line
// of the access it collides with, or 0). Returns; the caller decides whether it can go on.
void report(LaneHead& lane, Fault kind, int text_line, int other_line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

// Gives up the block (and its cluster) of the current lane. Never returns.
[[noreturn]] void abandon();

void print(const char* format, ...) __attribute__((format(printf, 1, 2)));

// --- global memory ----------------------------------------------------------------------------
// Checks one access (at most 64 KiB) and returns the address to use: `p`, or a place of poison when
// it is illegal.
const void* global_read(const void* p, uint32_t bytes, int text_line);
void* global_write(void* p, uint32_t bytes, int text_line);
// From here on the launch may read and write `bytes` at an address that the program found in memory.
void global_attach(uint64_t address, uint64_t bytes);

// Lets other lanes run. For polling loops.
void let_others_run();

// --- shared memory ----------------------------------------------------------------------------
// A byte position in a block's shared memory with the bounds of the buffer it was made from.
struct SharedPlace {
  int32_t offset;
  int32_t begin;
  int32_t end;
  int32_t rank;  // block of the cluster that owns the memory; -1 is the lane's own block
};

SharedPlace shared_base();

const void* shared_read(SharedPlace place, uint32_t bytes, int text_line, LaneHead& lane = here());
void shared_write(SharedPlace place, const void* data, uint32_t bytes, int text_line,
                  LaneHead& lane = here());
// For read-modify-write: atomic accesses never race with each other, only with plain ones.
void* shared_atomic(SharedPlace place, uint32_t bytes, int text_line, LaneHead& lane = here());

// Flags between warps: what happened before a release is known after an acquire that follows it.
void* shared_release(SharedPlace place, uint32_t bytes, int text_line);
void* shared_acquire(SharedPlace place, uint32_t bytes, int text_line);

// Unchecked view of a block's shared memory, for diagnostics and descriptors that a backend has
// checked itself with `shared_read`. Null outside of the launch's dynamic bytes.
uint8_t* shared_bytes(int32_t offset, uint32_t bytes, int32_t rank, LaneHead& lane = here());

// Asynchronous agents. `begin_async_write` makes the bytes "in flight" and overwrites them with
// poison; `deliver` makes them real: written by `lane` itself, or by an agent on behalf of its warp,
// at logical time `clock` (that of the issue for agents, of the wait for the lane's own copies).
void begin_async_write(SharedPlace place, uint32_t bytes, int text_line, LaneHead& lane = here());
void deliver(SharedPlace place, const void* data, uint32_t bytes, uint32_t clock, bool by_agent,
             LaneHead& lane = here());
// Between the two, overwriting the bytes is a fault. Reading is allowed.
void begin_async_read(SharedPlace place, uint32_t bytes, int text_line, LaneHead& lane = here());
void end_async_read(SharedPlace place, uint32_t bytes, LaneHead& lane = here());
// Logical time of the lane's warp, to stamp an asynchronous write when it is issued.
uint32_t warp_clock(LaneHead& lane = here());
// The same for a copy that the warp issues: who waits for the copy knows nothing of what the warp did
// after it.
uint32_t issue_clock(LaneHead& lane = here());

// Memory that asynchronous agents read must have been written before their writer's warp said
// `publish_to_agents`; `check_published` reports what was not. What they overwrite must have been
// read by then: engines overtake ordinary reads. `check_reads_published` reports what was not.
void publish_to_agents();
void check_published(SharedPlace place, uint32_t bytes, int text_line, LaneHead& lane = here());
void check_reads_published(SharedPlace place, uint32_t bytes, int text_line,
                           LaneHead& lane = here());

// --- asynchronous copies in groups ------------------------------------------------------------
void copy_async(SharedPlace to, const void* from, uint32_t bytes, uint32_t valid, int text_line);
void copy_async_commit();
void copy_async_wait(int newest_left);

// Work of an agent that has no lane (a copy engine). `payload` (at most 192 bytes) is copied;
// `perform(payload)` runs at a random later time, at the latest when every lane waits.
void enqueue_async(void (*perform)(void* payload), const void* payload, size_t bytes);

// --- barriers ---------------------------------------------------------------------------------
void barrier(int text_line);
void named_barrier(int id, int lanes, bool wait, int text_line);
void cluster_barrier_arrive(int text_line);
void cluster_barrier_wait(int text_line);

// Barriers that count arrivals and bytes, eight bytes of shared memory each.
void transaction_init(SharedPlace barrier, int arrivals, int text_line);
// What the lane's warp has initialised may now be used by agents and by other blocks of the cluster.
void transaction_publish();
void transaction_invalidate(SharedPlace barrier, int text_line);
void transaction_expect(SharedPlace barrier, int64_t bytes, int text_line);
void transaction_arrive(SharedPlace barrier, int count, int text_line);
void transaction_complete(SharedPlace barrier, int64_t bytes, uint32_t clock, int text_line,
                          LaneHead& lane);
bool transaction_test(SharedPlace barrier, int parity, int text_line);
void transaction_wait(SharedPlace barrier, int parity, int text_line);
// Uncounted arrival (the pending count grows by one first) once the lane's copies so far are done.
void transaction_arrive_after_copies(SharedPlace barrier, bool counted, int text_line);

// --- lanes together ---------------------------------------------------------------------------
// The lanes of one aligned group meet; the last to arrive runs `body` for all of them.
struct Meeting {
  LaneHead* const* lanes;  // in lane order
  void* const* operands;   // what each lane brought
  int count;
  int text_line;
};
struct CollectiveKind {
  const char* name;
  void (*body)(const Meeting& meeting);
  int lanes;  // 0: the warp; otherwise the size of the aligned group, a multiple of the warp
};
void collective(const CollectiveKind& kind, void* operands, int text_line);

}  // namespace tc::emulator
#pragma GCC visibility pop
