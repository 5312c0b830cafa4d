// Copies between global and shared memory by the tensor memory accelerator. Included by hopper.cuh.
// Instruction semantics: PTX ISA, "cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor".
#pragma once

namespace tc {

// L2 eviction policies: the fixed 64-bit encodings that `createpolicy.fractional.L2::evict_* 1.0` gives.
constexpr u64 kEvictNormal = 0x1000000000000000ull;
constexpr u64 kEvictFirst = 0x12f0000000000000ull;
constexpr u64 kEvictLast = 0x14f0000000000000ull;

TC_DEVICE void tensor_map_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<u64>(&map)) : "memory");
}

// Copy one box from global to shared memory; completes `box bytes` on `barrier`.
// Coordinates are innermost first, in elements; parts outside the tensor arrive as zeros.
#define TC_TMA_LOAD_TEXT(RANK, COORDS, LAST)                                                 \
  "cp.async.bulk.tensor." RANK                                                               \
  ".shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {" COORDS \
  "}], [%2], " LAST ";"
#define TC_TMA_MULTICAST_TEXT(RANK, COORDS, MASK, LAST)                             \
  "cp.async.bulk.tensor." RANK                                                      \
  ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"         \
  ".L2::cache_hint [%0], [%1, {" COORDS "}], [%2], " MASK ", " LAST ";"
#define TC_TMA_BASE "r"(destination), "l"(reinterpret_cast<u64>(&map)), "r"(barrier)

