// Atomics of the vocabulary. What one instruction does on this architecture is done by it, the rest
// by compare-and-swap.
#pragma once

namespace tc {

template <int bytes> struct atomic_word;
template <> struct atomic_word<2> { using type = unsigned short; };
template <> struct atomic_word<4> { using type = unsigned int; };
template <> struct atomic_word<8> { using type = unsigned long long; };

// Replaces *p by change(*p) and returns the old value.
template <class T, class Change>
TC_DEVICE T atomic_update(T* p, Change change) {
  using word = typename atomic_word<sizeof(T)>::type;
  auto* place = reinterpret_cast<word*>(p);
  word old = *reinterpret_cast<volatile word*>(place);
  while (true) {
    const word seen =
        atomicCAS(place, old, TC_BIT_CAST(word, change(TC_BIT_CAST(T, old))));
    if (seen == old) return TC_BIT_CAST(T, old);
    old = seen;
  }
}

struct AtomicAdd { template <class T> static TC_DEVICE T of(T a, T b) { return T(a + b); } };
struct AtomicMax { template <class T> static TC_DEVICE T of(T a, T b) { return max(a, b); } };
struct AtomicMin { template <class T> static TC_DEVICE T of(T a, T b) { return min(a, b); } };
struct AtomicAnd { template <class T> static TC_DEVICE T of(T a, T b) { return a & b; } };
struct AtomicOr { template <class T> static TC_DEVICE T of(T a, T b) { return a | b; } };
struct AtomicXor { template <class T> static TC_DEVICE T of(T a, T b) { return a ^ b; } };

template <class Op, class T>
struct atomic_operation {
  static TC_DEVICE T run(T* p, T v) {
    return atomic_update(p, [v](T old) { return Op::of(old, v); });
  }
};
#define TC_NATIVE_ATOMIC(Op, T, Native, intrinsic)                                      \
  template <>                                                                           \
  struct atomic_operation<Op, T> {                                                      \
    static TC_DEVICE T run(T* p, T v) {                                                 \
      return TC_BIT_CAST(T, intrinsic(reinterpret_cast<Native*>(p), TC_BIT_CAST(Native, v))); \
    }                                                                                   \
  };
#define TC_NATIVE_INTEGERS(Op, intrinsic)                                 \
  TC_NATIVE_ATOMIC(Op, int32_t, int, intrinsic)                           \
  TC_NATIVE_ATOMIC(Op, uint32_t, unsigned int, intrinsic)                 \
  TC_NATIVE_ATOMIC(Op, uint64_t, unsigned long long, intrinsic)
TC_NATIVE_INTEGERS(AtomicAdd, atomicAdd)
TC_NATIVE_INTEGERS(AtomicMax, atomicMax)
TC_NATIVE_INTEGERS(AtomicMin, atomicMin)
TC_NATIVE_INTEGERS(AtomicAnd, atomicAnd)
TC_NATIVE_INTEGERS(AtomicOr, atomicOr)
TC_NATIVE_INTEGERS(AtomicXor, atomicXor)
TC_NATIVE_ATOMIC(AtomicAdd, int64_t, unsigned long long, atomicAdd)  // two's complement
TC_NATIVE_ATOMIC(AtomicMax, int64_t, long long, atomicMax)
TC_NATIVE_ATOMIC(AtomicMin, int64_t, long long, atomicMin)
TC_NATIVE_ATOMIC(AtomicAdd, float, float, atomicAdd)
TC_NATIVE_ATOMIC(AtomicAdd, double, double, atomicAdd)
#undef TC_NATIVE_INTEGERS
#undef TC_NATIVE_ATOMIC
template <>
struct atomic_operation<AtomicAdd, half> {
  static TC_DEVICE half run(half* p, half v) {
    half old;
    asm volatile("atom.add.noftz.f16 %0, [%1], %2;"
                 : "=h"(old.bits) : "l"(p), "h"(v.bits) : "memory");
    return old;
  }
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <>
struct atomic_operation<AtomicAdd, bfloat16> {
  static TC_DEVICE bfloat16 run(bfloat16* p, bfloat16 v) {
    bfloat16 old;
    asm volatile("atom.add.noftz.bf16 %0, [%1], %2;"
                 : "=h"(old.bits) : "l"(p), "h"(v.bits) : "memory");
    return old;
  }
};
#endif

#define TC_ATOMIC(name, Op)                                                                  \
  template <class T>                                                                         \
  TC_DEVICE T atomic_##name##_global(T* p, value_of<T> v) {                                  \
    return atomic_operation<Op, T>::run(p, v);                                               \
  }                                                                                          \
  template <class T>                                                                         \
  TC_DEVICE T atomic_##name##_shared(T* p, value_of<T> v) {                                  \
    return atomic_operation<Op, T>::run(p, v);                                               \
  }
TC_ATOMIC(add, AtomicAdd)
TC_ATOMIC(max, AtomicMax)
TC_ATOMIC(min, AtomicMin)
TC_ATOMIC(and, AtomicAnd)
TC_ATOMIC(or, AtomicOr)
TC_ATOMIC(xor, AtomicXor)
#undef TC_ATOMIC

