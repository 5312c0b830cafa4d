// Functions of the C maths library for devices without one: clang alone, with no device libraries,
// must compile kernels. Written from the functions' definitions (series, continued reductions and
// identities named at each); float64 within a few units in the last place, checked against exact values
// by the backend's tests, which compile this text for the CPU. float32 goes through float64, which these
// devices compute at half the rate of float32 or better, except where one instruction sequence of the
// compiler serves (TC_LIBM_NATIVE).
#pragma once

namespace tc::libm {

TC_DEVICE double horner(double, double c) { return c; }
template <class... Rest>
TC_DEVICE double horner(double x, double c, Rest... rest) {
  return __builtin_fma(x, horner(x, rest...), c);
}
TC_DEVICE double infinity() { return __builtin_inf(); }
TC_DEVICE double not_a_number() { return __builtin_nan(""); }
TC_DEVICE double with_sign(double magnitude, double sign) { return __builtin_copysign(magnitude, sign); }

TC_DEVICE double fabs(double x) { return __builtin_fabs(x); }
TC_DEVICE double floor(double x) { return __builtin_floor(x); }
TC_DEVICE double ceil(double x) { return __builtin_ceil(x); }
TC_DEVICE double trunc(double x) { return __builtin_trunc(x); }
TC_DEVICE double rint(double x) { return __builtin_rint(x); }
TC_DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
TC_DEVICE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
TC_DEVICE double copysign(double x, double y) { return __builtin_copysign(x, y); }
TC_DEVICE float fabsf(float x) { return __builtin_fabsf(x); }
TC_DEVICE float floorf(float x) { return __builtin_floorf(x); }
TC_DEVICE float ceilf(float x) { return __builtin_ceilf(x); }
TC_DEVICE float truncf(float x) { return __builtin_truncf(x); }
TC_DEVICE float rintf(float x) { return __builtin_rintf(x); }
TC_DEVICE float sqrtf(float x) { return __builtin_sqrtf(x); }
TC_DEVICE float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
TC_DEVICE float copysignf(float x, float y) { return __builtin_copysignf(x, y); }

// ---------------------------------------------------------------- exponentials
// exp(r) - 1 for |r| <= ln(2) / 2, by its series.
TC_DEVICE double expm1_near_0(double r) {
  const double tail = horner(r, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                             1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600,
                             1.0 / 6227020800.0);
  return __builtin_fma(r * r, __builtin_fma(r, tail, 0.5), r);
}
// x = k ln(2) + r
TC_DEVICE double reduce_exp(double x, int& k) {
  const double whole = __builtin_rint(x * 0x1.71547652b82fep+0);
  k = int(whole);
  return __builtin_fma(-whole, 0x1.a39ef35793c76p-33, __builtin_fma(-whole, 0x1.62e42feep-1, x));
}
TC_DEVICE double exp(double x) {
  if (x != x) return x;
  if (x > 710.0) return infinity();
  if (x < -746.0) return 0.0;
  int k;
  const double r = reduce_exp(x, k);
  return __builtin_ldexp(1.0 + expm1_near_0(r), k);
}
TC_DEVICE double exp2(double x) {
  if (x != x) return x;
  if (x >= 1024.0) return infinity();
  if (x < -1076.0) return 0.0;
  const double whole = __builtin_rint(x);
  const double rest = x - whole;
  const double r = __builtin_fma(rest, 0x1.62e42fefa39efp-1, rest * 0x1.abc9e3b39803fp-56);
  return __builtin_ldexp(1.0 + expm1_near_0(r), int(whole));
}
TC_DEVICE double expm1(double x) {
  if (x != x) return x;
  if (x > 710.0) return infinity();
  if (x < -40.0) return -1.0;
  int k;
  const double r = reduce_exp(x, k);
  if (k == 0) return expm1_near_0(x);
  if (k > 60) return exp(x);
  const double power = __builtin_ldexp(1.0, k);
  return __builtin_fma(power, expm1_near_0(r), power - 1.0);
}

// ---------------------------------------------------------------- logarithms
// x = 2^k (1 + f), 1 + f between sqrt(1/2) and sqrt(2); x positive and finite.
TC_DEVICE double reduce_log(double x, int& k) {
  k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  uint64_t word = TC_BIT_CAST(uint64_t, x);
  k += int(word >> 52) - 1023;
  word = (word & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m = TC_BIT_CAST(double, word);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++k;
  }
  return m - 1.0;
}
// log(1 + f) = 2 artanh(s), s = f / (2 + f): 2 s + s z tail(z) with z = s^2.
TC_DEVICE double log_tail(double z) {
  return horner(z, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17,
                2.0 / 19, 2.0 / 21);
}
struct TwoPart {
  double high, low;
};
// log(1 + f) in two parts, some 2^-62 of it off.
TC_DEVICE TwoPart log_near_1(double f) {
  const double d = 2.0 + f, d_low = f - (d - 2.0);
  const double s = f / d;
  const double s_low = (__builtin_fma(-s, d, f) - s * d_low) / d;
  const double z = s * s;
  const double high = 2.0 * s, low = __builtin_fma(s * z, log_tail(z), 2.0 * s_low);
  const double sum = high + low;
  return {sum, low - (sum - high)};
}
TC_DEVICE bool log_is_special(double x, double& result) {
  if (x > 0.0 && x < infinity()) return false;
  result = x == 0.0 ? -infinity() : x > 0.0 ? x : x != x ? x : not_a_number();
  return true;
}
TC_DEVICE TwoPart log_parts(double x) {
  int k;
  const TwoPart part = log_near_1(reduce_log(x, k));
  const double whole = k * 0x1.62e42feep-1;  // exact
  const double high = whole + part.high, rest = whole - high + part.high;
  const double low = __builtin_fma(double(k), 0x1.a39ef35793c76p-33, rest + part.low);
  const double sum = high + low;
  return {sum, low - (sum - high)};
}
TC_DEVICE double log(double x) {
  double special;
  if (log_is_special(x, special)) return special;
  return log_parts(x).high;
}
TC_DEVICE double scaled_log(double x, double per_octave, double octave_low, double factor,
                            double factor_low) {
  double special;
  if (log_is_special(x, special)) return special;
  int k;
  const TwoPart part = log_near_1(reduce_log(x, k));
  const double product = part.high * factor;
  const double low = __builtin_fma(part.high, factor, -product) +
                     (part.low * factor + part.high * factor_low) + k * octave_low;
  const double whole = k * per_octave, high = whole + product;
  return high + (whole - high + product + low);
}
TC_DEVICE double log2(double x) {
  return scaled_log(x, 1.0, 0.0, 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56);
}
TC_DEVICE double log10(double x) {
  return scaled_log(x, 0x1.34413508p-2, 0x1.f79fef311f12bp-34, 0x1.bcb7b1526e50ep-2,
                    0x1.95355baaafad3p-57);
}
TC_DEVICE double log1p(double x) {
  if (!(x > -1.0) || x == infinity())
    return x == -1.0 ? -infinity() : x < -1.0 ? not_a_number() : x;
  if (x > -0.25 && x < 0.375) return x == 0.0 ? x : log_near_1(x).high;
  const double u = 1.0 + x, lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
  return log(u) + lost / u;
}

// x^y = exp(y log x) with the logarithm in two parts. Special cases as in C99.
TC_DEVICE double pow(double x, double y) {
  if (x == 1.0 || y == 0.0) return 1.0;
  if (x != x || y != y) return x + y;
  const bool whole = __builtin_trunc(y) == y;
  const bool odd = whole && __builtin_fabs(y) < 0x1p53 && __builtin_trunc(y * 0.5) != y * 0.5;
  const double magnitude = __builtin_fabs(x);
  const double sign = odd && __builtin_signbit(x) ? -1.0 : 1.0;
  if (magnitude == 0.0 || magnitude == infinity()) {
    return (magnitude == 0.0) == (y > 0.0) ? sign * 0.0 : sign * infinity();
  }
  if (__builtin_fabs(y) == infinity()) {
    if (magnitude == 1.0) return 1.0;
    return (magnitude > 1.0) == (y > 0.0) ? infinity() : 0.0;
  }
  if (x < 0.0 && !whole) return not_a_number();
  const TwoPart part = log_parts(magnitude);
  const double high = y * part.high;
  if (high > 710.0) return sign * infinity();
  if (high < -746.0) return sign * 0.0;
  const double low = __builtin_fma(y, part.high, -high) + y * part.low;
  int k;
  const double r = reduce_exp(high, k) + low;
  return sign * __builtin_ldexp(1.0 + expm1_near_0(r), k);
}
TC_DEVICE double cbrt(double x) {
  const double magnitude = __builtin_fabs(x);
  if (magnitude == 0.0 || !(magnitude < infinity())) return x;
  const double scale = magnitude < 0x1p-900 ? 0x1p300 : magnitude > 0x1p900 ? 0x1p-300 : 1.0;
  const double scaled = magnitude * scale;  // scale is a cube
  double y = exp(log(scaled) * (1.0 / 3));
  y -= (y * y * y - scaled) / (3.0 * y * y);
  const double square = y * y;  // once more with the residual in one rounding
  y -= (__builtin_fma(square, y, -scaled) + __builtin_fma(y, y, -square) * y) / (3.0 * square);
  const double back = scale == 1.0 ? 1.0 : scale > 1.0 ? 0x1p-100 : 0x1p100;
  return with_sign(y * back, x);
}
// The exponent, biased; of subnormals as if they had no least one.
TC_DEVICE int exponent_field(double x) {
  const bool subnormal = x < 0x1p-1022;
  if (subnormal) x *= 0x1p54;
  return int(TC_BIT_CAST(uint64_t, x) >> 52) - (subnormal ? 54 : 0);
}
// Exact: each step subtracts the largest 2^n |y| that fits.
TC_DEVICE double fmod(double x, double y) {
  double rest = __builtin_fabs(x);
  const double divisor = __builtin_fabs(y);
  if (!(rest < infinity()) || divisor != divisor || divisor == 0.0) return not_a_number();
  while (rest >= divisor) {
    double part = divisor;
    const int apart = exponent_field(rest) - exponent_field(part);
    if (apart > 0) part = __builtin_ldexp(part, apart);
    if (part > rest) part *= 0.5;
    rest -= part;
  }
  return with_sign(rest, x);
}

}  // namespace tc::libm

