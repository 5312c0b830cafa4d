"""Operand registers of an MMA atom filled from memory by each lane for itself.

Where a lane's registers are neighbours in memory, one vector access brings them; element by element
otherwise. `lower_contraction` prefers matrix loads where the target has them and they fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Cast, Expr, Load, Var, binary, const
from tilecore.ir.layout import REGISTER, FragmentLayout, FragmentMode
from tilecore.ir.stmts import Allocate, Block, For, Intrinsic, LoopKind, Stmt, Store
from tilecore.passes.lowering.lane_scope import LANE, LaneScope
from tilecore.passes.scopes import static
from tilecore.passes.spread import register_modes

_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a tiled gemm.

    Attributes:
        region: where it is stored.
        atom: register layout of one atom over the STORED axes (row axis first as stored).
        depth_axis: which stored axis is k.
        tiles: atoms of one lane group along the other axis.
        group: index of the lane's group along the other axis.
        step: atom extent along the other axis.
        depth: atom extent along k.
        round: operation applied to loaded values, or "".
        dtype: what the atom takes.
        is_b: whether this is the right-hand operand.
    """

    region: Region
    atom: FragmentLayout
    depth_axis: int
    tiles: int
    group: Expr
    step: int
    depth: int
    round: str
    dtype: DType
    is_b: bool


def unrolled(var: Expr, extent: int, body: Block) -> Stmt:
    """An unrolled loop of `var` from 0."""
    return For(var, const(0), const(extent), const(1), body, LoopKind.UNROLL)  # type: ignore[arg-type]


def fragment_operand(
    operand: Operand, k: Expr, tiles_k: int, tile: Expr, scope: LaneScope
) -> Region:
    """One atom's registers of an operand that is a fragment."""
    flat, count = scope.lane_buffer(operand.region.buffer), operand.atom.registers
    outer, inner, extent = (k, tile, operand.tiles) if operand.is_b else (tile, k, tiles_k)
    index = binary("add", binary("mul", outer, const(extent)), inner)
    return Region(flat, (binary("mul", index, const(count)),), (const(count),))


def is_in_place(operand: Operand, scope: LaneScope) -> bool:
    """Whether an atom can take the operand's registers as they are: those of a fragment in the
    atom's own dtype, which need no rounding."""
    region = operand.region
    same = scope.is_same_storage(region.dtype, operand.dtype)
    return region.buffer.scope is Scope.FRAGMENT and same and not operand.round


def converted_registers(
    operand: Operand, registers: Buffer, k: Expr, tiles_k: int, scope: LaneScope
) -> Block:
    """Fill an operand's registers for one k from a fragment of another dtype."""
    count = operand.atom.registers
    tile, r = scope.var("t", 0, operand.tiles - 1), scope.var("r", 0, count - 1)
    held = fragment_operand(operand, k, tiles_k, tile, scope)
    value: Expr = Load(held.buffer, (binary("add", held.starts[0], r),))
    if held.dtype != operand.dtype:
        value = Cast(value, operand.dtype)
    at = binary("add", binary("mul", tile, const(count)), r)
    body = (unrolled(r, count, (Store(registers, (at,), value),)),)
    return (unrolled(tile, operand.tiles, body),)


def base_coordinates(
    operand: Operand, k: Expr, tile: Expr | int, scope: LaneScope
) -> tuple[Expr, Expr]:
    """Stored coordinates of an atom's first element."""
    tile_expr = const(tile) if isinstance(tile, int) else tile
    index = binary("add", binary("mul", operand.group, const(operand.tiles)), tile_expr)
    other = binary("mul", index, const(operand.step))
    along_k = binary("mul", k, const(operand.depth))
    pair = (along_k, other) if operand.depth_axis == 0 else (other, along_k)
    return scope.simplify(pair[0]), scope.simplify(pair[1])


def clamped(
    operand: Operand, coordinates: tuple[Expr, Expr], scope: LaneScope, columns: int = 1
) -> tuple[Expr, ...]:
    """Coordinates held inside the operand: padded rows repeat the last one (never stored).

    `columns` neighbours along the second axis are read at once.
    """
    shape = static(operand.region)
    result = []
    for axis, coordinate in enumerate(coordinates):
        if axis != operand.depth_axis:
            limit = const(shape[axis] - (columns if axis == 1 else 1))
            coordinate = scope.simplify(binary("min", coordinate, limit))
        result.append(coordinate)
    return tuple(result)


Digits = list[tuple[Var, FragmentMode]]


def _lane_coordinates(
    operand: Operand, k: Expr, tile: Expr, digits: Digits, scope: LaneScope
) -> tuple[Expr, Expr]:
    """Stored coordinates of the element that a lane holds in one register, by its digits."""
    base = base_coordinates(operand, k, tile, scope)
    lane = scope.simplify(binary("floormod", LANE, const(operand.atom.threads)))
    coordinates: list[Expr] = []
    for axis in (0, 1):
        total: Expr = base[axis]
        weight = 1
        for mode in operand.atom.axes[axis]:
            if mode.space == "thread":
                digit = binary("floordiv", lane, const(mode.stride))
                digit = binary("floormod", digit, const(mode.extent))
            else:
                digit = next((v for v, m in digits if m == mode), const(0))
            total = binary("add", total, binary("mul", digit, const(weight)))
            weight *= mode.extent
        coordinates.append(scope.simplify(total))
    return coordinates[0], coordinates[1]


