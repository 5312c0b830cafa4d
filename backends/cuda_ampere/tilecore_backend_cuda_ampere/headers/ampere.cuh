// Ampere's matrix instructions (README.md), sm_80 and later. Same names as ampere_emulated.h.
#pragma once
#include "tc_cuda.cuh"

namespace ampere {

// Register arrays are TC_FRAGMENT arrays: pieces of 4 bytes are read and written as registers.
template <class T>
TC_DEVICE uint32_t& reg(T* regs, int i) { return reinterpret_cast<uint32_t*>(regs)[i]; }
template <class T>
TC_DEVICE uint32_t reg(const T* regs, int i) { return reinterpret_cast<const uint32_t*>(regs)[i]; }

// `sum` is the constraint of an accumulator's register.
#define AMPERE_MMA_A4_B2(name, D, sum, A, B, shape_and_types)                                  \
  TC_DEVICE void name(D* d, const A* a, const B* b) {                                          \
    asm volatile("mma.sync.aligned." shape_and_types                                           \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : sum(d[0]), sum(d[1]), sum(d[2]), sum(d[3])                                  \
                 : "r"(reg(a, 0)), "r"(reg(a, 1)), "r"(reg(a, 2)), "r"(reg(a, 3)),             \
                   "r"(reg(b, 0)), "r"(reg(b, 1)));                                            \
  }
#define AMPERE_MMA_F32(name, T, shape_and_types)                                               \
  AMPERE_MMA_A4_B2(name, float, "+f", T, T, shape_and_types)
AMPERE_MMA_F32(mma_m16n8k16, tc::half, "m16n8k16.row.col.f32.f16.f16.f32")
AMPERE_MMA_F32(mma_m16n8k16, tc::bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
AMPERE_MMA_F32(mma_m16n8k8_tf32, float, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef AMPERE_MMA_F32

#define AMPERE_MMA_INT8(A, B, types)                                                           \
  AMPERE_MMA_A4_B2(mma_m16n8k32, int32_t, "+r", A, B, "m16n8k32.row.col.s32." types ".s32")
AMPERE_MMA_INT8(int8_t, int8_t, "s8.s8")
AMPERE_MMA_INT8(uint8_t, uint8_t, "u8.u8")
AMPERE_MMA_INT8(int8_t, uint8_t, "s8.u8")
AMPERE_MMA_INT8(uint8_t, int8_t, "u8.s8")
#undef AMPERE_MMA_INT8

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define AMPERE_MMA_FP8(A, B, types)                                                            \
  AMPERE_MMA_A4_B2(mma_m16n8k32, float, "+f", A, B, "m16n8k32.row.col.f32." types ".f32")
AMPERE_MMA_FP8(tc::e4m3, tc::e4m3, "e4m3.e4m3")
AMPERE_MMA_FP8(tc::e4m3, tc::e5m2, "e4m3.e5m2")
AMPERE_MMA_FP8(tc::e5m2, tc::e4m3, "e5m2.e4m3")
AMPERE_MMA_FP8(tc::e5m2, tc::e5m2, "e5m2.e5m2")
#undef AMPERE_MMA_FP8
#endif
#undef AMPERE_MMA_A4_B2

TC_DEVICE void mma_m16n8k16(tc::half* d, const tc::half* a, const tc::half* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%0, %1};"
      : "+r"(reg(d, 0)), "+r"(reg(d, 1))
      : "r"(reg(a, 0)), "r"(reg(a, 1)), "r"(reg(a, 2)), "r"(reg(a, 3)), "r"(reg(b, 0)),
        "r"(reg(b, 1)));
}

#define AMPERE_MMA_F32_A2_B1(T, instruction)                                                   \
  TC_DEVICE void mma_m16n8k8(float* d, const T* a, const T* b) {                               \
    asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                              \
                 : "r"(reg(a, 0)), "r"(reg(a, 1)), "r"(reg(b, 0)));                            \
  }
AMPERE_MMA_F32_A2_B1(tc::half, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
AMPERE_MMA_F32_A2_B1(tc::bfloat16, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
#undef AMPERE_MMA_F32_A2_B1

TC_DEVICE void mma_m8n8k4(double* d, const double* a, const double* b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(d[0]), "+d"(d[1])
               : "d"(a[0]), "d"(b[0]));
}

// x, for a loop whose counter is not negative. Neither the optimiser nor the assembler sees that the
// result does not depend on the counter, so what follows from it is computed inside the loop.
TC_DEVICE int at_use(int x, int counter) {
  asm volatile("" : "+r"(counter));
  return x ^ (counter >> 31);
}

// T.prmt and T.lop3 of tilecore.language.cuda.
TC_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

template <int table>
TC_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(table));
  return r;
}

