// Atomics of the vocabulary. Blocks run on several OS threads, so global ones are real atomics.
#pragma once

namespace tc {
namespace emulator {

template <int bytes> struct word_of;
template <> struct word_of<2> { using type = uint16_t; };
template <> struct word_of<4> { using type = uint32_t; };
template <> struct word_of<8> { using type = uint64_t; };

// Replaces *p by change(*p) atomically and returns the old value.
template <class T, class Change>
inline T update(void* p, Change change) {
  using word = typename word_of<sizeof(T)>::type;
  auto* place = static_cast<word*>(p);
  word old = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (true) {
    const T fresh = change(__builtin_bit_cast(T, old));
    if (__atomic_compare_exchange_n(place, &old, __builtin_bit_cast(word, fresh), false,
                                    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      return __builtin_bit_cast(T, old);
  }
}

}  // namespace emulator

#define TC_ATOMIC(name, result)                                                        \
  template <class T>                                                                   \
  inline T atomic_##name##_global(T* p, value_of<T> v, TC_HERE) {                                \
    return emulator::update<T>(emulator::global_write(p, sizeof(T), text_line),        \
                               [=](T old) { return T(result); });                      \
  }                                                                                    \
  template <class T>                                                                   \
  inline T atomic_##name##_shared(shared_pointer<T> p, value_of<T> v, TC_HERE) {                 \
    return emulator::update<T>(emulator::shared_atomic(p.place, sizeof(T), text_line), \
                               [=](T old) { return T(result); });                      \
  }
TC_ATOMIC(add, old + v)
TC_ATOMIC(max, max(old, v))
TC_ATOMIC(min, min(old, v))
TC_ATOMIC(and, old & v)
TC_ATOMIC(or, old | v)
TC_ATOMIC(xor, old ^ v)
TC_ATOMIC(exchange, ((void)old, v))
#undef TC_ATOMIC

template <class T>
inline T atomic_compare_exchange_global(T* p, value_of<T> expected, value_of<T> desired, TC_HERE) {
  return emulator::update<T>(emulator::global_write(p, sizeof(T), text_line),
                             [=](T old) { return old == expected ? desired : old; });
}
template <class T>
inline T atomic_compare_exchange_shared(shared_pointer<T> p, value_of<T> expected, value_of<T> desired, TC_HERE) {
  return emulator::update<T>(emulator::shared_atomic(p.place, sizeof(T), text_line),
                             [=](T old) { return old == expected ? desired : old; });
}

template <int N, class T>
inline void atomic_add_global(T* p, registers_of<T> regs, TC_HERE) {
  const T* from = regs.take(N, text_line);
  auto* place = static_cast<T*>(emulator::global_write(p, N * sizeof(T), text_line));
  for (int i = 0; i < N; ++i)
    emulator::update<T>(place + i, [=](T old) { return T(old + from[i]); });
}

template <class T>
inline T load_acquire_global(const T* p, TC_HERE) {
  emulator::let_others_run();
  const void* place = emulator::global_read(p, sizeof(T), text_line);
  using word = typename emulator::word_of<sizeof(T)>::type;
  return __builtin_bit_cast(T, __atomic_load_n(static_cast<const word*>(place), __ATOMIC_ACQUIRE));
}
template <class T>
inline T load_acquire_shared(shared_pointer<T> p, TC_HERE) {
  T value;
  memcpy(&value, emulator::shared_acquire(p.place, sizeof(T), text_line), sizeof(T));
  return value;
}
template <class T>
inline void store_release_shared(shared_pointer<T> p, value_of<T> v, TC_HERE) {
  memcpy(emulator::shared_release(p.place, sizeof(T), text_line), &v, sizeof(T));
}
template <class T>
inline void store_release_global(T* p, value_of<T> v, TC_HERE) {
  void* place = emulator::global_write(p, sizeof(T), text_line);
  using word = typename emulator::word_of<sizeof(T)>::type;
  __atomic_store_n(static_cast<word*>(place), __builtin_bit_cast(word, v), __ATOMIC_RELEASE);
}

}  // namespace tc
