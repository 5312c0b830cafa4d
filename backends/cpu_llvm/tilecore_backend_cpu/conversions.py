"""How element types are stored and computed with: storage types, widening, narrowing.

Narrow floats (16 and 8 bits) are computed with in fp32. bool is a byte in memory and one bit in
registers. The 8-bit formats follow "FP8 Formats for Deep Learning" (Micikevicius et al., 2022)
and, for the fnuz kinds, the same fields with a bias larger by one and 0x80 as the only NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.errors import UnsupportedError
from tilecore.ir.dtypes import DType

from .builder import FunctionWriter, Value, element_bits, lane_count, like, vector_type

_STORAGE = {
    "float64": "double",
    "float32": "float",
    "tfloat32": "float",
}
_HALVES = {"float16": "half", "bfloat16": "bfloat"}


@dataclass(frozen=True, slots=True)
class TinyFloat:
    """An 8-bit float: mantissa bits, exponent bias, kind of specials, largest finite value."""

    mantissa: int
    bias: int
    has_infinity: bool
    is_fnuz: bool
    largest: float


_TINY = {
    "float8_e4m3fn": TinyFloat(3, 7, False, False, 448.0),
    "float8_e5m2": TinyFloat(2, 15, True, False, 57344.0),
    "float8_e4m3fnuz": TinyFloat(3, 8, False, True, 240.0),
    "float8_e5m2fnuz": TinyFloat(2, 16, False, True, 57344.0),
}


def storage_type(dtype: DType) -> str:
    """LLVM type of one element in memory; floats narrower than fp32 are integers there.

    LLVM has no operation on them that all CPUs can do, except their conversions.

    Raises:
        UnsupportedError: sub-byte types, which have no address of their own.
    """
    if dtype.bits < 8:
        raise UnsupportedError(
            f"the CPU backend does not store {dtype}: it is narrower than a byte"
        )
    return _STORAGE.get(dtype.name, f"i{dtype.bits}")


def compute_type(dtype: DType) -> str:
    """LLVM type of one element in registers."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    return f"i{dtype.bits}"


def widen(w: FunctionWriter, value: Value, dtype: DType) -> Value:
    """Storage form to compute form."""
    if dtype.is_bool:
        return w.icmp("ne", value, w.const(0, value.type))
    if dtype.name in _HALVES:
        half = w.bitcast(value, like(value.type, _HALVES[dtype.name]))
        return w.cast("fpext", half, like(value.type, "float"))
    if dtype.name == "float8_e8m0fnu":
        return _widen_exponent(w, value)
    if dtype.name in _TINY:
        return _widen_tiny(w, value, _TINY[dtype.name])
    return value


def narrow(w: FunctionWriter, value: Value, dtype: DType) -> Value:
    """Compute form to storage form; rounds to nearest even."""
    if dtype.is_bool:
        return w.cast("zext", value, like(value.type, "i8"))
    if dtype.name == "bfloat16":
        return _quick_bf16(w, value) if w.module.flushes_bf16 else _exact_bf16(w, value)
    if dtype.name == "float16":
        half = w.cast("fptrunc", value, like(value.type, "half"))
        return w.bitcast(half, like(value.type, "i16"))
    if dtype.name == "tfloat32":
        return _round_mantissa(w, value, 10)
    if dtype.name == "float8_e8m0fnu":
        return _narrow_exponent(w, value)
    if dtype.name in _TINY:
        return _narrow_tiny(w, value, _TINY[dtype.name])
    return value


def _quick_bf16(w: FunctionWriter, value: Value) -> Value:
    """The hardware's conversion, and a detour for vectors with subnormals, which it flushes."""
    lanes = lane_count(value.type)
    if lanes in (4, 8, 16):
        name = f"llvm.x86.avx512.fpclass.ps.{lanes * 32}"
        is_tiny = w.call(name, vector_type("i1", lanes), [value, Value("i32", "32")])
    else:
        size = w.intrinsic("fabs", [value])
        below = w.fcmp("olt", size, w.const(2.0**-126, value.type))
        is_tiny = w.binary("and", below, w.fcmp("one", size, w.const(0.0, value.type)))
    short = like(value.type, "i16")
    quick = w.bitcast(w.cast("fptrunc", value, like(value.type, "bfloat")), short)
    is_any = is_tiny if lanes == 1 else w.intrinsic("vector.reduce.or", [is_tiny], "i1")
    label, before = w.fresh("bf16."), w.block
    w.terminate(f"br {is_any}, label %{label}.exact, label %{label}.end, !prof !0")
    w.begin_block(f"{label}.exact")
    moved = _round_to_high_half(w, value)
    exact = w.select(is_tiny, w.cast("trunc", moved, short), quick)
    w.begin_block(f"{label}.end")
    return w.emit(short, f"phi {short} [{quick.ref}, %{before}], [{exact.ref}, %{label}.exact]")


