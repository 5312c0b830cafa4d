"""Random IR for property tests: well-scoped, but not necessarily legal."""

from __future__ import annotations

import math
from itertools import count

from hypothesis import strategies as st

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import ALL, boolean, float32, int32
from tilecore.ir.expr import (
    ARITHMETIC,
    BITWISE,
    COMPARISON,
    FALSE,
    LOGICAL,
    MATH_OPS,
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Load,
    Select,
    Unary,
    Var,
    const,
)
from tilecore.ir.layout import FragmentLayout, FragmentMode, Layout, Mode, Swizzle
from tilecore.ir.program import BlockOrder, Kernel, Level, Program

DTYPES = st.sampled_from(ALL)
ODD_NAMES = ["copy", "true", "x y", "for", "1st", "inf", "a.b", "Ä", "min", "cast", "lower", "not"]


@st.composite
def constants(draw, dtype=None):
    dtype = draw(DTYPES) if dtype is None else dtype
    if dtype.is_bool:
        return Const(draw(st.booleans()), dtype)
    if dtype.is_float:
        special = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, 1e300])
        return Const(draw(st.one_of(special, st.floats(allow_nan=False))), dtype)
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return Const(draw(st.integers(low, low + (1 << dtype.bits) - 1)), dtype)


class Names:
    """What is in scope while a program is drawn, and a supply of fresh names."""

    def __init__(self):
        self.vars = []
        self.buffers = []
        self.counter = count()

    def copy(self):
        other = Names()
        other.vars, other.buffers = list(self.vars), list(self.buffers)
        other.counter = self.counter
        return other

    def fresh(self, draw):
        base = draw(st.sampled_from(["v", "tile", *ODD_NAMES]))
        k = next(self.counter)
        return base if k == 0 else f"{base}_{k}"


@st.composite
def variables(draw, names, dtype=None):
    dtype = draw(DTYPES) if dtype is None else dtype
    bound = st.none() | st.integers(-5, 5000)
    multiple = draw(st.sampled_from([1, 1, 8, 128]))
    return Var(names.fresh(draw), dtype, multiple, draw(bound), draw(bound))


@st.composite
def exprs(draw, names, depth=3):
    leaves = [constants(), constants(int32)]
    if names.vars:
        leaves.append(st.sampled_from(names.vars))
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(*leaves))
    inner = exprs(names, depth - 1)
    kind = draw(st.integers(0, 7))
    if kind <= 1:
        op = draw(st.sampled_from(ARITHMETIC + BITWISE + COMPARISON + LOGICAL))
        a, b = draw(inner), draw(inner)
        return Binary(op, a, b, boolean if op in COMPARISON + LOGICAL else a.dtype)
    if kind == 2:
        a, op = draw(inner), draw(st.sampled_from(["neg", "bitnot", "not"]))
        return Unary(op, a, boolean if op == "not" else a.dtype)
    if kind == 3:
        return draw(st.sampled_from([Cast, Bitcast]))(draw(inner), draw(DTYPES))
    if kind == 4:
        a = draw(inner)
        return Select(draw(inner), a, draw(inner), a.dtype)
    if kind == 5 and names.buffers:
        buffer = draw(st.sampled_from(names.buffers))
        return Load(buffer, tuple(draw(inner) for _ in buffer.shape))
    op = draw(st.sampled_from([*sorted(MATH_OPS), "lane.id", "f", "min", "float32", "while"]))
    return Call(op, tuple(draw(st.lists(inner, max_size=3))), draw(DTYPES))


@st.composite
def buffers(draw, names, scope=None):
    scope = draw(st.sampled_from(Scope)) if scope is None else scope
    shape = tuple(draw(st.lists(exprs(names, 1), max_size=3)))
    strides = tuple(draw(exprs(names, 1)) for _ in shape) if draw(st.booleans()) else None
    safe = draw(st.sampled_from([0, 0, 1, -3, 1.5, -0.0, math.inf]))
    return Buffer(names.fresh(draw), shape, draw(DTYPES), scope, strides, safe)


@st.composite
def regions(draw, names):
    buffer = draw(st.sampled_from(names.buffers))
    axes = [draw(_axis(names, size)) for size in buffer.shape]
    return Region(buffer, tuple(a[0] for a in axes), tuple(a[1] for a in axes))


