"""Reduce and Scan: along the contiguous axis in vectors, along others lane by lane."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilecore.ir.buffers import Region
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Const, Expr, Load, Var
from tilecore.ir.stmts import Reduce, Scan

from .builder import Value, is_float, lane_count, like, vector_type
from .conversions import compute_type, convert, narrow, widen
from .expressions import evaluate, index
from .memory import load_element, store_element
from .state import BlockState, VectorAxis

ACCUMULATORS = 4
"""Independent partial results of a long reduction: enough to hide an addition's latency."""


class Combiner:
    """One reduction operation on values of `dtype`."""

    def __init__(self, s: BlockState, op: str, dtype: DType, nan_propagate: bool = False) -> None:
        self.s, self.op, self.dtype, self.nan_propagate = s, op, dtype, nan_propagate

    def neutral(self, kind: str) -> Value:
        """The value that changes nothing."""
        dtype = self.dtype
        if self.op in ("max", "min"):
            sign = -1 if self.op == "max" else 1
            if dtype.is_float:
                return self.s.w.const(sign * math.inf, kind)
            if dtype.is_bool:
                return self.s.w.const(self.op == "min", kind)
            low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
            high = (1 << (dtype.bits - 1)) - 1 if dtype.kind == "int" else (1 << dtype.bits) - 1
            return self.s.w.const(low if self.op == "max" else high, kind)
        if self.op in ("bitand", "all"):
            return self.s.w.const(1 if dtype.is_bool else (-1 if self.op == "bitand" else 1), kind)
        return self.s.w.const(0, kind)

    def prepare(self, value: Value) -> Value:
        """What happens to an element before it is combined."""
        if self.op in ("abssum", "absmax"):
            if is_float(value.type):
                return self.s.w.intrinsic("fabs", [value])
            zero = self.s.w.const(0, value.type)
            return self.s.w.select(self.s.w.icmp("slt", value, zero), self.s.w.neg(value), value)
        if self.op in ("any", "all") and not self.dtype.is_bool:
            zero = self.s.w.const(0, value.type)
            is_set = (
                self.s.w.fcmp("une", value, zero)
                if is_float(value.type)
                else self.s.w.icmp("ne", value, zero)
            )
            one = self.s.w.const(1, value.type)
            return self.s.w.select(is_set, one, zero)
        return value

    def combine(self, total: Value, value: Value) -> Value:
        """total op value; `total` is never NaN for max and min unless NaN propagates."""
        w = self.s.w
        match self.op:
            case "sum" | "abssum":
                return w.add(total, value)
            case "bitand":
                return w.binary("and", total, value)
            case "bitor":
                return w.binary("or", total, value)
            case "bitxor":
                return w.binary("xor", total, value)
            case "any" | "all":
                return self._extreme(total, value, self.op == "any")
            case _:
                return self._extreme(total, value, self.op in ("max", "absmax"))

    def _extreme(self, total: Value, value: Value, is_max: bool) -> Value:
        w = self.s.w
        if not is_float(total.type):
            if self.dtype.is_bool:
                return w.binary("or" if is_max else "and", total, value)
            sign = "s" if self.dtype.kind == "int" else "u"
            return w.intrinsic(sign + ("max" if is_max else "min"), [total, value])
        if self.nan_propagate:
            return w.intrinsic("maximum" if is_max else "minimum", [total, value])
        return w.select(w.fcmp("ogt" if is_max else "olt", value, total), value, total)

    def across(self, value: Value) -> Value:
        """All lanes into one, halving the vector each time."""
        lanes = lane_count(value.type)
        while lanes > 1:
            half = lanes // 2
            low = self.s.w.shuffle(value, None, range(half))
            high = self.s.w.shuffle(value, None, range(half, lanes))
            value = self.combine(low, high)
            lanes = half
        return self.s.w.extract(value, 0) if value.type[0] == "<" else value


def emit_reduce(s: BlockState, stmt: Reduce) -> None:
    """Write one reduction."""
    outer = (s.is_elementwise, s.is_guarded, s.axis)
    s.is_elementwise, s.is_guarded = True, True
    _Reduction(s, stmt).emit()
    s.is_elementwise, s.is_guarded, s.axis = outer


def finish_row(s: BlockState, combiner: Combiner, stmt: Reduce, row: Var, total: Value) -> None:
    """Store the reduction of one row, combined with the old value unless that is cleared."""
    from tilecore.ir.expr import const

    place: tuple[Expr, ...] = (row, const(0)) if len(stmt.dst.shape) == 2 else (row,)
    indices = stmt.dst.indices(place)
    if not stmt.clear:
        old = widen(s.w, load_element(s, stmt.dst.buffer, indices), stmt.dst.dtype)
        if combiner.op in ("max", "min") and is_float(old.type) and not stmt.nan_propagate:
            old = combiner.combine(combiner.neutral(old.type), old)
        total = combiner.combine(old, total)
    store_element(s, stmt.dst.buffer, indices, narrow(s.w, total, stmt.dst.dtype))


