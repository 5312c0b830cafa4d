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
template <class T>
TC_DEVICE T* memory_at(int64_t address, int64_t) {
  return reinterpret_cast<T*>(address);
}
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

// Buffer accesses: the descriptor holds base and size, so an access outside reads zeros and writes
// nothing. A lane that must not take part names an offset that no buffer reaches: they end below 2 GiB
// (`bounded_moves.py`), and it is aligned and far from wrapping around. The size counts
// bytes; the last word says data of 32 bits, as AMD's own kernels for gfx9 do ("CDNA3 ISA", buffer
// resource descriptor).
#if __has_builtin(__builtin_amdgcn_raw_buffer_load_b128) && __has_builtin(__builtin_amdgcn_raw_buffer_store_b128)
#define TC_BUFFER_OF(base, elements)                                                       \
  __builtin_amdgcn_make_buffer_rsrc((void*)(base), 0, int((elements) * sizeof(*(base))), 0x00020000)
TC_DEVICE int buffer_offset(int64_t bytes, bool valid) { return valid ? int(bytes) : int(0x80000000u); }
template <int N, class T>
TC_DEVICE void load_bounded(T* regs, const T* base, int index, int64_t elements, bool valid = true) {
  constexpr int bytes = N * int(sizeof(T));
  const auto buffer = TC_BUFFER_OF(base, elements);
  const int at = buffer_offset(int64_t(index) * int(sizeof(T)), valid);
  word_t<bytes> moved;
  if constexpr (bytes == 16) moved = __builtin_amdgcn_raw_buffer_load_b128(buffer, at, 0, 0);
  if constexpr (bytes == 8) moved = __builtin_amdgcn_raw_buffer_load_b64(buffer, at, 0, 0);
  if constexpr (bytes == 4) moved = __builtin_amdgcn_raw_buffer_load_b32(buffer, at, 0, 0);
  if constexpr (bytes == 2) moved = __builtin_amdgcn_raw_buffer_load_b16(buffer, at, 0, 0);
  if constexpr (bytes == 1) moved = __builtin_amdgcn_raw_buffer_load_b8(buffer, at, 0, 0);
  __builtin_memcpy(regs, &moved, sizeof moved);
}
template <int N, class T>
TC_DEVICE void store_bounded(const T* regs, T* base, int index, int64_t elements, bool valid = true) {
  constexpr int bytes = N * int(sizeof(T));
  const auto buffer = TC_BUFFER_OF(base, elements);
  const int at = buffer_offset(int64_t(index) * int(sizeof(T)), valid);
  word_t<bytes> moved;
  __builtin_memcpy(&moved, regs, sizeof moved);
  if constexpr (bytes == 16) __builtin_amdgcn_raw_buffer_store_b128(moved, buffer, at, 0, 0);
  if constexpr (bytes == 8) __builtin_amdgcn_raw_buffer_store_b64(moved, buffer, at, 0, 0);
  if constexpr (bytes == 4) __builtin_amdgcn_raw_buffer_store_b32(moved, buffer, at, 0, 0);
  if constexpr (bytes == 2) __builtin_amdgcn_raw_buffer_store_b16(moved, buffer, at, 0, 0);
  if constexpr (bytes == 1) __builtin_amdgcn_raw_buffer_store_b8(moved, buffer, at, 0, 0);
}
#else  // clang before 20 (ROCm 6) has no such builtins: a branch checks instead
template <int N, class T>
TC_DEVICE void load_bounded(T* regs, const T* base, int index, int64_t elements, bool valid = true) {
  word_t<N * int(sizeof(T))> moved{};
  if (valid && index >= 0 && index + int64_t(N) <= elements)
    moved = *(const word_t<N * int(sizeof(T))>*)(base + index);
  __builtin_memcpy(regs, &moved, sizeof moved);
}
template <int N, class T>
TC_DEVICE void store_bounded(const T* regs, T* base, int index, int64_t elements, bool valid = true) {
  if (valid && index >= 0 && index + int64_t(N) <= elements) store_global<N>(base + index, regs);
}
#endif

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
