// The copy engine over emulated lanes: boxes of tensor maps to and from shared memory.
//
// A load takes the global bytes when it is issued and delivers them at a random later time, together
// with its count of bytes on the barrier; until then the destination is in flight. A store takes the
// shared bytes when it is issued and guards them until the wait of its group.
#include <stdlib.h>

#include <map>
#include <vector>

#include "hopper_emulated.h"

namespace hopper {

using tc::emulator::Fault;
using tc::emulator::LaneHead;

namespace {

int row_bytes(const TensorMap& map) { return map.box[0] * map.element_bytes; }
int box_rows(const TensorMap& map) {
  int rows = 1;
  for (int axis = 1; axis < map.rank; ++axis) rows *= map.box[axis];
  return rows;
}

// The rules of the instruction and of the map; the name of the first one that is broken, or null.
const char* broken_rule(const SharedPlace& place, const TensorMap& map, int rank) {
  if (rank != map.rank || rank < 1 || rank > 5) return "as many coordinates as the map has axes";
  if (map.address % 16 != 0) return "a global address that is a multiple of 16";
  for (int axis = 0; axis + 1 < rank; ++axis)
    if (map.strides[axis] % 16 != 0) return "global strides that are multiples of 16 bytes";
  for (int axis = 0; axis < rank; ++axis)
    if (map.sizes[axis] == 0) return "a tensor with elements: an empty one has no map";
  for (int axis = 0; axis < rank; ++axis)
    if (map.box[axis] < 1 || map.box[axis] > 256) return "box extents from 1 to 256";
  if (row_bytes(map) % 16 != 0) return "box rows that are multiples of 16 bytes";
  if (map.swizzle_bits > 0 && row_bytes(map) > 16 << map.swizzle_bits)
    return "box rows no longer than the swizzle";
  if (place.offset % 128 != 0) return "a shared address that is a multiple of 128";
  if (map.swizzle_bits > 0 && place.offset % (128 << map.swizzle_bits) != 0)
    return "a shared address at the start of a swizzle period";
  return nullptr;
}

bool is_legal(const SharedPlace& place, const TensorMap& map, int rank, int text_line) {
  const char* rule = broken_rule(place, map, rank);
  if (rule == nullptr) return true;
  report(tc::emulator::here(), Fault::shared_misaligned, text_line, 0,
         "a bulk copy at shared byte %d needs %s", place.offset, rule);
  return false;
}

// A box begins at a multiple of 16 bytes along the last axis: others are an illegal instruction.
void check_column(int column, const TensorMap& map, int text_line) {
  if (column * map.element_bytes % 16 == 0) return;
  report(tc::emulator::here(), Fault::global_misaligned, text_line, 0,
         "a bulk copy that begins at element %d of its tensor's last axis, which is no multiple of 16 "
         "bytes",
         column);
  tc::emulator::abandon();
}

// Place of byte `byte` of a box in shared memory, relative to its start.
int swizzled(const TensorMap& map, int byte) {
  const int mask = (1 << map.swizzle_bits) - 1;
  return byte ^ (byte >> 7 & mask) << 4;
}

// Global address and bytes of the part of box row `row` that is inside the tensor.
struct Row {
  uint64_t address = 0;
  int skipped = 0;  // bytes before the part
  int bytes = 0;
};
Row row_at(const TensorMap& map, const int* at, int row) {
  Row found;
  uint64_t address = map.address;
  for (int axis = 1; axis < map.rank; ++axis) {
    const int64_t index = int64_t(at[axis]) + row % map.box[axis];
    row /= map.box[axis];
    if (index < 0 || index >= int64_t(map.sizes[axis])) return found;
    address += uint64_t(index) * map.strides[axis - 1];
  }
  const int64_t first = at[0] < 0 ? 0 : at[0];
  int64_t last = int64_t(at[0]) + map.box[0];
  if (last > int64_t(map.sizes[0])) last = map.sizes[0];
  if (first >= last) return found;
  found.address = address + uint64_t(first) * map.element_bytes;
  found.skipped = int(first - at[0]) * map.element_bytes;
  found.bytes = int(last - first) * map.element_bytes;
  return found;
}

template <class Piece>
void for_pieces(const Row& row, int width, Piece piece) {
  for (int byte = 0; byte < row.bytes;) {  // aligned, within one 16-byte chunk of the box row
    const int in_chunk = (row.skipped + byte) % 16;
    int count = row.bytes - byte < 16 - in_chunk ? row.bytes - byte : 16 - in_chunk;
    while (count & (count - 1)) count &= count - 1;  // a power of two, so that it is aligned
    const int in_row = row.skipped + byte;
    while ((row.address + uint64_t(byte)) % uint64_t(count) != 0 || in_row % count != 0) count /= 2;
    if (count < width) count = width;
    piece(byte, count);
    byte += count;
  }
}

struct Delivery {
  SharedPlace to, barrier;
  uint8_t* data;
  uint32_t bytes, clock;
  LaneHead* lane;
  int text_line;
};
void perform_delivery(void* payload) {
  auto* work = static_cast<Delivery*>(payload);
  tc::emulator::deliver(work->to, work->data, work->bytes, work->clock, true, *work->lane);
  free(work->data);
  tc::emulator::transaction_complete(work->barrier, work->bytes, work->clock, work->text_line,
                                     *work->lane);
}

struct StoreGroup {
  std::vector<std::pair<SharedPlace, uint32_t>> reads;
};
struct Stores {
  uint64_t run = 0;
  StoreGroup open;
  std::vector<StoreGroup> groups;
};
thread_local std::map<const LaneHead*, Stores> stores;

Stores& stores_of(const LaneHead& lane) {
  Stores& found = stores[&lane];
  if (found.run != lane.place->run) {
    found = Stores();
    found.run = lane.place->run;
  }
  return found;
}

}  // namespace

namespace {

// Row `row` of a box, read from global memory into `data`, which is arranged as shared memory is.
void read_row(const TensorMap& map, const Row& part, int row, uint8_t* data, int text_line) {
  for_pieces(part, map.element_bytes, [&](int byte, int count) {
    const void* from = tc::emulator::global_read(
        reinterpret_cast<const void*>(part.address + uint64_t(byte)), uint32_t(count), text_line);
    memcpy(data + swizzled(map, row * row_bytes(map) + part.skipped + byte), from, size_t(count));
  });
}

// `data` on its way, to the lane's own block (`blocks` = 0) or to so many of the cluster.
void send(SharedPlace to, SharedPlace barrier, const uint8_t* data, uint32_t bytes, int blocks,
          int text_line) {
  for (int block = 0; block < (blocks > 0 ? blocks : 1); ++block) {
    if (blocks > 0) to.rank = barrier.rank = block;
    tc::emulator::check_reads_published(to, bytes, text_line);
    tc::emulator::begin_async_write(to, bytes, text_line);
    auto* copy = static_cast<uint8_t*>(malloc(bytes));
    memcpy(copy, data, bytes);
    Delivery work{to, barrier, copy, bytes, tc::emulator::issue_clock(), &tc::emulator::here(),
                  text_line};
    tc::emulator::enqueue_async(perform_delivery, &work, sizeof work);
  }
}

// The rules of the instruction for windows; the name of the first one that is broken, or null.
const char* broken_window_rule(const TensorMap& map, const int* at, const int* distance) {
  if (map.pixels < 1 || map.pixels > 1024) return "1 to 1024 windows";
  if (map.step < 1 || map.step > 8) return "windows 1 to 8 pixels apart";
  if (map.lower < -128 || map.lower > 127 || map.upper < -128 || map.upper > 127)
    return "corners from -128 to 127";
  for (int side = 0; side < 2; ++side) {
    if (distance[side] < 0 || distance[side] > 255) return "distances from 0 to 255";
    const int last = int(map.sizes[1 + side]) - 1 + map.upper;
    if (at[1 + side] < map.lower || at[1 + side] > last) return "a first pixel where windows begin";
    if ((at[1 + side] - map.lower) % map.step != 0) return "a first pixel at a whole step";
  }
  return nullptr;
}

}  // namespace

void tma_load(SharedPlace to, const TensorMap& map, SharedPlace barrier, const int* at, int rank,
              int blocks, int text_line) {
  if (!is_legal(to, map, rank, text_line)) tc::emulator::abandon();
  check_column(at[0], map, text_line);
  const int rows = box_rows(map);
  const uint32_t bytes = uint32_t(row_bytes(map) * rows);
  auto* data = static_cast<uint8_t*>(calloc(bytes, 1));
  for (int row = 0; row < rows; ++row) read_row(map, row_at(map, at, row), row, data, text_line);
  send(to, barrier, data, bytes, blocks, text_line);
  free(data);
}

void tma_load_windows(SharedPlace to, const TensorMap& map, SharedPlace barrier, const int* at,
                      const int* distance, int text_line) {
  if (!is_legal(to, map, 4, text_line)) tc::emulator::abandon();
  if (const char* rule = broken_window_rule(map, at, distance)) {
    report(tc::emulator::here(), Fault::shared_misaligned, text_line, 0,
           "a copy of windows from pixel (%d, %d), (%d, %d) further on, needs %s", at[1], at[2],
           distance[0], distance[1], rule);
    tc::emulator::abandon();
  }
  const uint32_t bytes = uint32_t(row_bytes(map) * map.pixels);
  auto* data = static_cast<uint8_t*>(calloc(bytes, 1));
  int x = at[1], y = at[2], n = at[3];
  for (int pixel = 0; pixel < map.pixels; ++pixel) {
    const int read[4] = {at[0], x + distance[0], y + distance[1], n};
    read_row(map, row_at(map, read, 0), pixel, data, text_line);
    x += map.step;
    if (x > int(map.sizes[1]) - 1 + map.upper) x = map.lower, y += map.step;
    if (y > int(map.sizes[2]) - 1 + map.upper) y = map.lower, n += 1;
  }
  send(to, barrier, data, bytes, 0, text_line);
  free(data);
}

void tma_store(const TensorMap& map, SharedPlace from, const int* at, int rank, Adder add,
               int text_line) {
  if (!is_legal(from, map, rank, text_line)) tc::emulator::abandon();
  LaneHead& lane = tc::emulator::here();
  // The engine drops what lies behind a tensor; a place before it is an illegal instruction to it.
  for (int axis = 0; axis < rank; ++axis) {
    if (at[axis] >= 0) continue;
    report(lane, Fault::global_out_of_bounds, text_line, 0,
           "a bulk store that begins before its tensor, at %d of its last axis but %d", at[axis],
           axis);
    tc::emulator::abandon();
  }
  check_column(at[0], map, text_line);
  const int width = row_bytes(map), rows = box_rows(map);
  Stores& own = stores_of(lane);
  for (int row = 0; row < rows; ++row) {
    const Row part = row_at(map, at, row);
    for_pieces(part, map.element_bytes, [&](int byte, int count) {
      SharedPlace place = from;
      place.offset += swizzled(map, row * width + part.skipped + byte);
      tc::emulator::check_published(place, uint32_t(count), text_line);
      tc::emulator::begin_async_read(place, uint32_t(count), text_line);
      own.open.reads.push_back({place, uint32_t(count)});
      const uint8_t* bytes = tc::emulator::shared_bytes(place.offset, uint32_t(count), place.rank);
      void* to = tc::emulator::global_write(
          reinterpret_cast<void*>(part.address + uint64_t(byte)), uint32_t(count), text_line);
      if (bytes == nullptr) return;
      if (add != nullptr) add(to, bytes, count);
      else memcpy(to, bytes, size_t(count));
    });
  }
}

void tma_add_line(void* to, SharedPlace from, int bytes, Adder add, int text_line) {
  if ((reinterpret_cast<uintptr_t>(to) | uint32_t(from.offset) | uint32_t(bytes)) % 16 != 0) {
    report(tc::emulator::here(), Fault::shared_misaligned, text_line, 0,
           "a bulk addition of %d bytes whose addresses and size are no multiples of 16", bytes);
    tc::emulator::abandon();
  }
  tc::emulator::check_published(from, uint32_t(bytes), text_line);
  tc::emulator::begin_async_read(from, uint32_t(bytes), text_line);
  stores_of(tc::emulator::here()).open.reads.push_back({from, uint32_t(bytes)});
  const uint8_t* data = tc::emulator::shared_bytes(from.offset, uint32_t(bytes), from.rank);
  void* place = tc::emulator::global_write(to, uint32_t(bytes), text_line);
  if (data != nullptr) add(place, data, bytes);
}

void tma_store_commit() {
  Stores& own = stores_of(tc::emulator::here());
  own.groups.push_back(own.open);
  own.open = StoreGroup();
}

void tma_store_wait(int pending) {
  Stores& own = stores_of(tc::emulator::here());
  const int done = int(own.groups.size()) - pending;
  for (int group = 0; group < done; ++group)
    for (const auto& read : own.groups[size_t(group)].reads)
      tc::emulator::end_async_read(read.first, read.second);
  if (done > 0) own.groups.erase(own.groups.begin(), own.groups.begin() + done);
}

}  // namespace hopper
