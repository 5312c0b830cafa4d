// Calls every function of the vocabulary and every intrinsic once, so that both headers must have it.
// It is compiled, not run.
template <class T>
TC_DEVICE void atomics_of_all(T* p, tc::shared_pointer<T> s) {
  T v = tc::atomic_add_global(p, 1);
  v += tc::atomic_max_global(p, 2) + tc::atomic_min_global(p, 3) + tc::atomic_exchange_global(p, 4);
  v += tc::atomic_compare_exchange_global(p, 1, 2);
  v += tc::atomic_and_global(p, 5) + tc::atomic_or_global(p, 6) + tc::atomic_xor_global(p, 7);
  v += tc::atomic_add_shared(s, 1) + tc::atomic_max_shared(s, 2) + tc::atomic_min_shared(s, 3);
  v += tc::atomic_exchange_shared(s, 4) + tc::atomic_compare_exchange_shared(s, 1, 2);
  v += tc::atomic_and_shared(s, 5) + tc::atomic_or_shared(s, 6) + tc::atomic_xor_shared(s, 7);
  tc::store_release_global(p, v + tc::load_acquire_global(p));
  tc::store_release_shared(s, v + tc::load_acquire_shared(s));
}

template <class T>
TC_DEVICE void atomics_of_floats(T* p, tc::shared_pointer<T> s, T one) {
  tc::atomic_add_global(p, one);
  tc::atomic_max_global(p, one);
  tc::atomic_min_global(p, one);
  tc::atomic_add_shared(s, one);
  tc::atomic_max_shared(s, one);
  tc::atomic_min_shared(s, one);
  T two[2] = {one, one};
  tc::atomic_add_global<2>(p, two);
}

template <class T>
TC_DEVICE float through(float v) {
  T narrow = tc::convert<T>(v);
  return tc::convert<float>(tc::shuffle_up(narrow, 1)) + float(tc::convert<double>(narrow)) +
         float(tc::convert<int>(narrow)) + tc::convert<float>(tc::convert<T>(double(v))) +
         tc::convert<float>(tc::convert<T>(7)) + float(tc::convert<bool>(narrow));
}

template <class T>
TC_DEVICE T maths(T x) {
  T r = tc::exp(x) + tc::exp2(x) + tc::expm1(x) + tc::log(x) + tc::log2(x) + tc::log10(x);
  r += tc::log1p(x) + tc::sin(x) + tc::cos(x) + tc::tan(x) + tc::asin(x) + tc::acos(x);
  r += tc::atan(x) + tc::atan2(x, r) + tc::sinh(x) + tc::cosh(x) + tc::tanh(x) + tc::sqrt(x);
  r += tc::rsqrt(x) + tc::cbrt(x) + tc::erf(x) + tc::erfc(x) + tc::pow(x, r) + tc::fmod(x, r);
  r += tc::floor(x) + tc::ceil(x) + tc::round(x) + tc::trunc(x) + tc::abs(x) + tc::fma(x, r, r);
  r += tc::copysign(x, r) + tc::asinh(x) + tc::acosh(x) + tc::atanh(x);
  r += tc::min(x, r) + tc::max(x, r) + tc::min_nan(x, r) + tc::max_nan(x, r);
  return tc::isnan(r) || tc::isinf(r) || !tc::isfinite(r) ? x : r;
}

template <class T>
TC_DEVICE T narrow_arithmetic(T a, T b) {
  T r = a + b - a * b / -a;
  return a < b || a <= b || a == b || a != b || a > b || a >= b ? r : tc::max(a, tc::min_nan(a, b));
}

