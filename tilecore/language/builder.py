"""The program under construction: nested blocks, names, and the kernel that is open.

Everything that the vocabulary does ends in `Builder.emit`. The rewritten author's code runs while
a builder is current (a context variable, so several threads may trace at once).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Load, Var, mentioned, reads_memory
from tilecore.ir.layout import FragmentLayout, Layout
from tilecore.ir.program import BlockOrder, Kernel, Param
from tilecore.ir.stmts import Allocate, Block, Let, Stmt, Store
from tilecore.ir.visit import bound_vars, exprs_of, regions_of
from tilecore.language.locate import caller_loc, fail
from tilecore.language.named_parts import name_parts
from tilecore.language.operators import dtype_of, is_trivial, to_dtype
from tilecore.language.reserved import RESERVED
from tilecore.language.values import Scalar

_CURRENT: ContextVar[Builder | None] = ContextVar("tilecore_builder", default=None)


@dataclass
class Frame:
    """A block that is being filled.

    Attributes:
        kind: kernel, for, parallel, while, then, else, warps: what owns the block.
        stmts: statements so far.
        names: variables and buffers that live until the block closes.
        loc: the author's line that opened it.
        vars: variables of a parallel block.
        extents: their extents.
        after: what to do when the block's statement has been emitted.
    """

    kind: str
    stmts: list[Stmt] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    loc: Loc | None = None
    vars: tuple[Var, ...] = ()
    extents: tuple[Expr, ...] = ()
    after: list[Callable[[], None]] = field(default_factory=list)


@dataclass
class KernelState:
    """What T.Kernel and the annotations inside it say."""

    name: str
    grid_vars: tuple[Var, ...]
    grid: tuple[Expr, ...]
    thread_dims: tuple[int, ...]
    loc: Loc | None
    layouts: dict[str, Layout | FragmentLayout] = field(default_factory=dict)
    block_order: BlockOrder | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    hints: dict[str, int | float | str | bool] = field(default_factory=dict)


class Builder:
    """State of one trace; see the module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.params: list[Param] = []
        self.workspaces: list[Buffer] = []
        self.kernels: list[Kernel] = []
        self.host_asserts: list[Stmt] = []
        self.attachments: list[Stmt] = []  # of tensors that every kernel of the program finds
        self.kernel: KernelState | None = None
        self.frames: list[Frame] = []
        self.loops: list[Any] = []  # control.Loop and control.WhileLoop, innermost last
        self.hints: list[str] = []  # names that the author is about to bind, first one next
        self.assigned_at: dict[str, Loc | None] = {}
        self.safe_values: dict[str, float | int] = {}
        self.lane_reducer: Any = None  # lane_reduce.Reducer that T.attr names
        self.reducers: dict[str, str] = {}  # reducer's name -> how it combines
        self.function_depths: list[int] = []  # open blocks at the entry of each inlined function
        self.outputs: list[str] = []  # T.empty buffers, in order of creation
        self.eager: Any = None  # eager.EagerCall while an eager function is traced
        self.let_values: dict[str, Expr] = {}  # integer names, for proofs about extents
        self._taken: dict[str, int] = {}
        self._host_names: set[str] = set()

    # --- names ---------------------------------------------------------------------------------

    def unique(self, wanted: str) -> str:
        """A program-wide unique name that looks like `wanted`."""
        base = re.sub(r"\W", "_", wanted) or "v"
        if base in RESERVED:
            self._taken.setdefault(base, 0)
        if base not in self._taken:
            self._taken[base] = 0
            return base
        while True:
            self._taken[base] += 1
            name = f"{base}_{self._taken[base]}"
            if name not in self._taken:
                self._taken[name] = 0
                return name

    def take_hint(self, fallback: str) -> str:
        """The name that the author is binding, or `fallback`."""
        return self.hints.pop(0) if self.hints else fallback

    def declare_host(self, *names: str) -> None:
        """Names that live for the whole program: parameters, sizes, workspaces."""
        self._host_names.update(names)

    def is_alive(self, name: str) -> bool:
        """True while a variable or buffer may be used."""
        return name in self._host_names or any(name in frame.names for frame in self.frames)

    # --- blocks --------------------------------------------------------------------------------

    @property
    def in_kernel(self) -> bool:
        """True inside ``with T.Kernel``."""
        return self.kernel is not None

    def require_kernel(self, what: str) -> KernelState:
        """The open kernel.

        Raises:
            LanguageError: there is none.
        """
        if self.kernel is None:
            fail(f"{what} outside of a kernel", expected="a place inside `with T.Kernel(...)`")
        return self.kernel

    def push(self, kind: str, names: Iterable[str] = ()) -> Frame:
        """Open a block."""
        frame = Frame(kind, names=set(names), loc=caller_loc())
        self.frames.append(frame)
        return frame

    def pop(self, frame: Frame) -> Block:
        """Close a block (the innermost one) and return its statements."""
        closed = self.frames.pop()
        if closed is not frame:
            fail(f"a {frame.kind} block was closed out of order", got=closed.kind)
        return tuple(closed.stmts)

    def inside(self, *kinds: str) -> bool:
        """True when an enclosing block is one of `kinds`."""
        return any(frame.kind in kinds for frame in self.frames)

    def emit(self, stmt: Stmt, *, declares: Iterable[str] = ()) -> Stmt:
        """Append a statement to the innermost block, and give it back as it stands there.

        Where its expressions are too large, parts of them get names in front of it.

        Raises:
            LanguageError: outside a kernel, or it uses a name whose block has ended.
        """
        self.require_kernel("a statement")
        stmt = name_parts(stmt, self._part)
        self._check_alive(stmt)
        frame = self.frames[-1]
        frame.stmts.append(stmt)
        frame.names.update(declares)
        return stmt

    def _part(self, expr: Expr) -> Var:
        """A name for a part of a large expression."""
        var = Var(self.unique("part"), dtype_of(expr))
        self.emit(Let(var, expr, caller_loc()), declares=(var.name,))
        return var

    def _check_alive(self, stmt: Stmt) -> None:
        for region in regions_of(stmt):
            self.check_buffer(region.buffer)
        buffer = getattr(stmt, "buffer", None)
        if isinstance(stmt, Store) and buffer is not None:
            self.check_buffer(buffer)
        binders = binders_of(stmt)
        for expr in exprs_of(stmt):
            self.check_expr(expr, binders=binders)

    def check_expr(self, expr: Expr, binders: frozenset[str] = frozenset()) -> None:
        """Refuse expressions over names whose block has ended."""
        for node in mentioned(expr):
            if isinstance(node, Var) and node.name not in binders and not self.is_alive(node.name):
                self._dead("value", node.name)
            elif isinstance(node, Load):
                self.check_buffer(node.buffer)

    def check_buffer(self, buffer: Buffer) -> None:
        """Refuse buffers whose block has ended."""
        if not self.is_alive(buffer.name):
            self._dead(f"{buffer.scope} buffer", buffer.name)

    def _dead(self, kind: str, name: str) -> None:
        fail(
            f"{kind} {name} is used where it does not exist",
            expected="a use inside the block (kernel, loop, branch) that made it",
            hint="allocate it outside the block, or keep the value in a T.alloc_var",
        )

    # --- the common statements -----------------------------------------------------------------

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Any) -> None:
        """Write one element, converted to the buffer's dtype."""
        expr = to_dtype(value, buffer.dtype, f"value stored to {buffer.name}")
        self.emit(Store(buffer, indices, expr, caller_loc()))

    def allocate(self, scope: Scope, shape: tuple[Expr, ...], dtype: DType, name: str) -> Buffer:
        """Storage that lives until the innermost block ends, under a free name made of `name`."""
        buffer = Buffer(self.unique(name), shape, dtype, scope, loc=caller_loc())
        self.emit(Allocate(buffer, None, caller_loc()), declares=(buffer.name,))
        return buffer

    def bind(self, name: str, expr: Expr) -> Scalar:
        """Give an expression a name: a `Let`, unless it is a variable, a constant, or host code."""
        if is_trivial(expr) or not self.in_kernel:
            return Scalar(expr)
        var = Var(self.unique(name), dtype_of(expr))
        let = self.emit(Let(var, expr, caller_loc()), declares=(var.name,))
        assert isinstance(let, Let)
        if var.dtype.is_int and not reads_memory(let.value):
            self.let_values[var.name] = let.value
        return Scalar(var)


def binders_of(stmt: Stmt) -> frozenset[str]:
    """Names that a statement itself brings into being."""
    return frozenset(var.name for var in bound_vars(stmt))


def current() -> Builder:
    """The builder of the trace that is running.

    Raises:
        LanguageError: no program is being traced.
    """
    builder = _CURRENT.get()
    if builder is None:
        fail(
            "a tile operation outside of a program",
            expected="a call from a T.prim_func, T.macro or tilecore.jit function",
        )
    return builder


def current_or_none() -> Builder | None:
    """The builder of the running trace, or None."""
    return _CURRENT.get()


@contextmanager
def tracing(builder: Builder) -> Generator[Builder]:
    """Make `builder` current."""
    token = _CURRENT.set(builder)
    try:
        yield builder
    finally:
        _CURRENT.reset(token)
