// Functions that the lanes of a warp execute together, and the entry of a kernel.
#pragma once

namespace tc {
namespace emulator {

// What one lane brings to a shuffle or a vote, and takes away.
struct Exchange {
  uint64_t value;
  int source;  // lane of the warp to read from; outside of the warp: its own
  uint64_t result;
};

inline void exchange_body(const Meeting& meeting) {
  for (int i = 0; i < meeting.count; ++i) {
    auto* mine = static_cast<Exchange*>(meeting.operands[i]);
    const bool inside = mine->source >= 0 && mine->source < meeting.count;
    mine->result = static_cast<Exchange*>(meeting.operands[inside ? mine->source : i])->value;
  }
}
inline void ballot_body(const Meeting& meeting) {
  uint64_t mask = 0;
  for (int i = 0; i < meeting.count; ++i)
    mask |= uint64_t(static_cast<Exchange*>(meeting.operands[i])->value != 0) << i;
  for (int i = 0; i < meeting.count; ++i) static_cast<Exchange*>(meeting.operands[i])->result = mask;
}
inline void uniform_body(const Meeting& meeting) {
  const uint64_t first = static_cast<Exchange*>(meeting.operands[0])->value;
  for (int i = 0; i < meeting.count; ++i) {
    auto* mine = static_cast<Exchange*>(meeting.operands[i]);
    mine->result = first;
    if (mine->value != first)
      report(*meeting.lanes[i], Fault::not_uniform, meeting.text_line, 0,
             "tc::uniform got %d in lane %d and %d in the warp's first lane", int(mine->value),
             meeting.lanes[i]->index, int(first));
  }
}
inline void nothing_body(const Meeting&) {}

inline constexpr CollectiveKind shuffle_kind{"tc::shuffle", exchange_body, 0};
// Exchanges inside segments of at most 32 lanes need no lane beyond its 32 neighbours.
constexpr int part_lanes = lanes_per_warp < 32 ? lanes_per_warp : 32;
inline constexpr CollectiveKind part_shuffle_kind{"tc::shuffle", exchange_body, part_lanes};
inline constexpr CollectiveKind part_ballot_kind{"a vote", ballot_body, part_lanes};
inline constexpr CollectiveKind ballot_kind{"a vote", ballot_body, 0};
inline constexpr CollectiveKind uniform_kind{"tc::uniform", uniform_body, 0};
inline constexpr CollectiveKind warp_barrier_kind{"tc::warp_barrier", nothing_body, 0};

template <class T>
inline T exchange(T v, int source, int width, int text_line) {
  static_assert(sizeof(T) <= 8, "at most 8 bytes a shuffle");
  const bool is_part = width <= part_lanes;
  Exchange operand{0, is_part ? source % part_lanes : source, 0};
  memcpy(&operand.value, &v, sizeof(T));
  collective(is_part ? part_shuffle_kind : shuffle_kind, &operand, text_line);
  memcpy(&v, &operand.result, sizeof(T));
  return v;
}

inline uint64_t vote(const CollectiveKind& kind, uint64_t value, int text_line) {
  Exchange operand{value, 0, 0};
  collective(kind, &operand, text_line);
  return operand.result;
}

// Calls a kernel with arguments given by address.
template <int... I> struct Indices {};
template <int N, int... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I> struct MakeIndices<0, I...> { using type = Indices<I...>; };
template <class T> struct Plain { using type = T; };
template <class T> struct Plain<const T> { using type = T; };

template <class... P, int... I>
inline void call(void (*kernel)(P...), void* const* arguments, Indices<I...>) {
  kernel(*static_cast<typename Plain<P>::type*>(arguments[I])...);
}
template <class... P>
inline void call(void (*kernel)(P...), void* const* arguments) {
  call(kernel, arguments, typename MakeIndices<int(sizeof...(P))>::type());
}

}  // namespace emulator

inline void warp_barrier(TC_HERE) { emulator::vote(emulator::warp_barrier_kind, 0, text_line); }

inline int uniform(int v, TC_HERE) {
  return int(emulator::vote(emulator::uniform_kind, uint64_t(int64_t(v)), text_line));
}

// `width` splits the warp into segments; a source outside of the lane's segment gives its own value.
template <class T>
inline T shuffle(T v, int lane, int width = lanes_per_warp, TC_HERE) {
  const int first = lane_in_warp() & ~(width - 1);
  return emulator::exchange(v, first + (lane & (width - 1)), width, text_line);
}
template <class T>
inline T shuffle_xor(T v, int mask, int width = lanes_per_warp, TC_HERE) {
  const int mine = lane_in_warp(), source = mine ^ mask;
  const bool inside = (source & ~(width - 1)) == (mine & ~(width - 1));
  return emulator::exchange(v, inside ? source : mine, width, text_line);
}
template <class T>
inline T shuffle_down(T v, int distance, int width = lanes_per_warp, TC_HERE) {
  const int mine = lane_in_warp();
  const bool inside = (mine & (width - 1)) + distance < width;
  return emulator::exchange(v, inside ? mine + distance : mine, width, text_line);
}
template <class T>
inline T shuffle_up(T v, int distance, int width = lanes_per_warp, TC_HERE) {
  const int mine = lane_in_warp();
  const bool inside = (mine & (width - 1)) >= distance;
  return emulator::exchange(v, inside ? mine - distance : mine, width, text_line);
}

inline lane_mask ballot(bool p, TC_HERE) {
  return lane_mask(emulator::vote(emulator::ballot_kind, p, text_line));
}
inline uint32_t votes_of_32(bool p, TC_HERE) {
  return uint32_t(emulator::vote(emulator::part_ballot_kind, p, text_line));
}
inline bool vote_any(bool p, TC_HERE) { return emulator::vote(emulator::ballot_kind, p, text_line) != 0; }
inline bool vote_all(bool p, TC_HERE) { return emulator::vote(emulator::ballot_kind, !p, text_line) == 0; }

}  // namespace tc
