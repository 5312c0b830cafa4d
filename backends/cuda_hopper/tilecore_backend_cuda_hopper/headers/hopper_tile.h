// Work of warpgroups on whole tiles, over the vocabulary: one text for the device and for emulation.
// Included by hopper_kernel.cuh and hopper_emulated.h.
#pragma once

namespace hopper {

// Rounds a warpgroup's accumulators to T, stages them panel by panel (64 rows, 64 columns, 128-byte
// swizzle) and stores each panel in bulk. `registers`: row_tiles blocks of 64 x columns. `staging`: two
// panels of this warpgroup. `where`: coordinates of its first element, rows along `row_axis`.
template <int columns, int row_tiles, int row_axis, class T, int rank>
TC_DEVICE void store_tile(const float* registers, tc::shared_pointer<T> staging,
                          const TensorMap& map, int lane, int barrier, At<rank> where) {
  const int row = lane / 32 * 16 + lane % 16, half = lane % 32 / 16;
  auto row_start = staging + row * 64;
  const bool issues = lane == 0;
  const int first_column = where.v[0];
  constexpr int panels = row_tiles * (columns / 64);
  TC_UNROLL
  for (int panel = 0; panel < panels; ++panel) {
    // The copy engine has read what was staged here two panels ago: in an earlier tile, perhaps.
    if (issues && panel == 0 && panels % 2 != 0) bulk_store_wait_read<0>();
    else if (issues) bulk_store_wait_read<1>();
    tc::named_barrier(barrier, 128);
    TC_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      const float* from = registers + panel * 32 + pair * 8;
      alignas(16) T packed[8];
      TC_UNROLL
      for (int i = 0; i < 4; ++i)
        reinterpret_cast<uint32_t*>(packed)[i] = tc::pack<T>(from[2 * i], from[2 * i + 1]);
      const int chunk = (2 * pair + half) ^ (row & 7);
      ampere::stmatrix<4>(row_start + (panel % 2 * 4096 + chunk * 8), packed);
    }
    publish();
    tc::named_barrier(barrier, 128);
    if (issues) {
      where.v[0] = first_column + panel % (columns / 64) * 64;
      bulk_store(map, staging + panel % 2 * 4096, where);
      bulk_store_commit();
      if ((panel + 1) % (columns / 64) == 0) where.v[row_axis] += 64;
    }
  }
}

// The end of a lane's bulk stores: shared memory may go, global memory holds them.
TC_DEVICE void finish_stores(int lane) {
  if (lane == 0) bulk_store_wait<0>();
}

}  // namespace hopper
