// CDNA3's matrix instructions (README.md). Same names as cdna3_emulated.h.
#pragma once
#include "tc_hip.h"

namespace cdna3 {

// T.perm of tilecore.language.rocm.
TC_DEVICE uint32_t perm(uint32_t a, uint32_t b, uint32_t selector) {
  return __builtin_amdgcn_perm(a, b, selector);
}

// The compiler's scheduler moves nothing past this place.
TC_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }
// s_setprio: of the wavefronts of one SIMD, those with the higher level issue first.
template <int level>
TC_DEVICE void set_priority() { __builtin_amdgcn_s_setprio(level); }

// A load straight to LDS, 4 bytes a lane: to the place of the wavefront's first lane (M0) plus 4 times
// the lane's number, zeros from outside the buffer ("CDNA3 ISA", memory buffer load to LDS). All lanes
// take part. It is done when vmcnt says so; compilers that know the builtin do not move it over a wait.
template <int N, class T>
TC_DEVICE void load_to_lds(tc::shared_pointer<T> p, const T* base, int index, int64_t elements, bool valid = true) {
  static_assert(N * int(sizeof(T)) == 4, "4 bytes a lane");
#if __has_builtin(__builtin_amdgcn_raw_ptr_buffer_load_lds)
  const auto first = (tc::shared_pointer<T>)uint64_t(tc::uniform(int(tc::shared_address(p))));
  __builtin_amdgcn_raw_ptr_buffer_load_lds(TC_BUFFER_OF(base, elements), first, 4,
                                           tc::buffer_offset(int64_t(index) * int(sizeof(T)), valid), 0, 0, 0);
#else  // clang before 20 (ROCm 6): through registers, done when it returns
  TC_FRAGMENT(T, moved, N);
  tc::load_bounded<N>(moved, base, index, elements, valid);
  tc::store_shared<N>(p, moved);
#endif
}
// The barrier of kernels with such loads: a fence would wait for all of them. LDS accesses of this
// wavefront are done when it arrives, loads to LDS as far as wait_for_lds said; global memory needs
// nothing within a workgroup, whose wavefronts share one first level cache.
TC_DEVICE void barrier_under_loads() {
  asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  __builtin_amdgcn_s_barrier();
  asm volatile("" ::: "memory");
}
// Until at most `pending` groups of direct loads are under way: those are the newest `operations`
// vector memory operations of the wavefront or fewer, and all older ones are done in order.
template <int pending, int operations>
TC_DEVICE void wait_for_lds() {
  constexpr int left = pending == 0 ? 0 : operations < 63 ? operations : 63;
  __builtin_amdgcn_s_waitcnt((left & 15) | (left >> 4) << 14 | 0x0f70);  // vmcnt; expcnt and lgkmcnt as they are
}

// Barriers of a program's own, 8 bytes of LDS each: one that counts arrivals of lanes has those that are
// left of a phase in bits 0 .. 19, those of a whole phase in 20 .. 39 and its phase above. Wavefronts
// have program counters of their own, so that one may wait for others; lanes of one wavefront may not.
constexpr uint64_t one_phase = uint64_t(1) << 40;
TC_DEVICE void barrier_init(tc::shared_pointer<uint64_t> p, int arrivals) {
  *p = uint64_t(arrivals) << 20 | uint64_t(arrivals);
}
TC_DEVICE void barrier_arrive(tc::shared_pointer<uint64_t> p) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  const uint64_t before = tc::atomic_add_shared(p, ~uint64_t(0));  // one less
  const uint64_t again = before >> 20 & 0xfffff;
  if ((before & 0xfffff) == 1) tc::atomic_add_shared(p, one_phase + again);
}
TC_DEVICE void barrier_wait(tc::shared_pointer<uint64_t> p, int parity) {
  while ((tc::load_acquire_shared(p) / one_phase & 1) == uint64_t(parity & 1)) __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// One at which wavefronts meet by a number has those that arrived in bits 40 .. 51, its round above.
template <bool waits>
TC_DEVICE void meet(tc::shared_pointer<uint64_t> p, int number, int lanes) {
  constexpr int round = 52;
  const uint64_t all = uint64_t(lanes / 64);
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  if (tc::lane_in_warp() == 0) {
    const uint64_t before = tc::atomic_add_shared(p, one_phase);
    if ((before / one_phase & 0xfff) + 1 == all) {
      tc::atomic_add_shared(p, (uint64_t(1) << round) - all * one_phase);
    } else if (waits) {
      while (tc::load_acquire_shared(p) >> round == before >> round) __builtin_amdgcn_s_sleep(1);
    }
  }
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  __builtin_amdgcn_wave_barrier();
}

// What these registers hold is worked out here, not later.
template <int N, class T>
TC_DEVICE void settle(T* regs) {
  constexpr int per_word = sizeof(T) >= 4 ? 1 : 4 / int(sizeof(T));
  static_assert(sizeof(T) <= 4 && N % per_word == 0, "whole registers");
  TC_UNROLL for (int i = 0; i < N; i += per_word) {
    uint32_t word;
    __builtin_memcpy(&word, regs + i, sizeof word);
    asm volatile("" : "+v"(word));
    __builtin_memcpy(regs + i, &word, sizeof word);
  }
}

// Two halves of a workgroup's wavefronts, one phase apart (tilecore/passes/stagger.py). A phase ends at
// the workgroup's barrier, which counts wavefronts wherever they stand. LDS accesses of the phase are
// done, loads to registers go on, and the compiler moves nothing from one phase to another.
template <int lanes>
TC_DEVICE void next_phase() {
  keep_order();
  barrier_under_loads();
  keep_order();
}
template <int lanes>
TC_DEVICE void begin_phases() {
  tc::barrier();
  if (tc::uniform(tc::warp_in_block()) >= lanes / 128) next_phase<lanes>();
}
template <int lanes>
TC_DEVICE void end_phases() {
  if (tc::uniform(tc::warp_in_block()) < lanes / 128) next_phase<lanes>();
}

// Operand types of the builtins.
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef long i64;

template <class D, int n> struct results_of { typedef D type __attribute__((ext_vector_type(n))); };

// D^T = B^T A^T: the builtin's first operand is B. xf32 builtins take no element types to convert.
#define CDNA3_ATOM(side, k, suffix, D, A, B, per_lane, builtin, operand)                       \
  TC_DEVICE void mfma_##side##x##side##x##k##_##suffix(D* d, const A* a, const B* b) {         \
    using results = results_of<D, side * side / 64>::type;                                     \
    constexpr int step = int(sizeof(operand) / sizeof(A)), times = per_lane / step;            \
    results sum;                                                                               \
    __builtin_memcpy(&sum, d, sizeof sum);                                                     \
    TC_UNROLL for (int i = 0; i < times; ++i) {                                                \
      operand left, right;                                                                     \
      __builtin_memcpy(&left, b + i * step, sizeof left);                                      \
      __builtin_memcpy(&right, a + i * step, sizeof right);                                    \
      sum = __builtin_amdgcn_##builtin(left, right, sum, 0, 0, 0);                             \
    }                                                                                          \
    __builtin_memcpy(d, &sum, sizeof sum);                                                     \
  }
#include "cdna3_mfma.h"
#undef CDNA3_ATOM

}  // namespace cdna3
