"""What to say where a fragment's layout does not fit the loop that uses it."""

from __future__ import annotations

from collections.abc import Mapping

from tilecore.errors import LoweringError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr
from tilecore.ir.expr_text import format_expr
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.stmts import Parallel
from tilecore.passes.accesses import accesses_of


def conflict(
    nest: Parallel,
    loop: FragmentLayout,
    buffer: Buffer,
    indices: tuple[Expr, ...],
    layouts: Mapping[str, Layout | FragmentLayout],
) -> LoweringError:
    """The error of an access that the loop's lanes do not hold: both accesses, both layouts.

    Args:
        nest: the loop.
        loop: how its iterations are spread over lanes.
        buffer: the fragment.
        indices: of the access that does not fit.
        layouts: of all buffers on the chip.
    """
    others = (
        access
        for access in accesses_of(nest)
        if access.buffer.name != buffer.name and access.buffer.name in layouts
    )
    other = min(others, key=lambda a: a.buffer.scope is not Scope.FRAGMENT, default=None)
    follows = f"lanes spread as {loop}"
    if other is not None:
        text = _access(other.buffer, other.indices)
        follows += f", which {text} goes with ({other.buffer}: {layouts[other.buffer.name]})"
    return LoweringError(
        f"layouts conflict in one loop: its lanes do not hold all of {buffer}",
        expected=follows,
        got=f"{_access(buffer, indices)} ({buffer}: {layouts.get(buffer.name)})",
        loc=nest.loc or buffer.loc,
        hint=f"leave {buffer} out of T.annotate_layout, or give each lane a part in it",
    )


def _access(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer}[{', '.join(format_expr(index) for index in indices)}]"