@st.composite
def _axis(draw, names, size):
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return const(0), size
    start = draw(exprs(names, 1))
    return (start, None) if kind == 1 else (start, draw(exprs(names, 1)))


hint_values = st.one_of(
    st.integers(-3, 99),
    st.booleans(),
    st.text(max_size=5),
    st.sampled_from([1.5, -math.inf]),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
)
hints = st.lists(
    st.tuples(st.sampled_from(["width", "mma.atom", "a b", "for"]), hint_values),
    max_size=2,
    unique_by=lambda item: item[0],
).map(lambda items: tuple(sorted(items, key=lambda item: item[0])))


@st.composite
def blocks(draw, names, depth=2):
    inside = names.copy()
    return tuple(draw(statements(inside, depth)) for _ in range(draw(st.integers(0, 3))))


@st.composite
def statements(draw, names, depth=2):
    """One statement; what it declares is added to `names`."""
    kinds = [_flow, _declaration]
    if names.buffers:
        kinds += [_effect, _tile]
    if depth:
        kinds += [_nest]
    return draw(draw(st.sampled_from(kinds))(names, depth))


@st.composite
def _flow(draw, names, depth):
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.sampled_from([S.Break(), S.Continue()]))
    if kind == 1:
        return S.Assert(draw(exprs(names, 2)), draw(st.text(max_size=8)))
    if kind == 2:
        value = draw(st.none() | exprs(names, 2))
        return S.Print(draw(st.text(max_size=8)), value)
    ops = ["sync_block", "barrier.wait", "select", "if"]
    args = tuple(draw(st.lists(exprs(names, 2), max_size=2)))
    return S.Intrinsic(draw(st.sampled_from(ops)), args, draw(hints))


@st.composite
def _declaration(draw, names, depth):
    kind = draw(st.integers(0, 2))
    if kind == 0:
        value = draw(exprs(names, 3))
        typed = draw(st.booleans())
        var = draw(variables(names, None if typed else value.dtype))
        names.vars.append(var)
        return S.Let(var, value)
    if kind == 1 and names.buffers:
        source = draw(st.sampled_from(names.buffers))
        buffer = draw(buffers(names))
        names.buffers.append(buffer)
        return S.Alias(buffer, source)
    buffer = draw(buffers(names))
    init = draw(st.none() | exprs(names, 1))
    names.buffers.append(buffer)
    return S.Allocate(buffer, init)


@st.composite
def _effect(draw, names, depth):
    kind = draw(st.integers(0, 3))
    if kind == 0:
        buffer = draw(st.sampled_from(names.buffers))
        indices = tuple(draw(exprs(names, 1)) for _ in buffer.shape)
        return S.Store(buffer, indices, draw(exprs(names, 3)))
    if kind == 1:
        op = draw(st.sampled_from(["add", "and", "or", "exchange", "load"]))
        order = draw(st.sampled_from(["relaxed", "acq_rel"]))
        value = draw(st.one_of(exprs(names, 1), regions(names)))
        dst = draw(regions(names))
        previous = None
        if draw(st.booleans()):
            previous = draw(variables(names, draw(st.sampled_from([dst.dtype, int32]))))
            names.vars.append(previous)
        return S.Atomic(op, dst, value, order, previous)
    if kind == 2:
        return S.Print("tile", draw(regions(names)))
    args = tuple(draw(st.lists(st.one_of(exprs(names, 1), regions(names)), max_size=3)))
    return S.Intrinsic("async.copy", args, draw(hints))


@st.composite
def _tile(draw, names, depth):
    region = regions(names)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return S.Copy(draw(region), draw(region), draw(hints))
    if kind == 1:
        return S.Fill(draw(region), draw(exprs(names, 1)))
    if kind == 2:
        clear = draw(st.one_of(st.just(FALSE), exprs(names, 1)))
        flags = draw(st.booleans()), draw(st.booleans())
        policy = draw(st.sampled_from(S.WarpPolicy))
        return S.Gemm(draw(region), draw(region), draw(region), *flags, clear, policy, draw(hints))
    if kind == 3:
        op = draw(st.sampled_from(S.REDUCE_OPS))
        flags = draw(st.booleans()), draw(st.booleans())
        return S.Reduce(op, draw(region), draw(region), draw(st.integers(-2, 2)), *flags)
    return S.Scan("sum", draw(region), draw(region), draw(st.integers(0, 2)), draw(st.booleans()))


