"""Scalar expressions: pure values, frozen, compared by structure.

One set serves all three levels. The user's operator sugar lives in `tilecore.language`, so that
``==`` on nodes stays structural equality, which passes and the cache rely on.

Text form: docs in ``printer.py``. Semantics (what every backend must do):
  * integer arithmetic wraps in two's complement; ``floordiv``/``floormod`` are Python's;
    ``shr`` is arithmetic for signed dtypes.
  * float arithmetic is IEEE in the node's dtype; contraction to fma is allowed.
  * ``round`` takes ties to even; ``popcount`` and ``clz`` count in the argument's own width.
  * ``min``/``max`` return the other operand when exactly one is nan (IEEE minimumNumber).
  * ``Select`` evaluates only the chosen branch as far as faults are concerned: a load in the
    branch not taken must not touch memory.
  * a `Load` from a global buffer outside its shape is a fault; passes predicate ragged edges.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilecore.errors import VerifyError
from tilecore.ir.compound import Compound, Expr, unknown
from tilecore.ir.dtypes import DType, boolean, int32, int64

if TYPE_CHECKING:
    from tilecore.ir.buffers import Buffer

ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "floormod", "min", "max", "pow")
BITWISE = ("bitand", "bitor", "bitxor", "shl", "shr")
COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("and", "or")
BINARY_OPS = frozenset(ARITHMETIC + BITWISE + COMPARISON + LOGICAL)

# Math calls that every backend implements for floats of any width (narrow ones compute in
# float32): one argument unless said otherwise. abs also takes integers.
MATH_OPS = frozenset({
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "rcp", "sin", "cos",
    "tan", "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "round", "trunc", "isnan", "isinf",
    "isfinite", "fma", "atan2", "fmod", "popcount", "clz",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A literal. `value` is int, float or bool according to `dtype`; nan and inf are allowed."""

    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        """Structural, with nan equal to nan and 0.0 apart from -0.0."""
        if not isinstance(other, Const) or self.dtype != other.dtype:
            return False
        if type(self.value) is int and type(other.value) is int:
            return self.value == other.value
        return repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        value = self.value if type(self.value) is int else repr(self.value)
        return hash((value, self.dtype.name))


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A named scalar: loop index, grid index, dynamic size, scalar parameter or `Let` value.

    Names are unique within a program, so a name is an identity. ``multiple_of`` and
    ``lower``/``upper`` are promises of the author about dynamic sizes (inclusive bounds).
    """

    name: str
    dtype: DType = int32
    multiple_of: int = field(default=1, compare=False)
    lower: int | None = field(default=None, compare=False)
    upper: int | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Compound):
    """``op(a, b)``; operands have equal dtypes, except that shifts take any integer count.

    `dtype` is bool for comparisons and logical operations, else the operands' dtype.
    """

    op: str
    a: Expr
    b: Expr
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return (self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Compound):
    """``neg``, ``bitnot`` or ``not``; same dtype as its operand."""

    op: str
    a: Expr
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Compound):
    """Value conversion.

    float -> float rounds to nearest even; overflow gives inf where the dtype has one, else the
    largest finite value (saturating, as float8_e4m3fn). float -> int truncates towards zero and
    saturates; nan gives 0. int -> int wraps. anything -> bool is ``!= 0``.
    """

    a: Expr
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bitcast(Compound):
    """The same bits read as another dtype of equal width."""

    a: Expr
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return (self.a,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Compound):
    """``a if condition else b`` with lazily guarded branches."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return (self.condition, self.a, self.b)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Compound):
    """One element of a buffer. `indices` are logical coordinates, one per buffer axis."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        """The buffer's element type."""
        return self.buffer.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return self.indices


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Compound):
    """A pure math function of `MATH_OPS`, or an operation of a lower level or a backend.

    Lower-level and backend operations have dotted names (``"lane.id"``, ``"simt.shuffle_xor"``);
    a backend gives them meaning by emit rules.
    """

    op: str
    args: tuple[Expr, ...]
    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        """See `Expr.children`."""
        return self.args


TRUE = Const(True, boolean)
FALSE = Const(False, boolean)
_INDEX_DTYPES = {int32, int64}


def const(value: int | float | bool, dtype: DType = int32) -> Const:
    """A literal of `dtype`; the Python value is normalised to the dtype's Python type."""
    if dtype.is_bool:
        return Const(bool(value), dtype)
    return Const(float(value), dtype) if dtype.is_float else _integer(int(value), dtype)


@functools.lru_cache(maxsize=4096)
def _integer(value: int, dtype: DType) -> Const:
    """Index arithmetic makes the same few literals again and again: one object is cheaper."""
    return Const(value, dtype)


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """Build ``op(a, b)`` for operands of one dtype, folding constants and neutral elements.

    Indices are int32 or int64, and both meet where a size is int64 and a coordinate is not: then
    the narrower operand is widened.

    Raises:
        VerifyError: unknown operation, or operands of different dtypes.
    """
    if op not in BINARY_OPS:
        raise VerifyError("unknown binary operation", expected=sorted(BINARY_OPS), got=op)
    a_dtype: DType = a.dtype  # type: ignore[attr-defined]
    b_dtype: DType = b.dtype  # type: ignore[attr-defined]
    if a_dtype is not b_dtype and op not in ("shl", "shr"):
        if {a_dtype, b_dtype} == _INDEX_DTYPES:
            a, b, a_dtype = widened(a), widened(b), int64
        elif a_dtype != b_dtype:
            raise VerifyError(f"operands of {op} differ in dtype", expected=a_dtype, got=b_dtype)
    dtype = boolean if op in COMPARISON or op in LOGICAL else a_dtype
    return _folding()(op, a, b, dtype)


