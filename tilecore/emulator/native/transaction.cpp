// Barriers in shared memory that count arrivals and bytes, and copies in groups.
#include <string.h>

#include "internal.h"

namespace tc::emulator {

Block& owner_of(Lane& lane, int32_t rank) {
  Block& own = *lane.owner;
  if (rank < 0 || rank == own.place.rank) return own;
  return own.worker->blocks[size_t(own.cluster->first_block + rank)];
}

void note_visit(Block& visited, Lane& lane, uint32_t clock, int text_line) {
  if (&visited == lane.owner) return;
  Visit& newest = visited.visits[size_t(lane.owner->clock_index(lane))];
  if (newest.clock < clock) newest = {clock, &lane, lane.line, text_line};
}

void check_visits(Block& block) {
  for (size_t warp = 0; warp < block.visits.size(); ++warp) {
    const Visit& visit = block.visits[warp];
    if (visit.clock == 0) continue;
    bool known = false;
    for (int own = 0; own < block.warp_count && !known; ++own)
      known = block.clocks->row(block.first_clock + own)[warp] >= visit.clock;
    if (known) continue;
    visit.lane->line = visit.line;
    report(*visit.lane, Fault::shared_race, visit.text_line, 0,
           "access of the shared memory of block %d of the cluster, whose lanes may all have "
           "returned: nothing makes them wait for it",
           block.place.rank);
  }
}

static TransactionBarrier* find(Lane& lane, SharedPlace place, int text_line) {
  for (TransactionBarrier& barrier : owner_of(lane, place.rank).transactions)
    if (barrier.offset == place.offset) return &barrier;
  report(lane, Fault::barrier_misuse, text_line, 0,
         "no transaction barrier was initialised at shared byte %d", place.offset);
  abandon();
}

void transaction_init(SharedPlace place, int arrivals, int text_line) {
  Lane& lane = self();
  Block& block = owner_of(lane, place.rank);
  if (arrivals < 1 || arrivals > 0xfffff || place.offset % 8 != 0 || place.offset < place.begin ||
      place.offset + 8 > place.end) {
    report(lane, Fault::barrier_misuse, text_line, 0,
           "transaction barrier at shared byte %d with %d arrivals (8 aligned bytes inside the "
           "buffer and at least 1 arrival are needed)",
           place.offset, arrivals);
    abandon();
  }
  for (const TransactionBarrier& other : block.transactions)
    if (other.offset == place.offset) {
      report(lane, Fault::barrier_misuse, text_line, 0,
             "the transaction barrier at shared byte %d is initialised twice", place.offset);
      abandon();
    }
  uint64_t word = uint64_t(arrivals);
  shared_write(place, &word, 8, text_line, lane);
  memset(&block.shadow->flags[size_t(place.offset)], barrier_object, 8);
  TransactionBarrier barrier;
  barrier.offset = place.offset;
  barrier.expected = barrier.pending = arrivals;
  barrier.created = block.clocks->now(block.clock_index(lane));
  barrier.creator = lane.owner->clock_index(lane);
  block.transactions.push_back(barrier);
}

void transaction_publish() {
  Lane& lane = self();
  for (TransactionBarrier& barrier : lane.owner->transactions)
    if (barrier.creator == lane.owner->clock_index(lane)) barrier.published = true;
}

static void check_is_published(Lane& lane, const TransactionBarrier& barrier, int text_line) {
  if (barrier.published) return;
  report(lane, Fault::barrier_misuse, text_line, 0,
         "the transaction barrier at shared byte %d is used by an agent or another block, but its "
         "initialisation was not published to them",
         barrier.offset);
}

void transaction_invalidate(SharedPlace place, int text_line) {
  Lane& lane = self();
  TransactionBarrier* barrier = find(lane, place, text_line);
  Block& block = owner_of(lane, place.rank);
  memset(&block.shadow->flags[size_t(place.offset)], 0, 8);
  block.transactions.erase(block.transactions.begin() + (barrier - block.transactions.data()));
}

// The lane must know of the initialisation: same warp, or a barrier since.
static TransactionBarrier& use(SharedPlace place, int text_line) {
  Lane& lane = self();
  TransactionBarrier& barrier = *find(lane, place, text_line);
  const int mine = lane.owner->clock_index(lane);
  if (mine != barrier.creator &&
      lane.owner->clocks->row(mine)[barrier.creator] < barrier.created)
    report(lane, Fault::shared_race, text_line, 0,
           "the transaction barrier at shared byte %d is used with no barrier after its "
           "initialisation",
           place.offset);
  Block& owner = owner_of(lane, place.rank);
  if (&owner != lane.owner) {
    check_is_published(lane, barrier, text_line);
    note_visit(owner, lane, lane.owner->clocks->now(mine), text_line);
  }
  return barrier;
}

static void complete_if_due(Worker& worker, TransactionBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  barrier.completed.swap(barrier.clocks);
  barrier.clocks.clear();
  std::vector<Lane*> woken, left;
  for (Lane* lane : barrier.waiting)
    (int(barrier.phase & 1) != lane->wait_parity ? woken : left).push_back(lane);
  barrier.waiting = left;
  for (Lane* lane : woken)
    lane->owner->clocks->acquire(*lane, barrier.completed);
  worker.wake(woken.data(), int(woken.size()));
}

void transaction_expect(SharedPlace place, int64_t bytes, int text_line) {
  use(place, text_line).bytes += bytes;
}

static void arrive(Lane& lane, TransactionBarrier& barrier, int count, int text_line) {
  if (count > barrier.pending) {
    report(lane, Fault::barrier_misuse, text_line, 0,
           "%d arrivals on the transaction barrier at shared byte %d, which expects only %d more",
           count, barrier.offset, barrier.pending);
    abandon();
  }
  Clocks& clocks = *lane.owner->clocks;
  const int mine = lane.owner->clock_index(lane);
  clocks.release(lane, barrier.clocks);
  clocks.advance(mine);
  barrier.pending -= count;
  complete_if_due(*lane.owner->worker, barrier);
}

void transaction_arrive(SharedPlace place, int count, int text_line) {
  arrive(self(), use(place, text_line), count, text_line);
}

void transaction_complete(SharedPlace place, int64_t bytes, uint32_t clock, int text_line,
                          LaneHead& head) {
  Lane& lane = as_lane(head);
  TransactionBarrier& barrier = *find(lane, place, text_line);
  check_is_published(lane, barrier, text_line);
  note_visit(owner_of(lane, place.rank), lane, clock, text_line);
  const size_t mine = size_t(lane.owner->clock_index(lane));
  barrier.clocks.resize(size_t(lane.owner->clocks->warps), 0);
  if (barrier.clocks[mine] < clock) barrier.clocks[mine] = clock;
  barrier.bytes -= bytes;
  complete_if_due(*lane.owner->worker, barrier);
}

static bool passed(const TransactionBarrier& barrier, int parity) {
  return int(barrier.phase & 1) != parity;
}

bool transaction_test(SharedPlace place, int parity, int text_line) {
  let_others_run();
  Lane& lane = self();
  TransactionBarrier& barrier = use(place, text_line);
  if (!passed(barrier, parity)) return false;
  if (!barrier.completed.empty())
    lane.owner->clocks->acquire(lane, barrier.completed);
  return true;
}

void transaction_wait(SharedPlace place, int parity, int text_line) {
  Lane& lane = self();
  TransactionBarrier& barrier = use(place, text_line);
  if (passed(barrier, parity)) {
    if (!barrier.completed.empty())
      lane.owner->clocks->acquire(lane, barrier.completed);
    return;
  }
  lane.wait_parity = parity;
  barrier.waiting.push_back(&lane);
  sleep(lane, Wait::transaction, text_line, place.offset);
}

// ---------------------------------------------------------------- flags
void* shared_release(SharedPlace place, uint32_t bytes, int text_line) {
  Lane& lane = self();
  void* address = shared_atomic(place, bytes, text_line, lane);
  const int mine = lane.owner->clock_index(lane);
  lane.owner->clocks->release(lane, owner_of(lane, place.rank).flag_clocks[place.offset]);
  lane.owner->clocks->advance(mine);
  return address;
}

void* shared_acquire(SharedPlace place, uint32_t bytes, int text_line) {
  let_others_run();
  Lane& lane = self();
  auto& clocks = owner_of(lane, place.rank).flag_clocks;
  if (const auto found = clocks.find(place.offset); found != clocks.end())
    lane.owner->clocks->acquire(lane, found->second);
  return shared_atomic(place, bytes, text_line, lane);
}

// ---------------------------------------------------------------- copies in groups
void copy_async(SharedPlace to, const void* from, uint32_t bytes, uint32_t valid, int text_line) {
  Lane& lane = self();
  if (valid > bytes) {
    report(lane, Fault::global_out_of_bounds, text_line, 0,
           "asynchronous copy of %u bytes with %u valid ones", bytes, valid);
    valid = bytes;
  }
  const void* source = valid > 0 ? global_read(from, valid, text_line) : nullptr;
  begin_async_write(to, bytes, text_line, lane);
  lane.copies.push_back({to, source, bytes, valid, lane.copy_group, lane.copy_serial++});
}

void copy_async_commit() { ++self().copy_group; }

static void deliver_copy(Lane& lane, const PendingCopy& copy) {
  unsigned char data[16] = {};
  if (copy.valid > 0) memcpy(data, copy.from, copy.valid);
  deliver(copy.to, data, copy.bytes, warp_clock(lane), false, lane);
}

template <class Due>
static void deliver_copies(Lane& lane, Due due) {
  size_t kept = 0;
  for (const PendingCopy& copy : lane.copies) {
    if (due(copy)) deliver_copy(lane, copy);
    else lane.copies[kept++] = copy;
  }
  lane.copies.resize(kept);
}

void copy_async_wait(int newest_left) {
  Lane& lane = self();
  const int64_t first_left = lane.copy_group - newest_left;
  deliver_copies(lane, [&](const PendingCopy& copy) { return copy.group < first_left; });
}

struct ArrivalAfterCopies {
  SharedPlace barrier;
  Lane* lane;
  int64_t first_later;  // copies from this serial number on were issued after the arrival
  int text_line;
};

static void perform_arrival(void* payload) {
  auto* work = static_cast<ArrivalAfterCopies*>(payload);
  Lane& lane = *work->lane;
  deliver_copies(lane,
                 [&](const PendingCopy& copy) { return copy.serial < work->first_later; });
  arrive(lane, *find(lane, work->barrier, work->text_line), 1, work->text_line);
}

void transaction_arrive_after_copies(SharedPlace place, bool counted, int text_line) {
  TransactionBarrier& barrier = use(place, text_line);
  if (!counted) ++barrier.pending;
  ArrivalAfterCopies work{place, &self(), self().copy_serial, text_line};
  enqueue_async(perform_arrival, &work, sizeof work);
}

}  // namespace tc::emulator
