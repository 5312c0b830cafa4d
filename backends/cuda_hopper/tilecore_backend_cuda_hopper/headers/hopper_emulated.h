// Hopper's intrinsics (hopper_kernel.cuh) over the emulator's lanes. Same names.
#pragma once
#include "ampere_emulated.h"

// TC_WGMMA(f32_f16, 128, ss)<0, 1>(...) names the member of a class template here.
#define TC_WGMMA(kind, n, source) hopper::wgmma_##kind<n>::source

namespace hopper {

using tc::emulator::SharedPlace;
using u32 = uint32_t;
using u64 = uint64_t;

// The facts of a tensor map, plain to read; axes are innermost first.
struct alignas(64) TensorMap {
  uint64_t address;
  uint64_t strides[4];  // bytes, of axes 1 to 4
  uint32_t sizes[5];
  uint16_t box[5];
  uint8_t rank;
  uint8_t element_bytes;
  uint8_t swizzle_bits;  // 0, or log2 of the 16-byte chunks of a row
  // Of an image, whose box is one pixel's channels: where windows begin along width and height, from
  // the image's first pixel and its last one; from one to the next; windows of one copy, else 0.
  int16_t lower, upper, step;
  uint16_t pixels;
  uint8_t unused[46];
};
static_assert(sizeof(TensorMap) == 128, "as large as the device's");

inline bool elect_one() { return tc::lane_in_warp() == 0; }

// ---------------------------------------------------------------- transaction barriers
inline void barrier_init(tc::shared_pointer<uint64_t> p, int arrivals, TC_HERE) {
  tc::emulator::transaction_init(p.place, arrivals, text_line);
}
inline void barrier_publish() { tc::emulator::transaction_publish(); }
inline void barrier_arrive(tc::shared_pointer<uint64_t> p, TC_HERE) {
  tc::emulator::transaction_arrive(p.place, 1, text_line);
}
inline void barrier_expect(tc::shared_pointer<uint64_t> p, int bytes, TC_HERE) {
  tc::emulator::transaction_expect(p.place, bytes, text_line);
}
inline void barrier_arrive_expect(tc::shared_pointer<uint64_t> p, int bytes, TC_HERE) {
  tc::emulator::transaction_expect(p.place, bytes, text_line);
  tc::emulator::transaction_arrive(p.place, 1, text_line);
}
inline void barrier_wait(tc::shared_pointer<uint64_t> p, int parity, TC_HERE) {
  tc::emulator::transaction_wait(p.place, parity, text_line);
}
inline void barrier_wait(tc::shared_pointer<uint64_t> p, int parity, bool known, TC_HERE) {
  if (!known) tc::emulator::transaction_wait(p.place, parity, text_line);
}
inline bool barrier_test(tc::shared_pointer<uint64_t> p, int parity, TC_HERE) {
  return tc::emulator::transaction_test(p.place, parity, text_line);
}

template <int blocks>
inline void barrier_arrive_each(tc::shared_pointer<uint64_t> p, TC_HERE) {
  const int lane = tc::lane_in_warp();
  if (lane >= blocks) return;
  SharedPlace place = p.place;
  place.rank = lane;
  tc::emulator::transaction_arrive(place, 1, text_line);
}
inline void take_tile(tc::shared_pointer<int> place, uint32_t* counter, int total, TC_HERE) {
  const uint32_t taken = __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED);
  if (taken == uint32_t(total - 1)) __atomic_store_n(counter, 0u, __ATOMIC_RELAXED);
  tc::store_shared(place, int(taken) + tc::grid_x(), text_line);
}
// Kernels run one after the other.
inline void let_next_start() {}
inline void wait_for_earlier() {}
inline int at_use(int lane, int) { return lane; }
inline int cluster_rank() { return tc::emulator::here().place->rank; }
inline void cluster_sync(TC_HERE) {
  tc::emulator::cluster_barrier_arrive(text_line);
  tc::emulator::cluster_barrier_wait(text_line);
}

