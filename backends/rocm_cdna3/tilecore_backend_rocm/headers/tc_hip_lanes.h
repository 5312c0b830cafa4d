// Barriers, shuffles and votes of the vocabulary.
#pragma once

namespace tc {

// The fences say what the barrier orders; between wavefronts of one workgroup they cost a wait for LDS.
TC_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// A workgroup has one barrier. A part of it that is one wavefront, or all of it, can meet; wavefronts
// that meet by a number count themselves in memory (cdna3.h).
TC_DEVICE void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
TC_DEVICE void fence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
TC_DEVICE void fence_device() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

TC_DEVICE int uniform(int v) { return __builtin_amdgcn_readfirstlane(v); }

template <int bytes> struct unsigned_of;
template <> struct unsigned_of<1> { using type = uint8_t; };
template <> struct unsigned_of<2> { using type = uint16_t; };
template <> struct unsigned_of<4> { using type = uint32_t; };

// ds_bpermute_b32 moves 32 bits from any lane; narrower values are widened, wider ones go in halves.
template <class T>
TC_DEVICE T from_lane(T v, int lane) {
  static_assert(sizeof(T) <= 8, "at most 8 bytes a shuffle");
  if constexpr (sizeof(T) == 8) {
    const uint64_t word = TC_BIT_CAST(uint64_t, v);
    const uint32_t low = __builtin_amdgcn_ds_bpermute(4 * lane, int(uint32_t(word)));
    const uint32_t high = __builtin_amdgcn_ds_bpermute(4 * lane, int(uint32_t(word >> 32)));
    return TC_BIT_CAST(T, uint64_t(high) << 32 | low);
  } else {
    using word = typename unsigned_of<sizeof(T)>::type;
    return TC_BIT_CAST(T, word(__builtin_amdgcn_ds_bpermute(4 * lane, int(TC_BIT_CAST(word, v)))));
  }
}
// Lane `to` of the segment, or the own one when that is outside.
template <class T>
TC_DEVICE T from_segment(T v, int to, int width) {
  const int own = lane_in_warp(), first = own & -width;
  return from_lane(v, to >= 0 && to < width ? first + to : own);
}
template <class T>
TC_DEVICE T shuffle(T v, int lane, int width = lanes_per_warp) {
  return from_segment(v, lane, width);
}
template <class T>
TC_DEVICE T shuffle_xor(T v, int mask, int width = lanes_per_warp) {
  return from_segment(v, (lane_in_warp() & (width - 1)) ^ mask, width);
}
template <class T>
TC_DEVICE T shuffle_down(T v, int distance, int width = lanes_per_warp) {
  return from_segment(v, (lane_in_warp() & (width - 1)) + distance, width);
}
template <class T>
TC_DEVICE T shuffle_up(T v, int distance, int width = lanes_per_warp) {
  return from_segment(v, (lane_in_warp() & (width - 1)) - distance, width);
}

TC_DEVICE lane_mask ballot(bool p) { return __builtin_amdgcn_ballot_w64(p); }
TC_DEVICE uint32_t votes_of_32(bool p) { return uint32_t(ballot(p) >> (lane_in_warp() & 32)); }
TC_DEVICE bool vote_any(bool p) { return ballot(p) != 0; }
TC_DEVICE bool vote_all(bool p) { return ballot(!p) == 0; }

}  // namespace tc