def _register(operand: Operand, tile: Expr, digits: Digits) -> Expr:
    register: Expr = binary("mul", tile, const(operand.atom.registers))
    for digit, mode in digits:
        register = binary("add", register, binary("mul", digit, const(mode.stride)))
    return register


def vector_loads(operand: Operand, registers: Buffer, k: Expr, scope: LaneScope) -> Block | None:
    """Runs of neighbours along one stored axis by one access each, each lane its own.

    None where a lane holds no such run, or where memory does not keep it together and aligned.
    Values that the atom wants in another dtype are converted in registers.
    """
    if operand.region.buffer.scope is not Scope.SHARED or operand.region.dtype.bits < 8:
        return None
    for axis in (1, 0):
        run = operand.atom.axes[axis][0]
        if run.space == REGISTER and run.stride == 1 and run.extent >= 2:
            width = _run_width(operand, axis, run.extent, scope)
            return _vectors(operand, axis, run, width, registers, k, scope) if width > 1 else None
    return None


def _run_width(operand: Operand, axis: int, extent: int, scope: LaneScope) -> int:
    """Elements of a run of `extent` along stored axis `axis` that one access brings."""
    region, buffer = operand.region, operand.region.buffer
    if axis != operand.depth_axis and axis == 0:
        return 1  # padding repeats single rows, not runs of them
    along = region.axes[axis]
    width = min(extent, max(1, _VECTOR_BYTES // buffer.dtype.bytes))
    limits = (
        extent, scope.shared_layout(buffer).vector_run(along),
        scope.multiple(scope.simplify(region.starts[along])),
        static(region)[axis], static(buffer)[along],
    )  # fmt: skip
    while width > 1 and any(limit % width for limit in limits):
        width //= 2
    return width


def _vectors(
    operand: Operand, axis: int, run: FragmentMode, width: int, registers: Buffer, k: Expr,
    scope: LaneScope,
) -> Block:  # fmt: skip
    region, buffer = operand.region, operand.region.buffer
    flat = scope.lane_buffer(buffer)
    tile = scope.var("t", 0, operand.tiles - 1)
    digits = [
        (scope.var("r", 0, m.extent - 1), m) for _, _, m in register_modes(operand.atom) if m != run
    ]
    piece = scope.var("r", 0, run.extent // width - 1)
    first = list(_lane_coordinates(operand, k, tile, digits, scope))
    offset = binary("mul", piece, const(width))
    first[axis] = scope.simplify(binary("add", first[axis], offset))
    at = clamped(operand, (first[0], first[1]), scope, width if axis == 1 else 1)
    source = Region(flat, (scope.offset(buffer, region.indices(at)),), (const(width),))
    register = binary("add", _register(operand, tile, digits), offset)
    body = _moved(source, registers, register, width, scope)
    for digit, extent in [
        (piece, run.extent // width),
        *((d, m.extent) for d, m in reversed(digits)),
    ]:
        body = (unrolled(digit, extent, body),)
    return (unrolled(tile, operand.tiles, body),)


def _moved(
    source: Region, registers: Buffer, register: Expr, width: int, scope: LaneScope
) -> Block:
    """One access of `width` elements to registers, converted where dtypes differ."""
    if scope.is_same_storage(source.dtype, registers.dtype):
        return (Intrinsic("lane.move", (source, Region(registers, (register,), (const(width),)))),)
    stored = scope.local(f"{source.buffer.name}_stored", width, source.buffer)
    at = scope.var("r", 0, width - 1)
    value = Cast(Load(stored, (at,)), registers.dtype)
    return (
        Allocate(stored),
        Intrinsic("lane.move", (source, Region(stored, (const(0),), (const(width),)))),
        unrolled(at, width, (Store(registers, (binary("add", register, at),), value),)),
    )


def plain_loads(operand: Operand, registers: Buffer, k: Expr, scope: LaneScope) -> Block:
    """Element by element, each lane its own."""
    flat = scope.lane_buffer(operand.region.buffer)
    tile = scope.var("t", 0, operand.tiles - 1)
    digits = [(scope.var("r", 0, m.extent - 1), m) for _, _, m in register_modes(operand.atom)]
    at = clamped(operand, _lane_coordinates(operand, k, tile, digits, scope), scope)
    indices = operand.region.indices(at)
    register = _register(operand, tile, digits)
    value: Expr = Load(flat, (scope.offset(operand.region.buffer, indices),))
    if flat.dtype != operand.dtype:
        value = Cast(value, operand.dtype)
    body: Block = (Store(registers, (register,), value),)
    for digit, mode in reversed(digits):
        body = (unrolled(digit, mode.extent, body),)
    return (unrolled(tile, operand.tiles, body),)
