// The kernel vocabulary (../README.md) over the emulator's lanes. A backend's emulated header
// defines TC_LANES_PER_WARP, includes this, and adds its intrinsics.
//
// `text_line` defaults to the line of the generated text that makes the call.
#pragma once
#include <string.h>

#include "../native/engine.h"

#ifndef TC_LANES_PER_WARP
#error "define TC_LANES_PER_WARP before including tc_emulated.h"
#endif

#define TC_EMULATED 1
#define TC_DEVICE inline
#define TC_LIBM(f) __builtin_##f
#define TC_BIT_CAST(To, value) __builtin_bit_cast(To, value)
#define TC_HERE int text_line = __builtin_LINE()

#define TC_KERNEL(lanes, min_blocks) static void
#define TC_RESTRICT
#define TC_GRID_CONSTANT
#define TC_FRAGMENT(T, name, n)        \
  alignas(16) T name##__registers[n];  \
  const tc::registers<T> name(name##__registers, n, #name)
#define TC_REGISTERS(T) tc::registers<T>
#define TC_LINE(n) tc::emulator::at_line(n)
#define TC_UNROLL
#define TC_UNROLL_BY(n)
#define TC_NO_UNROLL
#define TC_SHARED_MEMORY(name) const tc::emulator::SharedPlace name = tc::emulator::shared_base()
#define TC_ASSERT(condition, text)                                                        \
  do {                                                                                    \
    if (!(condition))                                                                     \
      tc::emulator::report(tc::emulator::here(), tc::emulator::Fault::assertion, __LINE__, 0, \
                           "%s", text);                                                   \
  } while (0)
#define TC_PRINT(...) tc::emulator::print(__VA_ARGS__)

// Appended to the text by build.py: the entry that the engine calls once a lane.
#define TC_EMULATOR_ENTRY(kernel)                                                          \
  extern "C" __attribute__((visibility("default"))) void tc_emulator_entry(void* const* arguments) { \
    tc::emulator::call(kernel, arguments);                                                 \
  }

namespace tc::primitive {
#ifdef __FLT16_MANT_DIG__
inline float f32_of_f16(uint16_t v) { return float(__builtin_bit_cast(_Float16, v)); }
inline uint16_t f16_of_f32(float v) { return __builtin_bit_cast(uint16_t, _Float16(v)); }
#else
inline float f32_of_f16(uint16_t v) {
  const uint32_t sign = uint32_t(v & 0x8000u) << 16, magnitude = v & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return __builtin_bit_cast(float, sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;  // rebias
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, scaled) | sign);
}
inline uint16_t f16_of_f32(float v) {
  const uint32_t word = __builtin_bit_cast(uint32_t, v), magnitude = word & 0x7fffffffu;
  const uint16_t sign = uint16_t(word >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 rounds to infinity
  if (magnitude < 0x38800000u) {                                  // subnormal: let addition round
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
    return uint16_t(sign | (__builtin_bit_cast(uint32_t, sum) - 0x3f000000u));
  }
  return uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}
#endif
inline float f32_of_bf16(uint16_t v) { return __builtin_bit_cast(float, uint32_t(v) << 16); }
inline uint16_t bf16_of_f32(float v) {
  const uint32_t word = __builtin_bit_cast(uint32_t, v);
  if (v != v) return uint16_t((word >> 16 & 0x8000u) | 0x7fffu);
  return uint16_t((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}
inline uint32_t f16x2_of_f32(float low, float high) {
  return uint32_t(f16_of_f32(low)) | uint32_t(f16_of_f32(high)) << 16;
}
inline uint32_t bf16x2_of_f32(float low, float high) {
  return uint32_t(bf16_of_f32(low)) | uint32_t(bf16_of_f32(high)) << 16;
}
inline int popcount32(uint32_t v) { return __builtin_popcount(v); }
inline int popcount64(uint64_t v) { return __builtin_popcountll(v); }
inline int clz32(uint32_t v) { return v == 0 ? 32 : __builtin_clz(v); }
inline int clz64(uint64_t v) { return v == 0 ? 64 : __builtin_clzll(v); }
}  // namespace tc::primitive

#include "tc_common.h"
#include "tc_emulated_registers.h"
#include "tc_math.h"

namespace tc {

constexpr int lanes_per_warp = TC_LANES_PER_WARP;
template <int lanes> struct lane_mask_of { using type = uint32_t; };
template <> struct lane_mask_of<64> { using type = uint64_t; };
using lane_mask = lane_mask_of<TC_LANES_PER_WARP>::type;

// ---------------------------------------------------------------- arithmetic
inline float rsqrt(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float fast_exp(float x) { return __builtin_expf(x); }
inline float fast_exp2(float x) { return __builtin_exp2f(x); }
inline float fast_log(float x) { return __builtin_logf(x); }
inline float fast_log2(float x) { return __builtin_log2f(x); }
inline float fast_sin(float x) { return __builtin_sinf(x); }
inline float fast_cos(float x) { return __builtin_cosf(x); }
inline float fast_tanh(float x) { return __builtin_tanhf(x); }
inline float fast_rsqrt(float x) { return rsqrt(x); }
inline float fast_rcp(float x) { return 1.0f / x; }
inline float fast_divide(float x, float y) { return x / y; }

// ---------------------------------------------------------------- indices
inline int lane_in_block() { return emulator::here().index; }
inline int lane_x() { return emulator::here().x; }
inline int lane_y() { return emulator::here().y; }
inline int lane_z() { return emulator::here().z; }
inline int lane_in_warp() { return emulator::here().in_warp; }
inline int warp_in_block() { return emulator::here().warp; }
inline int block_x() { return emulator::here().place->block[0]; }
inline int block_y() { return emulator::here().place->block[1]; }
inline int block_z() { return emulator::here().place->block[2]; }
inline int grid_x() { return emulator::here().place->grid[0]; }
inline int grid_y() { return emulator::here().place->grid[1]; }
inline int grid_z() { return emulator::here().place->grid[2]; }

// ---------------------------------------------------------------- global memory
template <class T>
inline T* memory_at(int64_t address, int64_t bytes) {
  emulator::global_attach(static_cast<uint64_t>(address), static_cast<uint64_t>(bytes));
  return reinterpret_cast<T*>(address);
}
template <class T>
inline T load_global(const T* p, TC_HERE) {
  T value;
  memcpy(&value, emulator::global_read(p, sizeof(T), text_line), sizeof(T));
  return value;
}
template <int N, class T>
inline void load_global(registers_of<T> regs, const T* p, TC_HERE) {
  static_assert(N * sizeof(T) <= 16, "at most 16 bytes an access");
  memcpy(regs.take(N, text_line), emulator::global_read(p, N * sizeof(T), text_line), N * sizeof(T));
}
template <class T>
inline void store_global(T* p, value_of<T> v, TC_HERE) {
  memcpy(emulator::global_write(p, sizeof(T), text_line), &v, sizeof(T));
}
template <int N, class T>
inline void store_global(T* p, registers_of<T> regs, TC_HERE) {
  static_assert(N * sizeof(T) <= 16, "at most 16 bytes an access");
  const T* from = regs.take(N, text_line);
  memcpy(emulator::global_write(p, N * sizeof(T), text_line), from, N * sizeof(T));
}
template <class T> inline T load_global_readonly(const T* p, TC_HERE) { return load_global(p, text_line); }
template <int N, class T>
inline void load_global_readonly(registers_of<T> regs, const T* p, TC_HERE) { load_global<N>(regs, p, text_line); }
template <class T> inline T load_global_streaming(const T* p, TC_HERE) { return load_global(p, text_line); }
template <int N, class T>
inline void load_global_streaming(registers_of<T> regs, const T* p, TC_HERE) { load_global<N>(regs, p, text_line); }
template <class T>
inline void store_global_streaming(T* p, value_of<T> v, TC_HERE) { store_global(p, v, text_line); }
template <int N, class T>
inline void store_global_streaming(T* p, registers_of<T> regs, TC_HERE) {
  store_global<N>(p, regs, text_line);
}

// Accesses whose bounds the hardware checks: those not within `elements` read zeros and write nothing.
inline bool is_within(int64_t index, int64_t count, int64_t elements) {
  return index >= 0 && index + count <= elements;
}
template <int N, class T>
inline void load_bounded(registers_of<T> regs, const T* base, int index, int64_t elements,
                         bool valid = true, TC_HERE) {
  if (valid && is_within(index, N, elements))
    load_global<N>(regs, base + index, text_line);
  else
    memset(static_cast<void*>(regs.take(N, text_line)), 0, N * sizeof(T));
}
template <int N, class T>
inline void store_bounded(registers_of<T> regs, T* base, int index, int64_t elements,
                          bool valid = true, TC_HERE) {
  if (valid && is_within(index, N, elements)) store_global<N>(base + index, regs, text_line);
}

// ---------------------------------------------------------------- shared memory
template <class T>
struct shared_pointer {
  emulator::SharedPlace place;
  template <class Index>
  shared_pointer operator+(Index i) const {
    shared_pointer moved = *this;
    moved.place.offset += int32_t(int64_t(i) * int64_t(sizeof(T)));
    return moved;
  }
  template <class Index>
  shared_pointer operator-(Index i) const { return *this + (-int64_t(i)); }
  template <class Index>
  shared_pointer& operator+=(Index i) { return *this = *this + i; }
};
template <class T>
inline shared_pointer<T> shared_buffer(emulator::SharedPlace memory, int32_t offset, int64_t elements) {
  const int32_t begin = memory.offset + offset;
  return {{begin, begin, begin + int32_t(elements * int64_t(sizeof(T))), memory.rank}};
}
template <class U, class T>
inline shared_pointer<U> shared_cast(shared_pointer<T> p) { return {p.place}; }
template <class T>
inline uint32_t shared_address(shared_pointer<T> p) { return uint32_t(p.place.offset); }

template <class T>
inline T load_shared(shared_pointer<T> p, TC_HERE) {
  T value;
  memcpy(&value, emulator::shared_read(p.place, sizeof(T), text_line), sizeof(T));
  return value;
}
template <int N, class T>
inline void load_shared(registers_of<T> regs, shared_pointer<T> p, TC_HERE) {
  static_assert(N * sizeof(T) <= 16, "at most 16 bytes an access");
  memcpy(regs.take(N, text_line), emulator::shared_read(p.place, N * sizeof(T), text_line), N * sizeof(T));
}
template <class T>
inline void store_shared(shared_pointer<T> p, value_of<T> v, TC_HERE) {
  emulator::shared_write(p.place, &v, sizeof(T), text_line);
}
template <int N, class T>
inline void store_shared(shared_pointer<T> p, registers_of<T> regs, TC_HERE) {
  static_assert(N * sizeof(T) <= 16, "at most 16 bytes an access");
  emulator::shared_write(p.place, regs.take(N, text_line), N * sizeof(T), text_line);
}

// ---------------------------------------------------------------- asynchronous copies
template <int N, class T>
inline void copy_async_partial(shared_pointer<T> p, const T* src, int elements, TC_HERE) {
  static_assert(N * sizeof(T) == 4 || N * sizeof(T) == 8 || N * sizeof(T) == 16,
                "asynchronous copies move 4, 8 or 16 bytes");
  emulator::copy_async(p.place, src, N * sizeof(T), uint32_t(elements * int(sizeof(T))), text_line);
}
template <int N, class T>
inline void copy_async(shared_pointer<T> p, const T* src, TC_HERE) {
  copy_async_partial<N>(p, src, N, text_line);
}
template <int N, class T>
inline void copy_async(shared_pointer<T> p, const T* src, bool valid, TC_HERE) {
  copy_async_partial<N>(p, src, valid ? N : 0, text_line);
}
inline void copy_async_commit() { emulator::copy_async_commit(); }
template <int newest_left>
inline void copy_async_wait() { emulator::copy_async_wait(newest_left); }

// ---------------------------------------------------------------- synchronisation
inline void barrier(TC_HERE) { emulator::barrier(text_line); }
inline void named_barrier(int id, int lanes, TC_HERE) {
  emulator::named_barrier(id, lanes, true, text_line);
}
inline void named_barrier_arrive(int id, int lanes, TC_HERE) {
  emulator::named_barrier(id, lanes, false, text_line);
}
// Blocks and threads of the emulator share coherent memory: nothing to do, other lanes may run.
inline void fence_block() {}
inline void fence_device() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace tc

#include "tc_emulated_atomics.h"
#include "tc_emulated_lanes.h"
