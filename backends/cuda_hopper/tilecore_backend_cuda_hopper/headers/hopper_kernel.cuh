// What generated Hopper kernels call (namespace hopper), over the kernel vocabulary and hopper.cuh.
// hopper_emulated.h has the same names over emulated lanes.
#pragma once
#include "ampere.cuh"
#include "hopper.cuh"

// wgmma functions are written on demand (wgmma_source.py): TC_WGMMA(f32_f16, 128, ss)<0, 1>(...).
#define TC_WGMMA(kind, n, source) tc::wgmma_##kind##_n##n##_##source

namespace hopper {

using tc::TensorMap;
using tc::u32;
using tc::u64;

TC_DEVICE bool elect_one() { return tc::elect_one(); }

// ---------------------------------------------------------------- transaction barriers
TC_DEVICE void barrier_init(uint64_t* barrier, int arrivals) {
  tc::mbarrier_init(tc::shared_address(barrier), arrivals);
}
TC_DEVICE void barrier_publish() { tc::mbarrier_init_fence(); }
TC_DEVICE void barrier_arrive(uint64_t* barrier) { tc::mbarrier_arrive(tc::shared_address(barrier)); }
TC_DEVICE void barrier_arrive_expect(uint64_t* barrier, int bytes) {
  tc::mbarrier_arrive_expect_bytes(tc::shared_address(barrier), bytes);
}
TC_DEVICE void barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                   tc::shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
TC_DEVICE void barrier_wait(uint64_t* barrier, int parity) {
  tc::mbarrier_wait(tc::shared_address(barrier), parity);
}
// The same where `known` says that the phase has completed, or that nobody needs it.
TC_DEVICE void barrier_wait(uint64_t* barrier, int parity, bool known) {
  tc::mbarrier_wait_unless(known, tc::shared_address(barrier), parity);
}
TC_DEVICE bool barrier_test(uint64_t* barrier, int parity) {
  return tc::mbarrier_test(tc::shared_address(barrier), parity);
}

// One arrival of the warp on the barrier at this place in each of the cluster's blocks.
template <int blocks>
TC_DEVICE void barrier_arrive_each(uint64_t* barrier) {
  const int lane = tc::lane_in_warp();
  if (lane < blocks) tc::mbarrier_arrive_remote(tc::shared_address(barrier), lane);
}
// The next tile after the blocks' first ones. A launch asks `total` times, after each tile once, and so
// leaves the counter at zero as it found it.
TC_DEVICE void take_tile(int* place, uint32_t* counter, int total) {
  *place = int(atomicInc(counter, u32(total - 1))) + tc::grid_x();
}
// The program's next kernel may come to the device; the one before has ended, and its writes are seen.
TC_DEVICE void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
TC_DEVICE void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TC_DEVICE int cluster_rank() { return int(tc::cluster_rank()); }
TC_DEVICE void cluster_sync() {
  tc::cluster_arrive();
  tc::cluster_wait();
}

// ---------------------------------------------------------------- copies by the engine
TC_DEVICE void prefetch(const TensorMap& map) { tc::tensor_map_prefetch(map); }
// Coordinates of a box, innermost first.
template <int n> struct At { int v[n]; };
template <class... C>
TC_DEVICE At<sizeof...(C)> at(C... c) { return {{int(c)...}}; }
template <class T, int n>
TC_DEVICE void bulk_load(T* destination, const TensorMap& map, uint64_t* barrier, At<n> where) {
  const u32 to = tc::shared_address(destination), done = tc::shared_address(barrier);
  const u64 policy = tc::kEvictNormal;
  const int* c = where.v;
  if constexpr (n == 2) tc::tma_load(to, map, done, policy, c[0], c[1]);
  else if constexpr (n == 3) tc::tma_load(to, map, done, policy, c[0], c[1], c[2]);
  else if constexpr (n == 4) tc::tma_load(to, map, done, policy, c[0], c[1], c[2], c[3]);
  else tc::tma_load(to, map, done, policy, c[0], c[1], c[2], c[3], c[4]);
}
// The same for `blocks` blocks of a cluster: each gets the box at the same place, counted on the same
// barrier of its own.
template <int blocks, class T, int n>
TC_DEVICE void bulk_load_shared(T* destination, const TensorMap& map, uint64_t* barrier,
                                At<n> where) {
  const u32 to = tc::shared_address(destination), done = tc::shared_address(barrier);
  const u64 policy = tc::kEvictNormal;
  const tc::u16 all = (1 << blocks) - 1;
  const int* c = where.v;
  if constexpr (n == 2) tc::tma_load_multicast(to, map, done, policy, all, c[0], c[1]);
  else if constexpr (n == 3) tc::tma_load_multicast(to, map, done, policy, all, c[0], c[1], c[2]);
  else if constexpr (n == 4)
    tc::tma_load_multicast(to, map, done, policy, all, c[0], c[1], c[2], c[3]);
  else tc::tma_load_multicast(to, map, done, policy, all, c[0], c[1], c[2], c[3], c[4]);
}
// Windows of an image: the first pixel is (c, x, y, n); pixels (dx, dy) further on are read.
template <class T>
TC_DEVICE void bulk_load_windows(T* destination, const TensorMap& map, uint64_t* barrier, At<4> pixel,
                                 At<2> distance) {
  const int* p = pixel.v;
  tc::tma_load_windows(tc::shared_address(destination), map, tc::shared_address(barrier),
                       tc::kEvictNormal, p[0], p[1], p[2], p[3], tc::u16(distance.v[0]),
                       tc::u16(distance.v[1]));
}
template <class T, int n>
TC_DEVICE void bulk_store(const TensorMap& map, T* source, At<n> where) {
  const u32 from = tc::shared_address(source);
  const int* c = where.v;
  if constexpr (n == 2) tc::tma_store(map, from, c[0], c[1]);
  else if constexpr (n == 3) tc::tma_store(map, from, c[0], c[1], c[2]);
  else if constexpr (n == 4) tc::tma_store(map, from, c[0], c[1], c[2], c[3]);
  else tc::tma_store(map, from, c[0], c[1], c[2], c[3], c[4]);
}
// The same, added to what is there.
template <class T, int n>
TC_DEVICE void bulk_store_add(const TensorMap& map, T* source, At<n> where) {
  const u32 from = tc::shared_address(source);
  const int* c = where.v;
  static_assert(n <= 4, "axes of a tensor that tiles are added to");
  if constexpr (n == 2) tc::tma_store_add(map, from, c[0], c[1]);
  else if constexpr (n == 3) tc::tma_store_add(map, from, c[0], c[1], c[2]);
  else tc::tma_store_add(map, from, c[0], c[1], c[2], c[3]);
}
// `count` neighbours of shared memory, added to as many of global memory: a group of their own.
template <int count>
TC_DEVICE void bulk_add(float* to, float* from) {
  tc::bulk_store_add_f32(to, tc::shared_address(from), count * sizeof(float));
  tc::tma_store_commit();
}
TC_DEVICE void bulk_store_commit() { tc::tma_store_commit(); }
template <int pending>
TC_DEVICE void bulk_store_wait_read() { tc::tma_store_wait_read<pending>(); }
// Shared memory that this lane has written becomes visible to the copy engine and to wgmma.
TC_DEVICE void publish() { tc::fence_async_proxy(); }

// ---------------------------------------------------------------- registers
template <int count>
TC_DEVICE void registers_fewer() { tc::register_decrease<count>(); }
template <int count>
TC_DEVICE void registers_more() { tc::register_increase<count>(); }

// ---------------------------------------------------------------- wgmma
template <class T>
TC_DEVICE u64 descriptor(T* tile, u32 leading_bytes, u32 stride_bytes, int swizzle) {
  return tc::matrix_descriptor(tc::shared_address(tile), leading_bytes, stride_bytes,
                               tc::Swizzle(swizzle));
}
// The same value, said to be one of the warp: it stays in a uniform register and is not made again.
TC_DEVICE u64 hold(u64 descriptor) {
  return (descriptor & 0xffffffff00000000ull) | u32(tc::uniform(int(u32(descriptor))));
}
TC_DEVICE u64 advance(u64 descriptor, u32 bytes) { return tc::descriptor_advance(descriptor, bytes); }

// `n` registers of a larger array, as an array.
template <int n, class T>
TC_DEVICE T (&part(T* registers))[n] { return *reinterpret_cast<T(*)[n]>(registers); }
// The same of 16-bit sums: `n` words of two each.
template <int n, class T>
TC_DEVICE u32 (&part_words(T* registers))[n] { return *reinterpret_cast<u32(*)[n]>(registers); }
template <class T>
TC_DEVICE const u32* words(const T* registers) { return reinterpret_cast<const u32*>(registers); }

template <class T, int n>
TC_DEVICE void pin(T (&registers)[n]) { tc::pin_fragment(registers); }
// Registers of 16-bit or 8-bit operands, word by word.
template <int n, class T>
TC_DEVICE void pin_words(T* registers) { tc::pin_fragment(part<n>(reinterpret_cast<u32*>(registers))); }

TC_DEVICE void wgmma_begin() { tc::wgmma_fence(); }
TC_DEVICE void wgmma_commit() { tc::wgmma_commit(); }
template <int pending>
TC_DEVICE void wgmma_wait() { tc::wgmma_wait<pending>(); }

// ampere::at_use of a lane of a block. That a block has 1024 lanes at most is seen, which makes
// divisions shifts (attention's gradients: 12 and 30 instructions of a step).
TC_DEVICE int at_use(int lane, int counter) { return ampere::at_use(lane, counter) & 1023; }

}  // namespace hopper

#include "hopper_tile.h"