def loop_nest(
    s: BlockState, names: Sequence[Var], extents: Sequence[Expr], body: Callable[[], None]
) -> None:
    """Scalar loops around `body`."""
    if not names:
        body()
        return
    with s.w.loop(s.w.i64(0), index(s, extents[0])) as loop:
        high = extents[0].value - 1 if isinstance(extents[0], Const) else math.inf
        s.bind_index(names[0].name, loop.index, 0, max(high, 0))
        loop_nest(s, names[1:], extents[1:], body)


def fresh_vars(s: BlockState, shape: Sequence[Expr]) -> list[Var]:
    """A new variable per axis."""
    return [Var(s.w.fresh("axis."), extent.dtype) for extent in shape]  # type: ignore[attr-defined]


class _Reduction:
    def __init__(self, s: BlockState, stmt: Reduce) -> None:
        self.s, self.stmt = s, stmt
        self.combiner = Combiner(s, stmt.op, stmt.dst.dtype, stmt.nan_propagate)
        self.vars = fresh_vars(s, stmt.src.shape)
        axis = stmt.axis % len(self.vars)
        self.axis = axis
        self.kept = [n for n in range(len(self.vars)) if n != axis]
        self.lanes = s.cpu.lanes(max(32, stmt.dst.dtype.bits, stmt.src.dtype.bits))
        indices: list[Expr] = [self.vars[n] for n in self.kept]
        if len(stmt.dst.shape) == len(self.vars):
            from tilecore.ir.expr import const

            indices.insert(axis, const(0))
        while len(indices) < len(stmt.dst.shape):  # a rank-1 source into a one-element buffer
            from tilecore.ir.expr import const

            indices.append(const(0))
        self.dst_indices = stmt.dst.indices(tuple(indices))

    def emit(self) -> None:
        shape = self.stmt.src.shape
        last = len(shape) - 1
        if self.axis == last:
            names = [self.vars[n] for n in self.kept]
            loop_nest(self.s, names, [shape[n] for n in self.kept], self._along_vectors)
            return
        inner = self.vars[last]
        names = [self.vars[n] for n in self.kept[:-1]]
        loop_nest(
            self.s, names, [shape[n] for n in self.kept[:-1]], lambda: self._across_rows(inner)
        )

    def _element(self) -> Value:
        """The source element of the current lanes, prepared, in dst's compute type."""
        s, src = self.s, self.stmt.src
        stored = load_element(s, src.buffer, src.indices(tuple(self.vars)))
        value = convert(s.w, widen(s.w, stored, src.dtype), src.dtype, self.stmt.dst.dtype)
        lanes = 1 if s.axis is None else s.axis.lanes
        return self.combiner.prepare(s.w.splat(value, lanes))

    def _finish(self, total: Value) -> None:
        s, stmt = self.s, self.stmt
        if not stmt.clear:
            old = widen(s.w, load_element(s, stmt.dst.buffer, self.dst_indices), stmt.dst.dtype)
            if self.combiner.op in ("max", "min") and is_float(old.type) and not stmt.nan_propagate:
                old = self.combiner.combine(self.combiner.neutral(old.type), old)
            lanes = max(lane_count(old.type), lane_count(total.type))
            total = self.combiner.combine(s.w.splat(old, lanes), s.w.splat(total, lanes))
        store_element(s, stmt.dst.buffer, self.dst_indices, narrow(s.w, total, stmt.dst.dtype))

    # -- the reduced axis is the contiguous one --------------------------------------------------

    def _along_vectors(self) -> None:
        s, w = self.s, self.s.w
        var, extent = self.vars[self.axis], self.stmt.src.shape[self.axis]
        high = extent.value - 1 if isinstance(extent, Const) else math.inf
        s.ranges[var.name] = (0, max(high, 0))
        kind = vector_type(compute_type(self.stmt.dst.dtype), self.lanes)
        count = index(s, extent)
        step = self.lanes * ACCUMULATORS
        known = int(extent.value) if isinstance(extent, Const) else None
        totals = [self.combiner.neutral(kind)] * ACCUMULATORS
        if known is not None and known <= 16 * self.lanes:
            totals = self._straight(var, known, totals)
            self._finish(self._merge(totals))
            return
        block_stop = w.sub(count, w.binary("srem", count, w.i64(step)))
        with w.loop(w.i64(0), block_stop, step, totals) as loop:
            new = []
            for n, total in enumerate(loop.carried):
                s.axis = VectorAxis(var.name, w.add(loop.index, w.i64(n * self.lanes)), self.lanes)
                new.append(self.combiner.combine(total, self._element()))
            loop.carry(new)
        totals = loop.results or totals
        with w.loop(block_stop, count, self.lanes, totals[:1]) as loop:
            left = w.sub(count, loop.index)
            limit = w.intrinsic("smin", [left, w.i64(self.lanes)])
            limit = w.splat(w.cast("trunc", limit, "i32"), self.lanes)
            active = w.icmp("slt", w.const_vector(range(self.lanes), "i32"), limit)
            loop.carry([self._masked(var, loop.index, active, loop.carried[0])])
        totals = [*(loop.results or totals[:1]), *totals[1:]]
        s.axis = None
        self._finish(self._merge(totals))

    def _straight(self, var: Var, known: int, totals: list[Value]) -> list[Value]:
        """A short constant extent: no loop."""
        s, w = self.s, self.s.w
        totals = list(totals)
        full, rest = divmod(known, self.lanes)
        for n in range(full):
            s.axis = VectorAxis(var.name, w.i64(n * self.lanes), self.lanes)
            slot = n % ACCUMULATORS
            totals[slot] = self.combiner.combine(totals[slot], self._element())
        if rest:
            active = w.const_vector([1 if n < rest else 0 for n in range(self.lanes)], "i1")
            slot = full % ACCUMULATORS
            totals[slot] = self._masked(var, w.i64(full * self.lanes), active, totals[slot])
        s.axis = None
        return totals[: max(1, min(ACCUMULATORS, full + (1 if rest else 0)))]

    def _masked(self, var: Var, base: Value, active: Value, total: Value) -> Value:
        s, w = self.s, self.s.w
        s.axis = VectorAxis(var.name, base, self.lanes, active)
        value = self._element()
        return self.combiner.combine(
            total, w.select(active, value, self.combiner.neutral(value.type))
        )

    def _merge(self, totals: list[Value]) -> Value:
        """Partial vectors to one scalar."""
        while len(totals) > 1:
            pairs = list(zip(totals[::2], totals[1::2], strict=False))
            rest = totals[len(pairs) * 2 :]
            totals = [self.combiner.combine(a, b) for a, b in pairs] + rest
        return self.combiner.across(totals[0])

    # -- the reduced axis is another one ---------------------------------------------------------

    def _across_rows(self, inner: Var) -> None:
        s, w = self.s, self.s.w
        extent = self.stmt.src.shape[-1]
        high = extent.value - 1 if isinstance(extent, Const) else math.inf
        s.ranges[inner.name] = (0, max(high, 0))
        count = index(s, extent)
        stop = w.sub(count, w.binary("srem", count, w.i64(self.lanes)))
        with w.loop(w.i64(0), stop, self.lanes) as loop:
            s.axis = VectorAxis(inner.name, loop.index, self.lanes)
            self._columns()
        with w.loop(stop, count) as loop:
            s.axis = VectorAxis(inner.name, loop.index, 1)
            self._columns()
        s.axis = None

    def _columns(self) -> None:
        s, w = self.s, self.s.w
        assert s.axis is not None
        var, extent = self.vars[self.axis], self.stmt.src.shape[self.axis]
        kind = vector_type(compute_type(self.stmt.dst.dtype), s.axis.lanes)
        with w.loop(w.i64(0), index(s, extent), 1, [self.combiner.neutral(kind)]) as loop:
            high = extent.value - 1 if isinstance(extent, Const) else math.inf
            s.bind_index(var.name, loop.index, 0, max(high, 0))
            loop.carry([self.combiner.combine(loop.carried[0], self._element())])
        assert loop.results is not None
        self._finish(loop.results[0])


