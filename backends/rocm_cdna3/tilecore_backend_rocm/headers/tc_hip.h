// The kernel vocabulary (namespace tc) on CDNA3 (gfx942), wavefronts of 64 lanes. No HIP headers and no
// device libraries: clang's builtins only, so that any clang with the AMDGPU target compiles it, and
// hiprtc, too. Blocks are launched with shape (lanes, 1, 1).
#pragma once

#ifndef __HIPCC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#endif

#define TC_DEVICE __attribute__((device, always_inline)) inline
#define TC_BIT_CAST(To, value) __builtin_bit_cast(To, value)
#define TC_LIBM(f) tc::libm::f
#define TC_LIBM_NATIVE 1

// The second wish, blocks on one compute unit, becomes wavefronts on each of its four SIMDs: so many
// and no more, so that the compiler uses the registers that these leave.
#define TC_WAVES_PER_SIMD(lanes, blocks) (((blocks) * (((lanes) + 63) / 64) + 3) / 4)
#define TC_KERNEL(lanes, min_blocks)                                                       \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(lanes, lanes),             \
                            amdgpu_waves_per_eu((min_blocks) > 0                           \
                                                    ? TC_WAVES_PER_SIMD(lanes, min_blocks) \
                                                    : TC_WAVES_PER_SIMD(lanes, 1),         \
                                                (min_blocks) > 0                           \
                                                    ? TC_WAVES_PER_SIMD(lanes, min_blocks) \
                                                    : 8))) void
#define TC_RESTRICT __restrict__
#define TC_GRID_CONSTANT
#define TC_FRAGMENT(T, name, n) alignas(16) T name[n]
#define TC_REGISTERS(T) T*
#define TC_LINE(n)
#define TC_PRAGMA(text) _Pragma(#text)
#define TC_UNROLL _Pragma("unroll")
#define TC_UNROLL_BY(n) TC_PRAGMA(unroll n)
#define TC_NO_UNROLL _Pragma("nounroll")
#define TC_SHARED_MEMORY(name)                                                              \
  extern __attribute__((shared, aligned(1024))) unsigned char tc_dynamic_shared[];          \
  tc::shared_pointer<unsigned char> const name = (tc::shared_pointer<unsigned char>)tc_dynamic_shared
#define TC_ASSERT(condition, text)         \
  do {                                     \
    if (!(condition)) __builtin_trap();    \
  } while (0)
// Printing needs a service of the HIP runtime that device code reaches through ROCm's device libraries.
#ifdef __HIPCC_RTC__
#define TC_PRINT(...) printf(__VA_ARGS__)
#else
#define TC_PRINT(...) ((void)0)
#endif

namespace tc::primitive {
TC_DEVICE float f32_of_f16(uint16_t v) { return float(TC_BIT_CAST(_Float16, v)); }
TC_DEVICE uint16_t f16_of_f32(float v) { return TC_BIT_CAST(uint16_t, _Float16(v)); }
TC_DEVICE float f32_of_bf16(uint16_t v) { return TC_BIT_CAST(float, uint32_t(v) << 16); }
// To nearest even, in the upper half of the result; every nan becomes the quiet one without payload.
TC_DEVICE uint32_t bf16_high_of_f32(float v) {
  const uint32_t word = TC_BIT_CAST(uint32_t, v);
  const uint32_t rounded = word + 0x7fffu + (word >> 16 & 1u);
  return v == v ? rounded : 0x7fc00000u;
}
TC_DEVICE uint16_t bf16_of_f32(float v) { return uint16_t(bf16_high_of_f32(v) >> 16); }
TC_DEVICE uint32_t f16x2_of_f32(float low, float high) {
  typedef _Float16 pair __attribute__((ext_vector_type(2)));
  return TC_BIT_CAST(uint32_t, (pair{_Float16(low), _Float16(high)}));
}
TC_DEVICE uint32_t bf16x2_of_f32(float low, float high) {  // v_perm_b32: bytes 2, 3 of each
  return __builtin_amdgcn_perm(bf16_high_of_f32(high), bf16_high_of_f32(low), 0x07060302u);
}
TC_DEVICE int popcount32(uint32_t v) { return __builtin_popcount(v); }
TC_DEVICE int popcount64(uint64_t v) { return __builtin_popcountl(v); }
TC_DEVICE int clz32(uint32_t v) { return v == 0 ? 32 : __builtin_clz(v); }
TC_DEVICE int clz64(uint64_t v) { return v == 0 ? 64 : __builtin_clzl(v); }
}  // namespace tc::primitive