// ---------------------------------------------------------------- copies by the engine
#pragma GCC visibility push(default)
// For one block (`blocks` = 0: the lane's own) or for the first `blocks` of the cluster.
void tma_load(SharedPlace to, const TensorMap& map, SharedPlace barrier, const int* at, int rank,
              int blocks, int text_line);
// From the windows of an image (`map.pixels`): `at` is (c, x, y, n), `distance` (dx, dy).
void tma_load_windows(SharedPlace to, const TensorMap& map, SharedPlace barrier, const int* at,
                      const int* distance, int text_line);
// `add` adds so many bytes of elements to global memory; without it they are stored.
using Adder = void (*)(void* to, const uint8_t* from, int bytes);
void tma_store(const TensorMap& map, SharedPlace from, const int* at, int rank, Adder add,
               int text_line);
// `bytes` neighbouring ones without a map, added.
void tma_add_line(void* to, SharedPlace from, int bytes, Adder add, int text_line);
void tma_store_commit();
void tma_store_wait(int pending);
#pragma GCC visibility pop

inline void prefetch(const TensorMap&) {}
// Coordinates come as one value, so that the line of the text can stay the last, defaulted argument.
template <int n> struct At { int v[n]; };
template <class... C> At<sizeof...(C)> at(C... c) { return {{int(c)...}}; }

template <class T, int n>
inline void bulk_load(tc::shared_pointer<T> to, const TensorMap& map,
                      tc::shared_pointer<uint64_t> barrier, At<n> where, TC_HERE) {
  tma_load(to.place, map, barrier.place, where.v, n, 0, text_line);
}
template <int blocks, class T, int n>
inline void bulk_load_shared(tc::shared_pointer<T> to, const TensorMap& map,
                             tc::shared_pointer<uint64_t> barrier, At<n> where, TC_HERE) {
  tma_load(to.place, map, barrier.place, where.v, n, blocks, text_line);
}
template <class T>
inline void bulk_load_windows(tc::shared_pointer<T> to, const TensorMap& map,
                              tc::shared_pointer<uint64_t> barrier, At<4> pixel, At<2> distance,
                              TC_HERE) {
  tma_load_windows(to.place, map, barrier.place, pixel.v, distance.v, text_line);
}
template <class T, int n>
inline void bulk_store(const TensorMap& map, tc::shared_pointer<T> from, At<n> where, TC_HERE) {
  tma_store(map, from.place, where.v, n, nullptr, text_line);
}
template <class T>
void add_elements(void* to, const uint8_t* from, int bytes) {
  for (int at = 0; at < bytes; at += int(sizeof(T))) {
    T one;
    memcpy(&one, from + at, sizeof(T));
    tc::emulator::update<T>(static_cast<uint8_t*>(to) + at, [&](T old) { return T(old + one); });
  }
}
template <class T, int n>
inline void bulk_store_add(const TensorMap& map, tc::shared_pointer<T> from, At<n> where, TC_HERE) {
  tma_store(map, from.place, where.v, n, add_elements<T>, text_line);
}
template <int count, class T>
inline void bulk_add(T* to, tc::shared_pointer<T> from, TC_HERE) {
  tma_add_line(to, from.place, count * int(sizeof(T)), add_elements<T>, text_line);
  tma_store_commit();
}
inline void bulk_store_commit() { tma_store_commit(); }
template <int pending>
inline void bulk_store_wait_read() { tma_store_wait(pending); }
inline void publish() { tc::emulator::publish_to_agents(); }

// ---------------------------------------------------------------- registers
template <int count>
inline void registers_fewer() {}
template <int count>
inline void registers_more() {}