def emit_scan(s: BlockState, stmt: Scan) -> None:
    """Prefix sums or maxima: one running value per line of the scanned axis."""
    outer = (s.is_elementwise, s.is_guarded, s.axis)
    s.is_elementwise, s.is_guarded, s.axis = True, True, None
    variables = fresh_vars(s, stmt.src.shape)
    axis = stmt.axis % len(variables)
    kept = [n for n in range(len(variables)) if n != axis]
    names = [variables[n] for n in kept]
    extents = [stmt.src.shape[n] for n in kept]
    loop_nest(s, names, extents, lambda: _scan_line(s, stmt, variables, axis))
    s.is_elementwise, s.is_guarded, s.axis = outer


def _scan_line(s: BlockState, stmt: Scan, variables: list[Var], axis: int) -> None:
    w = s.w
    combiner = Combiner(s, stmt.op, stmt.dst.dtype)
    extent = stmt.src.shape[axis]
    count = index(s, extent)
    start = combiner.neutral(compute_type(stmt.dst.dtype))
    with w.loop(w.i64(0), count, 1, [start]) as loop:
        place = w.sub(w.sub(count, w.i64(1)), loop.index) if stmt.reverse else loop.index
        high = extent.value - 1 if isinstance(extent, Const) else math.inf
        s.bind_index(variables[axis].name, place, 0, max(high, 0))
        value = _load_region(s, stmt.src, variables)
        value = convert(w, value, stmt.src.dtype, stmt.dst.dtype)
        total = combiner.combine(loop.carried[0], value)
        store_element(
            s, stmt.dst.buffer, stmt.dst.indices(tuple(variables)), narrow(w, total, stmt.dst.dtype)
        )
        loop.carry([total])


def _load_region(s: BlockState, region: Region, variables: Sequence[Var]) -> Value:
    return evaluate(s, Load(region.buffer, region.indices(tuple(variables))))


__all__ = ["Combiner", "emit_reduce", "emit_scan", "fresh_vars", "like", "loop_nest"]