TC_DEVICE void tma_load(u32 destination, const TensorMap& map, u32 barrier, u64 policy, int c0,
                        int c1) {
  asm volatile(TC_TMA_LOAD_TEXT("2d", "%4, %5", "%3")::TC_TMA_BASE, "l"(policy), "r"(c0), "r"(c1)
               : "memory");
}
TC_DEVICE void tma_load(u32 destination, const TensorMap& map, u32 barrier, u64 policy, int c0,
                        int c1, int c2) {
  asm volatile(TC_TMA_LOAD_TEXT("3d", "%4, %5, %6", "%3")::TC_TMA_BASE, "l"(policy), "r"(c0),
               "r"(c1), "r"(c2)
               : "memory");
}
TC_DEVICE void tma_load(u32 destination, const TensorMap& map, u32 barrier, u64 policy, int c0,
                        int c1, int c2, int c3) {
  asm volatile(TC_TMA_LOAD_TEXT("4d", "%4, %5, %6, %7", "%3")::TC_TMA_BASE, "l"(policy), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
TC_DEVICE void tma_load(u32 destination, const TensorMap& map, u32 barrier, u64 policy, int c0,
                        int c1, int c2, int c3, int c4) {
  asm volatile(TC_TMA_LOAD_TEXT("5d", "%4, %5, %6, %7, %8", "%3")::TC_TMA_BASE, "l"(policy),
               "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
// Multicast: the box lands at the same offset, and completes on the barrier at the same offset, in
// every block of the cluster whose bit is set in `blocks`.
TC_DEVICE void tma_load_multicast(u32 destination, const TensorMap& map, u32 barrier, u64 policy,
                                  u16 blocks, int c0, int c1) {
  asm volatile(TC_TMA_MULTICAST_TEXT("2d", "%5, %6", "%4", "%3")::TC_TMA_BASE, "l"(policy),
               "h"(blocks), "r"(c0), "r"(c1)
               : "memory");
}
TC_DEVICE void tma_load_multicast(u32 destination, const TensorMap& map, u32 barrier, u64 policy,
                                  u16 blocks, int c0, int c1, int c2) {
  asm volatile(TC_TMA_MULTICAST_TEXT("3d", "%5, %6, %7", "%4", "%3")::TC_TMA_BASE, "l"(policy),
               "h"(blocks), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
TC_DEVICE void tma_load_multicast(u32 destination, const TensorMap& map, u32 barrier, u64 policy,
                                  u16 blocks, int c0, int c1, int c2, int c3) {
  asm volatile(TC_TMA_MULTICAST_TEXT("4d", "%5, %6, %7, %8", "%4", "%3")::TC_TMA_BASE, "l"(policy),
               "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
TC_DEVICE void tma_load_multicast(u32 destination, const TensorMap& map, u32 barrier, u64 policy,
                                  u16 blocks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(TC_TMA_MULTICAST_TEXT("5d", "%5, %6, %7, %8, %9", "%4", "%3")::TC_TMA_BASE,
               "l"(policy), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// The same from windows of an image (a map in im2col mode): pixels from (w, h) of image n on, window by
// window, each read `dw`, `dh` further on; channels from c. Pixels outside the image arrive as zeros.
TC_DEVICE void tma_load_windows(u32 destination, const TensorMap& map, u32 barrier, u64 policy, int c,
                                int w, int h, int n, u16 dw, u16 dh) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], {%8, %9}, %3;" ::TC_TMA_BASE,
      "l"(policy), "r"(c), "r"(w), "r"(h), "r"(n), "h"(dw), "h"(dh)
      : "memory");
}

// Copy one box from shared to global memory; parts outside the tensor are dropped.
#define TC_TMA_STORE_TEXT(RANK, COORDS) \
  "cp.async.bulk.tensor." RANK ".global.shared::cta.bulk_group [%0, {" COORDS "}], [%1];"
TC_DEVICE void tma_store(const TensorMap& map, u32 source, int c0, int c1) {
  asm volatile(TC_TMA_STORE_TEXT("2d", "%2, %3")::"l"(reinterpret_cast<u64>(&map)), "r"(source),
               "r"(c0), "r"(c1)
               : "memory");
}
TC_DEVICE void tma_store(const TensorMap& map, u32 source, int c0, int c1, int c2) {
  asm volatile(TC_TMA_STORE_TEXT("3d", "%2, %3, %4")::"l"(reinterpret_cast<u64>(&map)), "r"(source),
               "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
TC_DEVICE void tma_store(const TensorMap& map, u32 source, int c0, int c1, int c2, int c3) {
  asm volatile(TC_TMA_STORE_TEXT("4d", "%2, %3, %4, %5")::"l"(reinterpret_cast<u64>(&map)),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
TC_DEVICE void tma_store(const TensorMap& map, u32 source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(TC_TMA_STORE_TEXT("5d", "%2, %3, %4, %5, %6")::"l"(reinterpret_cast<u64>(&map)),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
TC_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Wait until at most `Pending` store groups of this thread still read shared memory.
template <int Pending>
TC_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Wait until at most `Pending` store groups of this thread are not yet visible in global memory.
template <int Pending>
TC_DEVICE void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// Add one box of shared memory to global memory, element type of the map.
#define TC_TMA_ADD_TEXT(RANK, COORDS)                                             \
  "cp.reduce.async.bulk.tensor." RANK ".global.shared::cta.add.tile.bulk_group [%0, {" COORDS \
  "}], [%1];"
TC_DEVICE void tma_store_add(const TensorMap& map, u32 source, int c0, int c1) {
  asm volatile(TC_TMA_ADD_TEXT("2d", "%2, %3")::"l"(reinterpret_cast<u64>(&map)), "r"(source),
               "r"(c0), "r"(c1)
               : "memory");
}
TC_DEVICE void tma_store_add(const TensorMap& map, u32 source, int c0, int c1, int c2) {
  asm volatile(TC_TMA_ADD_TEXT("3d", "%2, %3, %4")::"l"(reinterpret_cast<u64>(&map)), "r"(source),
               "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
TC_DEVICE void tma_store_add(const TensorMap& map, u32 source, int c0, int c1, int c2, int c3) {
  asm volatile(TC_TMA_ADD_TEXT("4d", "%2, %3, %4, %5")::"l"(reinterpret_cast<u64>(&map)),
               "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// Contiguous bytes without a tensor map; addresses and sizes are multiples of 16.
TC_DEVICE void bulk_load(u32 destination, const void* source, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          destination),
      "l"(reinterpret_cast<u64>(source)), "r"(bytes), "r"(barrier)
      : "memory");
}
TC_DEVICE void bulk_store(void* destination, u32 source, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   reinterpret_cast<u64>(destination)),
               "r"(source), "r"(bytes)
               : "memory");
}
TC_DEVICE void bulk_store_add_f32(float* destination, u32 source, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   reinterpret_cast<u64>(destination)),
               "r"(source), "r"(bytes)
               : "memory");
}

}  // namespace tc
