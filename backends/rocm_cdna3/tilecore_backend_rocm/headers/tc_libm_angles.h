// Trigonometric functions of tc_libm.h, which includes this.
#pragma once

namespace tc::libm {

// ---------------------------------------------------------------- trigonometry
// x = k pi / 2 + r for |x| >= 2^20: x 2/pi modulo 4 from the bits of 2/pi that matter (Payne and Hanek).
TC_DEVICE double reduce_large_angle(double x, int& k) {
  // 2/pi in words of 64 bits, after one word of zeros.
  constexpr uint64_t two_over_pi[20] = {
      0x0000000000000000u, 0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u,
      0xfe5163abdebbc561u, 0xb7246e3a424dd2e0u, 0x06492eea09d1921cu, 0xfe1deb1cb129a73eu,
      0xe88235f52ebb4484u, 0xe99c7026b45f7e41u, 0x3991d639835339f4u, 0x9c845f8bbdf9283bu,
      0x1ff897ffde05980fu, 0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u, 0x4f463f669e5fea2du,
      0x7527bac7ebe5f17bu, 0x3d0739f78a5292eau, 0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu};
  const uint64_t word = TC_BIT_CAST(uint64_t, __builtin_fabs(x));
  const uint64_t m = (word & 0xfffffffffffffull) | 0x10000000000000ull;
  const int first = int(word >> 52) - 1075 - 2 + 64;  // first bit that is not a multiple of 4
  const int at = first / 64, shift = first % 64;
  uint64_t window[3];
  for (int i = 0; i < 3; ++i) {
    window[i] = two_over_pi[at + i] << shift;
    if (shift > 0) window[i] |= two_over_pi[at + i + 1] >> (64 - shift);
  }
  // The low 192 bits of m times the window: 2 bits of quadrant, then the fraction.
  typedef unsigned __int128 wide;
  const wide p2 = wide(m) * window[2];
  const wide p1 = wide(m) * window[1] + uint64_t(p2 >> 64);
  const uint64_t high = m * window[0] + uint64_t(p1 >> 64), low = uint64_t(p1);
  k = int(high >> 62);
  wide fraction = ((wide(high) << 64) | low) << 2;
  const bool upper = (fraction >> 127) != 0;
  if (upper) {
    ++k;
    fraction = -fraction;
  }
  const double top = double(uint64_t(fraction >> 64)) * 0x1p-64;
  const double turns = top + double(uint64_t(fraction)) * 0x1p-128;
  double r = turns * 0x1.921fb54442d18p+0;
  if (upper) r = -r;
  if (x < 0.0) {
    r = -r;
    k = -k;
  }
  return r;
}
TC_DEVICE double reduce_angle(double x, int& k) {
  if (__builtin_fabs(x) >= 0x1p20) return reduce_large_angle(x, k);
  const double whole = __builtin_rint(x * 0x1.45f306dc9c883p-1);
  k = int(whole);
  // pi / 2 in three parts; the first two products are exact.
  const double r = __builtin_fma(-whole, 0x1.0b4611a6p-34, __builtin_fma(-whole, 0x1.921fb544p+0, x));
  return __builtin_fma(-whole, 0x1.3198a2e037073p-69, r);
}
TC_DEVICE double sin_near_0(double r) {
  const double z = r * r;
  const double tail = horner(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                             1.0 / 6227020800.0, -1.0 / 1307674368000.0, 1.0 / 355687428096000.0);
  return __builtin_fma(r * z, tail, r);
}
TC_DEVICE double cos_near_0(double r) {
  const double z = r * r;
  const double tail = horner(z, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                             -1.0 / 87178291200.0, 1.0 / 20922789888000.0);
  return __builtin_fma(z * z, tail, __builtin_fma(z, -0.5, 1.0));
}
TC_DEVICE double sin(double x) {
  if (!(__builtin_fabs(x) < infinity())) return not_a_number();
  int k;
  const double r = reduce_angle(x, k);
  const double v = k & 1 ? cos_near_0(r) : sin_near_0(r);
  return k & 2 ? -v : v;
}
TC_DEVICE double cos(double x) {
  if (!(__builtin_fabs(x) < infinity())) return not_a_number();
  int k;
  const double r = reduce_angle(x, k);
  const double v = k & 1 ? sin_near_0(r) : cos_near_0(r);
  return (k + 1) & 2 ? -v : v;
}
TC_DEVICE double tan(double x) {
  if (!(__builtin_fabs(x) < infinity())) return not_a_number();
  int k;
  const double r = reduce_angle(x, k);
  const double s = sin_near_0(r), c = cos_near_0(r);
  return k & 1 ? -c / s : s / c;
}
// For 0 <= x <= 1: arctan(x) = 2 arctan(x / (1 + sqrt(1 + x^2))), twice, then the series.
TC_DEVICE double atan_up_to_1(double x) {
  double t = x / (1.0 + __builtin_sqrt(__builtin_fma(x, x, 1.0)));
  t = t / (1.0 + __builtin_sqrt(__builtin_fma(t, t, 1.0)));
  const double z = t * t;
  const double tail = horner(z, -1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15,
                             1.0 / 17, -1.0 / 19, 1.0 / 21, -1.0 / 23);
  return 4.0 * __builtin_fma(t * z, tail, t);
}
TC_DEVICE double atan2(double y, double x) {
  if (x != x || y != y) return x + y;
  const double ax = __builtin_fabs(x), ay = __builtin_fabs(y);
  const double large = ax > ay ? ax : ay, small = ax > ay ? ay : ax;
  const double ratio = large == 0.0 ? 0.0 : small == large ? 1.0 : large == infinity() ? 0.0 : small / large;
  double angle = atan_up_to_1(ratio);
  if (ay > ax) angle = 0x1.921fb54442d18p+0 - (angle - 0x1.1a62633145c07p-54);
  if (__builtin_signbit(x)) angle = 0x1.921fb54442d18p+1 - (angle - 0x1.1a62633145c07p-53);
  return with_sign(angle, y);
}
TC_DEVICE double atan(double x) {
  return x == 0.0 ? x : atan2(x, 1.0);
}
TC_DEVICE double asin(double x) {
  if (!(__builtin_fabs(x) <= 1.0)) return not_a_number();
  return atan2(x, __builtin_sqrt((1.0 - x) * (1.0 + x)));
}
TC_DEVICE double acos(double x) {
  if (!(__builtin_fabs(x) <= 1.0)) return not_a_number();
  return 2.0 * atan2(__builtin_sqrt(1.0 - x), __builtin_sqrt(1.0 + x));
}

}  // namespace tc::libm
