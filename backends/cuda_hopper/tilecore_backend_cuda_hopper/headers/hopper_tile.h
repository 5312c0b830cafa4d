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

// Rounds accumulators to T, two to a word.
template <class T, int words>
TC_DEVICE void hold(const float* registers, uint32_t* held) {
  TC_UNROLL
  for (int i = 0; i < words; ++i) held[i] = tc::pack<T>(registers[2 * i], registers[2 * i + 1]);
}

// Stages one panel (64 rows, 64 columns, 128-byte swizzle) of a warpgroup's tile of row_tiles blocks of
// 64 x columns, and stores it in bulk. `words`: the panel's, two elements each. `staging`: two panels of
// this warpgroup. `where`: coordinates of the tile's first element, rows along `row_axis`.
template <int columns, int row_tiles, int row_axis, class T, int rank>
TC_DEVICE void stage_panel(const uint32_t* words, tc::shared_pointer<T> staging,
                           const TensorMap& map, int lane, int barrier, At<rank> where, int panel) {
  constexpr int across = columns / 64, panels = row_tiles * across;
  const int row = lane / 32 * 16 + lane % 16, half = lane % 32 / 16;
  auto row_start = staging + (panel % 2 * 4096 + row * 64);
  const bool issues = lane == 0;
  // The copy engine has read what was staged here two panels ago: in an earlier tile, perhaps.
  if (issues && panel == 0 && panels % 2 != 0) bulk_store_wait_read<0>();
  else if (issues) bulk_store_wait_read<1>();
  tc::named_barrier(barrier, 128);
  TC_UNROLL
  for (int pair = 0; pair < 4; ++pair) {
    alignas(16) T packed[8];
    TC_UNROLL
    for (int i = 0; i < 4; ++i) reinterpret_cast<uint32_t*>(packed)[i] = words[pair * 4 + i];
    const int chunk = (2 * pair + half) ^ (row & 7);
    ampere::stmatrix<4>(row_start + chunk * 8, packed);
  }
  publish();
  tc::named_barrier(barrier, 128);
  if (issues) {
    where.v[0] += panel % across * 64;
    where.v[row_axis] += panel / across * 64;
    bulk_store(map, staging + panel % 2 * 4096, where);
    bulk_store_commit();
  }
}

// One panel of a tile that is held rounded.
template <int columns, int row_tiles, int row_axis, class T, int rank>
TC_DEVICE void store_panel(const uint32_t* held, tc::shared_pointer<T> staging,
                           const TensorMap& map, int lane, int barrier, At<rank> where, int panel) {
  stage_panel<columns, row_tiles, row_axis>(held + panel * 16, staging, map, lane, barrier, where,
                                            panel);
}

// All panels of a tile.
template <int columns, int row_tiles, int row_axis, class T, int rank>
TC_DEVICE void store_tile(const float* registers, tc::shared_pointer<T> staging,
                          const TensorMap& map, int lane, int barrier, At<rank> where) {
  TC_UNROLL
  for (int panel = 0; panel < row_tiles * (columns / 64); ++panel) {
    uint32_t words[16];
    hold<T, 16>(registers + panel * 32, words);
    stage_panel<columns, row_tiles, row_axis>(words, staging, map, lane, barrier, where, panel);
  }
}

// The end of a lane's bulk stores: shared memory may go, global memory holds them.
TC_DEVICE void finish_stores(int lane) {
  if (lane == 0) bulk_store_wait<0>();
}

}  // namespace hopper
