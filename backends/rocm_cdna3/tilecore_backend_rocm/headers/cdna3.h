// CDNA3's matrix instructions (README.md). Same names as cdna3_emulated.h.
#pragma once
#include "tc_hip.h"

namespace cdna3 {

// The compiler's scheduler moves nothing past this place.
TC_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }
// s_setprio: of the wavefronts of one SIMD, those with the higher level issue first.
template <int level>
TC_DEVICE void set_priority() { __builtin_amdgcn_s_setprio(level); }

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
