// Device vocabulary of the Hopper backend: one inline function per hardware ability.
//
// Generated kernels call only these functions and the wgmma functions that `wgmma_source.py` writes
// on demand. No standard header is needed, so NVRTC compiles a kernel in a fraction of a second.
// Shared memory is named by 32-bit shared-window addresses everywhere (`shared_address`).
// Instruction semantics: PTX ISA 8.0 and later, sections "mbarrier", "cp.async.bulk.tensor", "wgmma".
// The copies between global and shared memory are in hopper_tma.cuh.
#pragma once

#define TC_DEVICE __device__ __forceinline__

namespace tc {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// ---------------------------------------------------------------- kernel parameters
// The 128-byte opaque descriptor that the driver encodes; passed as `const __grid_constant__`.
struct alignas(64) TensorMap {
  u64 words[16];
};

// ---------------------------------------------------------------- thread identity
TC_DEVICE u32 lane_index() {
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Broadcast from lane 0 so that the compiler keeps the value, and all it decides, in uniform registers.
TC_DEVICE u32 warp_index() { return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); }
TC_DEVICE u32 warpgroup_index() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }

// True in exactly one lane of a converged warp.
TC_DEVICE bool elect_one() {
  u32 chosen;
  asm volatile(
      "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}

TC_DEVICE u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// Physical byte offset of a logical one inside a 128-byte-swizzled tile whose base is 1024-aligned:
// the 16-byte chunk index (bits 4-6) is XORed with the row index modulo 8 (bits 7-9).
TC_DEVICE constexpr u32 swizzle_128b(u32 byte_offset) {
  return byte_offset ^ ((byte_offset >> 3) & 0x70u);
}

// Cycles of this multiprocessor, and nanoseconds of the device, for measuring the clock a kernel ran at.
TC_DEVICE u64 clock_cycles() {
  u64 value;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(value)::"memory");
  return value;
}
TC_DEVICE u64 global_nanoseconds() {
  u64 value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
  return value;
}

// ---------------------------------------------------------------- register reallocation
template <int Count>
TC_DEVICE void register_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
TC_DEVICE void register_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

// ---------------------------------------------------------------- barriers among threads
TC_DEVICE void named_barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TC_DEVICE void named_barrier_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
TC_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
TC_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
TC_DEVICE u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Orders this thread's ordinary shared-memory writes before later asynchronous-proxy reads (TMA, wgmma).
TC_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---------------------------------------------------------------- mbarriers
TC_DEVICE void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After all inits and before the block or cluster barrier that publishes them.
TC_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
TC_DEVICE void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
TC_DEVICE void mbarrier_arrive_expect_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrive on the barrier at the same offset in another block of the cluster. The default (block) scope is
// kept on purpose: `.release.cluster` costs a device-wide memory fence per arrival, and releasing a stage
// that only the tensor cores have read orders no ordinary memory access.
TC_DEVICE void mbarrier_arrive_remote(u32 barrier, u32 block_rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(block_rank)
      : "memory");
}
TC_DEVICE bool mbarrier_try_wait(u32 barrier, u32 phase) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(phase)
      : "memory");
  return done != 0;
}
// Wait until the phase with this parity has completed.
TC_DEVICE void mbarrier_wait(u32 barrier, u32 phase) {
  asm volatile(
      "{\n.reg .pred p;\nwait_again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra wait_done;\nbra wait_again;\nwait_done:\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
// The same where `known` does not say already that it has.
TC_DEVICE void mbarrier_wait_unless(u32 known, u32 barrier, u32 phase) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p bra wait_done;\n"
      "wait_again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra wait_done;\nbra wait_again;\nwait_done:\n}" ::"r"(barrier),
      "r"(phase), "r"(known)
      : "memory");
}
// Whether the phase with this parity has completed; never waits, as `try_wait` may.
TC_DEVICE bool mbarrier_test(u32 barrier, u32 phase) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(phase)
      : "memory");
  return done != 0;
}

