// Atomics of the vocabulary. What one instruction does on this architecture is done by it, the rest by
// compare-and-swap. The compiler is told (-munsafe-fp-atomics) that buffers are ordinary device memory.
#pragma once

namespace tc {

template <int bytes> struct atomic_word;
template <> struct atomic_word<2> { using type = uint16_t; };
template <> struct atomic_word<4> { using type = uint32_t; };
template <> struct atomic_word<8> { using type = uint64_t; };

enum : int { tc_device_scope = __HIP_MEMORY_SCOPE_AGENT, tc_block_scope = __HIP_MEMORY_SCOPE_WORKGROUP };

// How each operation changes a value, and whether hardware has it for a type.
template <class T> struct is_word { enum : bool { value = false }; };
template <> struct is_word<int32_t> { enum : bool { value = true }; };
template <> struct is_word<uint32_t> { enum : bool { value = true }; };
template <> struct is_word<int64_t> { enum : bool { value = true }; };
template <> struct is_word<uint64_t> { enum : bool { value = true }; };
template <class T> struct is_wide_float { enum : bool { value = false }; };
template <> struct is_wide_float<float> { enum : bool { value = true }; };
template <> struct is_wide_float<double> { enum : bool { value = true }; };

#define TC_ATOMIC_IN(space, T, P, scope)                                                       \
  template <class T, class Change>                                                             \
  TC_DEVICE T atomic_update_##space(P p, Change change) {                                      \
    using word = typename atomic_word<sizeof(T)>::type;                                        \
    auto* place = (TC_PLACE_##space(word))p;                                                   \
    word old = __hip_atomic_load(place, __ATOMIC_RELAXED, scope);                              \
    while (true) {                                                                             \
      const word fresh = TC_BIT_CAST(word, change(TC_BIT_CAST(T, old)));                       \
      if (__hip_atomic_compare_exchange_strong(place, &old, fresh, __ATOMIC_RELAXED,           \
                                               __ATOMIC_RELAXED, scope))                       \
        return TC_BIT_CAST(T, old);                                                            \
    }                                                                                          \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_add_##space(P p, value_of<T> v) {                                         \
    if constexpr (is_word<T>::value || is_wide_float<T>::value)                                \
      return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, scope);                            \
    else                                                                                       \
      return atomic_update_##space<T>(p, [v](T old) { return T(old + v); });                   \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_max_##space(P p, value_of<T> v) {                                         \
    if constexpr (is_word<T>::value)                                                           \
      return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, scope);                            \
    else                                                                                       \
      return atomic_update_##space<T>(p, [v](T old) { return max(old, v); });                  \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_min_##space(P p, value_of<T> v) {                                         \
    if constexpr (is_word<T>::value)                                                           \
      return __hip_atomic_fetch_min(p, v, __ATOMIC_RELAXED, scope);                            \
    else                                                                                       \
      return atomic_update_##space<T>(p, [v](T old) { return min(old, v); });                  \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_and_##space(P p, value_of<T> v) {                                         \
    return __hip_atomic_fetch_and(p, v, __ATOMIC_RELAXED, scope);                              \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_or_##space(P p, value_of<T> v) {                                          \
    return __hip_atomic_fetch_or(p, v, __ATOMIC_RELAXED, scope);                               \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_xor_##space(P p, value_of<T> v) {                                         \
    return __hip_atomic_fetch_xor(p, v, __ATOMIC_RELAXED, scope);                              \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_exchange_##space(P p, value_of<T> v) {                                    \
    using word = typename atomic_word<sizeof(T)>::type;                                        \
    return TC_BIT_CAST(T, __hip_atomic_exchange((TC_PLACE_##space(word))p,                     \
                                                TC_BIT_CAST(word, v), __ATOMIC_RELAXED, scope)); \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE T atomic_compare_exchange_##space(P p, value_of<T> expected, value_of<T> desired) { \
    using word = typename atomic_word<sizeof(T)>::type;                                        \
    word old = TC_BIT_CAST(word, expected);                                                    \
    __hip_atomic_compare_exchange_strong((TC_PLACE_##space(word))p, &old,                      \
                                         TC_BIT_CAST(word, desired), __ATOMIC_RELAXED,         \
                                         __ATOMIC_RELAXED, scope);                             \
    return TC_BIT_CAST(T, old);                                                                \
  }                                                                                            \
  template <class T>                                                                           \
  TC_DEVICE void store_release_##space(P p, value_of<T> v) {                                   \
    using word = typename atomic_word<sizeof(T)>::type;                                        \
    __hip_atomic_store((TC_PLACE_##space(word))p, TC_BIT_CAST(word, v), __ATOMIC_RELEASE, scope); \
  }
#define TC_PLACE_global(T) T*
#define TC_PLACE_shared(T) shared_pointer<T>
TC_ATOMIC_IN(global, T, T*, tc_device_scope)
TC_ATOMIC_IN(shared, T, shared_pointer<T>, tc_block_scope)
#undef TC_ATOMIC_IN
#undef TC_PLACE_global
#undef TC_PLACE_shared

template <class T>
TC_DEVICE T load_acquire_global(const T* p) {
  using word = typename atomic_word<sizeof(T)>::type;
  return TC_BIT_CAST(T, __hip_atomic_load((const word*)p, __ATOMIC_ACQUIRE, tc_device_scope));
}
template <class T>
TC_DEVICE T load_acquire_shared(shared_pointer<T> p) {
  using word = typename atomic_word<sizeof(T)>::type;
  return TC_BIT_CAST(T, __hip_atomic_load((shared_pointer<word>)p, __ATOMIC_ACQUIRE, tc_block_scope));
}

// ---------------------------------------------------------------- several adds, no result
template <int N, class T>
struct atomic_adds {
  static TC_DEVICE void run(T* p, const T* regs) {
    for (int i = 0; i < N; ++i) atomic_add_global(p + i, regs[i]);
  }
};
template <>
struct atomic_adds<2, half> {
  static TC_DEVICE void run(half* p, const half* regs) {
    typedef _Float16 pair __attribute__((ext_vector_type(2)));
    pair both;
    __builtin_memcpy(&both, regs, 4);
    __builtin_amdgcn_global_atomic_fadd_v2f16((global_pointer<pair>)(pair*)p, both);
  }
};
template <>
struct atomic_adds<2, bfloat16> {
  static TC_DEVICE void run(bfloat16* p, const bfloat16* regs) {
    typedef short pair __attribute__((ext_vector_type(2)));
    pair both;
    __builtin_memcpy(&both, regs, 4);
    __builtin_amdgcn_global_atomic_fadd_v2bf16((global_pointer<pair>)(pair*)p, both);
  }
};
template <int N, class T>
TC_DEVICE void atomic_add_global(T* p, const T* regs) {
  atomic_adds<N, T>::run(p, regs);
}

}  // namespace tc
