"""Vector mathematical functions written into the instruction stream, for fp32 and fp64.

Every function takes and returns a value of any lane count. Stated errors are in units in the last
place (ULP) of the result against the exact value, over all finite inputs; infinities, NaN, signed
zero and subnormal inputs follow IEEE 754 / C99 Annex F. The tests sample them densely.

Scheme: split the argument so that a short polynomial covers the rest (coefficients in
`math_tables.py`), leading terms exact. One algorithm serves both element types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .builder import (
    FunctionWriter,
    Value,
    element_bits,
    element_type,
    lane_count,
    like,
    vector_type,
)
from .host import HostCpu
from .math_tables import COEFFICIENTS

# ln 2 and pi/2 as sums of floats: each part is exact in its type, the sum goes beyond it.
_LN2_PARTS = {
    32: (0.693145751953125, 1.4286068203094172e-06),
    64: (0.6931471803691238, 1.9082149292705877e-10),
}
_PIO2_PARTS = {
    32: (1.5707963705062866, -4.371139000186241e-08, -1.7151245100058819e-15),
    64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
_LOG2E_PARTS = {
    32: (1.4426950216293335, 1.9259629911266175e-08),
    64: (1.4426950408889634, 2.0355273740931033e-17),
}
_MANTISSA_BITS = {32: 23, 64: 52}
_EXPONENT_BIAS = {32: 127, 64: 1023}
# Beyond these magnitudes the three-part reduction of sine and cosine loses digits: libm takes over.
_TRIG_LIMIT = {32: 16384.0, 64: 2.0**20}


class VectorMath:
    """Emits functions into one `FunctionWriter`, using what `cpu` has."""

    def __init__(self, writer: FunctionWriter, cpu: HostCpu) -> None:
        self.w = writer
        self.cpu = cpu

    # -- pieces ---------------------------------------------------------------------------------

    def _const(self, value: float, x: Value) -> Value:
        return self.w.const(value, x.type)

    def _poly(self, table: str, x: Value) -> Value:
        """Horner evaluation of one table."""
        coefficients = COEFFICIENTS[table][element_bits(x.type)]
        total = self._const(coefficients[-1], x)
        for coefficient in reversed(coefficients[:-1]):
            total = self.w.fma(total, x, self._const(coefficient, x))
        return total

    def _max_keep_nan(self, x: Value, low: float) -> Value:
        """max(x, low), NaN stays."""
        bound = self._const(low, x)
        return self.w.select(self.w.fcmp("olt", x, bound), bound, x)

    def _min_keep_nan(self, x: Value, high: float) -> Value:
        """min(x, high), NaN stays."""
        bound = self._const(high, x)
        return self.w.select(self.w.fcmp("ogt", x, bound), bound, x)

    def _is_native(self, x: Value) -> bool:
        bits = lane_count(x.type) * element_bits(x.type)
        return self.cpu.has_avx512 and bits in (128, 256, 512) and lane_count(x.type) > 1

    def _masked_x86(self, name: str, arguments: Sequence[Value], x: Value) -> Value:
        """An AVX-512 intrinsic in its masked form with all lanes on."""
        bits = lane_count(x.type) * element_bits(x.type)
        suffix = "ps" if element_bits(x.type) == 32 else "pd"
        mask = Value("i16" if lane_count(x.type) == 16 else "i8", "-1")
        extra = [Value("i32", "4")] if bits == 512 else []
        return self.w.call(
            f"llvm.x86.avx512.mask.{name}.{suffix}.{bits}", x.type, [*arguments, x, mask, *extra]
        )

    def _scale(self, x: Value, exponent: Value) -> Value:
        """x * 2^exponent for an integral float exponent in [-1100, 1100]; gradual underflow."""
        if self._is_native(x):
            return self._masked_x86("scalef", [x, exponent], x)
        w, bits = self.w, element_bits(x.type)
        whole = w.cast("fptosi", exponent, like(x.type, f"i{bits}"))
        first = w.binary("ashr", whole, w.const(1, whole.type))
        second = w.sub(whole, first)
        scaled = x
        for part in (first, second):
            biased = w.add(part, w.const(_EXPONENT_BIAS[bits], part.type))
            raw = w.binary("shl", biased, w.const(_MANTISSA_BITS[bits], part.type))
            scaled = w.mul(scaled, w.bitcast(raw, x.type))
        return scaled

    def _widen_scalar(self, x: Value, function: Callable[[Value], Value]) -> Value | None:
        """Scalars run as one lane of a vector where the CPU has the short vector forms."""
        if lane_count(x.type) > 1 or not self.cpu.has_avx512:
            return None
        lanes = 128 // element_bits(x.type)
        return self.w.extract(function(self.w.splat(x, lanes)), 0)

    def round_even(self, x: Value) -> Value:
        """Nearest integral value, ties to even."""
        return self.w.intrinsic("roundeven", [x])

    # -- exponentials ---------------------------------------------------------------------------

    def exp2(self, x: Value) -> Value:
        """2^x, exact at integers. fp32 <= 2.5 ULP, fp64 <= 1.5 ULP.

        Eight vector instructions for fp32 on AVX-512, where scaling takes the whole part by itself.
        """
        widened = self._widen_scalar(x, self.exp2)
        if widened is not None:
            return widened
        w, bits = self.w, element_bits(x.type)
        if self._is_native(x):
            width = lane_count(x.type) * bits
            suffix = "ps" if bits == 32 else "pd"
            mask = Value("i16" if lane_count(x.type) == 16 else "i8", "-1")
            # Immediate 0: x less the nearest integer; 1: less the one below. Infinities give 0, the
            # scaling restores them.
            arguments = [x, Value("i32", "1" if bits == 32 else "0"), x, mask]
            arguments += [Value("i32", "4")] if width == 512 else []
            rest = w.call(f"llvm.x86.avx512.mask.reduce.{suffix}.{width}", x.type, arguments)
            power = w.fma(self._poly("EXP2", rest), rest, self._const(1.0, x))
            whole = x if bits == 32 else w.sub(x, rest)  # the instruction rounds down
            return self._masked_x86("scalef", [power, whole], x)
        bound = {32: 160.0, 64: 1080.0}[bits]
        x = self._min_keep_nan(self._max_keep_nan(x, -bound), bound)
        whole = w.intrinsic("floor", [x]) if bits == 32 else self.round_even(x)
        rest = w.sub(x, whole)
        power = w.fma(self._poly("EXP2", rest), rest, self._const(1.0, x))
        return self._finish_scale(power, whole, x)

    def _finish_scale(self, power: Value, whole: Value, x: Value) -> Value:
        """Scale; a NaN argument must not reach the integer conversion."""
        if self._is_native(x):
            return self._scale(power, whole)
        is_nan = self.w.fcmp("uno", x, x)
        whole = self.w.select(is_nan, self._const(0.0, x), whole)
        return self._scale(power, whole)

    def _reduce_ln2(self, x: Value) -> tuple[Value, Value]:
        """(n, r) with x = n ln 2 + r, |r| <= ln 2 / 2."""
        w, bits = self.w, element_bits(x.type)
        whole = self.round_even(w.mul(x, self._const(math.log2(math.e), x)))
        rest = w.fma(whole, self._const(-_LN2_PARTS[bits][0], x), x)
        return whole, w.fma(whole, self._const(-_LN2_PARTS[bits][1], x), rest)

    def exp(self, x: Value) -> Value:
        """e^x. fp32 <= 1.5 ULP, fp64 <= 1 ULP."""
        widened = self._widen_scalar(x, self.exp)
        if widened is not None:
            return widened
        bound = {32: (-105.0, 90.0), 64: (-746.0, 711.0)}[element_bits(x.type)]
        x = self._min_keep_nan(self._max_keep_nan(x, bound[0]), bound[1])
        whole, rest = self._reduce_ln2(x)
        power = self.w.add(self._expm1_small(rest), self._const(1.0, x))
        return self._finish_scale(power, whole, x)

    def _expm1_small(self, rest: Value) -> Value:
        square = self.w.mul(rest, rest)
        return self.w.fma(self._poly("EXPM1", rest), square, rest)

    def _expm1(self, x: Value) -> Value:
        """e^x - 1 for arguments which do not overflow."""
        w = self.w
        whole, rest = self._reduce_ln2(x)
        power = self._finish_scale(self._const(1.0, x), whole, x)
        return w.fma(self._expm1_small(rest), power, w.sub(power, self._const(1.0, x)))

    def sigmoid(self, x: Value) -> Value:
        """1 / (1 + e^-x). fp32 and fp64 <= 3 ULP."""
        w, one = self.w, self._const(1.0, x)
        small = self.exp(w.neg(w.intrinsic("fabs", [x])))
        above = w.select(w.fcmp("oge", x, self._const(0.0, x)), one, small)
        return w.binary("fdiv", above, w.add(one, small))

    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent. fp32 and fp64 <= 3 ULP."""
        widened = self._widen_scalar(x, self.tanh)
        if widened is not None:
            return widened
        w = self.w
        size = w.intrinsic("fabs", [x])
        size = self._min_keep_nan(size, {32: 10.0, 64: 22.0}[element_bits(x.type)])
        grown = self._expm1(w.add(size, size))
        value = w.binary("fdiv", grown, w.add(grown, self._const(2.0, x)))
        return w.intrinsic("copysign", [value, x])

    # -- logarithms -----------------------------------------------------------------------------

    def _split_log(self, x: Value) -> tuple[Value, Value]:
        """(k, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2)), for positive finite x."""
        w, bits = self.w, element_bits(x.type)
        mantissa, bias = _MANTISSA_BITS[bits], _EXPONENT_BIAS[bits]
        kind = like(x.type, f"i{bits}")
        smallest = 2.0 ** (1 - bias)
        is_tiny = w.fcmp("olt", x, self._const(smallest, x))
        x = w.select(is_tiny, w.mul(x, self._const(2.0**mantissa, x)), x)
        raw = w.bitcast(x, kind)
        root_half = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}[bits]
        shifted = w.sub(raw, w.const(root_half, kind))
        exponent = w.binary("ashr", shifted, w.const(mantissa, kind))
        low = w.binary("and", shifted, w.const((1 << mantissa) - 1, kind))
        fraction = w.bitcast(w.add(low, w.const(root_half, kind)), x.type)
        correction = w.select(is_tiny, w.const(-mantissa, kind), w.const(0, kind))
        return w.cast("sitofp", w.add(exponent, correction), x.type), fraction

    def _log_fraction(self, fraction: Value) -> tuple[Value, Value, Value]:
        """(f, f^2/2, s (f^2/2 + R)): log(1 + f) = f - (second - third)."""
        w = self.w
        f = w.sub(fraction, self._const(1.0, fraction))
        s = w.binary("fdiv", f, w.add(f, self._const(2.0, f)))
        z = w.mul(s, s)
        rest = w.mul(z, self._poly("LOG", z))
        half_square = w.mul(w.mul(f, self._const(0.5, f)), f)
        return f, half_square, w.mul(s, w.add(half_square, rest))

    def _log_edges(self, x: Value, value: Value) -> Value:
        """log(0) = -inf, log(negative) = NaN, log(inf) = inf, log(NaN) = NaN."""
        w = self.w
        infinity = self._const(math.inf, x)
        value = w.select(w.fcmp("oeq", x, infinity), infinity, value)
        value = w.select(w.fcmp("olt", x, self._const(0.0, x)), self._const(math.nan, x), value)
        value = w.select(w.fcmp("oeq", x, self._const(0.0, x)), self._const(-math.inf, x), value)
        return w.select(w.fcmp("uno", x, x), x, value)

    def log(self, x: Value) -> Value:
        """Natural logarithm. fp32 and fp64 <= 1.5 ULP."""
        w, bits = self.w, element_bits(x.type)
        k, fraction = self._split_log(x)
        f, half_square, product = self._log_fraction(fraction)
        low = w.fma(k, self._const(_LN2_PARTS[bits][1], x), product)
        inner = w.sub(w.sub(half_square, low), f)
        value = w.sub(w.mul(k, self._const(_LN2_PARTS[bits][0], x)), inner)
        return self._log_edges(x, value)

    def log2(self, x: Value) -> Value:
        """Base-2 logarithm, exact at powers of two. fp32 and fp64 <= 2.5 ULP."""
        w, bits = self.w, element_bits(x.type)
        k, fraction = self._split_log(x)
        f, half_square, product = self._log_fraction(fraction)
        natural = w.sub(f, w.sub(half_square, product))
        high, low = _LOG2E_PARTS[bits]
        scaled = w.fma(natural, self._const(high, x), w.mul(natural, self._const(low, x)))
        return self._log_edges(x, w.add(k, scaled))

    # -- error function -------------------------------------------------------------------------

    def erf(self, x: Value) -> Value:
        """Error function. fp32 <= 3 ULP, fp64 <= 3 ULP."""
        widened = self._widen_scalar(x, self.erf)
        if widened is not None:
            return widened
        w, bits = self.w, element_bits(x.type)
        high = {32: 4.0, 64: 6.0}[bits]
        size = w.intrinsic("fabs", [x])
        near = w.mul(size, self._poly("ERF_SMALL", w.mul(size, size)))
        clamped = self._min_keep_nan(self._max_keep_nan(size, 1.0), high)
        middle, scale = (high + 1) / 2, 2 / (high - 1)
        u = w.mul(w.sub(clamped, self._const(middle, x)), self._const(scale, x))
        far = w.sub(self._const(1.0, x), self.exp(w.neg(self._poly("ERF_TAIL", u))))
        is_near = w.fcmp("olt", size, self._const(1.0, x))
        return w.intrinsic("copysign", [w.select(is_near, near, far), x])

    # -- circular -------------------------------------------------------------------------------

    def sin(self, x: Value) -> Value:
        """Sine. fp32 <= 1.5 ULP, fp64 <= 1.5 ULP."""
        return self._circular(x, "sin", 0)

    def cos(self, x: Value) -> Value:
        """Cosine. fp32 <= 2 ULP, fp64 <= 1.5 ULP."""
        return self._circular(x, "cos", 1)

    def _circular(self, x: Value, name: str, quarter: int) -> Value:
        """Polynomials in reach of the reduction; libm, lane by lane, for vectors with others."""
        w, bits = self.w, element_bits(x.type)
        size = w.intrinsic("fabs", [x])
        is_far = w.fcmp("ugt", size, self._const(_TRIG_LIMIT[bits], x))
        if lane_count(x.type) > 1:
            is_any_far = w.intrinsic("vector.reduce.or", [is_far], "i1")
        else:
            is_any_far = is_far
        slot = w.alloca(x.type)
        w.store(self._circular_near(x, quarter), slot, 64)
        with w.when(is_any_far):
            w.store(self.by_lane(name, [x]), slot, 64)
        return w.load(slot, x.type, 64)

    def _circular_near(self, x: Value, quarter: int) -> Value:
        w, bits = self.w, element_bits(x.type)
        kind = like(x.type, f"i{bits}")
        in_reach = w.fcmp("ole", w.intrinsic("fabs", [x]), self._const(_TRIG_LIMIT[bits], x))
        x = w.select(in_reach, x, self._const(0.0, x))
        count = self.round_even(w.mul(x, self._const(2 / math.pi, x)))
        rest = x
        for part in _PIO2_PARTS[bits]:
            rest = w.fma(count, self._const(-part, x), rest)
        square = w.mul(rest, rest)
        cubic = w.mul(square, rest)
        sine = w.fma(self._poly("SIN", square), cubic, rest)
        sine = w.select(w.fcmp("oeq", x, self._const(0.0, x)), x, sine)
        half = w.fma(square, self._const(-0.5, x), self._const(1.0, x))
        cosine = w.fma(self._poly("COS", square), w.mul(square, square), half)
        turns = w.add(w.cast("fptosi", count, kind), w.const(quarter, kind))
        is_cosine = w.icmp("ne", w.binary("and", turns, w.const(1, kind)), w.const(0, kind))
        value = w.select(is_cosine, cosine, sine)
        sign = w.binary("shl", w.binary("and", turns, w.const(2, kind)), w.const(bits - 2, kind))
        return w.bitcast(w.binary("xor", w.bitcast(value, kind), sign), x.type)

    # -- anything else --------------------------------------------------------------------------

    def by_lane(self, name: str, arguments: Sequence[Value]) -> Value:
        """The C library's `name` (`namef` for fp32) on every lane: correct, slow."""
        kind = arguments[0].type
        element = element_type(kind)
        symbol = name + ("f" if element == "float" else "")
        lanes = lane_count(kind)
        if lanes == 1:
            return self.w.call(symbol, element, arguments)
        result = self.w.const(0.0, vector_type(element, lanes))
        for lane in range(lanes):
            scalars = [self.w.extract(value, lane) for value in arguments]
            result = self.w.insert(result, self.w.call(symbol, element, scalars), lane)
        return result
