"""What is said about a kernel as a whole: block order, layouts, safe values, advice.

Advice never changes a result; it is kept in `Kernel.hints`, and backends may follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Const, Expr
from tilecore.ir.program import BlockOrder
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.locate import fail
from tilecore.language.values import BufferValue, Scalar


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Walk the grid in panels of `panel_size` rows (or columns), for reuse in the outer cache."""
    kernel = current().require_kernel("T.use_swizzle")
    if order not in ("row", "column", "col"):
        fail("T.use_swizzle order", expected="'row' or 'column'", got=order)
    panel_size = ops.static_int(panel_size, "panel_size")
    if enable:
        kernel.block_order = BlockOrder(panel_size, "row" if order == "row" else "column")


def annotate_layout(layout_map: Mapping[Any, Any]) -> None:
    """Fix the layout of shared buffers (T.Layout) and fragments (T.Fragment)."""
    from tilecore.language.layouts import as_layout

    kernel = current().require_kernel("T.annotate_layout")
    for value, layout in layout_map.items():
        buffer = _buffer(value, "T.annotate_layout")
        fixed = as_layout(buffer, layout)
        if fixed is not None:
            kernel.layouts[buffer.name] = fixed


def annotate_safe_value(safe_value_map: Mapping[Any, float | int]) -> None:
    """What a read outside a buffer gives (0 where nothing is said)."""
    builder = current()
    for value, safe in safe_value_map.items():
        if not ops.is_number(safe) and not isinstance(safe, Scalar):
            fail("a safe value must be a constant", got=ops.describe(safe))
        number = safe.to_expr() if isinstance(safe, Scalar) else ops.plain(safe)
        if isinstance(number, Expr):
            if not isinstance(number, Const):
                fail("a safe value must be a constant", got=ops.describe(safe))
            number = number.value
        builder.safe_values[_buffer(value, "T.annotate_safe_value").name] = number


def annotate_min_blocks_per_sm(n: int) -> None:
    """Ask that at least `n` blocks fit on one processor at a time."""
    _kernel_hint("min_blocks_per_sm", n)


def annotate_l2_hit_ratio(l2_hit_ratio_map: Mapping[Any, float]) -> None:
    """Share of a tensor that should stay in the outer cache, per tensor."""
    for value, ratio in l2_hit_ratio_map.items():
        name = _buffer(value, "T.annotate_l2_hit_ratio").name
        _kernel_hint(f"l2_hit_ratio.{name}", float(ratio))


def annotate_restrict_buffers(*buffers: Any) -> None:
    """Say that these parameters may overlap others."""
    for value in buffers:
        _kernel_hint(f"may_alias.{_buffer(value, 'T.annotate_restrict_buffers').name}", True)


def annotate_producer_reg_dealloc(reg_count: int = 24) -> None:
    """Registers of a lane that only moves data."""
    _kernel_hint("producer_registers", reg_count)


def annotate_consumer_reg_alloc(reg_count: int = 240) -> None:
    """Registers of a lane that computes."""
    _kernel_hint("consumer_registers", reg_count)


def set_max_nreg(reg_count: int, is_inc: int) -> None:
    """Registers of the lanes that run this line: more of them, or fewer."""
    _kernel_hint("consumer_registers" if is_inc else "producer_registers", reg_count)


def inc_max_nreg(reg_count: int) -> None:
    """`set_max_nreg`, upwards."""
    set_max_nreg(reg_count, 1)


def dec_max_nreg(reg_count: int) -> None:
    """`set_max_nreg`, downwards."""
    set_max_nreg(reg_count, 0)


def no_set_max_nreg() -> None:
    """All lanes keep the same number of registers."""
    _kernel_hint("equal_registers", True)


disable_warp_group_reg_alloc = no_set_max_nreg


def _kernel_hint(name: str, value: Any) -> None:
    if not isinstance(value, int | float):
        fail(
            f"annotation {name} is no number",
            expected="a number that is known while the program is read",
            got=ops.describe(value),
            hint="annotations are advice to the compiler: no value of the program can be one",
        )
    current().require_kernel(f"annotation {name}").hints[name] = value


def _buffer(value: Any, what: str) -> Buffer:
    if not isinstance(value, BufferValue):
        fail(f"{what} takes buffers", expected="a buffer", got=ops.describe(value))
    return value.buffer
