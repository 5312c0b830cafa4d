"""For each operation a backend that gets it wrong: it does nothing, or its neighbour's work.

`OPERATIONS` has a row for each kind of statement and each operation in the IR's own lists; a list
that grows without its row fails a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fakes import FakeBackend, Fault

from tilecore.hooks.manager import register_backend
from tilecore.ir import expr as E
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.visit import map_exprs
from tilecore.reference.interpreter import ORDERING

Rewrite = Callable[[S.Stmt], S.Stmt | tuple[S.Stmt, ...] | None]


def _without(kind: type[S.Stmt], **fields: object) -> Rewrite:
    """Statements of a kind, with these fields, do nothing."""

    def rewrite(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
        wanted = isinstance(stmt, kind)
        return () if wanted and all(getattr(stmt, n) == v for n, v in fields.items()) else None

    return rewrite


def _as_neighbour(kind: type[S.Stmt], op: str, neighbour: str) -> Rewrite:
    def rewrite(stmt: S.Stmt) -> S.Stmt | None:
        wanted = isinstance(stmt, kind) and stmt.op == op  # type: ignore[attr-defined]
        return replace(stmt, op=neighbour) if wanted else None  # type: ignore[call-arg]

    return rewrite


def _uncopied(source: Scope, target: Scope) -> Rewrite:
    def rewrite(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
        if not isinstance(stmt, S.Copy):
            return None
        ways = (stmt.src.buffer.scope, stmt.dst.buffer.scope)
        return () if ways == (source, target) else None

    return rewrite


def _unfilled(scope: Scope) -> Rewrite:
    def rewrite(stmt: S.Stmt) -> S.Stmt | None:
        if isinstance(stmt, S.Fill) and stmt.dst.buffer.scope is scope:
            return replace(stmt, value=E.const(1, stmt.dst.dtype))
        return None

    return rewrite


def _unstored(scope: Scope) -> Rewrite:
    def rewrite(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
        return () if isinstance(stmt, S.Store) and stmt.buffer.scope is scope else None

    return rewrite


def _short_loop(kind: S.LoopKind) -> Rewrite:
    """The last round is missing."""

    def rewrite(stmt: S.Stmt) -> S.Stmt | None:
        if isinstance(stmt, S.For) and stmt.kind is kind:
            one = E.const(1, E.dtype_of_expr(stmt.extent))
            return replace(stmt, extent=E.binary("sub", stmt.extent, one))
        return None

    return rewrite


def _short_nest(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.Parallel):
        *others, last = stmt.extents
        one = E.const(1, E.dtype_of_expr(last))
        return replace(stmt, extents=(*others, E.binary("sub", last, one)))
    return None


def _one_round(stmt: S.Stmt) -> S.Stmt | None:
    return S.If(stmt.condition, stmt.body) if isinstance(stmt, S.While) else None


def _one_branch(name: str) -> Rewrite:
    """The condition is taken to hold (or not to), where both branches say something."""

    def rewrite(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
        return getattr(stmt, name) if isinstance(stmt, S.If) and stmt.otherwise else None

    return rewrite


def _always(stmt: S.Stmt) -> S.Stmt | None:
    return replace(stmt, condition=E.TRUE) if isinstance(stmt, S.If) else None


def _own_storage(stmt: S.Stmt) -> S.Stmt | None:
    """A view is memory of its own."""
    return S.Allocate(stmt.buffer) if isinstance(stmt, S.Alias) else None


def _from_one_more(stmt: S.Stmt) -> S.Stmt | None:
    """A variable begins with another value than the author said."""
    if isinstance(stmt, S.Allocate) and stmt.init is not None:
        one = E.const(1, stmt.buffer.dtype)
        return replace(stmt, init=E.binary("add", stmt.init, one))
    return None


def _twice_too_early(stmt: S.Stmt) -> S.Stmt | None:
    """A name is computed with what a loop's counter was in its first round."""
    if not isinstance(stmt, S.For):
        return None
    first = {stmt.var: stmt.start}
    body = tuple(
        replace(one, value=E.substitute(one.value, first)) if isinstance(one, S.Let) else one
        for one in stmt.body
    )
    return replace(stmt, body=body)


