"""A gemm without an atom as one lane's code: an outer product for each step along k.

    for k in 0..K:
      a[row digits] <- A[row, k]; b[column digits] <- B[k, column]      (shared memory)
      for row, column digits (unrolled): c[...] += a[row] * b[column]

The accumulator may have any layout. Rows and columns beyond the tile repeat the last one; they are
never stored.
"""

from __future__ import annotations

from tilecore.errors import LoweringError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Cast, Expr, Load, Var, binary, const
from tilecore.ir.layout import FragmentLayout, FragmentMode
from tilecore.ir.stmts import Allocate, Block, For, Gemm, LoopKind, Stmt, Store
from tilecore.passes.contraction import gemm_shape
from tilecore.passes.lowering.lane_scope import LaneScope
from tilecore.passes.scopes import static
from tilecore.passes.spread import default_spread, register_modes

_VECTOR = 4


def fma_layout(m: int, n: int, threads: int) -> FragmentLayout:
    """The accumulator's layout: least padding, then the fewest loads per multiply-add."""
    best: tuple[tuple[int, int], FragmentLayout] | None = None
    for across in (d for d in range(1, threads + 1) if threads % d == 0):
        columns = -(-n // across)
        vector = _VECTOR if n % _VECTOR == 0 and columns >= _VECTOR else 1
        rows = -(-m // (threads // across))
        layout = _grid(m, n, across, threads // across, vector)
        padded = layout.registers
        cost = (padded, rows + columns)
        if best is None or cost < best[0]:
            best = (cost, layout)
    assert best is not None
    return best[1]


def _grid(m: int, n: int, across: int, down: int, vector: int) -> FragmentLayout:
    """Threads `down` x `across` over an m x n tile."""
    columns = default_spread((n,), vector, across)
    rows = default_spread((m,), 1, down)
    held = columns.registers
    down_modes = tuple(
        FragmentMode(
            mode.extent, mode.space, mode.stride * (across if mode.space == "thread" else held)
        )
        for mode in rows.axes[0]
        if mode.extent > 1
    )
    copies = (
        *columns.replication,
        *(FragmentMode(r.extent, r.space, r.stride * across) for r in rows.replication),
    )
    empty = (FragmentMode(1, "register", 1),)
    return FragmentLayout((down_modes or empty, columns.axes[0]), copies)


def lower_fma(gemm: Gemm, scope: LaneScope) -> Block:
    """Lower a gemm whose operands are in shared memory and whose c is a whole fragment."""
    depth = gemm_shape(gemm)[2]
    layout = scope.fragment_layout(gemm.c.buffer)
    k = scope.var("k", 0, max(0, depth - 1))
    c_modes = register_modes(layout)
    sides = []
    for axis, region in ((0, gemm.a), (1, gemm.b)):
        k_axis = (1 - axis) ^ (gemm.transpose_a if axis == 0 else gemm.transpose_b)
        sides.append(_side(axis, region, k_axis, k, layout, gemm.c.buffer, scope))
    (a_regs, a_fill), (b_regs, b_fill) = sides
    digits = [(scope.var("ij"[axis], 0, mode.extent - 1), axis, mode) for axis, _, mode in c_modes]
    c_at: Expr = const(0)
    for digit, _, mode in digits:
        c_at = binary("add", c_at, binary("mul", digit, const(mode.stride)))
    a = Load(a_regs, (_packed(digits, 0),))
    b = Load(b_regs, (_packed(digits, 1),))
    flat = scope.lane_buffer(gemm.c.buffer)
    total = binary("add", Load(flat, (c_at,)), binary("mul", a, b))
    body: Block = (Store(flat, (c_at,), total, gemm.loc),)
    for digit, _, mode in reversed(digits):
        body = (_unrolled(digit, mode.extent, body),)
    step = (Allocate(a_regs), Allocate(b_regs), *a_fill, *b_fill, *body)
    return (For(k, const(0), const(depth), const(1), step, LoopKind.SERIAL, loc=gemm.loc),)


def _side(
    axis: int,
    region: Region,
    k_axis: int,
    k: Var,
    layout: FragmentLayout,
    accumulator: Buffer,
    scope: LaneScope,
) -> tuple[Buffer, Block]:
    """(registers, statements that fill them) of one operand for one k."""
    if region.buffer.scope is not Scope.SHARED:
        raise LoweringError(
            f"multiply-adds read {region.buffer.name}, which lanes do not share",
            expected="shared", got=region.buffer.scope.value, loc=accumulator.loc,
        )  # fmt: skip
    modes = [(weight, mode) for at, weight, mode in register_modes(layout) if at == axis]
    count = 1
    for _, mode in modes:
        count *= mode.extent
    registers = scope.names.buffer(
        f"{region.buffer.name}_regs", (count,), accumulator.dtype, Scope.LOCAL
    )
    digits = [(scope.var("r", 0, mode.extent - 1), weight, mode) for weight, mode in modes]
    place = scope.thread_parts(layout)[axis]
    for digit, weight, _ in digits:
        place = binary("add", place, binary("mul", digit, const(weight)))
    limit = const(static(region)[1 - k_axis] - 1)
    place = scope.simplify(binary("min", scope.simplify(place), limit))
    pair = (k, place) if k_axis == 0 else (place, k)
    offset = scope.offset(region.buffer, region.indices(pair))
    value: Expr = Load(scope.lane_buffer(region.buffer), (offset,))
    if region.dtype != accumulator.dtype:
        value = Cast(value, accumulator.dtype)
    at = _packed([(digit, 0, mode) for digit, _, mode in digits], 0)
    body: Block = (Store(registers, (at,), value),)
    for digit, _, mode in reversed(digits):
        body = (_unrolled(digit, mode.extent, body),)
    return registers, body


def _packed(digits: list[tuple[Var, int, FragmentMode]], axis: int) -> Expr:
    """Index of an operand register: the axis' digits in mixed radix, slowest first."""
    index: Expr = const(0)
    for digit, at, mode in digits:
        if at == axis:
            index = binary("add", binary("mul", index, const(mode.extent)), digit)
    return index


def _unrolled(var: Var, extent: int, body: Block) -> Stmt:
    return For(var, const(0), const(extent), const(1), body, LoopKind.UNROLL)
