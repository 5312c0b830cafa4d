"""Dynamic sizes that no axis gives directly: solved from axes such as ``4 * n`` or ``batch * n``.

Which equation tells which size is decided once per program; a call only evaluates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Binary, Cast, Expr, Unary, Var, free_vars
from tilecore.runtime.sizes import SizeFunction, compile_sizes


@dataclass(frozen=True, slots=True)
class SizeEquation:
    """One size from one axis or stride, which is ``a * size + b`` with a and b known by then.

    Attributes:
        size: name of the size.
        buffer: name of the parameter.
        axis: which axis, or which stride.
        is_stride: whether the stride of that axis is meant.
        known: names of the sizes that are solved before.
        extent: the axis' extent as a function of the known sizes and this one.
    """

    size: str
    buffer: str
    axis: int
    is_stride: bool
    known: tuple[str, ...]
    extent: SizeFunction

    @property
    def place(self) -> str:
        """How messages name the axis."""
        return f"{self.buffer}." + (
            f"stride({self.axis})" if self.is_stride else f"shape[{self.axis}]"
        )

    def solve(self, sizes: Mapping[str, int], value: int) -> int | None:
        """The size for which the extent is `value`; None when there is none or no single one."""
        known = tuple(sizes[name] for name in self.known)
        offset = self.extent((*known, 0))[0]
        factor = self.extent((*known, 1))[0] - offset
        if factor == 0:
            return None
        quotient, rest = divmod(value - offset, factor)
        return quotient if rest == 0 and quotient >= 0 else None


def plain_sizes(buffers: Sequence[Buffer]) -> set[str]:
    """Sizes that stand alone as an extent or a stride."""
    return {expr.name for _, _, _, expr in _extents(buffers, packed=True) if isinstance(expr, Var)}


def size_equations(buffers: Sequence[Buffer], symbols: Sequence[Var]) -> tuple[SizeEquation, ...]:
    """Equations for the sizes that stand alone nowhere, in the order of their solution."""
    known = plain_sizes(buffers)
    by_name = {symbol.name: symbol for symbol in symbols}
    found: list[SizeEquation] = []
    progress = True
    while progress:
        progress = False
        for buffer, axis, is_stride, expr in _extents(buffers, packed=False):
            unknown = {var.name for var in free_vars(expr)} & by_name.keys() - known
            if len(unknown) != 1 or not _is_affine(expr, (name := unknown.pop())):
                continue
            before = tuple(sorted(known))
            variables = [*(by_name[one] for one in before), by_name[name]]
            extent = compile_sizes((expr,), variables)
            found.append(SizeEquation(name, buffer.name, axis, is_stride, before, extent))
            known.add(name)
            progress = True
    return tuple(found)


def _extents(
    buffers: Sequence[Buffer], *, packed: bool
) -> Iterator[tuple[Buffer, int, bool, Expr]]:
    """(buffer, axis, whether it is a stride, expression); axes packed into bytes on request."""
    for buffer in buffers:
        for axis, extent in enumerate(buffer.shape):
            if packed or buffer.dtype.bits >= 8 or axis != buffer.rank - 1:
                yield buffer, axis, False, extent
        for axis, stride in enumerate(buffer.strides or ()):
            yield buffer, axis, True, stride


def _is_affine(expr: Expr, name: str) -> bool:
    """True when `expr` is ``a * size + b`` and neither a nor b depends on the size."""
    if all(var.name != name for var in free_vars(expr)):
        return True
    match expr:
        case Var():
            return True
        case Cast(a=a) | Unary(op="neg", a=a):
            return _is_affine(a, name)
        case Binary(op="add" | "sub", a=a, b=b):
            return _is_affine(a, name) and _is_affine(b, name)
        case Binary(op="mul", a=a, b=b):
            held = [one for one in (a, b) if any(var.name == name for var in free_vars(one))]
            return len(held) == 1 and _is_affine(held[0], name)
        case Binary(op="shl", a=a, b=b):
            return all(var.name != name for var in free_vars(b)) and _is_affine(a, name)
        case _:
            return False