TC_DEVICE float to_tf32(float v) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return TC_BIT_CAST(float, r);
}

// tc::copy_async_partial with the number of bytes that L2 fetches along with it: 0, 64, 128 or 256.
template <int N, int prefetch_bytes, class T>
TC_DEVICE void copy_async(T* p, const T* src, int elements) {
  tc::cp_async<N * int(sizeof(T)), prefetch_bytes>(tc::shared_address(p), src,
                                                   elements * int(sizeof(T)));
}

// ---------------------------------------------------------------- 8x8 matrices in shared memory
#define AMPERE_LDMATRIX(name, suffix)                                                          \
  template <int n, class T>                                                                    \
  TC_DEVICE void name(T* regs, T* row) {                                                       \
    static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");                           \
    const uint32_t address = tc::shared_address(row);                                          \
    if constexpr (n == 1)                                                                      \
      asm volatile("ldmatrix.sync.aligned.m8n8.x1" suffix ".shared.b16 {%0}, [%1];"            \
                   : "=r"(reg(regs, 0)) : "r"(address) : "memory");                            \
    else if constexpr (n == 2)                                                                 \
      asm volatile("ldmatrix.sync.aligned.m8n8.x2" suffix ".shared.b16 {%0, %1}, [%2];"        \
                   : "=r"(reg(regs, 0)), "=r"(reg(regs, 1)) : "r"(address) : "memory");        \
    else                                                                                       \
      asm volatile("ldmatrix.sync.aligned.m8n8.x4" suffix ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                   : "=r"(reg(regs, 0)), "=r"(reg(regs, 1)), "=r"(reg(regs, 2)),               \
                     "=r"(reg(regs, 3))                                                        \
                   : "r"(address) : "memory");                                                 \
  }
AMPERE_LDMATRIX(ldmatrix, "")
AMPERE_LDMATRIX(ldmatrix_trans, ".trans")
#undef AMPERE_LDMATRIX

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define AMPERE_STMATRIX(name, suffix)                                                          \
  template <int n, class T>                                                                    \
  TC_DEVICE void name(T* row, const T* regs) {                                                 \
    static_assert(n == 1 || n == 2 || n == 4, "1, 2 or 4 matrices");                           \
    const uint32_t address = tc::shared_address(row);                                          \
    if constexpr (n == 1)                                                                      \
      asm volatile("stmatrix.sync.aligned.m8n8.x1" suffix ".shared.b16 [%0], {%1};"            \
                   ::"r"(address), "r"(reg(regs, 0)) : "memory");                              \
    else if constexpr (n == 2)                                                                 \
      asm volatile("stmatrix.sync.aligned.m8n8.x2" suffix ".shared.b16 [%0], {%1, %2};"        \
                   ::"r"(address), "r"(reg(regs, 0)), "r"(reg(regs, 1)) : "memory");           \
    else                                                                                       \
      asm volatile("stmatrix.sync.aligned.m8n8.x4" suffix ".shared.b16 [%0], {%1, %2, %3, %4};" \
                   ::"r"(address), "r"(reg(regs, 0)), "r"(reg(regs, 1)), "r"(reg(regs, 2)),    \
                   "r"(reg(regs, 3)) : "memory");                                              \
  }
AMPERE_STMATRIX(stmatrix, "")
AMPERE_STMATRIX(stmatrix_trans, ".trans")
#undef AMPERE_STMATRIX
#endif

// Barriers in shared memory that count arrivals (PTX ISA 7.1, section "mbarrier", sm_80). A lane that waits
// gives way to others between its looks.
TC_DEVICE void barrier_init(uint64_t* p, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(tc::shared_address(p)), "r"(arrivals) : "memory");
}
TC_DEVICE void barrier_arrive(uint64_t* p) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(tc::shared_address(p))
               : "memory");
}
TC_DEVICE void barrier_wait(uint64_t* p, int parity) {
  uint32_t done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(tc::shared_address(p)), "r"(parity)
                 : "memory");
    if (!done) asm volatile("nanosleep.u32 20;");
  } while (!done);
}

}  // namespace ampere
