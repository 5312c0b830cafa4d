// Barriers, shuffles and votes of the vocabulary.
#pragma once

namespace tc {

TC_DEVICE void barrier() { __syncthreads(); }
TC_DEVICE void named_barrier(int id, int lanes) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(lanes) : "memory");
}
TC_DEVICE void named_barrier_arrive(int id, int lanes) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(lanes) : "memory");
}
TC_DEVICE void warp_barrier() { __syncwarp(); }
TC_DEVICE void fence_block() { __threadfence_block(); }
TC_DEVICE void fence_device() { __threadfence(); }

TC_DEVICE int uniform(int v) { return __shfl_sync(all_lanes, v, 0); }

template <int bytes> struct unsigned_of;
template <> struct unsigned_of<1> { using type = uint8_t; };
template <> struct unsigned_of<2> { using type = uint16_t; };
template <> struct unsigned_of<4> { using type = uint32_t; };

// Shuffles move 32 bits; narrower values are widened and wider ones go in two halves.
#define TC_SHUFFLE(name, intrinsic)                                                        \
  template <class T>                                                                       \
  TC_DEVICE T name(T v, int operand, int width = lanes_per_warp) {                         \
    static_assert(sizeof(T) <= 8, "at most 8 bytes a shuffle");                            \
    if constexpr (sizeof(T) == 8) {                                                        \
      const uint64_t word = TC_BIT_CAST(uint64_t, v);                                      \
      const uint32_t low = intrinsic(all_lanes, uint32_t(word), operand, width);           \
      const uint32_t high = intrinsic(all_lanes, uint32_t(word >> 32), operand, width);    \
      return TC_BIT_CAST(T, uint64_t(high) << 32 | low);                                   \
    } else {                                                                               \
      using word = typename unsigned_of<sizeof(T)>::type;                                  \
      return TC_BIT_CAST(T, word(intrinsic(all_lanes, uint32_t(TC_BIT_CAST(word, v)),      \
                                           operand, width)));                              \
    }                                                                                      \
  }
TC_SHUFFLE(shuffle, __shfl_sync)
TC_SHUFFLE(shuffle_xor, __shfl_xor_sync)
TC_SHUFFLE(shuffle_down, __shfl_down_sync)
TC_SHUFFLE(shuffle_up, __shfl_up_sync)
#undef TC_SHUFFLE

TC_DEVICE lane_mask ballot(bool p) { return __ballot_sync(all_lanes, p); }
TC_DEVICE uint32_t votes_of_32(bool p) { return __ballot_sync(all_lanes, p); }
TC_DEVICE bool vote_any(bool p) { return __any_sync(all_lanes, p); }
TC_DEVICE bool vote_all(bool p) { return __all_sync(all_lanes, p); }

}  // namespace tc
