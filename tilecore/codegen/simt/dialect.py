"""Spellings of the kernel vocabulary (``tilecore/emulator/README.md``), and what may vary."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilecore.errors import UnsupportedError
from tilecore.ir.dtypes import DType

_TYPES = {
    "float64": "double", "float32": "float", "tfloat32": "float", "float16": "tc::half",
    "bfloat16": "tc::bfloat16", "float8_e4m3fn": "tc::e4m3", "float8_e5m2": "tc::e5m2",
    "float8_e4m3fnuz": "tc::e4m3fnuz", "float8_e5m2fnuz": "tc::e5m2fnuz", "int64": "int64_t",
    "int32": "int", "int16": "int16_t", "int8": "int8_t", "uint64": "uint64_t",
    "uint32": "uint32_t", "uint16": "uint16_t", "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip

# Float functions whose approximation stays within a few units in the last place, used always:
# the exact exp2 and rcp differ only by the last bits and by denormal operands or results.
_ALWAYS_FAST = {"exp2": "fast_exp2", "rcp": "fast_rcp"}
_FAST_MATH = {
    "exp": "fast_exp", "exp2": "fast_exp2", "log": "fast_log", "log2": "fast_log2",
    "sin": "fast_sin", "cos": "fast_cos", "tanh": "fast_tanh", "rsqrt": "fast_rsqrt",
    "rcp": "fast_rcp",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to spell kernels.

    Attributes:
        name: shows in the first line of the generated text.
        types: dtype name -> C++ type.
        fast: float32 function -> its fast spelling, without fast math.
        fast_math: the same with fast math.
        language: of the `Source`.
        namespaces: that the device header declares: no kernel may be called so.
    """

    name: str = "tc"
    types: dict[str, str] = field(default_factory=lambda: dict(_TYPES))
    fast: dict[str, str] = field(default_factory=lambda: dict(_ALWAYS_FAST))
    fast_math: dict[str, str] = field(default_factory=lambda: dict(_FAST_MATH))
    language: str = "c++"
    namespaces: frozenset[str] = frozenset()

    def type_of(self, dtype: DType) -> str:
        """The C++ type of an element.

        Raises:
            UnsupportedError: the dtype has no type here.
        """
        if dtype.name not in self.types:
            raise UnsupportedError(f"generated kernels have no type for {dtype}")
        return self.types[dtype.name]
