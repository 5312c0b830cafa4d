// The kernel vocabulary (namespace tc) on CUDA devices from sm_80 on. No toolkit headers: NVRTC
// compiles this in a few milliseconds. Instructions are those of the PTX ISA.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
#ifdef _WIN32
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
typedef long int64_t;
typedef unsigned long uint64_t;
#endif
#else
#include <stdint.h>
#endif

#define TC_DEVICE __device__ __forceinline__
#define TC_LIBM(f) ::f
#define TC_BIT_CAST(To, value) __builtin_bit_cast(To, value)

#define TC_KERNEL(lanes, min_blocks) \
  extern "C" __global__ void __launch_bounds__(lanes, (min_blocks) > 0 ? (min_blocks) : 1)
#define TC_RESTRICT __restrict__
#define TC_GRID_CONSTANT __grid_constant__
#define TC_FRAGMENT(T, name, n) alignas(16) T name[n]
#define TC_REGISTERS(T) T*
#define TC_LINE(n)
#define TC_UNROLL _Pragma("unroll")
#define TC_PRAGMA(text) _Pragma(#text)
#define TC_UNROLL_BY(n) TC_PRAGMA(unroll n)
#define TC_NO_UNROLL _Pragma("unroll 1")
#define TC_SHARED_MEMORY(name)                                         \
  extern __shared__ __align__(1024) unsigned char tc_dynamic_shared[]; \
  unsigned char* const name = tc_dynamic_shared
#define TC_ASSERT(condition, text)                                                         \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      printf("tilecore assertion: %s (block %d,%d,%d lane %d)\n", text, tc::block_x(),     \
             tc::block_y(), tc::block_z(), tc::lane_in_block());                           \
      __trap();                                                                            \
    }                                                                                      \
  } while (0)
#define TC_PRINT(...) printf(__VA_ARGS__)

namespace tc::primitive {
TC_DEVICE float f32_of_f16(uint16_t v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
}
TC_DEVICE uint16_t f16_of_f32(float v) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
TC_DEVICE float f32_of_bf16(uint16_t v) { return __builtin_bit_cast(float, uint32_t(v) << 16); }
TC_DEVICE uint16_t bf16_of_f32(float v) {
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
TC_DEVICE uint32_t f16x2_of_f32(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TC_DEVICE uint32_t bf16x2_of_f32(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
TC_DEVICE int popcount32(uint32_t v) { return __popc(v); }
TC_DEVICE int popcount64(uint64_t v) { return __popcll(v); }
TC_DEVICE int clz32(uint32_t v) { return __clz(int(v)); }
TC_DEVICE int clz64(uint64_t v) { return __clzll((long long)(v)); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define TC_NATIVE_FP8 1
TC_DEVICE uint32_t e4m3x2_of_f32(float low, float high) {
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
TC_DEVICE uint8_t e4m3_of_f32(float v) { return uint8_t(e4m3x2_of_f32(v, 0.0f)); }
TC_DEVICE uint8_t e5m2_of_f32(float v) {
  uint16_t r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(v));
  return uint8_t(r);
}
TC_DEVICE float f32_of_e4m3(uint8_t v) {
  uint32_t r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(uint16_t(v)));
  return f32_of_f16(uint16_t(r));
}
TC_DEVICE float f32_of_e5m2(uint8_t v) {
  uint32_t r;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"(uint16_t(v)));
  return f32_of_f16(uint16_t(r));
}
#endif
}  // namespace tc::primitive

#include "tc_common.h"
#include "tc_math.h"

namespace tc {

enum : int { lanes_per_warp = 32 };
using lane_mask = uint32_t;
enum : uint32_t { all_lanes = 0xffffffffu };  // not an object: it would take device memory

// ---------------------------------------------------------------- arithmetic
TC_DEVICE float min(float a, float b) { return ::fminf(a, b); }
TC_DEVICE float max(float a, float b) { return ::fmaxf(a, b); }
TC_DEVICE double min(double a, double b) { return ::fmin(a, b); }
TC_DEVICE double max(double a, double b) { return ::fmax(a, b); }
#define TC_FLOAT_PTX2(name, instruction)                                     \
  TC_DEVICE float name(float a, float b) {                                   \
    float r;                                                                 \
    asm(instruction " %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));              \
    return r;                                                                \
  }
#define TC_FLOAT_PTX1(name, instruction)                                     \
  TC_DEVICE float name(float a) {                                            \
    float r;                                                                 \
    asm(instruction " %0, %1;" : "=f"(r) : "f"(a));                          \
    return r;                                                                \
  }
TC_FLOAT_PTX2(min_nan, "min.NaN.f32")
TC_FLOAT_PTX2(max_nan, "max.NaN.f32")
TC_FLOAT_PTX2(fast_divide, "div.approx.ftz.f32")
TC_FLOAT_PTX1(fast_exp2, "ex2.approx.ftz.f32")
TC_FLOAT_PTX1(fast_log2, "lg2.approx.ftz.f32")
TC_FLOAT_PTX1(fast_sin, "sin.approx.ftz.f32")
TC_FLOAT_PTX1(fast_cos, "cos.approx.ftz.f32")
TC_FLOAT_PTX1(fast_tanh, "tanh.approx.f32")
TC_FLOAT_PTX1(fast_rsqrt, "rsqrt.approx.ftz.f32")
TC_FLOAT_PTX1(fast_rcp, "rcp.approx.ftz.f32")
#undef TC_FLOAT_PTX1
#undef TC_FLOAT_PTX2
TC_DEVICE float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }
TC_DEVICE float fast_log(float x) { return fast_log2(x) * 0.6931471805599453f; }
TC_DEVICE float rsqrt(float x) { return ::rsqrtf(x); }
TC_DEVICE double rsqrt(double x) { return ::rsqrt(x); }

// ---------------------------------------------------------------- indices
TC_DEVICE int lane_x() { return int(threadIdx.x); }
TC_DEVICE int lane_y() { return int(threadIdx.y); }
TC_DEVICE int lane_z() { return int(threadIdx.z); }
TC_DEVICE int lane_in_block() {
  return int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
TC_DEVICE int lane_in_warp() { return lane_in_block() % lanes_per_warp; }
TC_DEVICE int warp_in_block() { return lane_in_block() / lanes_per_warp; }
TC_DEVICE int block_x() { return int(blockIdx.x); }
TC_DEVICE int block_y() { return int(blockIdx.y); }
TC_DEVICE int block_z() { return int(blockIdx.z); }
TC_DEVICE int grid_x() { return int(gridDim.x); }
TC_DEVICE int grid_y() { return int(gridDim.y); }
TC_DEVICE int grid_z() { return int(gridDim.z); }

}  // namespace tc

#include "tc_cuda_memory.cuh"
#include "tc_cuda_atomics.cuh"
#include "tc_cuda_lanes.cuh"
