// Loads, stores and asynchronous copies of the vocabulary.
#pragma once

namespace tc {

// The type that moves `bytes` in one instruction.
template <int bytes> struct word_of;
template <> struct word_of<1> { using type = unsigned char; };
template <> struct word_of<2> { using type = unsigned short; };
template <> struct word_of<4> { using type = unsigned int; };
template <> struct word_of<8> { using type = uint2; };
template <> struct word_of<16> { using type = uint4; };
template <int bytes> using word_t = typename word_of<bytes>::type;

// Between a word and registers, in pieces of 4 bytes at most: `regs` must be aligned to the piece. (A
// memcpy would be merged with the access itself and then split into bytes.)
template <class T>
TC_DEVICE void to_regs(T* regs, unsigned char word) {
  *reinterpret_cast<unsigned char*>(regs) = word;
}
template <class T>
TC_DEVICE void to_regs(T* regs, unsigned short word) {
  *reinterpret_cast<unsigned short*>(regs) = word;
}
template <class T>
TC_DEVICE void to_regs(T* regs, unsigned int word) {
  *reinterpret_cast<unsigned int*>(regs) = word;
}
template <class T>
TC_DEVICE void to_regs(T* regs, uint2 word) {
  unsigned int* pieces = reinterpret_cast<unsigned int*>(regs);
  pieces[0] = word.x;
  pieces[1] = word.y;
}
template <class T>
TC_DEVICE void to_regs(T* regs, uint4 word) {
  unsigned int* pieces = reinterpret_cast<unsigned int*>(regs);
  pieces[0] = word.x;
  pieces[1] = word.y;
  pieces[2] = word.z;
  pieces[3] = word.w;
}
template <int bytes, class T>
TC_DEVICE word_t<bytes> of_regs(const T* regs) {
  const unsigned int* pieces = reinterpret_cast<const unsigned int*>(regs);
  if constexpr (bytes == 16) return make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
  else if constexpr (bytes == 8) return make_uint2(pieces[0], pieces[1]);
  else return *reinterpret_cast<const word_t<bytes>*>(regs);
}

#define TC_LOADS(name, read)                                                        \
  template <int N, class T>                                                         \
  TC_DEVICE void name(T* regs, const T* p) {                                        \
    using word = word_t<N * int(sizeof(T))>;                                        \
    const word moved = read(reinterpret_cast<const word*>(p));                      \
    to_regs(regs, moved);                     \
  }                                                                                 \
  template <class T>                                                                \
  TC_DEVICE T name(const T* p) {                                                    \
    T value;                                                                        \
    name<1>(&value, p);                                                             \
    return value;                                                                   \
  }
#define TC_STORES(name, write)                                                      \
  template <int N, class T>                                                         \
  TC_DEVICE void name(T* p, const T* regs) {                                        \
    using word = word_t<N * int(sizeof(T))>;                                        \
    write(reinterpret_cast<word*>(p), of_regs<sizeof(word)>(regs));                       \
  }                                                                                 \
  template <class T>                                                                \
  TC_DEVICE void name(T* p, value_of<T> v) {                                        \
    name<1>(p, &v);                                                                 \
  }
#define TC_PLAIN_READ(p) (*(p))
#define TC_PLAIN_WRITE(p, v) (*(p) = (v))
template <class T>
TC_DEVICE T* memory_at(int64_t address, int64_t) {
  return reinterpret_cast<T*>(address);
}
TC_LOADS(load_global, TC_PLAIN_READ)
TC_LOADS(load_global_readonly, __ldg)
TC_LOADS(load_global_streaming, __ldcs)
TC_LOADS(load_shared, TC_PLAIN_READ)
TC_STORES(store_global, TC_PLAIN_WRITE)
TC_STORES(store_global_streaming, __stcs)
TC_STORES(store_shared, TC_PLAIN_WRITE)
#undef TC_PLAIN_READ
#undef TC_PLAIN_WRITE
#undef TC_LOADS
#undef TC_STORES

// Accesses of a bounded buffer: there is no instruction that checks, so a branch does.
template <int N, class T>
TC_DEVICE void load_bounded(T* regs, const T* base, int index, int64_t elements, bool valid = true) {
  if (valid && index >= 0 && index + int64_t(N) <= elements) {
    load_global<N>(regs, base + index);
  } else {
    for (int i = 0; i < N; ++i) regs[i] = T{};
  }
}
template <int N, class T>
TC_DEVICE void store_bounded(const T* regs, T* base, int index, int64_t elements, bool valid = true) {
  if (valid && index >= 0 && index + int64_t(N) <= elements) store_global<N>(base + index, regs);
}

template <class T> using shared_pointer = T*;
template <class T>
TC_DEVICE shared_pointer<T> shared_buffer(unsigned char* memory, int offset, int64_t) {
  return reinterpret_cast<T*>(memory + offset);
}
template <class U, class T>
TC_DEVICE shared_pointer<U> shared_cast(T* p) {
  return reinterpret_cast<U*>(p);
}
template <class T>
TC_DEVICE uint32_t shared_address(T* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

// ---------------------------------------------------------------- asynchronous copies
// 16 bytes bypass L1 (.cg); smaller ones must not (.ca). `prefetch`: bytes that L2 fetches with them.
#define TC_CP_ASYNC(cache, hint)                                                               \
  asm volatile("cp.async." cache ".shared.global" hint " [%0], [%1], %2, %3;" ::"r"(to),       \
               "l"(from), "n"(bytes), "r"(valid_bytes)                                         \
               : "memory")
template <int bytes, int prefetch>
TC_DEVICE void cp_async(uint32_t to, const void* generic, int valid_bytes) {
  const size_t from = __cvta_generic_to_global(generic);
  if constexpr (bytes == 16) {
    if constexpr (prefetch == 256) TC_CP_ASYNC("cg", ".L2::256B");
    else if constexpr (prefetch == 128) TC_CP_ASYNC("cg", ".L2::128B");
    else if constexpr (prefetch == 64) TC_CP_ASYNC("cg", ".L2::64B");
    else TC_CP_ASYNC("cg", "");
  } else {
    if constexpr (prefetch == 256) TC_CP_ASYNC("ca", ".L2::256B");
    else if constexpr (prefetch == 128) TC_CP_ASYNC("ca", ".L2::128B");
    else if constexpr (prefetch == 64) TC_CP_ASYNC("ca", ".L2::64B");
    else TC_CP_ASYNC("ca", "");
  }
}
#undef TC_CP_ASYNC

template <int N, class T>
TC_DEVICE void copy_async_partial(T* p, const T* src, int elements) {
  constexpr int bytes = N * int(sizeof(T));
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "asynchronous copies move 4, 8 or 16 bytes");
  cp_async<bytes, bytes == 16 ? 128 : 0>(shared_address(p), src, elements * int(sizeof(T)));
}
template <int N, class T>
TC_DEVICE void copy_async(T* p, const T* src) {
  copy_async_partial<N>(p, src, N);
}
template <int N, class T>
TC_DEVICE void copy_async(T* p, const T* src, bool valid) {
  copy_async_partial<N>(p, src, valid ? N : 0);
}
TC_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int newest_left>
TC_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(newest_left) : "memory");
}

}  // namespace tc
