"""Exchange between the lanes of a warp, for programs written per lane.

A warp is 32 lanes of the block, on every target. All lanes of a warp must get to an exchange; it is
also a meeting of them. Each function is one statement of every lane and gives a value of the lane.
Tile programs need none of these: T.reduce_*, T.cumsum and T.any_of work on whole tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilecore.ir.dtypes import DType, boolean, int32, uint32
from tilecore.ir.expr import Call, Cast, Const, Expr, Unary, binary, const, dtype_of_expr
from tilecore.ir.lane_dependence import LANE_INDEX, WARP
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.locate import fail, refuse
from tilecore.language.math_ops import maximum, minimum
from tilecore.language.values import Scalar

FULL_MASK = 0xFFFFFFFF
WARPS_PER_GROUP = 4


def _exchange(what: str, op: str, args: tuple[Expr, ...], dtype: DType) -> Scalar:
    builder = current()
    builder.require_kernel(what)
    if builder.inside("parallel"):
        fail(f"{what} inside T.Parallel", expected="a place where all lanes of a warp arrive")
    return builder.bind("given", Call(op, args, dtype))


def _check_mask(what: str, mask: Any) -> None:
    if ops.static_int(mask, "mask", at_least=-1) not in (FULL_MASK, -1):
        refuse(f"{what}(mask=...)", "all lanes of a warp take part", hint="leave the mask out")


def _shuffle(what: str, op: str, value: Any, operand: Any, width: Any, mask: Any) -> Scalar:
    _check_mask(what, mask)
    size = ops.static_int(width, "width", at_least=1, at_most=WARP)
    if size & (size - 1):
        fail(f"width of {what}", expected="a power of two up to 32", got=size)
    given = ops.as_expr(value, f"value of {what}")
    place = ops.as_index(operand, f"lane of {what}")
    if dtype_of_expr(place) != int32:
        place = Cast(place, int32)
    if op in ("warp.shuffle", "warp.shuffle_xor"):
        place = binary("bitand", place, const(size - 1))
    elif isinstance(place, Const) and not 0 <= place.value < WARP:
        fail(f"distance of {what}", expected="0 <= distance < 32", got=place.value)
    return _exchange(what, op, (given, place, const(size)), dtype_of_expr(given))


def shfl_sync(value: Any, srcLane: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Scalar:
    """The value that lane ``srcLane % width`` of this lane's segment of `width` lanes gives."""
    return _shuffle("T.shfl_sync", "warp.shuffle", value, srcLane, width, mask)


def shfl_xor(value: Any, delta: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Scalar:
    """The value of the lane whose index differs in the bits of `delta`, modulo `width`."""
    return _shuffle("T.shfl_xor", "warp.shuffle_xor", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Scalar:
    """The value of the lane `delta` above; the own one where the segment ends before."""
    return _shuffle("T.shfl_down", "warp.shuffle_down", value, delta, width, mask)


def shfl_up(value: Any, delta: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Scalar:
    """The value of the lane `delta` below; the own one where the segment begins after."""
    return _shuffle("T.shfl_up", "warp.shuffle_up", value, delta, width, mask)


# --- votes -------------------------------------------------------------------------------------


def _ballot(what: str, predicate: Any, mask: Any, negate: bool = False) -> Scalar:
    _check_mask(what, mask)
    holds = ops.truth(predicate)
    holds = Unary("not", holds, boolean) if negate else holds
    return _exchange(what, "warp.ballot", (holds,), uint32)


def ballot_sync(predicate: Any, mask: Any = FULL_MASK) -> Scalar:
    """One bit for each lane of the warp (uint32): whether its predicate holds.

    Lanes that the block does not have vote against.
    """
    return _ballot("T.ballot_sync", predicate, mask)


def ballot(predicate: Any) -> Scalar:
    """`ballot_sync`."""
    return _ballot("T.ballot", predicate, FULL_MASK)


def any_sync(predicate: Any, mask: Any = FULL_MASK) -> Scalar:
    """Whether the predicate holds in a lane of the warp."""
    votes: Any = _ballot("T.any_sync", predicate, mask)
    return votes != 0


def all_sync(predicate: Any, mask: Any = FULL_MASK) -> Scalar:
    """Whether the predicate holds in all lanes of the warp."""
    votes: Any = _ballot("T.all_sync", predicate, mask, negate=True)
    return votes == 0


# --- reductions --------------------------------------------------------------------------------


def _reduce(what: str, value: Any, combine: Callable[[Any, Any], Any]) -> Scalar:
    kernel = current().require_kernel(what)
    threads = 1
    for dim in kernel.thread_dims:
        threads *= dim
    if threads % WARP:
        fail(f"{what} needs whole warps", expected="threads a multiple of 32", got=threads)
    total = Scalar(ops.as_expr(value, f"value of {what}"))
    distance = WARP // 2
    while distance:
        other = _shuffle(what, "warp.shuffle_xor", total, distance, WARP, FULL_MASK)
        total = combine(total, other)
        distance //= 2
    return total


def warp_reduce_sum(value: Any) -> Scalar:
    """The sum over the lanes of the warp, in all of them."""
    return _reduce("T.warp_reduce_sum", value, lambda a, b: a + b)


def warp_reduce_max(value: Any) -> Scalar:
    """The largest value of the warp, in all its lanes."""
    return _reduce("T.warp_reduce_max", value, maximum)


def warp_reduce_min(value: Any) -> Scalar:
    """The smallest value of the warp, in all its lanes."""
    return _reduce("T.warp_reduce_min", value, minimum)


def warp_reduce_bitand(value: Any) -> Scalar:
    """The bits that are set in all lanes of the warp."""
    return _reduce("T.warp_reduce_bitand", value, lambda a, b: a & b)


def warp_reduce_bitor(value: Any) -> Scalar:
    """The bits that are set in a lane of the warp."""
    return _reduce("T.warp_reduce_bitor", value, lambda a, b: a | b)


# --- places ------------------------------------------------------------------------------------


def _lane(what: str) -> Scalar:
    current().require_kernel(what)
    return Scalar(Call(LANE_INDEX, (), int32))


def _size(value: Any, default: int, name: str) -> int:
    return default if value is None else ops.static_int(value, name, at_least=1)


def get_lane_idx(warp_size: Any = None) -> Scalar:
    """This lane's place in its warp (or in its group of `warp_size` lanes)."""
    return _lane("T.get_lane_idx") % _size(warp_size, WARP, "warp_size")


def get_warp_idx(warp_size: Any = None) -> Scalar:
    """The number of this lane's warp in the block."""
    return _lane("T.get_warp_idx") // _size(warp_size, WARP, "warp_size")


def get_warp_idx_sync(warp_size: Any = None) -> Scalar:
    """`get_warp_idx`."""
    return get_warp_idx(warp_size)


def get_warp_group_idx(warp_size: Any = None, warps_per_group: Any = None) -> Scalar:
    """The number of this lane's group of 4 warps."""
    group = _size(warps_per_group, WARPS_PER_GROUP, "warps_per_group")
    return _lane("T.get_warp_group_idx") // (_size(warp_size, WARP, "warp_size") * group)


def shuffle_elect(thread_extent: Any = 0) -> Scalar:
    """Whether this lane is the first of its group of `thread_extent` lanes (0: of the block)."""
    extent = ops.static_int(thread_extent, "thread_extent", at_least=0)
    lane: Any = _lane("T.shuffle_elect")
    return (lane % extent if extent else lane) == 0