// ---------------------------------------------------------------- wgmma
enum class Swizzle : u32 { kNone = 0, k128B = 1, k64B = 2, k32B = 3 };

// Shared-memory matrix descriptor. Offsets in bytes, multiples of 16.
//   K-major, 128B swizzle:  stride_bytes = 1024 (next 8 rows), leading_bytes unused; k-step: +32 bytes.
//   MN-major, 128B swizzle: stride_bytes = 1024 (next 8 k), leading_bytes = distance between panels of
//   128 bytes along MN; k-step of 16 for 16-bit types: +2048 bytes.
TC_DEVICE constexpr u64 matrix_descriptor(u32 address, u32 leading_bytes, u32 stride_bytes,
                                          Swizzle swizzle = Swizzle::k128B) {
  return static_cast<u64>((address & 0x3ffff) >> 4) |
         (static_cast<u64>((leading_bytes & 0x3ffff) >> 4) << 16) |
         (static_cast<u64>((stride_bytes & 0x3ffff) >> 4) << 32) |
         (static_cast<u64>(swizzle) << 62);
}
// The descriptor of a tile `bytes` further on. Shared memory ends below 2^18, so no carry leaves the
// 14-bit address field: the upper word stays as it is, and the compiler need not add to it.
TC_DEVICE constexpr u64 descriptor_advance(u64 descriptor, u32 bytes) {
  return (descriptor & 0xffffffff00000000ull) | u32(u32(descriptor) + (bytes >> 4));
}

TC_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TC_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
TC_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Pins a fragment at this point of the program: no read or write of it moves across.
template <int Count>
TC_DEVICE void pin_fragment(float (&fragment)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(fragment[i])::"memory");
}
template <int Count>
TC_DEVICE void pin_fragment(int (&fragment)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(fragment[i])::"memory");
}
template <int Count>
TC_DEVICE void pin_fragment(u32 (&fragment)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(fragment[i])::"memory");
}

// ---------------------------------------------------------------- register <-> shared matrices
// Four (two) 8x8 matrices of 16-bit elements; lane l holds the row address of matrix l/8, row l%8.
TC_DEVICE void store_matrix_x4(u32 row_address, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
TC_DEVICE void store_matrix_x4_transposed(u32 row_address, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   row_address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
// The reverse: each lane gives the row address of matrix l/8, row l%8, and receives one pair per matrix.
TC_DEVICE void load_matrix_x4(u32 (&r)[4], u32 row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}
TC_DEVICE void load_matrix_x4_transposed(u32 (&r)[4], u32 row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}
TC_DEVICE void store_matrix_x2(u32 row_address, u32 r0, u32 r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row_address),
               "r"(r0), "r"(r1)
               : "memory");
}

TC_DEVICE void shared_store(u32 address, u32 value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
TC_DEVICE u32 shared_load(u32 address) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// ---------------------------------------------------------------- arithmetic
#define kInfinity __int_as_float(0x7f800000)

struct Float16 {};
struct BFloat16 {};

// Round two floats to 16 bits; `low` goes to the lower half.
template <class Element>
TC_DEVICE u32 pack_16bit(float low, float high);
template <>
TC_DEVICE u32 pack_16bit<Float16>(float low, float high) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <>
TC_DEVICE u32 pack_16bit<BFloat16>(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// Round two floats to 8-bit floats, saturating; `low` goes to the lower byte.
TC_DEVICE u16 pack_e4m3(float low, float high) {
  u16 packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
TC_DEVICE u16 pack_e5m2(float low, float high) {
  u16 packed;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
// Round a float to the 19 bits that tf32 operands keep.
TC_DEVICE u32 round_tf32(float x) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}
TC_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TC_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TC_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Reductions over the four lanes that share the rows of a wgmma accumulator.
TC_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
TC_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

}  // namespace tc

#include "hopper_tma.cuh"