@functools.cache
def _folding() -> Callable[[str, Expr, Expr, DType], Expr]:
    """`fold_binary`, whose module needs this one."""
    from tilecore.ir.fold import fold_binary

    return fold_binary


def widened(index: Expr) -> Expr:
    """An index as int64."""
    if isinstance(index, Const):
        return const(index.value, int64)
    return as_dtype(index, int64)


def dtype_of_expr(expr: Expr) -> DType:
    """The dtype of any expression."""
    return expr.dtype  # type: ignore[attr-defined, no-any-return]


def as_dtype(expr: Expr, dtype: DType) -> Expr:
    """`expr`, by a conversion unless it is of `dtype` already."""
    return expr if dtype_of_expr(expr) == dtype else Cast(expr, dtype)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield `expr` and all expressions below it, parents first, each object once."""
    if not isinstance(expr, Compound):
        yield expr
        return
    stack: list[Expr] = [expr]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        children = node.children
        if children:
            if id(node) in seen:
                continue
            seen.add(id(node))
            stack.extend(reversed(children))
        yield node


def mentioned(expr: Expr) -> tuple[Expr, ...]:
    """What `expr` consists of besides constants and `Binary`: variables, loads, calls, ...

    Each once, in order of first mention. Remembered, since most passes ask it of everything.
    """
    if not isinstance(expr, Compound):
        return (expr,) if type(expr) is Var else ()
    try:
        below = expr._below  # type: ignore[reportPrivateUsage, has-type]
    except AttributeError:
        for node in unknown(expr, "_below"):
            below = ()
            for child in node.children:
                below = _together(below, mentioned(child))
            object.__setattr__(node, "_below", below)
        below = expr._below  # type: ignore[reportPrivateUsage]
    return below if type(expr) is Binary else (expr, *below)


def _together(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(dict.fromkeys((*a, *b))) if a and b and a is not b else a or b


def free_vars(expr: Expr) -> frozenset[Var]:
    """All variables that occur in `expr`."""
    return frozenset([node for node in mentioned(expr) if isinstance(node, Var)])


def reads_memory(expr: Expr) -> bool:
    """Whether evaluating `expr` reads a buffer, so that its value may change between statements."""
    return any(isinstance(node, Load) for node in mentioned(expr))


def rebuild(expr: Expr, children: tuple[Expr, ...]) -> Expr:
    """The same node over other children (given in the order of `Expr.children`)."""
    match expr:
        case Binary(op=op):
            return binary(op, *children)
        case Unary(op=op, dtype=dtype):
            return Unary(op, children[0], dtype)
        case Cast(dtype=dtype):
            return Cast(children[0], dtype)
        case Bitcast(dtype=dtype):
            return Bitcast(children[0], dtype)
        case Select(dtype=dtype):
            if isinstance(children[0], Const):
                return children[1] if children[0].value else children[2]
            return Select(children[0], children[1], children[2], dtype)
        case Load(buffer=buffer):
            return Load(buffer, children)
        case Call(op=op, dtype=dtype):
            return Call(op, children, dtype)
        case _:
            return expr


def transform(expr: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: `visit` sees each node with rewritten children; None keeps it.

    A part that occurs several times (the same object) is visited once.
    """
    return _transformed(expr, visit, {})


def _transformed(expr: Expr, visit: Callable[[Expr], Expr | None], done: dict[int, Expr]) -> Expr:
    """`transform`, with what was done by the identity of what has parts."""
    if not isinstance(expr, Compound):
        result = visit(expr)
        return expr if result is None else result
    known = done.get(id(expr))
    if known is not None:
        return known
    new: Expr = expr
    if type(expr) is Binary:  # nearly all nodes that have children
        a, b = _transformed(expr.a, visit, done), _transformed(expr.b, visit, done)
        if a is not expr.a or b is not expr.b:
            new = binary(expr.op, a, b)
    elif children := expr.children:
        parts = tuple([_transformed(child, visit, done) for child in children])
        if any(map(operator.is_not, parts, children)):
            new = rebuild(expr, parts)
    # What folded to a leaf was visited as somebody's child.
    if new is expr or new.children:
        result = visit(new)
        new = new if result is None else result
    done[id(expr)] = new
    return new


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction; True when there is none."""
    result: Expr = TRUE
    for condition in conditions:
        result = binary("and", result, condition)
    return result


def substitute(expr: Expr, mapping: dict[Var, Expr]) -> Expr:
    """Replace variables by expressions of the same dtype."""
    return _substituted(expr, mapping, {})


def _substituted(expr: Expr, mapping: dict[Var, Expr], done: dict[int, Expr]) -> Expr:
    """`substitute`, with what was `done` by identity: a part that occurs twice is visited once."""
    if mapping.keys().isdisjoint(mentioned(expr)):
        return expr
    if type(expr) is Var:
        return mapping[expr]
    if id(expr) not in done:
        children = tuple([_substituted(child, mapping, done) for child in expr.children])
        same = all(map(operator.is_, children, expr.children))
        done[id(expr)] = expr if same else rebuild(expr, children)
    return done[id(expr)]
