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

// Shuffles move 32 bits; narrower values are widened and wider ones go in two halves.
#define TC_SHUFFLE(name, intrinsic)                                                        \
  template <class T>                                                                       \
  TC_DEVICE T name(T v, int operand, int width = lanes_per_warp) {                         \
    static_assert(sizeof(T) <= 8, "at most 8 bytes a shuffle");                            \
    uint32_t words[sizeof(T) > 4 ? 2 : 1] = {};                                            \
    ::memcpy(words, &v, sizeof(T));                                                \
    for (uint32_t& word : words) word = intrinsic(all_lanes, word, operand, width);        \
    ::memcpy(&v, words, sizeof(T));                                                \
    return v;                                                                              \
  }
TC_SHUFFLE(shuffle, __shfl_sync)
TC_SHUFFLE(shuffle_xor, __shfl_xor_sync)
TC_SHUFFLE(shuffle_down, __shfl_down_sync)
TC_SHUFFLE(shuffle_up, __shfl_up_sync)
#undef TC_SHUFFLE

TC_DEVICE lane_mask ballot(bool p) { return __ballot_sync(all_lanes, p); }
TC_DEVICE bool vote_any(bool p) { return __any_sync(all_lanes, p); }
TC_DEVICE bool vote_all(bool p) { return __all_sync(all_lanes, p); }

}  // namespace tc
