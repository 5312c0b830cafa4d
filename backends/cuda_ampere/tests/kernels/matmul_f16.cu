// C[M, N] = A[M, K] @ B[K, N], all row-major half, float accumulators; tiles of 128 x 128 x 32, four
// warps of 64 x 64, asynchronous copies three stages deep. Written by hand in the style of generated
// kernels. Each macro BROKEN_* plants one fault.
#ifdef BROKEN_SWIZZLE_CONFLICTS  // consistent, so right, but rows collide in the banks
TC_DEVICE int A_index(int row, int column) { return row * 32 + column; }
#else
TC_DEVICE int A_index(int row, int column) {
  return row * 32 + ((column / 8 ^ (row >> 1 & 3)) * 8 + column % 8);
}
#endif
TC_DEVICE int B_index(int row, int column) {
  return row * 128 + ((column / 8 ^ (row & 7)) * 8 + column % 8);
}
#ifdef BROKEN_SWIZZLE_DATA  // reader and writer disagree
TC_DEVICE int B_read_index(int row, int column) {
  return row * 128 + ((column / 8 ^ (row & 3)) * 8 + column % 8);
}
#else
TC_DEVICE int B_read_index(int row, int column) { return B_index(row, column); }
#endif

TC_KERNEL(128, 1) matmul(const tc::half* TC_RESTRICT A, const tc::half* TC_RESTRICT B,
                         tc::half* TC_RESTRICT C, int M, int N, int K) {
  TC_SHARED_MEMORY(smem);
  auto A_shared = tc::shared_buffer<tc::half>(smem, 0, 3 * 128 * 32);
  auto B_shared = tc::shared_buffer<tc::half>(smem, 3 * 128 * 32 * 2, 3 * 32 * 128);
  TC_FRAGMENT(float, C_local, 128);
  const int lane = tc::lane_in_warp(), warp = tc::warp_in_block(), thread = tc::lane_in_block();
  const int row0 = tc::block_y() * 128, column0 = tc::block_x() * 128;
  const int warp_row = warp / 2 * 64, warp_column = warp % 2 * 64;
  const int steps = (K + 31) / 32;

  TC_LINE(10);
  TC_UNROLL for (int i = 0; i < 128; ++i) C_local[i] = 0.0f;

  TC_LINE(11);
  TC_UNROLL for (int stage = 0; stage < 2; ++stage) {
    TC_UNROLL for (int i = 0; i < 4; ++i) {
      const int row = thread / 4 + i * 32, column = thread % 4 * 8;
      const bool valid = row0 + row < M && stage * 32 + column < K;
      TC_LINE(12);
      tc::copy_async<8>(A_shared + (stage * 4096 + A_index(row, column)),
                        A + (valid ? int64_t(row0 + row) * K + stage * 32 + column : 0), valid);
    }
    TC_UNROLL for (int i = 0; i < 4; ++i) {
      const int row = thread / 16 + i * 8, column = thread % 16 * 8;
      const bool valid = stage * 32 + row < K && column0 + column < N;
      TC_LINE(13);
      tc::copy_async<8>(B_shared + (stage * 4096 + B_index(row, column)),
                        B + (valid ? int64_t(stage * 32 + row) * N + column0 + column : 0), valid);
    }
    tc::copy_async_commit();
  }

  TC_NO_UNROLL for (int step = 0; step < steps; ++step) {
    TC_LINE(15);
#ifndef BROKEN_NO_WAIT
    tc::copy_async_wait<1>();
#endif
#ifndef BROKEN_NO_BARRIER
    tc::barrier();
#endif
    const int stage = step % 3, next = step + 2, next_stage = next % 3;
    TC_UNROLL for (int i = 0; i < 4; ++i) {
      const int row = thread / 4 + i * 32, column = thread % 4 * 8;
      const bool valid = row0 + row < M && next * 32 + column < K;
      TC_LINE(16);
      tc::copy_async<8>(A_shared + (next_stage * 4096 + A_index(row, column)),
                        A + (valid ? int64_t(row0 + row) * K + next * 32 + column : 0), valid);
    }
    TC_UNROLL for (int i = 0; i < 4; ++i) {
      const int row = thread / 16 + i * 8, column = thread % 16 * 8;
      const bool valid = next * 32 + row < K && column0 + column < N;
      TC_LINE(17);
      tc::copy_async<8>(B_shared + (next_stage * 4096 + B_index(row, column)),
                        B + (valid ? int64_t(next * 32 + row) * N + column0 + column : 0), valid);
    }
    tc::copy_async_commit();

    TC_UNROLL for (int k = 0; k < 32; k += 16) {
      TC_FRAGMENT(tc::half, A_local, 32);
      TC_FRAGMENT(tc::half, B_local, 32);
      TC_LINE(18);
      TC_UNROLL for (int i = 0; i < 4; ++i)
        ampere::ldmatrix<4>(A_local + i * 8,
                            A_shared + (stage * 4096 + A_index(warp_row + i * 16 + lane % 16,
                                                               k + lane / 16 * 8)));
      TC_LINE(19);
      TC_UNROLL for (int j = 0; j < 4; ++j)
        ampere::ldmatrix_trans<4>(B_local + j * 8,
                                  B_shared + (stage * 4096 +
                                              B_read_index(k + lane % 16,
                                                           warp_column + j * 16 + lane / 16 * 8)));
      TC_LINE(20);
      TC_UNROLL for (int i = 0; i < 4; ++i)
        TC_UNROLL for (int j = 0; j < 8; ++j)
          ampere::mma_m16n8k16(C_local + (i * 8 + j) * 4, A_local + i * 8, B_local + j * 4);
    }
#ifdef BROKEN_DIVERGENT_BARRIER
    TC_LINE(21);
    if (lane < 16) tc::barrier();
#endif
#ifdef BROKEN_DEADLOCK  // two halves wait for each other on different barriers
    TC_LINE(22);
    if (warp < 2) {
      tc::named_barrier(1, 96);
    } else {
      tc::named_barrier(2, 96);
    }
#endif
  }
#ifndef BROKEN_NO_LAST_WAIT
  tc::copy_async_wait<0>();
#endif

  TC_UNROLL for (int i = 0; i < 4; ++i)
    TC_UNROLL for (int j = 0; j < 8; ++j)
      TC_UNROLL for (int half = 0; half < 2; ++half) {
        const int row = row0 + warp_row + i * 16 + lane / 4 + half * 8;
        const int column = column0 + warp_column + j * 8 + lane % 4 * 2;
        TC_FRAGMENT(tc::half, pair, 2);
        pair[0] = tc::convert<tc::half>(C_local[(i * 8 + j) * 4 + half * 2]);
        pair[1] = tc::convert<tc::half>(C_local[(i * 8 + j) * 4 + half * 2 + 1]);
        TC_LINE(24);
#ifdef BROKEN_OUT_OF_BOUNDS
        if (row <= M && column < N) tc::store_global<2>(C + int64_t(row) * N + column, pair);
#elif defined(BROKEN_MISALIGNED)
        if (row < M && column + 1 < N) tc::store_global<2>(C + int64_t(row) * N + column + 1, pair);
#else
        if (row < M && column < N) tc::store_global<2>(C + int64_t(row) * N + column, pair);
#endif
      }
}