def _round_to_high_half(w: FunctionWriter, value: Value) -> Value:
    """The upper 16 bits of an fp32, the lower ones rounded off to nearest even."""
    wide = like(value.type, "i32")
    bits = w.bitcast(value, wide)
    odd = w.binary("and", w.binary("lshr", bits, w.const(16, wide)), w.const(1, wide))
    return w.binary("lshr", w.add(w.add(bits, odd), w.const(0x7FFF, wide)), w.const(16, wide))


def _exact_bf16(w: FunctionWriter, value: Value) -> Value:
    """The conversion in integer arithmetic, for CPUs that have none."""
    moved = _round_to_high_half(w, value)
    quiet = w.const(0x7FC0, moved.type)
    moved = w.select(w.fcmp("uno", value, value), quiet, moved)
    return w.cast("trunc", moved, like(value.type, "i16"))


def _widen_exponent(w: FunctionWriter, value: Value) -> Value:
    wide = like(value.type, "i32")
    raw = w.cast("zext", value, wide)
    bits = w.binary("shl", raw, w.const(23, wide))
    bits = w.select(w.icmp("eq", raw, w.const(0, wide)), w.const(0x00400000, wide), bits)
    bits = w.select(w.icmp("eq", raw, w.const(255, wide)), w.const(0x7FC00000, wide), bits)
    return w.bitcast(bits, like(value.type, "float"))


def _narrow_exponent(w: FunctionWriter, value: Value) -> Value:
    """Nearest power of two; zero and negative values have none and give the smallest."""
    wide = like(value.type, "i32")
    bits = w.bitcast(value, wide)
    rounded = w.add(bits, w.const(0x3FFFFF, wide))
    rounded = w.add(
        rounded, w.binary("and", w.binary("lshr", bits, w.const(23, wide)), w.const(1, wide))
    )
    exponent = w.binary("lshr", rounded, w.const(23, wide))
    exponent = w.select(w.icmp("sgt", exponent, w.const(254, wide)), w.const(254, wide), exponent)
    is_low = w.fcmp("olt", value, w.const(2.0**-127, value.type))
    exponent = w.select(is_low, w.const(0, wide), exponent)
    exponent = w.select(w.fcmp("uno", value, value), w.const(255, wide), exponent)
    return w.cast("trunc", exponent, like(value.type, "i8"))


def _round_mantissa(w: FunctionWriter, value: Value, kept: int) -> Value:
    """Round an fp32 value to `kept` mantissa bits, ties to even; NaN and infinity stay."""
    wide = like(value.type, "i32")
    bits = w.bitcast(value, wide)
    drop = 23 - kept
    odd = w.binary("and", w.binary("lshr", bits, w.const(drop, wide)), w.const(1, wide))
    moved = w.add(w.add(bits, odd), w.const((1 << (drop - 1)) - 1, wide))
    moved = w.binary("and", moved, w.const(-(1 << drop), wide))
    size = w.intrinsic("fabs", [value])
    is_finite = w.fcmp("olt", size, w.const(float("inf"), value.type))
    return w.select(is_finite, w.bitcast(moved, value.type), value)


def _widen_tiny(w: FunctionWriter, value: Value, form: TinyFloat) -> Value:
    wide, single = like(value.type, "i32"), like(value.type, "float")
    raw = w.cast("zext", value, wide)
    magnitude = w.binary("and", raw, w.const(0x7F, wide))
    sign = w.binary("shl", w.binary("and", raw, w.const(0x80, wide)), w.const(24, wide))
    # Read as an fp32 of a too small exponent; the multiplication also normalises subnormals.
    small = w.bitcast(w.binary("shl", magnitude, w.const(23 - form.mantissa, wide)), single)
    scaled = w.bitcast(w.mul(small, w.const(2.0 ** (127 - form.bias), single)), wide)
    if form.is_fnuz:
        is_nan = w.icmp("eq", raw, w.const(0x80, wide))
        scaled = w.select(is_nan, w.const(0x7FC00000, wide), scaled)
    elif form.has_infinity:
        special = w.binary(
            "or", w.binary("shl", magnitude, w.const(21, wide)), w.const(0x7F800000, wide)
        )
        scaled = w.select(w.icmp("uge", magnitude, w.const(0x7C, wide)), special, scaled)
    else:
        is_nan = w.icmp("eq", magnitude, w.const(0x7F, wide))
        scaled = w.select(is_nan, w.const(0x7FC00000, wide), scaled)
    return w.bitcast(w.binary("or", scaled, sign), single)


