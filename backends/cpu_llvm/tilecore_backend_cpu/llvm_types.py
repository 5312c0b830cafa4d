"""LLVM's types as text, values with their type, exact literals."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

FLOAT_TYPES = ("half", "bfloat", "float", "double")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


@dataclass(frozen=True, slots=True)
class Value:
    """One SSA value or constant: its LLVM type and how it is written."""

    type: str
    ref: str

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


def vector_type(element: str, lanes: int) -> str:
    """`<lanes x element>`, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def element_type(kind: str) -> str:
    """The element of a vector type; a scalar type is its own element."""
    return kind[1:-1].split(" x ")[1] if kind[0] == "<" else kind


def lane_count(kind: str) -> int:
    """Lanes of a type, 1 for scalars."""
    return int(kind[1:].split(" ", 1)[0]) if kind[0] == "<" else 1


def like(kind: str, element: str) -> str:
    """The type with `element` and as many lanes as `kind`."""
    return vector_type(element, lane_count(kind))


def element_bits(kind: str) -> int:
    """Bits of one element."""
    element = element_type(kind)
    return _BITS.get(element) or int(element[1:])


def is_float(kind: str) -> bool:
    """Whether the elements are floating point."""
    return element_type(kind) in FLOAT_TYPES


def mangle(kind: str) -> str:
    """The type's part of an overloaded intrinsic's name (`v16f32`)."""
    element = element_type(kind)
    name = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}.get(
        element
    )
    name = name or element
    return name if kind[0] != "<" else f"v{lane_count(kind)}{name}"


def float_literal(value: float, element: str) -> str:
    """An exact LLVM literal of `value` rounded to `element`."""
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "bfloat":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        is_nan = value != value
        rounded = bits if is_nan else bits + 0x7FFF + ((bits >> 16) & 1)
        return f"0xR{(rounded >> 16) & 0xFFFF:04X}"
    if element == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0] if abs(value) < 3.5e38 else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@dataclass(slots=True)
class Loop:
    """A loop under construction: its counter and the values carried from step to step."""

    index: Value
    carried: list[Value]
    next_values: list[Value] | None = None
    results: list[Value] | None = None
    latch: str = ""
    done: str = ""

    def carry(self, values: Sequence[Value]) -> None:
        """Set what the carried values are in the next step."""
        self.next_values = list(values)


def plain_name(name: str) -> str:
    """A name of LLVM IR for an author's name; others than ASCII letters become ``$`` and a code."""
    return "".join(c if c.isascii() else f"${ord(c):x}." for c in name)
