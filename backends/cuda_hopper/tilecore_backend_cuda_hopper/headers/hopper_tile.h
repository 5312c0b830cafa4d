// Work of warpgroups on whole tiles, over the vocabulary: one text for the device and for emulation.
// Included by hopper_kernel.cuh and hopper_emulated.h.
#pragma once

namespace hopper {

// The largest of three bit patterns as signed integers: one instruction.
TC_DEVICE float max_bits(float a, float b, float c) {
  const int32_t x = tc::bit_cast<int32_t>(a), y = tc::bit_cast<int32_t>(b), z = tc::bit_cast<int32_t>(c);
  const int32_t w = x > y ? x : y;
  return tc::bit_cast<float>(w > z ? w : z);
}

// Rounds accumulators to T, two 16-bit ones to a word; those that are of T's width stay as they are.
template <class T, int words, class Sum>
TC_DEVICE void hold(TC_REGISTERS(Sum) registers, TC_REGISTERS(uint32_t) held) {
  TC_UNROLL
  for (int i = 0; i < words; ++i) {
    if constexpr (sizeof(Sum) == 2)
      held[i] = uint32_t(tc::bit_cast<uint16_t>(registers[2 * i])) |
                uint32_t(tc::bit_cast<uint16_t>(registers[2 * i + 1])) << 16;
    else if constexpr (sizeof(T) == 2)
      held[i] = tc::pack<T>(registers[2 * i], registers[2 * i + 1]);
    else held[i] = tc::bit_cast<uint32_t>(registers[i]);
  }
}

// Writes 16 words of a lane to a panel of 64 rows of 128 bytes, swizzled as the copy engine expects.
template <class T>
TC_DEVICE void fill_panel(TC_REGISTERS(uint32_t) words, tc::shared_pointer<T> panel, int lane) {
  if constexpr (sizeof(T) == 2) {
    const int row = lane / 32 * 16 + lane % 16, half = lane % 32 / 16;
    TC_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      alignas(16) T packed[8];
      TC_UNROLL
      for (int i = 0; i < 4; ++i) reinterpret_cast<uint32_t*>(packed)[i] = words[pair * 4 + i];
      const int chunk = (2 * pair + half) ^ (row & 7);
      ampere::stmatrix<4>(panel + (row * 64 + chunk * 8), packed);
    }
  } else {  // lanes 4 g + t hold columns 2 t, 2 t + 1 of rows g and g + 8
    const int first = lane / 32 * 16 + lane % 32 / 4, t = lane % 4;
    // Half a warp, four rows, writes at a time. Odd rows swap the 8-column groups 0, 2 and 1, 3, so
    // that these rows' swizzled chunks are all eight.
    const bool odd = first & 1;
    TC_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int row = first + i % 2 * 8, chunk = (i / 2 * 2 + t / 2) ^ (row & 7) ^ (odd ? 4 : 0);
      const uint32_t one = odd ? words[2 * (i ^ 4)] : words[2 * i];
      const uint32_t other = odd ? words[2 * (i ^ 4) + 1] : words[2 * i + 1];
      alignas(8) T two[2] = {tc::bit_cast<T>(one), tc::bit_cast<T>(other)};
      tc::store_shared<2>(panel + (row * 32 + chunk * 4 + t % 2 * 2), two);
    }
  }
}

// Hands panel number `panel`, staged at `slot`, to the copy engine: stored, or added to what is there.
template <int across, int row_axis, bool adds, class T, int rank>
TC_DEVICE void send_panel(tc::shared_pointer<T> slot, const TensorMap& map, At<rank> where, int panel) {
  where.v[0] += panel % across * (128 / int(sizeof(T)));
  where.v[row_axis] += panel / across * 64;
  if constexpr (adds) bulk_store_add(map, slot, where);
  else bulk_store(map, slot, where);
}

// Stages one panel (64 rows of 128 bytes) of a warpgroup's tile of row_tiles blocks of 64 x columns, and
// stores it in bulk, or adds it to what is there. `words`: the panel's. `staging`: two panels of this
// warpgroup. `where`: coordinates of the tile's first element, rows along `row_axis`.
template <int columns, int row_tiles, int row_axis, bool adds, class T, int rank>
TC_DEVICE void stage_panel(TC_REGISTERS(uint32_t) words, tc::shared_pointer<T> staging,
                           const TensorMap& map, int lane, int barrier, At<rank> where, int panel) {
  constexpr int width = 128 / sizeof(T), across = columns / width, panels = row_tiles * across;
  const auto slot = staging + panel % 2 * (64 * width);
  const bool issues = lane == 0;
  // The copy engine has read what was staged here two panels ago: in an earlier tile, perhaps.
  if (issues && panel == 0 && panels % 2 != 0) bulk_store_wait_read<0>();
  else if (issues) bulk_store_wait_read<1>();
  tc::named_barrier(barrier, 128);
  fill_panel(words, slot, lane);
  publish();
  tc::named_barrier(barrier, 128);
  if (issues) {
    send_panel<across, row_axis, adds>(slot, map, where, panel);
    bulk_store_commit();
  }
}

// One panel of a tile that is held rounded.
template <int columns, int row_tiles, int row_axis, bool adds, class T, int rank>
TC_DEVICE void store_panel(TC_REGISTERS(uint32_t) held, tc::shared_pointer<T> staging,
                           const TensorMap& map, int lane, int barrier, At<rank> where, int panel) {
  stage_panel<columns, row_tiles, row_axis, adds>(held + panel * 16, staging, map, lane, barrier,
                                                  where, panel);
}

// All panels of a tile: those that fit their slots leave together. `later`: how many stores after the
// last one that was staged here may still be read; they have staging of their own.
template <int columns, int row_tiles, int row_axis, bool adds, int later = 0, class Sum, class T,
          int rank>
TC_DEVICE void store_tile(TC_REGISTERS(Sum) registers, tc::shared_pointer<T> staging,
                          const TensorMap& map, int lane, int barrier, At<rank> where) {
  constexpr int width = 128 / sizeof(T), across = columns / width, panels = row_tiles * across;
  if constexpr (panels <= 2) {
    if (lane == 0) bulk_store_wait_read<later>();
    tc::named_barrier(barrier, 128);
    TC_UNROLL
    for (int panel = 0; panel < panels; ++panel) {
      uint32_t words[16];
      hold<T, 16>(registers + panel * (width / 2), words);
      fill_panel(words, staging + panel * (64 * width), lane);
    }
    publish();
    tc::named_barrier(barrier, 128);
    if (lane == 0) {
      TC_UNROLL
      for (int panel = 0; panel < panels; ++panel)
        send_panel<across, row_axis, adds>(staging + panel * (64 * width), map, where, panel);
      bulk_store_commit();
    }
    return;
  }
  TC_UNROLL
  for (int panel = 0; panel < panels; ++panel) {
    uint32_t words[16];
    hold<T, 16>(registers + panel * (width / 2), words);
    stage_panel<columns, row_tiles, row_axis, adds>(words, staging, map, lane, barrier, where,
                                                    panel);
  }
}

// The copy engine has read all that a lane handed to it: shared memory may go. Global memory holds it
// at the end of the launch; nothing in the launch reads it.
TC_DEVICE void finish_stores(int lane) {
  if (lane == 0) bulk_store_wait_read<0>();
}

}  // namespace hopper
