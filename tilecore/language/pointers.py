"""Tensors at addresses: T.ptr, and T.make_tensor of a parameter or of an element of a table."""

from __future__ import annotations

from typing import Any, NoReturn

from tilecore.errors import Loc
from tilecore.ir.attached import ATTACH
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int64
from tilecore.ir.expr import Expr, Var, binary, const, reads_memory
from tilecore.ir.stmts import Assert, Intrinsic, Stmt
from tilecore.language import operators as ops
from tilecore.language.builder import current
from tilecore.language.dtypes import dtype as make_dtype
from tilecore.language.eager import PointerArgument
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.operators import as_index
from tilecore.language.types import StridedTensor, Tensor, shape_exprs
from tilecore.language.values import BufferValue

ALIGNMENT_BYTES = 16
"""What the widest access of a lane needs."""


def make_tensor(source: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> Any:
    """The tensor that begins at an address: of a T.ptr parameter, or an element of a T.ptr table.

    Accesses are guarded by `shape`, as everywhere; that so much memory is there is the caller's
    promise. An address is a multiple of 16 bytes, which is checked when the kernel runs. Tensors at
    addresses do not overlap what the kernel writes.

    Args:
        source: the address: a parameter of type T.ptr, or an element of a tensor of T.ptr (int64).
        shape: extents, constants or sizes known at the call.
        dtype: element type, of a byte or more.
        strides: element strides; None is row-major and compact.

    Raises:
        LanguageError: no address, or inside T.Parallel.
    """
    builder = current()
    if isinstance(source, PointerArgument):
        typed = Tensor(shape, dtype) if strides is None else StridedTensor(shape, strides, dtype)
        return builder.eager.declare(source.name, typed)
    if builder.inside("parallel"):
        fail("T.make_tensor inside T.Parallel", expected="a place that all lanes reach")
    kind = make_dtype(dtype).ir
    if kind.bits < 8:
        refuse(f"T.make_tensor of {kind}", "elements share bytes; pass the bytes as uint8")
    address = _address(source)
    loc = caller_loc()
    name = builder.unique(builder.take_hint("attached"))
    extents = shape_exprs(shape, "T.make_tensor")
    if any(reads_memory(extent) for extent in extents):
        fail(
            "an extent of T.make_tensor is not known at the call",
            expected="constants, T.dynamic sizes and scalar parameters",
            got="a value that the kernel loads",
            hint="give the largest extent, and guard what is beyond with a condition",
        )
    steps = None
    if strides is not None:
        steps = tuple(as_index(stride, "stride") for stride in strides)
        if len(steps) != len(extents):
            fail("T.make_tensor needs a stride per axis", expected=len(extents), got=len(steps))
    buffer = Buffer(name, extents, kind, Scope.GLOBAL, steps, loc=loc)
    builder.workspaces.append(buffer)
    stmts = _attach(buffer, address, loc)
    if builder.kernel is None:
        builder.declare_host(name)
        builder.attachments.extend(stmts)
    else:
        builder.frames[-1].names.add(name)
        for stmt in stmts:
            builder.emit(stmt)
    return BufferValue(buffer)


def _attach(buffer: Buffer, address: Expr, loc: Loc | None) -> tuple[Stmt, ...]:
    zero, step = const(0, int64), const(ALIGNMENT_BYTES, int64)
    fits = binary(
        "and",
        binary("ne", address, zero),
        binary("eq", binary("floormod", address, step), zero),
    )
    starts = tuple(const(0, ops.dtype_of(extent)) for extent in buffer.shape)
    whole = Region(buffer, starts, buffer.shape)
    message = f"the address of {buffer.name} is 0 or no multiple of {ALIGNMENT_BYTES} bytes"
    return Assert(fits, message, loc), Intrinsic(ATTACH, (whole, address), loc=loc)


def _address(source: Any) -> Expr:
    source = ops.plain(source)
    if not hasattr(source, "to_expr"):
        _no_address(source)
    expr = ops.as_expr(source)
    if ops.dtype_of(expr) != int64:
        _no_address(source)
    if isinstance(expr, Var):
        return expr
    return current().bind("address", expr).expr


def _no_address(source: Any) -> NoReturn:
    fail(
        "T.make_tensor takes an address",
        expected="a T.ptr parameter, or one element of a tensor of T.ptr",
        got=ops.describe(source),
    )


__all__ = ["make_tensor"]
