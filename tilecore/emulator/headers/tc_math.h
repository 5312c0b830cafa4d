// float and double functions of the vocabulary, by the C library of the place (TC_LIBM).
#pragma once

namespace tc {

#define TC_UNARY(name, single, dual)                             \
  TC_DEVICE float name(float x) { return TC_LIBM(single)(x); }   \
  TC_DEVICE double name(double x) { return TC_LIBM(dual)(x); }
TC_UNARY(exp, expf, exp)
TC_UNARY(exp2, exp2f, exp2)
TC_UNARY(expm1, expm1f, expm1)
TC_UNARY(log, logf, log)
TC_UNARY(log2, log2f, log2)
TC_UNARY(log10, log10f, log10)
TC_UNARY(log1p, log1pf, log1p)
TC_UNARY(sin, sinf, sin)
TC_UNARY(cos, cosf, cos)
TC_UNARY(tan, tanf, tan)
TC_UNARY(asin, asinf, asin)
TC_UNARY(acos, acosf, acos)
TC_UNARY(atan, atanf, atan)
TC_UNARY(sinh, sinhf, sinh)
TC_UNARY(cosh, coshf, cosh)
TC_UNARY(tanh, tanhf, tanh)
TC_UNARY(asinh, asinhf, asinh)
TC_UNARY(acosh, acoshf, acosh)
TC_UNARY(atanh, atanhf, atanh)
TC_UNARY(sqrt, sqrtf, sqrt)
TC_UNARY(cbrt, cbrtf, cbrt)
TC_UNARY(erf, erff, erf)
TC_UNARY(erfc, erfcf, erfc)
TC_UNARY(floor, floorf, floor)
TC_UNARY(ceil, ceilf, ceil)
TC_UNARY(round, rintf, rint)
TC_UNARY(trunc, truncf, trunc)
TC_UNARY(abs, fabsf, fabs)
#undef TC_UNARY

#define TC_BINARY(name, single, dual)                                        \
  TC_DEVICE float name(float x, float y) { return TC_LIBM(single)(x, y); }   \
  TC_DEVICE double name(double x, double y) { return TC_LIBM(dual)(x, y); }
TC_BINARY(atan2, atan2f, atan2)
TC_BINARY(pow, powf, pow)
TC_BINARY(fmod, fmodf, fmod)
TC_BINARY(copysign, copysignf, copysign)
#undef TC_BINARY

TC_DEVICE float fma(float x, float y, float z) { return TC_LIBM(fmaf)(x, y, z); }
TC_DEVICE double fma(double x, double y, double z) { return TC_LIBM(fma)(x, y, z); }

// Of the least number: itself, which C++ does not promise of its negation.
TC_DEVICE int32_t abs(int32_t x) { return x < 0 ? int32_t(0u - uint32_t(x)) : x; }
TC_DEVICE int64_t abs(int64_t x) { return x < 0 ? int64_t(uint64_t(0) - uint64_t(x)) : x; }

TC_DEVICE bool isnan(float x) { return x != x; }
TC_DEVICE bool isnan(double x) { return x != x; }
TC_DEVICE bool isinf(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) == 0x7f800000u; }
TC_DEVICE bool isinf(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull;
}
TC_DEVICE bool isfinite(float x) { return (bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }
TC_DEVICE bool isfinite(double x) {
  return (bit_cast<uint64_t>(x) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
}

}  // namespace tc
