"""A small writer of LLVM IR text: typed values in, one line of text each, fresh names, loops.

Text rather than an object model: emission is several times faster, and every type and intrinsic
of the installed LLVM can be named (bfloat, masked memory, tile registers).
"""

from __future__ import annotations

from collections.abc import Sequence

from .function_writer import FunctionWriter
from .llvm_types import (
    Loop,
    Value,
    element_bits,
    element_type,
    is_float,
    lane_count,
    like,
    mangle,
    vector_type,
)

_METADATA = '!0 = !{!"branch_weights", i32 1, i32 100000}\n!1 = !{i32 1}'
"""`!prof !0`: a branch hardly ever taken. `!nontemporal !1`: a store past the caches."""


class ModuleWriter:
    """Collects functions, declarations and constants of one module; `str()` is the module."""

    def __init__(self, triple: str = "") -> None:
        self._triple = triple
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._functions: list[FunctionWriter] = []
        self._attributes: str = "nounwind"
        self.flushes_bf16 = False

    def set_target(self, cpu: str, features: str, vector_bits: int) -> None:
        """Attributes of every function: the CPU, and that full-width vectors are wanted."""
        # This extension's conversion to bfloat16 takes subnormal inputs for zero.
        self.flushes_bf16 = "+avx512bf16" in features.split(",")
        self._attributes = (
            f'nounwind "target-cpu"="{cpu}" "target-features"="{features}" '
            f'"prefer-vector-width"="{vector_bits}" "no-trapping-math"="true"'
        )

    def declare(
        self, name: str, result: str, parameters: Sequence[str], attributes: str = ""
    ) -> None:
        """Declare an external function or intrinsic once; functions of the module need none."""
        text = f"declare {result} @{name}({', '.join(parameters)}) {attributes}".rstrip()
        self._declarations.setdefault(name, text)

    def constant(self, name: str, kind: str, text: str, align: int = 64) -> Value:
        """Add a private constant and return its address."""
        line = f"@{name} = private unnamed_addr constant {kind} {text}, align {align}"
        self._globals[name] = line
        return Value("ptr", f"@{name}")

    def has_global(self, name: str) -> bool:
        """Whether a constant of that name was added."""
        return name in self._globals

    def constant_bytes(self, name: str, data: bytes, align: int = 1) -> Value:
        """Add private constant bytes and return their address."""
        text = "".join(f"\\{byte:02X}" for byte in data)
        return self.constant(name, f"[{len(data)} x i8]", f'c"{text}"', align)

    def function(
        self, name: str, result: str, parameters: Sequence[tuple[str, str]], linkage: str = ""
    ) -> FunctionWriter:
        """Start a function; parameters are (type with attributes, name)."""
        writer = FunctionWriter(self, name, result, parameters, linkage)
        self._functions.append(writer)
        return writer

    def __str__(self) -> str:
        head = [f'target triple = "{self._triple}"'] if self._triple else []
        body = [str(function) for function in self._functions]
        for function in self._functions:
            self._declarations.pop(function.name, None)
        tail = [f"attributes #0 = {{ {self._attributes} }}", _METADATA]
        return (
            "\n".join([*head, *self._globals.values(), *self._declarations.values(), *body, *tail])
            + "\n"
        )


__all__ = [
    "FunctionWriter", "Loop", "ModuleWriter", "Value", "element_bits", "element_type", "is_float",
    "lane_count", "like", "mangle", "vector_type",
]  # fmt: skip