#include "tc_libm_angles.h"

namespace tc::libm {

// ---------------------------------------------------------------- hyperbolic functions
TC_DEVICE double sinh(double x) {
  const double magnitude = __builtin_fabs(x);
  if (!(magnitude < infinity())) return x;
  if (magnitude > 700.0) {
    const double half = exp(0.5 * magnitude);
    return with_sign(0.5 * half * half, x);
  }
  const double e = expm1(magnitude);
  return with_sign(0.5 * (e + e / (e + 1.0)), x);
}
TC_DEVICE double cosh(double x) {
  const double magnitude = __builtin_fabs(x);
  if (!(magnitude < infinity())) return magnitude;
  if (magnitude > 700.0) {
    const double half = exp(0.5 * magnitude);
    return 0.5 * half * half;
  }
  const double e = exp(magnitude);
  return 0.5 * e + 0.5 / e;
}
TC_DEVICE double tanh(double x) {
  const double magnitude = __builtin_fabs(x);
  if (magnitude != magnitude) return x;
  if (magnitude > 20.0) return with_sign(1.0, x);
  const double e = expm1(2.0 * magnitude);
  return with_sign(e / (e + 2.0), x);
}
TC_DEVICE double asinh(double x) {
  const double magnitude = __builtin_fabs(x);
  if (!(magnitude < infinity())) return x;
  if (magnitude > 0x1p28) return with_sign(log(magnitude) + 0x1.62e42fefa39efp-1, x);
  const double square = magnitude * magnitude;
  return with_sign(log1p(magnitude + square / (1.0 + __builtin_sqrt(square + 1.0))), x);
}
TC_DEVICE double acosh(double x) {
  if (!(x >= 1.0)) return not_a_number();
  if (x > 0x1p28) return x == infinity() ? x : log(x) + 0x1.62e42fefa39efp-1;
  const double t = x - 1.0;
  return log1p(t + __builtin_sqrt(__builtin_fma(t, t, 2.0 * t)));
}
TC_DEVICE double atanh(double x) {
  const double magnitude = __builtin_fabs(x);
  if (!(magnitude <= 1.0)) return not_a_number();
  return with_sign(0.5 * log1p(2.0 * magnitude / (1.0 - magnitude)), x);
}

// ---------------------------------------------------------------- error function
// erfc(z) = t h(2 t - 1) exp(-z^2), t = 2 / (2 + z), for z >= 0: h is smooth, and its Chebyshev
// expansion to 28 terms, written as a polynomial, is 4e-17 off.
TC_DEVICE double erfc_positive(double z) {
  if (z > 28.0) return 0.0;
  const double t = 2.0 / (2.0 + z), u = __builtin_fma(2.0, t, -1.0);
  const double h = horner(u, 0.5107913526210115, 0.34358034220690525, 0.13973604627802688,
                          0.018221115753442495, -0.010755330944716365, -0.0032395925339865133,
                          0.0015453060290576436, 0.0004186480332964868, -0.00033153674761946043,
                          -1.7185737594548938e-05, 7.223535061438543e-05, -1.7074336530735702e-05,
                          -1.0848057268891096e-05, 8.060040491028146e-06, -5.628166935192924e-07,
                          -1.8208078384029821e-06, 1.00091858626541e-06, -3.0587196456747096e-09,
                          -2.855481823834117e-07, 1.6491163111184633e-07, -1.6982724012935667e-09,
                          -5.760146697175624e-08, 2.9041985444209086e-08, 6.353864669505139e-09,
                          -9.744756625932259e-09, 1.2284536350186566e-09, 1.2051665995883637e-09,
                          -3.3888695546308687e-10);
  const double square = z * z, rest = __builtin_fma(z, z, -square);
  return t * h * exp(-square) * (1.0 - rest);
}
TC_DEVICE double erfc(double x) {
  if (x != x) return x;
  return x >= 0.0 ? erfc_positive(x) : 2.0 - erfc_positive(-x);
}
TC_DEVICE double erf(double x) {
  const double magnitude = __builtin_fabs(x);
  if (magnitude != magnitude) return x;
  if (magnitude > 0.75) return with_sign(1.0 - erfc_positive(magnitude), x);
  const double z = x * x;  // the series: (-z)^n / (n! (2 n + 1))
  const double sum = horner(-z, 1.0, 1.0 / 3, 1.0 / 10, 1.0 / 42, 1.0 / 216, 1.0 / 1320, 1.0 / 9360,
                            1.0 / 75600, 1.0 / 685440, 1.0 / 6894720, 1.0 / 76204800, 1.0 / 918086400,
                            1.0 / 11975040000.0, 1.0 / 168129561600.0);
  return x * (0x1.20dd750429b6dp+0 * sum);
}

// ---------------------------------------------------------------- float32
#ifdef TC_LIBM_NATIVE
TC_DEVICE float expf(float x) { return __builtin_elementwise_exp(x); }
TC_DEVICE float exp2f(float x) { return __builtin_elementwise_exp2(x); }
TC_DEVICE float logf(float x) { return __builtin_elementwise_log(x); }
TC_DEVICE float log2f(float x) { return __builtin_elementwise_log2(x); }
TC_DEVICE float log10f(float x) { return __builtin_elementwise_log10(x); }
#else
TC_DEVICE float expf(float x) { return float(exp(double(x))); }
TC_DEVICE float exp2f(float x) { return float(exp2(double(x))); }
TC_DEVICE float logf(float x) { return float(log(double(x))); }
TC_DEVICE float log2f(float x) { return float(log2(double(x))); }
TC_DEVICE float log10f(float x) { return float(log10(double(x))); }
#endif
#define TC_THROUGH_DOUBLE(name) \
  TC_DEVICE float name##f(float x) { return float(name(double(x))); }
TC_THROUGH_DOUBLE(expm1)
TC_THROUGH_DOUBLE(log1p)
TC_THROUGH_DOUBLE(sin)
TC_THROUGH_DOUBLE(cos)
TC_THROUGH_DOUBLE(tan)
TC_THROUGH_DOUBLE(asin)
TC_THROUGH_DOUBLE(acos)
TC_THROUGH_DOUBLE(atan)
TC_THROUGH_DOUBLE(sinh)
TC_THROUGH_DOUBLE(cosh)
TC_THROUGH_DOUBLE(tanh)
TC_THROUGH_DOUBLE(asinh)
TC_THROUGH_DOUBLE(acosh)
TC_THROUGH_DOUBLE(atanh)
TC_THROUGH_DOUBLE(cbrt)
TC_THROUGH_DOUBLE(erf)
TC_THROUGH_DOUBLE(erfc)
#undef TC_THROUGH_DOUBLE
TC_DEVICE float atan2f(float y, float x) { return float(atan2(double(y), double(x))); }
TC_DEVICE float powf(float x, float y) { return float(pow(double(x), double(y))); }
TC_DEVICE float fmodf(float x, float y) { return float(fmod(double(x), double(y))); }

}  // namespace tc::libm