#define TC_ATOMIC_SWAPS(space)                                                               \
  template <class T>                                                                         \
  TC_DEVICE T atomic_exchange_##space(T* p, value_of<T> v) {                                 \
    using word = typename atomic_word<sizeof(T)>::type;                                      \
    return TC_BIT_CAST(T, atomicExch(reinterpret_cast<word*>(p), TC_BIT_CAST(word, v)));     \
  }                                                                                          \
  template <class T>                                                                         \
  TC_DEVICE T atomic_compare_exchange_##space(T* p, value_of<T> expected, value_of<T> desired) { \
    using word = typename atomic_word<sizeof(T)>::type;                                      \
    return TC_BIT_CAST(T, atomicCAS(reinterpret_cast<word*>(p), TC_BIT_CAST(word, expected), \
                                    TC_BIT_CAST(word, desired)));                            \
  }
TC_ATOMIC_SWAPS(global)
TC_ATOMIC_SWAPS(shared)
#undef TC_ATOMIC_SWAPS

// ---------------------------------------------------------------- several adds, no result
template <int N, class T>
struct atomic_adds {
  static TC_DEVICE void run(T* p, const T* regs) {
    for (int i = 0; i < N; ++i) atomic_operation<AtomicAdd, T>::run(p + i, regs[i]);
  }
};
template <>
struct atomic_adds<2, half> {
  static TC_DEVICE void run(half* p, const half* regs) {
    const uint32_t word = uint32_t(regs[0].bits) | uint32_t(regs[1].bits) << 16;
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(word)
                 : "memory");
  }
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <>
struct atomic_adds<2, bfloat16> {
  static TC_DEVICE void run(bfloat16* p, const bfloat16* regs) {
    const uint32_t word = uint32_t(regs[0].bits) | uint32_t(regs[1].bits) << 16;
    asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(word)
                 : "memory");
  }
};
template <>
struct atomic_adds<2, float> {
  static TC_DEVICE void run(float* p, const float* regs) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)),
                 "f"(regs[0]), "f"(regs[1]) : "memory");
  }
};
template <>
struct atomic_adds<4, float> {
  static TC_DEVICE void run(float* p, const float* regs) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "f"(regs[0]), "f"(regs[1]), "f"(regs[2]), "f"(regs[3]) : "memory");
  }
};
#else
template <>
struct atomic_adds<2, bfloat16> {
  static TC_DEVICE void run(bfloat16* p, const bfloat16* regs) {
    const bfloat16 low = regs[0], high = regs[1];
    atomic_update(reinterpret_cast<uint32_t*>(p), [low, high](uint32_t old) {
      const bfloat16 a = bfloat16{uint16_t(old)} + low, b = bfloat16{uint16_t(old >> 16)} + high;
      return uint32_t(a.bits) | uint32_t(b.bits) << 16;
    });
  }
};
#endif

template <int N, class T>
TC_DEVICE void atomic_add_global(T* p, const T* regs) {
  atomic_adds<N, T>::run(p, regs);
}

// ---------------------------------------------------------------- flags between lanes and blocks
#define TC_FLAGS(space, scope)                                                                   \
  template <class T>                                                                             \
  TC_DEVICE T load_acquire_##space(const T* p) {                                                 \
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "16, 32 or 64 bits");      \
    if constexpr (sizeof(T) == 2) {                                                              \
      uint16_t v;                                                                                \
      asm volatile("ld.acquire." scope ".b16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");          \
      return TC_BIT_CAST(T, v);                                                                  \
    } else if constexpr (sizeof(T) == 4) {                                                       \
      uint32_t v;                                                                                \
      asm volatile("ld.acquire." scope ".b32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");          \
      return TC_BIT_CAST(T, v);                                                                  \
    } else {                                                                                     \
      uint64_t v;                                                                                \
      asm volatile("ld.acquire." scope ".b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");          \
      return TC_BIT_CAST(T, v);                                                                  \
    }                                                                                            \
  }                                                                                              \
  template <class T>                                                                             \
  TC_DEVICE void store_release_##space(T* p, value_of<T> v) {                                    \
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "16, 32 or 64 bits");      \
    if constexpr (sizeof(T) == 2)                                                                \
      asm volatile("st.release." scope ".b16 [%0], %1;" ::"l"(p), "h"(TC_BIT_CAST(uint16_t, v))  \
                   : "memory");                                                                  \
    else if constexpr (sizeof(T) == 4)                                                           \
      asm volatile("st.release." scope ".b32 [%0], %1;" ::"l"(p), "r"(TC_BIT_CAST(uint32_t, v))  \
                   : "memory");                                                                  \
    else                                                                                         \
      asm volatile("st.release." scope ".b64 [%0], %1;" ::"l"(p), "l"(TC_BIT_CAST(uint64_t, v))  \
                   : "memory");                                                                  \
  }
TC_FLAGS(global, "gpu")
TC_FLAGS(shared, "cta")
#undef TC_FLAGS

}  // namespace tc
