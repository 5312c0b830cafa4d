"""How much work a lane-level kernel is: operations of one lane, counted by walking the program.

Loops count as often as they run and branches as often as they are taken, estimated over sampled
blocks and iterations: bounds may depend on the block (causal masks) and on dynamic sizes (taken at
their upper bound, else ignored). Work is told apart by segments: what lies between two barriers,
with a loop's end joined to its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    dtype_of_expr,
    walk,
)
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Atomic, Block, For, If, Intrinsic, Let, Stmt, Store, WarpScope, While
from tilecore.ir.visit import walk_stmts

SAMPLES = 64
_SPECIAL = ("exp2", "log2", "exp", "log", "rsqrt", "sqrt", "rcp", "tanh", "sin", "cos", "erf")
_MEETINGS = {
    "sync_block": "barrier", "stagger.begin": "barrier", "stagger.end": "barrier",
    "stagger.phase": "phase",
}  # fmt: skip
_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip


class Segment(dict[str, float]):
    """Operations of one lane in one segment, by kind; 0 of what does not occur.

    ``mma.NAME`` atoms; ``shared_load`` ``shared_store`` ``global_load`` ``global_store`` bytes;
    ``arithmetic`` ``special`` ``convert`` (to 16 or 8 bits) float operations; ``shuffle``;
    ``barrier``, or ``phase`` where halves of the warps are one phase apart.
    """

    def __missing__(self, kind: str) -> float:
        return 0.0

    def add(self, other: Segment) -> None:
        """Take in the operations of another segment."""
        for kind, amount in other.items():
            self[kind] += amount


def count_work(kernel: Kernel, grid: tuple[int, ...]) -> list[Segment]:
    """Segments of a kernel in program order.

    Args:
        kernel: at the lane level.
        grid: its blocks along each axis, as numbers.
    """
    counter = _Counter(kernel, grid)
    counter.block(kernel.body, np.ones(SAMPLES))
    return [segment for segment in counter.segments if segment]


class _Counter:
    def __init__(self, kernel: Kernel, grid: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(0)
        self.known: dict[str, Any] = {
            var.name: self.random.integers(0, max(1, extent), SAMPLES)
            for var, extent in zip(kernel.grid_vars, grid, strict=True)
        }
        self.segments: list[Segment] = [Segment()]

    def add(self, kind: str, weight: Any, amount: float = 1.0) -> None:
        self.segments[-1][kind] += float(np.mean(weight)) * amount

    # --- statements ----------------------------------------------------------------------------

    def block(self, block: Block, weight: Any) -> None:
        for stmt in block:
            self.stmt(stmt, weight)

    def stmt(self, stmt: Stmt, weight: Any) -> None:
        match stmt:
            case For():
                self.loop(stmt, weight)
            case If(condition=condition, then=then, otherwise=otherwise):
                taken = self.value(condition)
                taken = np.ones(SAMPLES) if taken is None else np.asarray(taken, float)
                self.block(then, weight * taken)
                self.block(otherwise, weight * (1 - taken))
            case While(body=body) | WarpScope(body=body):
                self.block(body, weight)
            case Let(var=var, value=value):
                self.known[var.name] = self.value(value)
                self.expression(value, weight)
            case Store(buffer=buffer, value=value):
                self.expression(value, weight)
                self.memory(buffer.scope, "store", buffer.dtype.bits / 8, weight)
            case Atomic(dst=dst):
                self.memory(dst.buffer.scope, "store", dst.dtype.bits / 8, weight)
            case Intrinsic():
                self.intrinsic(stmt, weight)
            case _:
                pass

    def loop(self, loop: For, weight: Any) -> None:
        extent, start = self.value(loop.extent), self.value(loop.start)
        times = np.ones(SAMPLES) if extent is None else np.maximum(0, np.asarray(extent))
        times = np.broadcast_to(times, (SAMPLES,))
        if start is None or extent is None:
            self.known[loop.var.name] = None
        else:
            some = self.random.integers(0, np.maximum(1, times.astype(np.int64)))
            step = self.value(loop.step)
            self.known[loop.var.name] = start + some * (1 if step is None else step)
        meets = any(_is_barrier(inner) for inner in walk_stmts(loop.body))
        if meets:
            self.segments.append(Segment())
        first = self.segments[-1]
        self.block(loop.body, weight * times)
        if meets and self.segments[-1] is not first:
            first.add(self.segments[-1])
            self.segments[-1] = Segment()

    def intrinsic(self, stmt: Intrinsic, weight: Any) -> None:
        regions = [arg for arg in stmt.args if isinstance(arg, Region)]
        if stmt.op.startswith("mma."):
            self.add(stmt.op, weight)
        elif _is_barrier(stmt):
            self.add(_MEETINGS[stmt.op], weight)
            self.segments.append(Segment())
        elif stmt.op in ("lane.move", "lane.move_bounded", "async.copy"):
            (count,) = regions[0].static_shape or (1,)
            size = count * regions[0].dtype.bits / 8
            self.memory(regions[0].buffer.scope, "load", size, weight)
            self.memory(regions[1].buffer.scope, "store", size, weight)
        elif stmt.op == "lane.pack":
            self.add("convert", weight, 2)
            for arg in stmt.args:
                if isinstance(arg, Expr):
                    self.expression(arg, weight)

    def memory(self, scope: Scope, what: str, size: float, weight: Any) -> None:
        if scope in (Scope.GLOBAL, Scope.SHARED):
            self.add(f"{scope.name.lower()}_{what}", weight, size)

    # --- expressions ---------------------------------------------------------------------------

    def expression(self, expr: Expr, weight: Any) -> None:
        fused = {id(node.a) for node in walk(expr) if _is_multiply_add(node)}
        for node in walk(expr):
            match node:
                case Load(buffer=buffer):
                    self.memory(buffer.scope, "load", buffer.dtype.bits / 8, weight)
                case Binary(op=op) if _is_float(node.a) and id(node) not in fused:
                    self.add("special" if op == "div" else "arithmetic", weight)
                case Call(op=op) if op in _SPECIAL:
                    self.add("special", weight)
                case Call(op="lane.shuffle_xor"):
                    self.add("shuffle", weight)
                case Cast(dtype=dtype) if _narrows(dtype, dtype_of_expr(node.a)):
                    self.add("convert", weight)
                case Select():
                    self.add("arithmetic", weight)
                case _:
                    pass

    def value(self, expr: Expr) -> Any:
        """A number or one per sample; None when it depends on memory or unknown sizes."""
        match expr:
            case Const(value=value):
                return value
            case Var(name=name):
                known = self.known.get(name)
                return known if known is not None else getattr(expr, "upper", None)
            case Binary(op=op, a=a, b=b) if op in _NUMPY:
                left, right = self.value(a), self.value(b)
                if left is None or right is None:
                    return None
                if op in ("floordiv", "floormod") and np.any(np.asarray(right) == 0):
                    return None
                return _NUMPY[op](left, right)
            case Unary(op="not", a=a):
                inner = self.value(a)
                return None if inner is None else np.logical_not(inner)
            case Cast(a=a, dtype=dtype) if dtype.is_int:
                return self.value(a)
            case Call(op="lane.uniform" | "lane.at_use", args=args):
                return self.value(args[0])
            case _:
                return None


def _is_barrier(stmt: Stmt) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.op in _MEETINGS


def _is_float(expr: Expr) -> bool:
    return dtype_of_expr(expr).is_float


def _is_multiply_add(expr: Expr) -> TypeGuard[Binary]:
    """True for a sum whose left side is a product: one operation."""
    return (
        isinstance(expr, Binary)
        and expr.op in ("add", "sub")
        and isinstance(expr.a, Binary)
        and expr.a.op == "mul"
        and _is_float(expr)
    )


def _narrows(to: DType, source: DType) -> bool:
    return to.is_float and source.is_float and to.bits < source.bits