def _narrow_tiny(w: FunctionWriter, value: Value, form: TinyFloat) -> Value:
    wide = like(value.type, "i32")
    size = w.intrinsic("fabs", [value])
    bits = w.bitcast(size, wide)
    drop = 23 - form.mantissa
    # Normal results: round the mantissa in place, then move the exponent's bias.
    odd = w.binary("and", w.binary("lshr", bits, w.const(drop, wide)), w.const(1, wide))
    rounded = w.add(w.add(bits, odd), w.const((1 << (drop - 1)) - 1, wide))
    normal = w.binary("lshr", rounded, w.const(drop, wide))
    normal = w.sub(normal, w.const((127 - form.bias) << form.mantissa, wide))
    # Subnormal results are integers in units of the smallest: exact scaling, one rounding.
    units = w.mul(size, w.const(2.0 ** (form.bias - 1 + form.mantissa), size.type))
    smallest_normal = w.const(2.0 ** (1 - form.bias), size.type)
    is_small = w.fcmp("olt", size, smallest_normal)
    units = w.select(is_small, units, w.const(0.0, size.type))
    subnormal = w.cast("fptosi", w.intrinsic("roundeven", [units]), wide)
    code = w.select(is_small, subnormal, normal)
    code = _limit_tiny(w, code, size, form)
    sign = w.binary(
        "and", w.binary("lshr", w.bitcast(value, wide), w.const(24, wide)), w.const(0x80, wide)
    )
    if form.is_fnuz:  # there is no negative zero, and NaN has one code
        sign = w.select(w.icmp("eq", code, w.const(0, wide)), w.const(0, wide), sign)
        code = w.binary("or", code, sign)
        code = w.select(w.fcmp("uno", value, value), w.const(0x80, wide), code)
    else:
        code = w.binary("or", code, sign)
    return w.cast("trunc", code, like(value.type, "i8"))


def _limit_tiny(w: FunctionWriter, code: Value, size: Value, form: TinyFloat) -> Value:
    """Overflow to infinity where there is one, else to the largest finite value; NaN."""
    kind = code.type
    if form.has_infinity:
        code = w.select(w.icmp("sgt", code, w.const(0x7C, kind)), w.const(0x7C, kind), code)
        return w.select(w.fcmp("uno", size, size), w.const(0x7E, kind), code)
    last = 0x7F if form.is_fnuz else 0x7E
    code = w.select(w.icmp("sgt", code, w.const(last, kind)), w.const(last, kind), code)
    if form.is_fnuz:
        return code
    return w.select(w.fcmp("uno", size, size), w.const(0x7F, kind), code)


def convert(w: FunctionWriter, value: Value, source: DType, target: DType) -> Value:
    """Convert between compute forms with the IR's rules for `Cast`."""
    kind = like(value.type, compute_type(target))
    if target.is_bool:
        if source.is_bool:
            return value
        zero = w.const(0, value.type)
        return w.fcmp("une", value, zero) if source.is_float else w.icmp("ne", value, zero)
    if source.is_bool:
        return w.cast("uitofp" if target.is_float else "zext", value, kind)
    if source.is_float and target.is_float:
        return _convert_float(w, value, source, target, kind)
    if source.is_float:
        name = "fptosi.sat" if target.kind == "int" else "fptoui.sat"
        symbol = f"llvm.{name}.{_mangled(kind)}.{_mangled(value.type)}"
        return w.call(symbol, kind, [value])
    if target.is_float:
        opcode = "sitofp" if source.kind == "int" else "uitofp"
        wide = w.cast(opcode, value, kind)
        return round_to(w, wide, target)
    if target.bits == source.bits:
        return value
    if target.bits < source.bits:
        return w.cast("trunc", value, kind)
    return w.cast("sext" if source.kind == "int" else "zext", value, kind)


def _convert_float(
    w: FunctionWriter, value: Value, source: DType, target: DType, kind: str
) -> Value:
    if element_bits(value.type) < element_bits(kind):
        return w.cast("fpext", value, kind)
    value = w.cast("fptrunc", value, kind)
    is_exact = (
        source.mantissa_bits <= target.mantissa_bits
        and source.exponent_bits <= target.exponent_bits
    )
    return value if is_exact else round_to(w, value, target)


def round_to(w: FunctionWriter, value: Value, dtype: DType) -> Value:
    """Round an fp32 value to what `dtype` can hold; stays in fp32."""
    if not dtype.is_float or dtype.name in ("float32", "float64"):
        return value
    return widen(w, narrow(w, value, dtype), dtype)


def _mangled(kind: str) -> str:
    from .builder import mangle

    return mangle(kind)