STATEMENTS: dict[str, tuple[str, Rewrite]] = {
    "Store.global": ("elementwise/scalars*", _unstored(Scope.GLOBAL)),
    "Store.shared": ("lanes/lane_reverse*", _unstored(Scope.SHARED)),
    "Store.fragment": ("elementwise/unary*", _unstored(Scope.FRAGMENT)),
    "Store.local": ("control_flow/local_array*", _unstored(Scope.LOCAL)),
    "Fill.global": ("fill/fill_places*", _unfilled(Scope.GLOBAL)),
    "Fill.shared": ("fill/fill_tile*shared*", _unfilled(Scope.SHARED)),
    "Fill.fragment": ("reduce/reduce_tile*clear.False*", _unfilled(Scope.FRAGMENT)),
    "Copy.global.global": ("copy/copy_route*route.-*", _uncopied(Scope.GLOBAL, Scope.GLOBAL)),
    "Copy.global.shared": ("copy/copy_route*route.s-*", _uncopied(Scope.GLOBAL, Scope.SHARED)),
    "Copy.global.fragment": ("copy/copy_route*route.f-*", _uncopied(Scope.GLOBAL, Scope.FRAGMENT)),
    "Copy.shared.global": ("copy/copy_route*route.s-*", _uncopied(Scope.SHARED, Scope.GLOBAL)),
    "Copy.shared.shared": ("copy/copy_route*route.ss-*", _uncopied(Scope.SHARED, Scope.SHARED)),
    "Copy.shared.fragment": ("copy/copy_route*route.sf-*", _uncopied(Scope.SHARED, Scope.FRAGMENT)),
    "Copy.fragment.global": ("copy/copy_route*route.f-*", _uncopied(Scope.FRAGMENT, Scope.GLOBAL)),
    "Copy.fragment.shared": ("copy/copy_route*route.fs-*", _uncopied(Scope.FRAGMENT, Scope.SHARED)),
    "Copy.fragment.fragment": (
        "copy/copy_route*route.ff-*", _uncopied(Scope.FRAGMENT, Scope.FRAGMENT)
    ),
    "Gemm": ("gemm/gemm_tiled*", _without(S.Gemm)),
    "Parallel": ("elementwise/unary*", _short_nest),
    "For.serial": ("control_flow/triangular*serial*", _short_loop(S.LoopKind.SERIAL)),
    "For.unroll": ("control_flow/unrolled*unroll*", _short_loop(S.LoopKind.UNROLL)),
    "For.vectorized": ("control_flow/unrolled*vectorized*", _short_loop(S.LoopKind.VECTORIZED)),
    "For.pipelined": ("pipeline/*", _short_loop(S.LoopKind.PIPELINED)),
    "While": ("control_flow/while_collatz*", _one_round),
    "If.then": ("control_flow/branches*", _one_branch("then")),
    "If.otherwise": ("control_flow/branches*", _one_branch("otherwise")),
    "If": ("control_flow/branches*", _always),
    "Break": ("control_flow/break_continue*", _without(S.Break)),
    "Continue": ("control_flow/break_continue*", _without(S.Continue)),
    "Alias": ("views/reshaped*", _own_storage),
    "Allocate": ("control_flow/break_continue*", _from_one_more),
    "Let": ("decode/flash_decode*", _twice_too_early),
    "WarpScope": ("warps/warp_roles*", _without(S.WarpScope)),
    "Intrinsic.async.copy": ("copy/copy_in_groups*", _without(S.Intrinsic, op="async.copy")),
    **{
        f"Reduce.{op}": (f"reduce/*op.{op}*", _as_neighbour(S.Reduce, op, neighbour))
        for op, neighbour in (
            ("sum", "max"), ("max", "min"), ("min", "max"), ("abssum", "sum"), ("absmax", "max"),
            ("bitand", "bitor"), ("bitor", "bitxor"), ("bitxor", "bitor"), ("any", "all"),
            ("all", "any"),
        )
    },
    "Scan.sum": ("scan/*op.sum*", _as_neighbour(S.Scan, "sum", "max")),
    "Scan.max": ("scan/*op.max*", _as_neighbour(S.Scan, "max", "sum")),
}  # fmt: skip
"""What is wrong with a kind of statement, and the cases that must see it."""

ELSEWHERE = {
    "Intrinsic.tile.windows": "a nest before any backend sees it",
    # Lanes of these backends run together.
    **{f"Intrinsic.{op}": "test_synchronisation.py" for op in ("sync_block", *ORDERING)},
    "Intrinsic.memory.attach": "an address of this process: tests/language/test_pointers.py",
    "Assert": "it stops the kernel: tests/reference/test_faults.py, tests/emulator/test_faults.py",
    "Print": "no result depends on it: tests/language, backends/*/tests",
    "Atomic": "see ATOMICS",
}
"""Kinds of statement without a row in `STATEMENTS`, and where they are tested."""


