// Ampere's intrinsics (README.md) over the emulator's lanes. Same names as ampere.cuh.
#pragma once
#define TC_LANES_PER_WARP 32
#include "tc_emulated.h"

namespace ampere {

// What a lane brings to a warp-wide instruction; the bodies live in ampere_emulated.cpp.
struct MmaOperands {
  void* d;
  const void* a;
  const void* b;
};
struct MatrixOperands {
  tc::emulator::SharedPlace row;
  void* regs;
};

using tc::emulator::CollectiveKind;
#pragma GCC visibility push(default)
extern const CollectiveKind mma_16816_f32_f16, mma_16816_f32_bf16, mma_16816_f16_f16;
extern const CollectiveKind mma_1688_f32_f16, mma_1688_f32_bf16, mma_1688_f32_tf32;
extern const CollectiveKind mma_16832_s8_s8, mma_16832_u8_u8, mma_16832_s8_u8, mma_16832_u8_s8;
extern const CollectiveKind mma_16832_e4m3_e4m3, mma_16832_e4m3_e5m2;
extern const CollectiveKind mma_16832_e5m2_e4m3, mma_16832_e5m2_e5m2;
extern const CollectiveKind mma_884_f64;
extern const CollectiveKind ldmatrix_kinds[3], ldmatrix_trans_kinds[3];  // x1, x2, x4
extern const CollectiveKind stmatrix_kinds[3], stmatrix_trans_kinds[3];
#pragma GCC visibility pop

// m, n, k: what one warp multiplies; each lane holds a 32nd of every operand.
#define AMPERE_MMA(name, kind, D, A, B, m, n, k)                                            \
  inline void name(tc::registers<D> d, tc::registers<A> a, tc::registers<B> b, TC_HERE) {   \
    MmaOperands operands{d.take(m * n / 32, text_line), a.take(m * k / 32, text_line),      \
                         b.take(k * n / 32, text_line)};                                    \
    tc::emulator::collective(kind, &operands, text_line);                                   \
  }
AMPERE_MMA(mma_m16n8k16, mma_16816_f32_f16, float, tc::half, tc::half, 16, 8, 16)
AMPERE_MMA(mma_m16n8k16, mma_16816_f32_bf16, float, tc::bfloat16, tc::bfloat16, 16, 8, 16)
AMPERE_MMA(mma_m16n8k16, mma_16816_f16_f16, tc::half, tc::half, tc::half, 16, 8, 16)
AMPERE_MMA(mma_m16n8k8, mma_1688_f32_f16, float, tc::half, tc::half, 16, 8, 8)
AMPERE_MMA(mma_m16n8k8, mma_1688_f32_bf16, float, tc::bfloat16, tc::bfloat16, 16, 8, 8)
AMPERE_MMA(mma_m16n8k8_tf32, mma_1688_f32_tf32, float, float, float, 16, 8, 8)
AMPERE_MMA(mma_m16n8k32, mma_16832_s8_s8, int32_t, int8_t, int8_t, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_u8_u8, int32_t, uint8_t, uint8_t, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_s8_u8, int32_t, int8_t, uint8_t, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_u8_s8, int32_t, uint8_t, int8_t, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_e4m3_e4m3, float, tc::e4m3, tc::e4m3, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_e4m3_e5m2, float, tc::e4m3, tc::e5m2, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_e5m2_e4m3, float, tc::e5m2, tc::e4m3, 16, 8, 32)
AMPERE_MMA(mma_m16n8k32, mma_16832_e5m2_e5m2, float, tc::e5m2, tc::e5m2, 16, 8, 32)
AMPERE_MMA(mma_m8n8k4, mma_884_f64, double, double, double, 8, 8, 4)
#undef AMPERE_MMA

inline int at_use(int x, int) { return x; }

inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t digit = selector >> 4 * k & 15;
    uint32_t byte = uint32_t(bytes >> 8 * (digit & 7) & 255);
    if (digit & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * k;
  }
  return result;
}

template <int table>
inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (int k = 0; k < 32; ++k) {
    const int row = int((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1));
    result |= uint32_t(table >> row & 1) << k;
  }
  return result;
}

// Nearest, ties away from zero, as cvt.rna.tf32.f32; the low 13 bits become zero.
inline float to_tf32(float v) {
  const uint32_t word = tc::bit_cast<uint32_t>(v);
  if ((word & 0x7f800000u) == 0x7f800000u) return v;
  return tc::bit_cast<float>((word + 0x1000u) & 0xffffe000u);
}

template <int N, int prefetch_bytes, class T>
inline void copy_async(tc::shared_pointer<T> p, const T* src, int elements, TC_HERE) {
  static_assert(prefetch_bytes == 0 || prefetch_bytes == 64 || prefetch_bytes == 128 ||
                    prefetch_bytes == 256, "L2 fetches 0, 64, 128 or 256 bytes");
  tc::copy_async_partial<N>(p, src, elements, text_line);
}

inline void matrix(const CollectiveKind& kind, tc::emulator::SharedPlace row, void* regs,
                   int text_line) {
  MatrixOperands operands{row, regs};
  tc::emulator::collective(kind, &operands, text_line);
}
template <int n, class T>
inline void ldmatrix(tc::registers_of<T> regs, tc::shared_pointer<T> row, TC_HERE) {
  static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");
  matrix(ldmatrix_kinds[n / 2], row.place, regs.take(4 * n / sizeof(T), text_line), text_line);
}
template <int n, class T>
inline void ldmatrix_trans(tc::registers_of<T> regs, tc::shared_pointer<T> row, TC_HERE) {
  static_assert(sizeof(T) == 2 && (n == 1 || n == 2 || n == 4), "1, 2 or 4 matrices of 16 bits");
  matrix(ldmatrix_trans_kinds[n / 2], row.place, regs.take(4 * n / sizeof(T), text_line), text_line);
}
template <int n, class T>
inline void stmatrix(tc::shared_pointer<T> row, tc::registers_of<T> regs, TC_HERE) {
  static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");
  matrix(stmatrix_kinds[n / 2], row.place, regs.take(4 * n / sizeof(T), text_line), text_line);
}
template <int n, class T>
inline void stmatrix_trans(tc::shared_pointer<T> row, tc::registers_of<T> regs, TC_HERE) {
  static_assert(sizeof(T) == 2 && (n == 1 || n == 2 || n == 4), "1, 2 or 4 matrices of 16 bits");
  matrix(stmatrix_trans_kinds[n / 2], row.place, regs.take(4 * n / sizeof(T), text_line), text_line);
}

inline void barrier_init(tc::shared_pointer<uint64_t> p, int arrivals, TC_HERE) {
  tc::emulator::transaction_init(p.place, arrivals, text_line);
}
inline void barrier_arrive(tc::shared_pointer<uint64_t> p, TC_HERE) {
  tc::emulator::transaction_arrive(p.place, 1, text_line);
}
inline void barrier_wait(tc::shared_pointer<uint64_t> p, int parity, TC_HERE) {
  tc::emulator::transaction_wait(p.place, parity, text_line);
}

}  // namespace ampere
