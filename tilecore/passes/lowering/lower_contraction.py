"""A gemm on MMA atoms as one lane's code.

    for k in atoms along k (unrolled):
      registers of A for this k   <- matrix loads (or plain loads) from shared memory
      registers of B for this k
      for tm, tn (unrolled): atom(c[tm, tn], a[tm], b[tn])

Operands that are fragments in the atom's dtype are used in place, others are converted. Whether a
matrix load fits is read off the layouts: every block of the atom's operand must be one matrix of
the load, in the load's own arrangement of lanes and registers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilecore.errors import LoweringError
from tilecore.hooks.records import MatrixLoad
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import FALSE, TRUE, Call, Expr, Load, binary, const
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.stmts import Allocate, Block, For, Gemm, If, Intrinsic, LoopKind, Stmt, Store
from tilecore.ir.visit import substitute_block
from tilecore.passes.contraction import TiledMma, select_atom, tile_mma
from tilecore.passes.lowering.alternate_operands import Alternation, is_alternating
from tilecore.passes.lowering.lane_nest import with_new_loops
from tilecore.passes.lowering.lane_scope import LANE, LaneScope
from tilecore.passes.lowering.lower_fma import lower_fma
from tilecore.passes.lowering.lower_memory_contraction import lower_memory_gemm
from tilecore.passes.lowering.operand_loads import (
    Operand,
    base_coordinates,
    clamped,
    converted_registers,
    fragment_operand,
    is_in_place,
    plain_loads,
    unrolled,
    vector_loads,
)
from tilecore.passes.scopes import static


def lower_gemm(gemm: Gemm, scope: LaneScope, between: Block = ()) -> Block:
    """Lower a gemm, on its atom or by multiply-adds.

    `between` are lowered statements that do not touch the gemm's operands (copies for later
    iterations): they are issued under the matrix work instead of before it.
    """
    atom = select_atom(gemm, scope.threads, scope.context)
    _check_is_planned(gemm, "fma" if atom is None else atom.name)
    if atom is None:
        return (*_clear(gemm, scope), *between, *lower_fma(gemm, scope))
    tiled = tile_mma(gemm, atom, scope.threads)
    if atom.b is None:
        return lower_memory_gemm(gemm, tiled, between, scope)
    a, b = operands_of(gemm, tiled, scope)
    if is_alternating(tiled, a, b):
        alternation = Alternation(gemm, tiled, (a, b), scope, fill_registers)
        return (*_clear(gemm, scope), *between, *alternation.run())
    return (*_clear(gemm, scope), *_main(gemm, tiled, a, b, between, scope))


def _check_is_planned(gemm: Gemm, name: str) -> None:
    """The atom that layouts were chosen for is the one that is lowered to."""
    planned = dict(gemm.hints).get("atom", name)
    if planned != name:
        raise LoweringError(
            "a gemm got another atom than the one that its layouts were chosen for",
            expected=planned, got=name, loc=gemm.loc,
        )  # fmt: skip


def operands_of(gemm: Gemm, tiled: TiledMma, scope: LaneScope) -> tuple[Operand, Operand]:
    """Both operands of a gemm whose atom takes them from registers."""
    atom = tiled.atom
    group = scope.simplify(binary("floordiv", LANE, const(atom.lanes)))
    group_m = scope.simplify(binary("floormod", group, const(tiled.groups_m)))
    group_n = scope.simplify(binary("floordiv", group, const(tiled.groups_m)))
    assert atom.a is not None and atom.b is not None, "operands come from registers here"
    a = Operand(
        gemm.a, _transposed(atom.a, gemm.transpose_a), 0 if gemm.transpose_a else 1,
        tiled.tiles_m, group_m, atom.m, atom.k, atom.a_round,
        atom.register_dtype or atom.a_dtype, False,
    )  # fmt: skip
    b = Operand(
        gemm.b, _transposed(atom.b, gemm.transpose_b), 1 if gemm.transpose_b else 0,
        tiled.tiles_n, group_n, atom.n, atom.k, atom.b_round,
        atom.register_dtype or atom.b_dtype, True,
    )  # fmt: skip
    return a, b


def _transposed(layout: FragmentLayout, swap: bool) -> FragmentLayout:
    if not swap:
        return layout
    return FragmentLayout((layout.axes[1], layout.axes[0]), layout.replication)


def _clear(gemm: Gemm, scope: LaneScope) -> Block:
    if gemm.clear_accum == FALSE:
        return ()
    flat = scope.lane_buffer(gemm.c.buffer)
    count = scope.fragment_layout(gemm.c.buffer).registers
    at = scope.var("r", 0, count - 1)
    zero = Store(flat, (at,), const(0, flat.dtype), gemm.loc)
    loop = For(at, const(0), const(count), const(1), (zero,), LoopKind.UNROLL)
    return (loop,) if gemm.clear_accum == TRUE else (If(gemm.clear_accum, (loop,)),)


def _main(
    gemm: Gemm, tiled: TiledMma, a: Operand, b: Operand, between: Block, scope: LaneScope
) -> Block:
    atom = tiled.atom
    k = scope.var("kk", 0, tiled.tiles_k - 1)
    tm = scope.var("tm", 0, tiled.tiles_m - 1)
    tn = scope.var("tn", 0, tiled.tiles_n - 1)
    before_a, fill_a, a_at = _operand(a, k, tiled.tiles_k, tm, tiled, scope)
    before_b, fill_b, b_at = _operand(b, k, tiled.tiles_k, tn, tiled, scope)
    flat = scope.lane_buffer(gemm.c.buffer)
    c_tile = binary("add", binary("mul", tm, const(tiled.tiles_n)), tn)
    c_at = binary("mul", c_tile, const(atom.c.registers))
    mma = Intrinsic(
        f"mma.{atom.name}",
        (Region(flat, (c_at,), (const(atom.c.registers),)), a_at, b_at),
        (), gemm.loc,
    )  # fmt: skip
    body: Block = (unrolled(tm, tiled.tiles_m, (unrolled(tn, tiled.tiles_n, (mma,)),)),)
    slice_of_k = (*fill_a, *fill_b, *body)
    if not between or tiled.tiles_k < 2:
        return (*before_a, *before_b, *between, unrolled(k, tiled.tiles_k, slice_of_k))
    first = unrolled(k, 1, slice_of_k)
    later = scope.var("kk", 1, tiled.tiles_k - 1)
    rest = substitute_block(with_new_loops(slice_of_k, scope), {k: later})
    loop = For(later, const(1), const(tiled.tiles_k - 1), const(1), rest, LoopKind.UNROLL)
    return (*before_a, *before_b, first, *between, loop)


def _operand(
    operand: Operand, k: Expr, tiles_k: int, tile: Expr, tiled: TiledMma, scope: LaneScope
) -> tuple[Block, Block, Region]:
    """(declarations, statements that fill registers for one k, region of one atom's registers)."""
    count = operand.atom.registers
    buffer = operand.region.buffer
    if is_in_place(operand, scope):
        return (), (), fragment_operand(operand, k, tiles_k, tile, scope)
    registers = scope.names.buffer(
        f"{buffer.name}_regs", (operand.tiles * count,), operand.dtype, Scope.LOCAL
    )
    at = Region(registers, (binary("mul", tile, const(count)),), (const(count),))
    return (Allocate(registers),), fill_registers(operand, registers, k, tiled, scope), at


def fill_registers(
    operand: Operand, registers: Buffer, k: Expr, tiled: TiledMma, scope: LaneScope
) -> Block:
    """Load an operand's registers for one k: by matrix loads, vectors, or element by element."""
    fill: Block | None
    if operand.region.buffer.scope is Scope.FRAGMENT:
        fill = converted_registers(operand, registers, k, tiled.tiles_k, scope)
    else:
        fill = _matrix_loads(operand, registers, k, tiled, scope)
    if fill is None:
        fill = vector_loads(operand, registers, k, scope)
    if fill is None:
        fill = plain_loads(operand, registers, k, scope)
    return (*fill, *_round(operand, registers, scope))


def _round(operand: Operand, registers: Buffer, scope: LaneScope) -> Block:
    if not operand.round:
        return ()
    count = operand.tiles * operand.atom.registers
    r = scope.var("r", 0, count - 1)
    value = Call(operand.round, (Load(registers, (r,)),), registers.dtype)
    return (unrolled(r, count, (Store(registers, (r,), value),)),)


# --- matrix loads ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One matrix of an operand: its atom's tile, its place in the atom, its first register."""

    tile: int
    row: int
    column: int
    register: int


def _matrix_loads(
    operand: Operand, registers: Buffer, k: Expr, tiled: TiledMma, scope: LaneScope
) -> Block | None:
    """Fill an operand's registers by matrix loads; None when none fits."""
    buffer = operand.region.buffer
    layout = scope.shared_layout(buffer)
    for load in tiled.atom.loads:
        matrices = _matrices(operand, load, layout, scope)
        if matrices is not None:
            break
    else:
        return None
    per_matrix = load.layout.registers
    flat = scope.lane_buffer(buffer)
    result: list[Stmt] = []
    rest = matrices
    while rest:
        count = next(c for c in load.counts if c <= len(rest) and _is_grid(rest[:c], operand))
        group, rest = rest[:count], rest[count:]
        address = _address(operand, group, load, k, flat, scope)
        target = Region(registers, (const(group[0].register),), (const(count * per_matrix),))
        hints = (("count", count),)
        result.append(Intrinsic(load.name, (target, address), hints))
    return tuple(result)


def _matrices(
    operand: Operand, load: MatrixLoad, layout: Layout, scope: LaneScope
) -> list[_Matrix] | None:
    """The operand's matrices in register order, if `load` can fetch each of them."""
    rows, columns = load.layout.shape
    atom_rows, atom_columns = operand.atom.shape
    region = operand.region
    last = region.buffer.rank - 1
    same = scope.is_same_storage(region.dtype, operand.dtype)
    if not same or load.element_bits != region.dtype.bits:
        return None
    if region.axes[-1] != last:
        return None
    if atom_rows % rows or atom_columns % columns or layout.contiguous_run(last) % columns:
        return None
    if scope.multiple(scope.simplify(region.starts[last])) % columns:
        return None
    if static(region)[1] % columns:
        return None
    found: list[_Matrix] = []
    for row in range(0, atom_rows, rows):
        for column in range(0, atom_columns, columns):
            register = _matches(operand.atom, load.layout, row, column)
            if register is None:
                return None
            found.append(_Matrix(0, row, column, register))
    found.sort(key=lambda m: m.register)
    if [m.register for m in found] != [k * load.layout.registers for k in range(len(found))]:
        return None
    count = operand.atom.registers
    return [
        _Matrix(tile, m.row, m.column, tile * count + m.register)
        for tile in range(operand.tiles)
        for m in found
    ]


@functools.lru_cache(maxsize=1024)
def _matches(atom: FragmentLayout, matrix: FragmentLayout, row: int, column: int) -> int | None:
    """The first register of the block at (row, column) if it is arranged like `matrix`."""
    first: int | None = None
    rows, columns = matrix.shape
    for r in range(rows):
        for c in range(columns):
            lane, register = atom.place((row + r, column + c))
            want_lane, want_register = matrix.place((r, c))
            if first is None:
                first = register - want_register
            if lane != want_lane or register - want_register != first:
                return None
    return first


def _stored(matrix: _Matrix, operand: Operand) -> tuple[int, int]:
    """Stored coordinates of a matrix relative to the lane group's first atom."""
    if operand.depth_axis == 0:
        return matrix.row, matrix.column + matrix.tile * operand.step
    return matrix.row + matrix.tile * operand.step, matrix.column


def _is_grid(group: list[_Matrix], operand: Operand) -> bool:
    """True when the matrices' places are affine in the bits of their number."""
    places = [_stored(matrix, operand) for matrix in group]
    if len(places) == 4:
        (r0, c0), (r1, c1), (r2, c2), last = places
        return last == (r1 + r2 - r0, c1 + c2 - c0)
    return len(places) <= 2


def _address(
    operand: Operand,
    group: list[_Matrix],
    load: MatrixLoad,
    k: Expr,
    flat: Buffer,
    scope: LaneScope,
) -> Region:
    """The row that this lane passes: of matrix ``lane / rows``, row ``lane % rows``."""
    lane = scope.simplify(binary("floormod", LANE, const(operand.atom.threads)))
    row_in_matrix = scope.simplify(binary("floormod", lane, const(load.rows)))
    base = base_coordinates(operand, k, 0, scope)
    places = [_stored(matrix, operand) for matrix in group]
    coordinates: list[Expr] = []
    for axis in (0, 1):
        total = binary("add", base[axis], const(places[0][axis]))
        bit = 1
        while bit < len(group):
            stride = places[bit][axis] - places[0][axis]
            digit = binary("floordiv", lane, const(load.rows * bit))
            digit = scope.simplify(binary("floormod", digit, const(2)))
            total = binary("add", total, binary("mul", digit, const(stride)))
            bit *= 2
        if axis == 0:
            total = binary("add", total, row_in_matrix)
        coordinates.append(scope.simplify(total))
    at = clamped(operand, (coordinates[0], coordinates[1]), scope, load.layout.shape[1])
    indices = operand.region.indices(at)
    return Region(flat, (scope.offset(operand.region.buffer, indices),), (const(1),))
