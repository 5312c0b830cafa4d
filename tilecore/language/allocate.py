"""Allocation of shared, fragment, local and global buffers, of variables and of barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32, uint64
from tilecore.ir.expr import Const, Expr, const
from tilecore.ir.stmts import Allocate, Intrinsic
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.dtypes import dtype as make_dtype
from tilecore.language.locate import caller_loc, fail
from tilecore.language.types import shape_exprs
from tilecore.language.values import BufferValue, Cell

_SCOPES = {
    Scope.SHARED: ("shared", "shared.dyn"),
    Scope.FRAGMENT: ("local.fragment", "fragment"),
    Scope.LOCAL: ("local", "local.var"),
    Scope.GLOBAL: ("global",),
}


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> BufferValue:
    """A tile that all lanes of the block see."""
    return _allocate("T.alloc_shared", shape, dtype, scope)


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> BufferValue:
    """A tile spread over the registers of the block's lanes; the compiler chooses how."""
    return _allocate("T.alloc_fragment", shape, dtype, scope)


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> BufferValue:
    """A private array: per lane inside T.Parallel, one for the block outside."""
    return _allocate("T.alloc_local", shape, dtype, scope)


def _allocate(what: str, shape: Any, dtype: Any, scope_name: str) -> BufferValue:
    builder = current()
    builder.require_kernel(what)
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        fail(
            f"the shape of {what} is one argument",
            expected=f"{what}((m, n), dtype)",
            got=f"{what}({ops.describe(shape)}, {dtype}, ...)",
        )
    scope = _named_scope(what, scope_name)
    if builder.inside("parallel") and scope is not Scope.LOCAL:
        fail(f"{what} inside T.Parallel", expected="T.alloc_local or T.alloc_var")
    extents = shape_exprs(shape, what)
    for axis, extent in enumerate(extents):
        if not isinstance(extent, Const):
            fail(
                f"extent {axis} of {what} is not constant",
                expected="a constant: on-chip storage is planned by the compiler",
                got="a runtime value",
            )
    name = builder.take_hint(f"{scope}_buffer")
    return BufferValue(builder.allocate(scope, extents, make_dtype(dtype).ir, name))


def _named_scope(what: str, name: str) -> Scope:
    """The memory that a scope's name means; it wins over the function's own."""
    on_chip = {text: scope for scope, names in _SCOPES.items() for text in names}
    del on_chip["global"]
    if name not in on_chip:
        fail(f"{what} scope", expected=", ".join(on_chip), got=name)
    return on_chip[name]


def alloc_var(dtype: Any, *args: Any, init: Any = None, scope: str = "local.var") -> Cell:
    """A variable: ``x = T.alloc_var(T.int32, init=0)``, then ``x = x + 1`` stores.

    Args:
        dtype: element type.
        args: the initial value, if it is not given by name; a scope name is accepted too.
        init: the initial value, 0 where it is left out.
        scope: always ``"local.var"``.
    """
    for value in args:
        if isinstance(value, str):
            scope = value
        elif init is None:
            init = value
        else:
            fail("T.alloc_var takes one initial value", got=args)
    builder = current()
    builder.require_kernel("T.alloc_var")
    if scope not in _SCOPES[Scope.LOCAL]:
        fail("T.alloc_var scope", expected="local.var", got=scope)
    kind = make_dtype(dtype).ir
    name = builder.unique(builder.take_hint("var"))
    buffer = Buffer(name, (), kind, Scope.LOCAL, loc=caller_loc())
    value = ops.to_dtype(0 if init is None else init, kind, "initial value")
    builder.emit(Allocate(buffer, value, caller_loc()), declares=(name,))
    return Cell(buffer, fresh=True)


def let(var: Any, value: Any) -> None:
    """Set a variable: ``n = T.int32(); T.let(n, e)`` is ``n = T.alloc_var("int32", init=e)``."""
    if not isinstance(var, Cell):
        fail(
            "T.let sets a variable", expected="T.alloc_var(...) or T.int32()", got=ops.describe(var)
        )
    var.store(value)


def alloc_global(shape: Any, dtype: Any, scope: str = "global") -> BufferValue:
    """A workspace in device memory that lives during the call; contents are undefined."""
    builder = current()
    if scope not in _SCOPES[Scope.GLOBAL]:
        fail("T.alloc_global scope", expected="global", got=scope)
    name = builder.unique(builder.take_hint("workspace"))
    extents = shape_exprs(shape, "T.alloc_global")
    buffer = Buffer(name, extents, make_dtype(dtype).ir, Scope.GLOBAL, loc=caller_loc())
    builder.workspaces.append(buffer)
    builder.declare_host(name)
    return BufferValue(buffer)


def empty(*shape: Any, dtype: Any = None) -> BufferValue:
    """An output tensor of an eager function: allocated by the call, and returned.

    ``T.empty((m, n), dtype)`` or ``T.empty(m, n, dtype=dtype)``; float32 where no dtype is given.
    """
    builder = current()
    if dtype is None and len(shape) > 1 and isinstance(shape[-1], str | type):
        shape, dtype = shape[:-1], shape[-1]
    extent = shape[0] if len(shape) == 1 else shape
    kind = make_dtype("float32" if dtype is None else dtype).ir
    if builder.eager is None:
        fail(
            "T.empty outside of an eager function",
            expected="a tilecore.jit function that takes tensors",
            hint="in a T.prim_func, name the output as a parameter and use out_idx=",
        )
    name = builder.unique(builder.take_hint("output"))
    extents = shape_exprs(extent, "T.empty")
    buffer = Buffer(name, extents, kind, Scope.GLOBAL, loc=caller_loc())
    builder.params.append(buffer)
    builder.outputs.append(name)
    builder.declare_host(name)
    return BufferValue(buffer)


def alloc_buffer(shape: Any, dtype: Any = "float32", scope: str = "global") -> BufferValue:
    """A buffer in the memory that `scope` names; see the allocations above."""
    if scope in _SCOPES[Scope.GLOBAL]:
        return alloc_global(shape, dtype)
    return _allocate("T.alloc_buffer", shape, dtype, scope)


def alloc_barrier(arrive_count: int | Sequence[int]) -> BufferValue:
    """Transaction barriers in shared memory, one per count, initialised.

    Args:
        arrive_count: arrivals that complete a phase; a list makes several barriers.
    """
    builder = current()
    builder.require_kernel("T.alloc_barrier")
    if builder.inside("parallel"):
        fail("T.alloc_barrier inside T.Parallel", expected="an allocation before the loop")
    counts = [arrive_count] if isinstance(arrive_count, int) else list(arrive_count)
    counts = [ops.static_int(count, "arrive_count") for count in counts]
    shape: tuple[Expr, ...] = (const(len(counts), int32),)
    buffer = builder.allocate(Scope.SHARED, shape, uint64, builder.take_hint("barrier"))
    for k, count in enumerate(counts):
        element = Region(buffer, (const(k, int32),), (None,))
        args = (element, const(count, int32))
        builder.emit(Intrinsic("barrier.init", args, (), caller_loc()))
    return BufferValue(buffer, barrier=True)
