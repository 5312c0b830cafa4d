"""Text of the wgmma device functions, written on demand for the shapes that a kernel uses.

A header with every shape, type and operand source would hold over a thousand functions; a kernel
needs one to three. `wgmma_source` gives the C++ text of exactly those, to follow `hopper.cuh`.
Shapes, types and operand order: PTX ISA, "wgmma.mma_async".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

WGMMA_M = 64
"""Rows of every wgmma instruction (one warpgroup)."""


@dataclass(frozen=True, slots=True)
class WgmmaKind:
    """One pair of operand types with its accumulator: a row of the table of instruction types."""

    name: str
    accumulator: str
    a: str
    b: str
    k: int
    """Depth of one instruction in elements: always 32 bytes of an operand row."""
    has_negate: bool
    """The immediate scale-a, scale-b operands exist (floating point only)."""
    has_transpose: bool
    """The operands in shared memory may be MN-major (16-bit types only)."""

    @property
    def accumulators_per_register(self) -> int:
        """Accumulator elements held by one 32-bit register: 2 for f16, else 1."""
        return 2 if self.accumulator == "f16" else 1


def _kinds() -> dict[str, WgmmaKind]:
    rows = [
        WgmmaKind("f32_f16", "f32", "f16", "f16", 16, True, True),
        WgmmaKind("f16_f16", "f16", "f16", "f16", 16, True, True),
        WgmmaKind("f32_bf16", "f32", "bf16", "bf16", 16, True, True),
        WgmmaKind("f32_tf32", "f32", "tf32", "tf32", 8, True, False),
    ]
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            rows.append(WgmmaKind(f"f32_{a}_{b}", "f32", a, b, 32, True, False))
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            rows.append(WgmmaKind(f"s32_{a}_{b}", "s32", a, b, 32, False, False))
    return {row.name: row for row in rows}


WGMMA_KINDS = _kinds()
"""Every pair of types by name: accumulator, then operand types (one name when equal)."""


@dataclass(frozen=True, slots=True, order=True)
class WgmmaInstruction:
    """One wgmma shape: type row, columns, and where A comes from."""

    kind: str
    n: int
    a_in_registers: bool = False

    def __post_init__(self) -> None:
        if self.kind not in WGMMA_KINDS:
            raise ValueError(
                f"wgmma kind: expected one of {sorted(WGMMA_KINDS)}, got {self.kind!r}"
            )
        if self.n not in legal_n(WGMMA_KINDS[self.kind]):
            raise ValueError(f"wgmma n for {self.kind}: expected 8..256 by its step, got {self.n}")

    @property
    def function_name(self) -> str:
        """Name of the device function in namespace `tc`."""
        return f"wgmma_{self.kind}_n{self.n}_{'rs' if self.a_in_registers else 'ss'}"


def legal_n(kind: WgmmaKind) -> frozenset[int]:
    """Columns the instruction takes: multiples of 8 to 256; for integers 8, 24, multiples of 16."""
    if kind.accumulator == "s32":
        return frozenset({8, 24, *range(16, 257, 16)})
    return frozenset(range(8, 257, 8))


def wgmma_function(instruction: WgmmaInstruction) -> str:
    """Return the C++ text of one wgmma device function.

    Signature: `name<TransposeA, TransposeB>(accumulators, a, b, accumulate)`, where a transpose
    flag of 1 says the operand is MN-major (given only for 16-bit types; TransposeA only when A is
    in shared memory), `a` is a matrix descriptor or a pointer to four registers, and `accumulate`
    0 discards the old accumulators.
    """
    kind = WGMMA_KINDS[instruction.kind]
    count = instruction.n // 2 // kind.accumulators_per_register
    ctype, constraint = {"f32": ("float", "f"), "s32": ("int", "r"), "f16": ("u32", "r")}[
        kind.accumulator
    ]
    operand = count
    a_text = f"%{operand}"
    if instruction.a_in_registers:
        a_text = "{" + ", ".join(f"%{operand + i}" for i in range(4)) + "}"
        operand += 4
    else:
        operand += 1
    b_text, predicate = f"%{operand}", f"%{operand + 1}"
    operand += 2
    tail = ", p" + (", 1, 1" if kind.has_negate else "")
    template, immediates = [], []
    for name in ("TransposeA", "TransposeB") if kind.has_transpose else ():
        if name == "TransposeA" and instruction.a_in_registers:
            continue
        template.append(f"int {name} = 0")
        immediates.append(f'"n"({name})')
        tail += f", %{operand}"
        operand += 1
    shape = f"m{WGMMA_M}n{instruction.n}k{kind.k}"
    lines = [f"template <{', '.join(template)}>"] if template else []
    a_param = "const u32* a" if instruction.a_in_registers else "u64 a"
    parameters = f"{ctype} (&d)[{count}], {a_param}, u64 b, int accumulate"
    lines.append(f"TC_DEVICE void {instruction.function_name}({parameters}) {{")
    lines.append('  asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, ' + predicate + ', 0;\\n"')
    lines.append(
        f'    "wgmma.mma_async.sync.aligned.{shape}.{kind.accumulator}.{kind.a}.{kind.b} "'
    )
    placeholders = [f"%{i}" for i in range(count)]
    for first in range(0, count, 16):
        opening = "{" if first == 0 else ""
        closing = "}, " if first + 16 >= count else ", "
        lines.append(f'    "{opening}{", ".join(placeholders[first : first + 16])}{closing}"')
    lines.append(f'    "{a_text}, {b_text}{tail};\\n}}"')
    for first in range(0, count, 8):
        outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(first, min(first + 8, count)))
        lines.append(
            f"    {':' if first == 0 else ' '} {outputs}{',' if first + 8 < count else ''}"
        )
    a_inputs = [f'"r"(a[{i}])' for i in range(4)] if instruction.a_in_registers else ['"l"(a)']
    inputs = [*a_inputs, '"l"(b)', '"r"(accumulate)', *immediates]
    lines.append(f"    : {', '.join(inputs)});")
    lines.append("}")
    return "\n".join(lines)


def wgmma_source(instructions: Iterable[WgmmaInstruction]) -> str:
    """Return the header text with one function per distinct instruction, in a stable order."""
    body = "\n\n".join(wgmma_function(one) for one in sorted(set(instructions)))
    return f"#pragma once\n\nnamespace tc {{\n\n{body}\n\n}}  // namespace tc\n"