#include "tc_libm.h"
#include "tc_common.h"
#include "tc_hip_narrow.h"
namespace tc {
template <> struct conversion<half, e5m2, 3, 3> {
  static TC_DEVICE half of(e5m2 v) { return half{narrow_bits::f16_of_e5m2(v.bits)}; }
};
template <> struct conversion<half, e4m3, 3, 3> {
  static TC_DEVICE half of(e4m3 v) { return half{narrow_bits::f16_of_e4m3(v.bits)}; }
};
}  // namespace tc
#include "tc_math.h"

namespace tc {

enum : int { lanes_per_warp = 64 };
using lane_mask = uint64_t;
// Shared memory is an address space of its own: ds_ instructions instead of flat ones, always.
template <class T> using shared_pointer = T __attribute__((address_space(3)))*;
template <class T> using global_pointer = T __attribute__((address_space(1)))*;
using implicit_pointer = const uint32_t __attribute__((address_space(4)))*;

// ---------------------------------------------------------------- arithmetic
TC_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
TC_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
TC_DEVICE double min(double a, double b) { return __builtin_fmin(a, b); }
TC_DEVICE double max(double a, double b) { return __builtin_fmax(a, b); }
TC_DEVICE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
TC_DEVICE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
TC_DEVICE float fast_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
TC_DEVICE float fast_log2(float x) { return __builtin_amdgcn_logf(x); }
TC_DEVICE float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }
TC_DEVICE float fast_log(float x) { return fast_log2(x) * 0.6931471805599453f; }
// v_sin_f32 and v_cos_f32 take revolutions.
TC_DEVICE float fast_sin(float x) {
  return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0.15915494309189535f));
}
TC_DEVICE float fast_cos(float x) {
  return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0.15915494309189535f));
}
TC_DEVICE float fast_rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
TC_DEVICE float fast_rcp(float x) { return __builtin_amdgcn_rcpf(x); }
TC_DEVICE float fast_divide(float x, float y) { return x * fast_rcp(y); }
TC_DEVICE float fast_tanh(float x) {
  return 1.0f - 2.0f * fast_rcp(1.0f + fast_exp2(x * 2.8853900817779268f));
}

// ---------------------------------------------------------------- indices
TC_DEVICE int lane_x() { return int(__builtin_amdgcn_workitem_id_x()); }
TC_DEVICE int lane_y() { return 0; }
TC_DEVICE int lane_z() { return 0; }
TC_DEVICE int lane_in_block() { return lane_x(); }
TC_DEVICE int lane_in_warp() { return lane_x() % lanes_per_warp; }
TC_DEVICE int warp_in_block() { return lane_x() / lanes_per_warp; }
TC_DEVICE int block_x() { return int(__builtin_amdgcn_workgroup_id_x()); }
TC_DEVICE int block_y() { return int(__builtin_amdgcn_workgroup_id_y()); }
TC_DEVICE int block_z() { return int(__builtin_amdgcn_workgroup_id_z()); }
// The first implicit arguments of code object version 5 are the numbers of blocks.
TC_DEVICE int grid_x() { return int(((implicit_pointer)__builtin_amdgcn_implicitarg_ptr())[0]); }
TC_DEVICE int grid_y() { return int(((implicit_pointer)__builtin_amdgcn_implicitarg_ptr())[1]); }
TC_DEVICE int grid_z() { return int(((implicit_pointer)__builtin_amdgcn_implicitarg_ptr())[2]); }

}  // namespace tc

#include "tc_hip_memory.h"
#include "tc_hip_atomics.h"
#include "tc_hip_lanes.h"