TC_KERNEL(128, 2) vocabulary(const float* TC_RESTRICT A, float* TC_RESTRICT B, tc::half* H,
                             tc::bfloat16* W, double* D, int* I, int64_t* L, uint64_t* U, int n) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 256);
  auto SI = tc::shared_cast<int>(S);
  auto SL = tc::shared_cast<int64_t>(S);
  auto SU = tc::shared_cast<uint64_t>(S);
  auto SD = tc::shared_cast<double>(S);
  auto SH = tc::shared_buffer<tc::half>(smem, 1024, 512);
  auto SW = tc::shared_buffer<tc::bfloat16>(smem, 2048, 512);
  const int i = tc::lane_in_block() + tc::lane_x() + tc::lane_y() + tc::lane_z() +
                tc::lane_in_warp() * tc::lanes_per_warp + tc::warp_in_block() + tc::block_x() +
                tc::block_y() + tc::block_z() + tc::grid_x() + tc::grid_y() + tc::grid_z();
  TC_LINE(1);
  const int u = tc::uniform(n);
  TC_FRAGMENT(float, r, 4);
  tc::load_global<4>(r, A);
  tc::load_global_readonly<2>(r, A + i);
  tc::load_global_streaming<1>(r, A + i);
  r[3] += tc::load_global(A) + tc::load_global_readonly(A) + tc::load_global_streaming(A);
  tc::store_global<4>(B, r);
  tc::store_global(B, 1);
  tc::store_global_streaming<2>(B + i, r);
  tc::store_global_streaming(B + i, 1.0f);
  tc::load_bounded<4>(r, A, i, 1000);
  tc::load_bounded<2>(r, A, i, 1000, i < 7);
  tc::store_bounded<4>(r, B, i, 1000);
  tc::store_bounded<1>(r, B, i, 1000, i < 7);
  tc::store_shared<4>(S, r);
  tc::store_shared(S + i, 1.0f);
  tc::load_shared<2>(r, S - 1);
  r[0] += tc::load_shared(S) + float(tc::shared_address(S));
  tc::copy_async<4>(S, A);
  tc::copy_async<2>(S, A, n > 3);
  tc::copy_async_partial<1>(S, A, n);
  tc::copy_async_commit();
  tc::copy_async_wait<1>();
  tc::barrier();
  tc::named_barrier(1, 64);
  tc::named_barrier_arrive(2, 64);
  tc::warp_barrier();
  tc::fence_block();
  tc::fence_device();
  r[1] += tc::shuffle(r[0], 3) + tc::shuffle_xor(r[0], 1, 16) + tc::shuffle_down(r[0], 2);
  r[2] += float(tc::shuffle(D[0], 1)) + float(tc::vote_any(n > 1)) + float(tc::vote_all(n > 2));
  const tc::lane_mask mask = tc::ballot(n > 3) ^ tc::votes_of_32(n > 4);
  TC_LINE(2);
  atomics_of_all(I, SI);
  atomics_of_all(reinterpret_cast<unsigned*>(I), tc::shared_cast<unsigned>(S));
  atomics_of_all(L, SL);
  atomics_of_all(U, SU);
  atomics_of_floats(B, S, 1.0f);
  tc::atomic_add_global<4>(B, r);
  atomics_of_floats(D, SD, 1.0);
  atomics_of_floats(H, SH, tc::half{0x3c00});
  atomics_of_floats(W, SW, tc::bfloat16{0x3f80});
  r[0] += through<tc::half>(r[1]) + through<tc::bfloat16>(r[1]) + through<tc::e4m3>(r[1]) +
          through<tc::e5m2>(r[1]) + through<tc::e4m3fnuz>(r[1]) + through<tc::e5m2fnuz>(r[1]);
  r[1] += maths(r[0]) + float(maths(D[1]));
  tc::store_release_global(H, tc::load_acquire_global(H + 1));
  H[0] = narrow_arithmetic(H[1], H[2]);
  W[0] = narrow_arithmetic(W[1], W[2]);
  r[2] += tc::fast_exp(r[0]) + tc::fast_exp2(r[0]) + tc::fast_log(r[0]) + tc::fast_log2(r[0]) +
          tc::fast_sin(r[0]) + tc::fast_cos(r[0]) + tc::fast_tanh(r[0]) + tc::fast_rsqrt(r[0]) +
          tc::fast_rcp(r[0]) + tc::fast_divide(r[0], r[1]);
  I[0] = tc::floor_div(n, u) + tc::floor_mod(n, u) + tc::popcount(n) + tc::count_leading_zeros(n) +
         tc::convert<int>(r[0]) + int(tc::convert<int8_t>(r[1])) + int(tc::convert<uint64_t>(r[2])) +
         int(mask) + tc::min(n, u) + tc::max(n, u) + tc::bit_cast<int>(r[0]) +
         int(tc::pack<tc::half>(r[0], r[1])) + int(tc::pack<tc::bfloat16>(r[0], r[1])) +
         int(tc::pack4<tc::e4m3>(r[0], r[1], r[2], r[3])) +
         int(tc::pack4<tc::e5m2>(r[0], r[1], r[2], r[3]));
  L[0] = tc::floor_div(L[1], L[2]) + tc::floor_mod(L[1], L[2]) + tc::popcount(L[1]);

  TC_FRAGMENT(tc::half, ha, 8);
  TC_FRAGMENT(tc::half, hb, 4);
  TC_FRAGMENT(tc::bfloat16, wa, 8);
  TC_FRAGMENT(tc::bfloat16, wb, 4);
  TC_FRAGMENT(float, d, 4);
  TC_FRAGMENT(tc::half, hd, 4);
  TC_FRAGMENT(int32_t, id, 4);
  TC_FRAGMENT(int8_t, sa, 16);
  TC_FRAGMENT(uint8_t, ua, 16);
  double dd[2] = {D[0], D[1]};
  for (int j = 0; j < 4; ++j) {
    d[j] = r[j];
    id[j] = n;
    hd[j] = H[j];
  }
  for (int j = 0; j < 16; ++j) {
    sa[j] = int8_t(n + j);
    ua[j] = uint8_t(n - j);
  }
  ampere::copy_async<4, 256>(S, A, n);
  ampere::copy_async<2, 64>(S, A, n);
  ampere::ldmatrix<4>(ha, SH);
  ampere::ldmatrix<2>(hb, SH);
  ampere::ldmatrix<1>(hd, SH);
  ampere::ldmatrix_trans<4>(wa, SW);
  ampere::ldmatrix_trans<2>(wb, SW);
  ampere::ldmatrix_trans<1>(wb, SW);
  ampere::mma_m16n8k16(d, ha, hb);
  ampere::mma_m16n8k16(d, wa, wb);
  ampere::mma_m16n8k16(hd, ha, hb);
  ampere::mma_m16n8k8(d, ha, hb);
  ampere::mma_m16n8k8(d, wa, wb);
  r[0] = ampere::to_tf32(r[0]);
  ampere::mma_m16n8k8_tf32(d, r, r);
  ampere::mma_m16n8k32(id, sa, sa);
  ampere::mma_m16n8k32(id, ua, ua);
  ampere::mma_m16n8k32(id, sa, ua);
  ampere::mma_m16n8k32(id, ua, sa);
  ampere::mma_m8n8k4(dd, dd, dd + 1);
