// Types, conversions and integer helpers of the kernel vocabulary: one text for every device header
// and for the emulated one. The including header has defined TC_DEVICE, TC_LIBM(f) (how the C maths
// function f is called) and, in namespace tc::primitive:
//   float f32_of_f16(uint16_t)   uint16_t f16_of_f32(float)   float f32_of_bf16(uint16_t)
//   uint16_t bf16_of_f32(float)  uint32_t f16x2_of_f32(float low, float high)
//   uint32_t bf16x2_of_f32(float low, float high)   int popcount32/64(uint)   int clz32/64(uint)
// and TC_BIT_CAST(To, value). With TC_NATIVE_FP8 also f32_of_e4m3/e5m2, e4m3/e5m2_of_f32 and
// uint32_t e4m3x2_of_f32(float low, float high).
#pragma once

namespace tc {

struct half { uint16_t bits; };
struct bfloat16 { uint16_t bits; };
struct e4m3 { uint8_t bits; };
struct e5m2 { uint8_t bits; };
struct e4m3fnuz { uint8_t bits; };
struct e5m2fnuz { uint8_t bits; };

// A parameter of this type takes part in no deduction: literals convert to the pointer's type.
template <class T> struct value_type { using type = T; };
template <class T> using value_of = typename value_type<T>::type;

template <class To, class From>
TC_DEVICE To bit_cast(From v) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs types of one size");
  return TC_BIT_CAST(To, v);
}

// ------------------------------------------------------------------------- 8-bit floats
// Formats: OCP 8-bit floating point specification (e4m3, e5m2), and the "fnuz" variants of
// ONNX and MLIR: no infinities, no negative zero, nan is 0x80, exponent bias greater by one.
// Enumerators, because a device compiler would give each static member a place in memory.
template <class T>
struct small_format;
template <> struct small_format<e4m3> {
  enum : int { mantissa = 3, bias = 7, fnuz = false };
  enum : uint32_t { largest = 0x7e, overflow = 0x7e, nan = 0x7f, infinity = 0x100 };
};
template <> struct small_format<e5m2> {
  enum : int { mantissa = 2, bias = 15, fnuz = false };
  enum : uint32_t { largest = 0x7b, overflow = 0x7c, nan = 0x7f, infinity = 0x7c };
};
template <> struct small_format<e4m3fnuz> {
  enum : int { mantissa = 3, bias = 8, fnuz = true };
  enum : uint32_t { largest = 0x7f, overflow = 0x7f, nan = 0x80, infinity = 0x100 };
};
template <> struct small_format<e5m2fnuz> {
  enum : int { mantissa = 2, bias = 16, fnuz = true };
  enum : uint32_t { largest = 0x7f, overflow = 0x7f, nan = 0x80, infinity = 0x100 };
};

