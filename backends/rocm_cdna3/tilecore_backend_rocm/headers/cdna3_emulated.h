// CDNA3's matrix instructions (README.md) over the emulator's lanes. Same names as cdna3.h.
#pragma once
#define TC_LANES_PER_WARP 64
#include "tc_emulated.h"

namespace cdna3 {

inline uint32_t perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t(a) << 32 | b;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t digit = selector >> 8 * k & 255;
    uint32_t byte = digit < 8 ? uint32_t(bytes >> 8 * digit & 255) : 0;
    if (digit >= 8 && digit < 12) byte = bytes >> (16 * (digit - 8) + 15) & 1 ? 255 : 0;
    if (digit > 12) byte = 255;
    result |= byte << 8 * k;
  }
  return result;
}

inline void keep_order() {}
template <int level>
inline void set_priority() {}

// As the hardware places them: at the first lane's place plus 4 bytes a lane.
template <int N, class T>
inline void load_to_lds(tc::shared_pointer<T> p, const T* base, int index, int64_t elements, bool valid = true, TC_HERE) {
  static_assert(N * sizeof(T) == 4, "4 bytes a lane");
  tc::shared_pointer<T> to = p;
  to.place.offset = tc::uniform(int(p.place.offset) - 4 * tc::lane_in_warp(), text_line) + 4 * tc::lane_in_warp();
  const bool inside = valid && tc::is_within(index, N, elements);
  tc::copy_async<N>(to, inside ? base + index : base, inside, text_line);
}
inline void barrier_under_loads(TC_HERE) { tc::barrier(text_line); }
template <int pending, int operations>
inline void wait_for_lds() { tc::copy_async_wait<pending>(); }

// The hardware's barrier counts arrivals, wherever they come from: here a barrier with a number, whose
// lanes need not stand at one line as those of tc::barrier must.
template <int lanes>
inline void next_phase(TC_HERE) { tc::named_barrier(15, lanes, text_line); }
template <int lanes>
inline void begin_phases(TC_HERE) {
  tc::barrier(text_line);
  if (tc::warp_in_block() >= lanes / 128) next_phase<lanes>(text_line);
}
template <int lanes>
inline void end_phases(TC_HERE) {
  if (tc::warp_in_block() < lanes / 128) next_phase<lanes>(text_line);
}

inline void barrier_init(tc::shared_pointer<uint64_t> p, int arrivals, TC_HERE) {
  tc::emulator::transaction_init(p.place, arrivals, text_line);
}
inline void barrier_arrive(tc::shared_pointer<uint64_t> p, TC_HERE) {
  tc::emulator::transaction_arrive(p.place, 1, text_line);
}
inline void barrier_wait(tc::shared_pointer<uint64_t> p, int parity, TC_HERE) {
  tc::emulator::transaction_wait(p.place, parity, text_line);
}
template <bool waits>
inline void meet(tc::shared_pointer<uint64_t> p, int number, int lanes, TC_HERE) {
  // Where wavefronts count themselves: the word must be there, and this lane know of it.
  tc::emulator::transaction_test(p.place, 0, text_line);
  if (waits) tc::named_barrier(number, lanes, text_line);
  else tc::named_barrier_arrive(number, lanes, text_line);
}

template <int N, class Registers>
inline void settle(const Registers&) {}

// What a lane brings to an MFMA; the bodies live in cdna3_emulated.cpp.
struct MfmaOperands {
  void* d;
  const void* a;
  const void* b;
};

using tc::emulator::CollectiveKind;
#pragma GCC visibility push(default)
#define CDNA3_ATOM(side, k, suffix, D, A, B, per_lane, builtin, operand) \
  extern const CollectiveKind mfma_kind_##side##x##k##_##suffix;
#include "cdna3_mfma.h"
#undef CDNA3_ATOM
#pragma GCC visibility pop

#define CDNA3_ATOM(side, k, suffix, D, A, B, per_lane, builtin, operand)                      \
  inline void mfma_##side##x##side##x##k##_##suffix(tc::registers<D> d, tc::registers<A> a,   \
                                                    tc::registers<B> b, TC_HERE) {            \
    MfmaOperands operands{d.take(side * side / 64, text_line), a.take(per_lane, text_line),   \
                          b.take(per_lane, text_line)};                                       \
    tc::emulator::collective(mfma_kind_##side##x##k##_##suffix, &operands, text_line);        \
  }
#include "cdna3_mfma.h"
#undef CDNA3_ATOM

}  // namespace cdna3