# --- atomics -------------------------------------------------------------------------------------


def _point(stmt: S.Atomic) -> E.Load:
    return E.Load(stmt.dst.buffer, stmt.dst.starts)


def _lost_atomic(op: str, scope: Scope, form: str) -> Rewrite:
    """Memory stays as it is; an old value that is asked for is right."""

    def rewrite(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
        if not isinstance(stmt, S.Atomic) or stmt.op != op or stmt.dst.buffer.scope is not scope:
            return None
        if form == "previous" and stmt.previous is not None:
            return (S.Let(stmt.previous, _point(stmt)),)
        is_tile = not isinstance(stmt.value, E.Expr)
        return () if form == ("tiles" if is_tile else "elements") else None

    return rewrite


def _new_for_old(op: str) -> Rewrite:
    """What the operation has left is given as what it found."""

    def rewrite(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
        if not isinstance(stmt, S.Atomic) or stmt.op != op or stmt.previous is None:
            return None
        return (replace(stmt, previous=None), S.Let(stmt.previous, _point(stmt)))

    return rewrite


def _nothing_loaded(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.Atomic) and stmt.op == "load" and stmt.previous is not None:
        return S.Let(stmt.previous, E.const(0, stmt.previous.dtype))
    return None


def _no_effect(stmt: S.Stmt) -> tuple[S.Stmt, ...] | None:
    """Atomics change nothing."""
    if not isinstance(stmt, S.Atomic):
        return None
    return () if stmt.previous is None else (S.Let(stmt.previous, _point(stmt)),)


UPDATES = ("add", "sub", "max", "min", "and", "or", "xor")
_PLACES = {Scope.GLOBAL: "global", Scope.SHARED: "shared"}
_NUMBER = "elements"  # one number into each element of a tile is a nest of elements
ATOMICS: dict[str, tuple[str, Rewrite]] = {
    **{
        f"{op}.{form}.{place}": (
            f"atomics/atomic_{form}*op.{op}-*place.{place}*", _lost_atomic(op, scope, form)
        )
        for op in UPDATES
        for scope, place in _PLACES.items()
        for form in ("elements", "previous", "tiles")
    },
    **{
        f"{op}.number.{place}": (
            f"atomics/atomic_tiles*op.{op}-*place.{place}*", _lost_atomic(op, scope, _NUMBER)
        )
        for op in UPDATES
        for scope, place in _PLACES.items()
    },
    **{
        f"exchange.previous.{place}": (
            f"atomics/atomic_previous*op.exchange-*place.{place}*",
            _lost_atomic("exchange", scope, "previous"),
        )
        for scope, place in _PLACES.items()
    },
    **{
        f"store.elements.{place}": (
            f"atomics/atomic_mailboxes*place.{place}*", _lost_atomic("store", scope, "elements")
        )
        for scope, place in _PLACES.items()
    },
    **{
        f"{op}.old": (f"atomics/atomic_previous*op.{op}-*", _new_for_old(op))
        for op in (*UPDATES, "exchange")
    },
    "load": ("atomics/atomic_mailboxes*", _nothing_loaded),
}  # fmt: skip
"""``operation.form.memory``: what is wrong with it, and the cases that must see it."""

NO_ATOMICS = Fault("no_atomics", "atomics/*", _no_effect)
"""Every case of the area must see it."""


# --- expressions ---------------------------------------------------------------------------------


def _reads(node: E.Expr) -> bool:
    return any(isinstance(one, E.Load) for one in E.mentioned(node))


def _of_data(kind: type[E.Expr], op: str, change: Callable[..., E.Expr]) -> Rewrite:
    """Changes an operation where it works on data; that on indices alone stays."""

    def inside(node: E.Expr) -> E.Expr | None:
        wanted = isinstance(node, kind) and getattr(node, "op", op) == op
        everywhere = kind is E.Call or op in (*E.LOGICAL, "not")
        return change(node) if wanted and (everywhere or _reads(node)) else None

    return lambda stmt: map_exprs(stmt, inside)


def _to_op(op: str) -> Callable[..., E.Expr]:
    return lambda node: replace(node, op=op)


def _swapped(node: E.Select) -> E.Expr:
    return replace(node, a=node.b, b=node.a)


def _through_int(node: E.Cast) -> E.Expr:
    """Casts go through int32: fractions are lost."""
    return replace(node, a=E.Cast(node.a, int32))


def _by_value(node: E.Bitcast) -> E.Expr:
    return E.Cast(node.a, node.dtype)


def _first(node: E.Call) -> E.Expr:
    return node.args[0]


def _constant(node: E.Expr) -> E.Expr:
    return E.const(0, E.dtype_of_expr(node))


BINARY = {
    "add": "sub", "sub": "add", "mul": "add", "div": "mul", "floordiv": "max", "floormod": "min",
    "min": "max", "max": "min", "pow": "mul", "bitand": "bitor", "bitor": "bitxor",
    "bitxor": "bitor", "shl": "shr", "shr": "shl", "eq": "le", "ne": "lt", "lt": "le", "le": "lt",
    "gt": "ge", "ge": "gt", "and": "or", "or": "and",
}  # fmt: skip
"""What is done instead."""
_BINARY_CASES = {
    **{op: f"elementwise/binary*op.{op}" for op in ("pow", "atan2", "fmod")},
    **{op: f"elementwise/logic*op.{op}-*" for op in E.LOGICAL},
    **{op: f"elementwise/comparison*op.{op}-*" for op in E.COMPARISON},
}  # fmt: skip
MATH = {
    "exp": "exp2", "exp2": "exp", "exp10": "exp", "log": "log2", "log2": "log", "log10": "log",
    "log1p": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "rcp": "sqrt", "sin": "cos", "cos": "sin",
    "tan": "tanh", "tanh": "tan", "sigmoid": "tanh", "erf": "tanh", "abs": "", "floor": "trunc",
    "ceil": "floor", "round": "floor", "trunc": "round", "isnan": "isinf", "isinf": "isnan",
    "isfinite": "isinf", "fma": "", "atan2": "", "fmod": "", "popcount": "clz", "clz": "popcount",
}  # fmt: skip
"""What is computed instead; "" is the first argument."""
_MATH_CASES = {
    "fma": "constructs/directed_rounding*fmaf*",
    **{op: f"elementwise/binary*op.{op}" for op in ("atan2", "fmod")},
    **{op: f"elementwise/integer*op.{op}-*" for op in ("popcount", "clz")},
    **dict.fromkeys(("isnan", "isinf", "isfinite"), "special/predicates*"),
}  # fmt: skip
UNARY = {"neg": "elementwise/integer*op.neg-*", "bitnot": "elementwise/integer*op.invert-*",
         "not": "elementwise/logic*op.not-*"}  # fmt: skip
EXCHANGES = {
    "warp.shuffle": "warps/shuffles*op.sync*", "warp.shuffle_xor": "warps/shuffles*op.xor*",
    "warp.shuffle_up": "warps/shuffles*op.up*", "warp.shuffle_down": "warps/shuffles*op.down*",
}  # fmt: skip

EXPRESSIONS: dict[str, tuple[str, Rewrite]] = {
    **{
        f"Binary.{op}": (
            _BINARY_CASES.get(op, f"elementwise/binary*op.{op}-*"),
            _of_data(E.Binary, op, _to_op(other)),
        )
        for op, other in BINARY.items()
    },
    **{
        f"Unary.{op}": (pattern, _of_data(E.Unary, op, lambda node: node.a))
        for op, pattern in UNARY.items()
    },
    **{
        f"Call.{op}": (
            _MATH_CASES.get(op, f"elementwise/unary*op.{op}-*"),
            _of_data(E.Call, op, _to_op(other) if other else _first),
        )
        for op, other in MATH.items()
    },
    **{f"Call.{op}": (pattern, _of_data(E.Call, op, _first)) for op, pattern in EXCHANGES.items()},
    "Call.warp.ballot": ("warps/votes*", _of_data(E.Call, "warp.ballot", _constant)),
    "Cast": ("casts/cast*source.float32*", _of_data(E.Cast, "", _through_int)),
    "Bitcast": ("casts/bitcast*", _of_data(E.Bitcast, "", _by_value)),
    "Select": ("elementwise/comparison*", _of_data(E.Select, "", _swapped)),
}
"""What is wrong with an operation on data, and the cases that must see it."""

OPERATIONS = tuple(
    Fault(f"{group}_{name.replace('.', '_').lower()}", pattern, rewrite)
    for group, table in (
        ("statement", STATEMENTS), ("atomic", ATOMICS), ("expression", EXPRESSIONS)
    )
    for name, (pattern, rewrite) in table.items()
)  # fmt: skip


def register_all() -> None:
    """Make every fake known to this process."""
    for fault in (*OPERATIONS, NO_ATOMICS):
        backend = FakeBackend(fault)
        register_backend(backend.name, backend)


register_all()
