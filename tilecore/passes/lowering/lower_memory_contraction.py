"""A gemm on an atom that reads shared memory itself and runs beside the warps that issue it.

    contraction.begin C
    for kk, tm, tn (unrolled):
      mma.<atom> C[tm, tn], A_shared[base] + step, B_shared[base] + step, accumulate
    contraction.commit
    contraction.wait 0, C                 (left out where the program says when to wait)

Operands are named by the offset of their tile's first element, split in a part that the unrolled
loops do not change and the rest. The layout's swizzle is left out of both: the atom applies it to
the addresses that it forms.
"""

from __future__ import annotations

from tilecore.errors import LoweringError
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import boolean
from tilecore.ir.expr import FALSE, Const, Expr, Unary, binary, const
from tilecore.ir.stmts import Block, For, Gemm, Intrinsic, LoopKind, Stmt
from tilecore.passes.contraction import TiledMma
from tilecore.passes.lowering.lane_scope import LaneScope

Pair = tuple[Expr, Expr]
STAYS_OPEN, GOES_ON = "stays_open", "goes_on"
"""Hints of `Gemm`: it is one contraction with the next one, or with the one before, on its sums."""


def lower_memory_gemm(gemm: Gemm, tiled: TiledMma, between: Block, scope: LaneScope) -> Block:
    """Lower a gemm whose atom reads b, and possibly a, from shared memory.

    `between` are lowered statements that touch none of its operands: they run beside it.
    """
    atom = tiled.atom
    group = scope.group_of(atom.lanes)
    group_m = scope.simplify(binary("floormod", group, const(tiled.groups_m)))
    group_n = scope.simplify(binary("floordiv", group, const(tiled.groups_m)))
    kk = scope.var("kk", 0, tiled.tiles_k - 1)
    tm = scope.var("tm", 0, tiled.tiles_m - 1)
    tn = scope.var("tn", 0, tiled.tiles_n - 1)
    m_tiles, n_tiles = const(tiled.tiles_m * atom.m), const(tiled.tiles_n * atom.n)
    k_at = binary("mul", kk, const(atom.k))
    if atom.a is None:
        a = _operand(
            gemm.a, gemm.transpose_a, (binary("mul", group_m, m_tiles), const(0)),
            (binary("mul", tm, const(atom.m)), k_at), gemm, scope,
        )  # fmt: skip
    else:
        count = atom.a.registers
        index = binary("add", binary("mul", tm, const(tiled.tiles_k)), kk)
        flat = scope.lane_buffer(gemm.a.buffer)
        a = (Region(flat, (binary("mul", index, const(count)),), (const(count),)),)
    b = _operand(
        gemm.b, not gemm.transpose_b, (binary("mul", group_n, n_tiles), const(0)),
        (binary("mul", tn, const(atom.n)), k_at), gemm, scope,
    )  # fmt: skip
    flat_c = scope.lane_buffer(gemm.c.buffer)
    tile = binary("add", binary("mul", tm, const(tiled.tiles_n)), tn)
    c = Region(flat_c, (binary("mul", tile, const(atom.c.registers)),), (const(atom.c.registers),))
    hints = (("a_mn_major", gemm.transpose_a), ("b_mn_major", not gemm.transpose_b))
    one = Intrinsic(f"mma.{atom.name}", (c, *a, *b, _accumulate(gemm, kk)), hints, gemm.loc)
    loops = _loop(tn, tiled.tiles_n, (one,))
    loops = _loop(kk, tiled.tiles_k, (_loop(tm, tiled.tiles_m, (loops,)),))
    registers = _registers(gemm, scope)
    # A contraction that goes on with the sums of one in flight: they are not to be touched.
    pinned = () if dict(gemm.hints).get(GOES_ON) else registers
    begin = Intrinsic("contraction.begin", pinned, (), gemm.loc)
    commit = Intrinsic("contraction.commit", (), (), gemm.loc)
    if dict(gemm.hints).get(STAYS_OPEN):
        return (begin, loops, *between)
    result: tuple[Stmt, ...] = (begin, loops, commit, *between)
    if dict(gemm.hints).get("asynchronous"):
        return result
    return (*result, Intrinsic("contraction.wait", (const(0), *registers), (), gemm.loc))


def lower_contraction_wait(stmt: Intrinsic, scope: LaneScope) -> Block:
    """``contraction.wait`` (until at most that many contractions run) and ``contraction.settle``
    (all work on these registers is done here): their fragments become arrays of registers."""
    args = tuple(_whole(arg, scope) if isinstance(arg, Region) else arg for arg in stmt.args)
    return (Intrinsic(stmt.op, args, (), stmt.loc),)


def _registers(gemm: Gemm, scope: LaneScope) -> tuple[Region, ...]:
    """Registers that must stay as they are while the contraction runs."""
    fragments = [r for r in (gemm.c, gemm.a) if r.buffer.scope is Scope.FRAGMENT]
    return tuple(_whole(region, scope) for region in fragments)


def _whole(region: Region, scope: LaneScope) -> Region:
    count = scope.fragment_layout(region.buffer).registers
    return Region(scope.lane_buffer(region.buffer), (const(0),), (const(count),))


def _accumulate(gemm: Gemm, kk: Expr) -> Expr:
    """False where the old accumulator is dropped: the first k of a clearing gemm."""
    later = binary("gt", kk, const(0))
    if gemm.clear_accum == FALSE:
        return const(True, boolean)
    if isinstance(gemm.clear_accum, Const):
        return later
    return binary("or", later, Unary("not", gemm.clear_accum, boolean))


def _loop(var: Expr, extent: int, body: Block) -> Stmt:
    return For(var, const(0), const(extent), const(1), body, LoopKind.UNROLL)  # type: ignore[arg-type]


def _operand(
    region: Region, mn_first_is_last: bool, base: Pair, step: Pair, gemm: Gemm, scope: LaneScope
) -> tuple[Region, Expr]:
    """(region at the operand's first element for this group, further elements of one atom).

    `base` and `step` are coordinates along (m or n, k); they are stored in the other order when
    `mn_first_is_last`.
    """
    buffer = region.buffer
    layout = scope.shared_layout(buffer)
    last = layout.axes[buffer.rank - 1][0].extent
    if scope.multiple(scope.simplify(region.starts[-1])) % last:
        raise LoweringError(
            f"a gemm reads a part of {buffer.name} that starts inside a row of its layout",
            expected=f"a multiple of {last}", got=region.starts[-1], loc=gemm.loc,
        )  # fmt: skip
    zero: Expr = const(0)
    if mn_first_is_last:
        base, step = (base[1], base[0]), (step[1], step[0])
    first = scope.plain_offset(buffer, region.indices(base))
    origin = tuple(zero for _ in range(buffer.rank - 2))
    further = scope.plain_offset(buffer, (*origin, *step))
    return Region(scope.lane_buffer(buffer), (first,), (None,)), further