// ---------------------------------------------------------------- wgmma
// Bits of a matrix descriptor: PTX ISA, "Matrix Descriptor Format".
template <class T>
inline u64 descriptor(tc::shared_pointer<T> tile, u32 leading_bytes, u32 stride_bytes, int swizzle) {
  return u64((tc::shared_address(tile) & 0x3ffff) >> 4) | u64((leading_bytes & 0x3ffff) >> 4) << 16 |
         u64((stride_bytes & 0x3ffff) >> 4) << 32 | u64(swizzle) << 62;
}
inline u64 hold(u64 descriptor) { return descriptor; }
inline u64 advance(u64 descriptor, u32 bytes) { return descriptor + (bytes >> 4); }

template <int n, class T>
inline tc::registers<T> part(tc::registers<T> registers) { return registers; }
template <int n, class T>
inline tc::registers<T> part_words(tc::registers<T> registers) { return registers; }
// The four words that A in registers is.
template <class T>
inline const u32* words(tc::registers<T> registers, TC_HERE) {
  return reinterpret_cast<const u32*>(registers.take(16 / sizeof(T), text_line));
}
template <class T>
inline void pin(tc::registers<T>) {}
template <int n, class T>
inline void pin_words(tc::registers<T>) {}

enum class Element : int { f16, bf16, tf32, e4m3, e5m2, s8, u8 };
struct WgmmaOperands {
  void* d;
  const u32* a_registers;  // or null: `a` is a descriptor
  u64 a, b;
  int n, accumulate;
  Element a_type, b_type;
  bool a_mn_major, b_mn_major, integer, half_sums;
};
#pragma GCC visibility push(default)
void wgmma(const WgmmaOperands& operands, int text_line);
void wgmma_fence(int text_line);
void wgmma_group(int text_line);
void wgmma_wait_group(int pending, int text_line);
#pragma GCC visibility pop

#define HOPPER_WGMMA(name, D, A, B, is_integer)                                                    \
  template <int n>                                                                                 \
  struct wgmma_##name {                                                                            \
    template <int a_mn = 0, int b_mn = 0>                                                          \
    static void ss(tc::registers<D> d, u64 a, u64 b, int accumulate, TC_HERE) {                    \
      wgmma({d.take(n / 2, text_line), nullptr, a, b, n, accumulate, Element::A, Element::B,       \
             a_mn != 0, b_mn != 0, is_integer, sizeof(D) == 2}, text_line);                        \
    }                                                                                              \
    template <int b_mn = 0>                                                                        \
    static void rs(tc::registers<D> d, const u32* a, u64 b, int accumulate, TC_HERE) {             \
      wgmma({d.take(n / 2, text_line), a, 0, b, n, accumulate, Element::A, Element::B, false,      \
             b_mn != 0, is_integer, sizeof(D) == 2}, text_line);                                   \
    }                                                                                              \
  };
HOPPER_WGMMA(f32_f16, float, f16, f16, false)
HOPPER_WGMMA(f16_f16, tc::half, f16, f16, false)
HOPPER_WGMMA(f32_bf16, float, bf16, bf16, false)
HOPPER_WGMMA(f32_tf32, float, tf32, tf32, false)
HOPPER_WGMMA(f32_e4m3_e4m3, float, e4m3, e4m3, false)
HOPPER_WGMMA(f32_e4m3_e5m2, float, e4m3, e5m2, false)
HOPPER_WGMMA(f32_e5m2_e4m3, float, e5m2, e4m3, false)
HOPPER_WGMMA(f32_e5m2_e5m2, float, e5m2, e5m2, false)
HOPPER_WGMMA(s32_s8_s8, int32_t, s8, s8, true)
HOPPER_WGMMA(s32_s8_u8, int32_t, s8, u8, true)
HOPPER_WGMMA(s32_u8_s8, int32_t, u8, s8, true)
HOPPER_WGMMA(s32_u8_u8, int32_t, u8, u8, true)
#undef HOPPER_WGMMA

inline void wgmma_begin(TC_HERE) { wgmma_fence(text_line); }
inline void wgmma_commit(TC_HERE) { wgmma_group(text_line); }
template <int pending>
inline void wgmma_wait(TC_HERE) { wgmma_wait_group(pending, text_line); }

}  // namespace hopper

#include "hopper_tile.h"