#if defined(TC_EMULATED) || __CUDA_ARCH__ >= 890
  TC_FRAGMENT(tc::e4m3, ea, 16);
  TC_FRAGMENT(tc::e5m2, eb, 16);
  TC_UNROLL_BY(2) for (int j = 0; j < 16; ++j) {
    ea[j] = tc::convert<tc::e4m3>(d[j & 3]);
    eb[j] = tc::convert<tc::e5m2>(d[j & 3]);
  }
  ampere::mma_m16n8k32(d, ea, ea);
  ampere::mma_m16n8k32(d, ea, eb);
  ampere::mma_m16n8k32(d, eb, ea);
  ampere::mma_m16n8k32(d, eb, eb);
#endif
#if defined(TC_EMULATED) || __CUDA_ARCH__ >= 900
  ampere::stmatrix<4>(SH, ha);
  ampere::stmatrix<2>(SH, ha);
  ampere::stmatrix<1>(SH, ha);
  ampere::stmatrix_trans<4>(SH, ha);
  ampere::stmatrix_trans<2>(SH, ha);
  ampere::stmatrix_trans<1>(SH, ha);
#endif
  TC_UNROLL_BY(2) for (int j = 0; j < 4; ++j) tc::store_global(B + j, d[j] + float(id[j]));
  TC_NO_UNROLL for (int j = 0; j < 4; ++j) tc::store_global(H + j, hd[j]);
  tc::store_global(D, dd[0] + dd[1]);
  TC_ASSERT(n > 0, "positive");
  TC_PRINT("%d\n", n);
}