template <class T>
TC_DEVICE T small_of_f32(float v) {
  using format = small_format<T>;
  const uint32_t word = TC_BIT_CAST(uint32_t, v), magnitude = word & 0x7fffffffu;
  const uint32_t sign = word >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return T{uint8_t(format::fnuz ? 0x80u : sign | format::nan)};
  const int field = int(magnitude >> 23);
  const uint32_t significand = (magnitude & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
  const int exponent = (field > 0 ? field : 1) - 127;
  const int lowest = 1 - format::bias;  // of normal numbers
  const int target = exponent > lowest ? exponent : lowest;
  const int shift = 23 - format::mantissa + target - exponent;
  uint32_t rounded = 0;
  if (shift < 26) {
    const uint32_t odd = significand >> shift & 1u;
    rounded = (significand + (1u << (shift - 1)) - 1u + odd) >> shift;
  }
  uint32_t code = rounded + (uint32_t(target - lowest) << format::mantissa);
  if (code > format::largest) code = format::overflow;
  if (format::fnuz && code == 0) return T{0};
  return T{uint8_t(sign | code)};
}

template <class T>
TC_DEVICE float f32_of_small(T v) {
  using format = small_format<T>;
  const uint32_t code = v.bits & 0x7fu, sign = uint32_t(v.bits & 0x80u) << 24;
  const uint32_t quiet_nan = 0x7fc00000u, infinity = 0x7f800000u;
  if (format::fnuz ? v.bits == 0x80u : code > format::largest && code != format::infinity)
    return TC_BIT_CAST(float, quiet_nan | (format::fnuz ? 0u : sign));
  if (code == format::infinity) return TC_BIT_CAST(float, infinity | sign);
  const uint32_t field = code >> format::mantissa;
  const uint32_t fraction = code & ((1u << format::mantissa) - 1u);
  const float significand = float(field > 0 ? fraction | 1u << format::mantissa : fraction);
  const int exponent = int(field > 0 ? field : 1u) - format::bias - format::mantissa;
  const float scaled = significand * TC_BIT_CAST(float, uint32_t(exponent + 127) << 23);
  return TC_BIT_CAST(float, TC_BIT_CAST(uint32_t, scaled) | sign);
}

// ------------------------------------------------------------------------- conversions
TC_DEVICE float to_float(float v) { return v; }
TC_DEVICE float to_float(half v) { return primitive::f32_of_f16(v.bits); }
TC_DEVICE float to_float(bfloat16 v) { return primitive::f32_of_bf16(v.bits); }
#ifdef TC_NATIVE_FP8
TC_DEVICE float to_float(e4m3 v) { return primitive::f32_of_e4m3(v.bits); }
TC_DEVICE float to_float(e5m2 v) { return primitive::f32_of_e5m2(v.bits); }
#else
TC_DEVICE float to_float(e4m3 v) { return f32_of_small(v); }
TC_DEVICE float to_float(e5m2 v) { return f32_of_small(v); }
#endif
TC_DEVICE float to_float(e4m3fnuz v) { return f32_of_small(v); }
TC_DEVICE float to_float(e5m2fnuz v) { return f32_of_small(v); }

template <class T> struct kind_of { enum : int { value = 0 }; };     // integer or bool
template <> struct kind_of<float> { enum : int { value = 1 }; };
template <> struct kind_of<double> { enum : int { value = 2 }; };
template <> struct kind_of<half> { enum : int { value = 3 }; };       // 3: narrower than float
template <> struct kind_of<bfloat16> { enum : int { value = 3 }; };
template <> struct kind_of<e4m3> { enum : int { value = 3 }; };
template <> struct kind_of<e5m2> { enum : int { value = 3 }; };
template <> struct kind_of<e4m3fnuz> { enum : int { value = 3 }; };
template <> struct kind_of<e5m2fnuz> { enum : int { value = 3 }; };

template <class To> struct narrow { static TC_DEVICE To of(float v) { return small_of_f32<To>(v); } };
template <> struct narrow<half> {
  static TC_DEVICE half of(float v) { return half{primitive::f16_of_f32(v)}; }
};
template <> struct narrow<bfloat16> {
  static TC_DEVICE bfloat16 of(float v) { return bfloat16{primitive::bf16_of_f32(v)}; }
};
#ifdef TC_NATIVE_FP8
template <> struct narrow<e4m3> {
  static TC_DEVICE e4m3 of(float v) { return e4m3{primitive::e4m3_of_f32(v)}; }
};
template <> struct narrow<e5m2> {
  static TC_DEVICE e5m2 of(float v) {  // the instruction saturates; from 61440 on it is infinity
    const uint8_t saturated = primitive::e5m2_of_f32(v);
    return e5m2{v >= 61440.0f ? uint8_t(0x7c) : v <= -61440.0f ? uint8_t(0xfc) : saturated};
  }
};
#endif

// Rounding to odd keeps what a second rounding to a narrower type needs: the two together round once.
TC_DEVICE float f32_to_odd(double v) {
  const float nearest = float(v);
  if (double(nearest) == v || v != v) return nearest;
  uint32_t word = TC_BIT_CAST(uint32_t, nearest);
  const double magnitude = v < 0 ? -v : v, got = nearest < 0 ? -double(nearest) : double(nearest);
  if (got > magnitude) --word;
  return TC_BIT_CAST(float, word | 1u);
}

template <class To, class Float>
TC_DEVICE To saturate_to_integer(Float v) {
  constexpr bool is_signed = To(-1) < To(0);
  constexpr int bits = int(sizeof(To)) * 8 - (is_signed ? 1 : 0);
  constexpr To largest = To((((uint64_t(1) << (bits - 1)) - 1) << 1) + 1);
  constexpr To smallest = is_signed ? To(-largest - 1) : To(0);
  constexpr Float limit = Float(uint64_t(1) << (bits - 1)) * Float(2);
  if (!(v == v)) return To(0);
  if (v >= limit) return largest;
  if (is_signed ? v < -limit : v <= Float(0)) return smallest;
  return To(v);
}

template <class To, class From, int to, int from>
struct conversion;  // by kind_of
template <class To, class From> struct conversion<To, From, 0, 0> {
  static TC_DEVICE To of(From v) { return To(v); }
};
template <class To, class From> struct conversion<To, From, 0, 1> {
  static TC_DEVICE To of(From v) { return saturate_to_integer<To>(v); }
};
template <class To, class From> struct conversion<To, From, 0, 2> {
  static TC_DEVICE To of(From v) { return saturate_to_integer<To>(v); }
};
template <class To, class From> struct conversion<To, From, 0, 3> {
  static TC_DEVICE To of(From v) { return saturate_to_integer<To>(to_float(v)); }
};
template <class From> struct conversion<bool, From, 0, 0> {
  static TC_DEVICE bool of(From v) { return v != From(0); }
};
template <class From> struct conversion<bool, From, 0, 1> {
  static TC_DEVICE bool of(From v) { return v != From(0); }
};
template <class From> struct conversion<bool, From, 0, 2> {
  static TC_DEVICE bool of(From v) { return v != From(0); }
};
template <class From> struct conversion<bool, From, 0, 3> {
  static TC_DEVICE bool of(From v) { return to_float(v) != 0.0f; }
};
template <class To, class From, int from> struct conversion<To, From, 1, from> {
  static TC_DEVICE To of(From v) { return float(v); }
};
template <class To, class From> struct conversion<To, From, 1, 3> {
  static TC_DEVICE To of(From v) { return to_float(v); }
};
template <class To, class From, int from> struct conversion<To, From, 2, from> {
  static TC_DEVICE To of(From v) { return double(v); }
};
template <class To, class From> struct conversion<To, From, 2, 3> {
  static TC_DEVICE To of(From v) { return double(to_float(v)); }
};
template <class To, class From> struct conversion<To, From, 3, 0> {
  static TC_DEVICE To of(From v) {
    return narrow<To>::of(sizeof(From) <= 2 ? float(v) : f32_to_odd(double(v)));
  }
};
template <class To, class From> struct conversion<To, From, 3, 1> {
  static TC_DEVICE To of(From v) { return narrow<To>::of(v); }
};
template <class To, class From> struct conversion<To, From, 3, 2> {
  static TC_DEVICE To of(From v) { return narrow<To>::of(f32_to_odd(v)); }
};
template <class To, class From> struct conversion<To, From, 3, 3> {
  static TC_DEVICE To of(From v) { return narrow<To>::of(to_float(v)); }
};
template <class T> struct conversion<T, T, 3, 3> {
  static TC_DEVICE T of(T v) { return v; }
};

template <class To, class From>
TC_DEVICE To convert(From v) {
  return conversion<To, From, kind_of<To>::value, kind_of<From>::value>::of(v);
}

template <class T>
TC_DEVICE uint32_t pack(float low, float high);
template <>
TC_DEVICE uint32_t pack<half>(float low, float high) { return primitive::f16x2_of_f32(low, high); }
template <>
TC_DEVICE uint32_t pack<bfloat16>(float low, float high) {
  return primitive::bf16x2_of_f32(low, high);
}

// Four 8-bit floats in one register, the first in its lowest byte.
template <class T>
struct pack_of_four {
  static TC_DEVICE uint32_t of(float a, float b, float c, float d) {
    return uint32_t(narrow<T>::of(a).bits) | uint32_t(narrow<T>::of(b).bits) << 8 |
           uint32_t(narrow<T>::of(c).bits) << 16 | uint32_t(narrow<T>::of(d).bits) << 24;
  }
};
#ifdef TC_NATIVE_FP8
template <>
struct pack_of_four<e4m3> {
  static TC_DEVICE uint32_t of(float a, float b, float c, float d) {
    return primitive::e4m3x2_of_f32(a, b) | primitive::e4m3x2_of_f32(c, d) << 16;
  }
};
#endif
template <class T>
TC_DEVICE uint32_t pack4(float a, float b, float c, float d) {
  return pack_of_four<T>::of(a, b, c, d);
}

// ------------------------------------------------------------------------- 16-bit arithmetic
// float has more than twice the digits of both types, so computing there and rounding rounds once.
#define TC_NARROW_OPERATORS(T)                                                                    \
  TC_DEVICE T operator+(T a, T b) { return narrow<T>::of(to_float(a) + to_float(b)); }            \
  TC_DEVICE T operator-(T a, T b) { return narrow<T>::of(to_float(a) - to_float(b)); }            \
  TC_DEVICE T operator*(T a, T b) { return narrow<T>::of(to_float(a) * to_float(b)); }            \
  TC_DEVICE T operator/(T a, T b) { return narrow<T>::of(to_float(a) / to_float(b)); }            \
  TC_DEVICE T operator-(T a) { return T{uint16_t(a.bits ^ 0x8000u)}; }                            \
  TC_DEVICE bool operator==(T a, T b) { return to_float(a) == to_float(b); }                      \
  TC_DEVICE bool operator!=(T a, T b) { return to_float(a) != to_float(b); }                      \
  TC_DEVICE bool operator<(T a, T b) { return to_float(a) < to_float(b); }                        \
  TC_DEVICE bool operator<=(T a, T b) { return to_float(a) <= to_float(b); }                      \
  TC_DEVICE bool operator>(T a, T b) { return to_float(a) > to_float(b); }                        \
  TC_DEVICE bool operator>=(T a, T b) { return to_float(a) >= to_float(b); }
TC_NARROW_OPERATORS(half)
TC_NARROW_OPERATORS(bfloat16)
#undef TC_NARROW_OPERATORS

// ------------------------------------------------------------------------- selection, integers
template <class T> TC_DEVICE T min(T a, T b) { return a < b ? a : b == b ? b : a; }
template <class T> TC_DEVICE T max(T a, T b) { return a > b ? a : b == b ? b : a; }
template <class T> TC_DEVICE T min_nan(T a, T b) { return a != a || a < b ? a : b; }
template <class T> TC_DEVICE T max_nan(T a, T b) { return a != a || a > b ? a : b; }

// Sums and products of signed integers that wrap in two's complement, as C++ does not promise.
template <bool is_wide> struct wrapping_type { using type = uint32_t; };
template <> struct wrapping_type<true> { using type = uint64_t; };
template <class T> using wraps_in = typename wrapping_type<(sizeof(T) > 4)>::type;
template <class T> TC_DEVICE T wrapping_add(T a, T b) { return T(wraps_in<T>(a) + wraps_in<T>(b)); }
template <class T> TC_DEVICE T wrapping_sub(T a, T b) { return T(wraps_in<T>(a) - wraps_in<T>(b)); }
template <class T> TC_DEVICE T wrapping_mul(T a, T b) { return T(wraps_in<T>(a) * wraps_in<T>(b)); }
template <class T> TC_DEVICE T wrapping_neg(T a) { return T(wraps_in<T>(0) - wraps_in<T>(a)); }

// The quotient of the least number and -1 is no number of its type: it wraps to the least one.
// That of zero is undefined; a host, unlike a device, would end the process.
#ifdef TC_EMULATED
template <class T> TC_DEVICE T divisor(T b) { return b == 0 ? T(1) : b; }
#else
template <class T> TC_DEVICE T divisor(T b) { return b; }
#endif
template <class T> TC_DEVICE T trunc_div(T a, T b) {
  return T(-1) < T(0) && b == T(-1) ? wrapping_neg(a) : T(a / divisor(b));
}
template <class T> TC_DEVICE T trunc_mod(T a, T b) {
  return T(-1) < T(0) && b == T(-1) ? T(0) : T(a % divisor(b));
}
template <class T> TC_DEVICE T floor_div(T a, T b) {
  const T quotient = trunc_div(a, b);
  return T(trunc_mod(a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient);
}
template <class T> TC_DEVICE T floor_mod(T a, T b) {
  const T rest = trunc_mod(a, b);
  return T(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

TC_DEVICE int popcount(uint32_t v) { return primitive::popcount32(v); }
TC_DEVICE int popcount(uint64_t v) { return primitive::popcount64(v); }
TC_DEVICE int popcount(int32_t v) { return primitive::popcount32(uint32_t(v)); }
TC_DEVICE int popcount(int64_t v) { return primitive::popcount64(uint64_t(v)); }
TC_DEVICE int count_leading_zeros(uint32_t v) { return primitive::clz32(v); }
TC_DEVICE int count_leading_zeros(uint64_t v) { return primitive::clz64(v); }
TC_DEVICE int count_leading_zeros(int32_t v) { return primitive::clz32(uint32_t(v)); }
TC_DEVICE int count_leading_zeros(int64_t v) { return primitive::clz64(uint64_t(v)); }

}  // namespace tc