@st.composite
def _nest(draw, names, depth):
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(_loop(names, depth))
    if kind == 1:
        return S.While(draw(exprs(names, 2)), draw(blocks(names, depth - 1)))
    if kind == 2:
        condition = draw(exprs(names, 2))
        then, otherwise = draw(blocks(names, depth - 1)), draw(blocks(names, depth - 1))
        return S.If(condition, then, otherwise)
    if kind == 3:
        role = draw(st.sampled_from(["", "producer"]))
        return S.WarpScope(draw(st.integers(0, 4)), 8, draw(blocks(names, depth - 1)), role)
    axes = tuple(draw(st.lists(variables(names), max_size=2)))
    extents = tuple(draw(exprs(names, 1)) for _ in axes)
    inside = names.copy()
    inside.vars += axes
    return S.Parallel(axes, extents, draw(blocks(inside, depth - 1)), draw(hints))


@st.composite
def _loop(draw, names, depth):
    var = draw(variables(names, draw(st.sampled_from([int32, int32, float32]))))
    start, extent = draw(exprs(names, 1)), draw(exprs(names, 1))
    step = draw(st.one_of(st.just(const(1, var.dtype)), exprs(names, 1)))
    inside = names.copy()
    inside.vars.append(var)
    indices = st.lists(st.integers(-1, 3), max_size=2).map(tuple)
    plan = st.builds(S.PipelineSpec, st.integers(0, 4), indices, indices, st.just(((0, 1), (2,))))
    kind = draw(st.sampled_from(S.LoopKind))
    body = draw(blocks(inside, depth - 1))
    return S.For(var, start, extent, step, body, kind, draw(st.none() | plan), draw(hints))


modes = st.builds(Mode, st.integers(1, 8), st.integers(-1, 64))
fragment_modes = st.builds(
    FragmentMode, st.integers(1, 8), st.sampled_from(["thread", "register"]), st.integers(0, 64)
)


def _axes_of(mode):
    return st.lists(st.lists(mode, max_size=3).map(tuple), max_size=3).map(tuple)


swizzles = st.integers(0, 3).flatmap(
    lambda bits: st.builds(Swizzle, st.just(bits), st.integers(0, 4), st.integers(bits, 6))
)
layouts = st.one_of(
    st.builds(Layout, _axes_of(modes), st.none() | swizzles),
    st.builds(
        FragmentLayout, _axes_of(fragment_modes), st.lists(fragment_modes, max_size=2).map(tuple)
    ),
)


@st.composite
def kernels(draw, names):
    inside = names.copy()
    grid_vars = tuple(draw(variables(names, int32)) for _ in range(draw(st.integers(0, 3))))
    grid = tuple(draw(exprs(names, 1)) for _ in grid_vars)
    inside.vars += grid_vars
    body = draw(blocks(inside))
    chosen = draw(st.dictionaries(st.sampled_from(["A_s", "x y", "copy"]), layouts, max_size=2))
    order = draw(st.none() | st.builds(BlockOrder, st.integers(1, 8), st.just("column")))
    cluster = draw(st.sampled_from([(1, 1, 1), (2, 1, 1)]))
    pairs = tuple(sorted(chosen.items()))
    name, given = names.fresh(draw), draw(hints)
    return Kernel(name, grid_vars, grid, 128, body, pairs, order, cluster, given)


@st.composite
def programs(draw):
    names = Names()
    symbols = tuple(draw(variables(names, int32)) for _ in range(draw(st.integers(0, 2))))
    names.vars += symbols
    scalars = [draw(variables(names)) for _ in range(draw(st.integers(0, 2)))]
    names.vars += scalars
    arrays = [draw(buffers(names, Scope.GLOBAL)) for _ in range(draw(st.integers(0, 3)))]
    params = tuple(draw(st.permutations([*scalars, *arrays])))
    spaces = tuple(draw(st.lists(buffers(names, Scope.GLOBAL), max_size=1)))
    names.buffers += [*arrays, *spaces]
    body = tuple(draw(kernels(names)) for _ in range(draw(st.integers(0, 2))))
    outputs = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    level = draw(st.sampled_from(Level))
    return Program(names.fresh(draw), params, body, symbols, spaces, outputs, level)
