// Loads and stores of the vocabulary.
#pragma once

namespace tc {

// The type that moves `bytes` in one instruction.
template <int bytes> struct word_of;
template <> struct word_of<1> { using type = uint8_t; };
template <> struct word_of<2> { using type = uint16_t; };
template <> struct word_of<4> { using type = uint32_t; };
template <> struct word_of<8> { typedef uint32_t type __attribute__((ext_vector_type(2))); };
template <> struct word_of<16> { typedef uint32_t type __attribute__((ext_vector_type(4))); };
template <int bytes> using word_t = typename word_of<bytes>::type;

#define TC_LOADS(name, pointer, read)                                     \
  template <int N, class T>                                               \
  TC_DEVICE void name(T* regs, pointer(const T) p) {                      \
    using word = word_t<N * int(sizeof(T))>;                              \
    const word moved = read((pointer(const word))p);                      \
    __builtin_memcpy(regs, &moved, sizeof moved);                         \
  }                                                                       \
  template <class T>                                                      \
  TC_DEVICE T name(pointer(const T) p) {                                  \
    return TC_BIT_CAST(T, read((pointer(const word_t<sizeof(T)>))p));     \
  }
#define TC_STORES(name, pointer, write)                                   \
  template <int N, class T>                                               \
  TC_DEVICE void name(pointer(T) p, const T* regs) {                      \
    using word = word_t<N * int(sizeof(T))>;                              \
    word moved;                                                           \
    __builtin_memcpy(&moved, regs, sizeof moved);                         \
    write((pointer(word))p, moved);                                       \
  }                                                                       \
  template <class T>                                                      \
  TC_DEVICE void name(pointer(T) p, value_of<T> v) {                      \
    using word = word_t<sizeof(T)>;                                       \
    write((pointer(word))p, TC_BIT_CAST(word, v));                        \
  }
#define TC_GENERIC(T) T*
#define TC_SHARED(T) T __attribute__((address_space(3)))*
#define TC_READ(p) (*(p))
#define TC_WRITE(p, v) (*(p) = (v))
#define TC_READ_STREAMING(p) __builtin_nontemporal_load(p)
#define TC_WRITE_STREAMING(p, v) __builtin_nontemporal_store(v, p)
TC_LOADS(load_global, TC_GENERIC, TC_READ)
TC_LOADS(load_global_readonly, TC_GENERIC, TC_READ)
TC_LOADS(load_global_streaming, TC_GENERIC, TC_READ_STREAMING)
TC_STORES(store_global, TC_GENERIC, TC_WRITE)
TC_STORES(store_global_streaming, TC_GENERIC, TC_WRITE_STREAMING)
TC_STORES(store_shared, TC_SHARED, TC_WRITE)

// Loads keep constness out of the deduced type: shared pointers are never to const.
template <int N, class T>
TC_DEVICE void load_shared(T* regs, shared_pointer<T> p) {
  using word = word_t<N * int(sizeof(T))>;
  const word moved = *(shared_pointer<word>)p;
  __builtin_memcpy(regs, &moved, sizeof moved);
}
template <class T>
TC_DEVICE T load_shared(shared_pointer<T> p) {
  return TC_BIT_CAST(T, *(shared_pointer<word_t<sizeof(T)>>)p);
}
#undef TC_LOADS
#undef TC_STORES
#undef TC_GENERIC
#undef TC_SHARED
#undef TC_READ
#undef TC_WRITE
#undef TC_READ_STREAMING
#undef TC_WRITE_STREAMING

template <class T>
TC_DEVICE shared_pointer<T> shared_buffer(shared_pointer<unsigned char> memory, int offset, int64_t) {
  return (shared_pointer<T>)(memory + offset);
}
template <class U, class T>
TC_DEVICE shared_pointer<U> shared_cast(shared_pointer<T> p) {
  return (shared_pointer<U>)p;
}
template <class T>
TC_DEVICE uint32_t shared_address(shared_pointer<T> p) {
  return uint32_t(uint64_t(p));
}

// Asynchronous copies: gfx942 moves only 4 bytes a lane from global memory to LDS by itself, to places
// that a wavefront cannot scatter. These go through registers, done when they return: earlier than promised.
template <int N, class T>
TC_DEVICE void copy_async(shared_pointer<T> p, const T* src) {
  TC_FRAGMENT(T, moved, N);
  load_global<N>(moved, src);
  store_shared<N>(p, moved);
}
template <int N, class T>
TC_DEVICE void copy_async_partial(shared_pointer<T> p, const T* src, int elements) {
  for (int i = 0; i < N; ++i) {
    T value{};
    if (i < elements) value = load_global(src + i);
    store_shared(p + i, value);
  }
}
template <int N, class T>
TC_DEVICE void copy_async(shared_pointer<T> p, const T* src, bool valid) {
  TC_FRAGMENT(T, moved, N) = {};
  if (valid) load_global<N>(moved, src);
  store_shared<N>(p, moved);
}
TC_DEVICE void copy_async_commit() {}
template <int newest_left>
TC_DEVICE void copy_async_wait() {}

}  // namespace tc
