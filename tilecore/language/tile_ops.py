"""Tile operations: copy, fill, gemm, transpose, views."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Const, Expr, Load, Var
from tilecore.ir.stmts import Alias, Copy, Fill, Gemm, Parallel, Store, WarpPolicy
from tilecore.language import operators as ops
from tilecore.language.builder import Builder, current
from tilecore.language.dtypes import dtype as make_dtype
from tilecore.language.indexing import element_of
from tilecore.language.linear import is_equal
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.loops import make_hints
from tilecore.language.private_ops import local_copy, local_fill, local_gemm
from tilecore.language.ragged_copies import copy_open, has_open_axis
from tilecore.language.regions import (
    head_region,
    is_head,
    match_shapes,
    normalise,
    region_of,
    require_scope,
)
from tilecore.language.types import shape_exprs
from tilecore.language.values import BufferValue, Cell, RegionValue, Scalar, shape_text


class GemmWarpPolicy(enum.IntEnum):
    """How a gemm's output is divided among the block's warps."""

    Square = 0
    FullRow = 1
    FullCol = 2


_POLICIES = {
    GemmWarpPolicy.Square: WarpPolicy.SQUARE,
    GemmWarpPolicy.FullRow: WarpPolicy.FULL_ROW,
    GemmWarpPolicy.FullCol: WarpPolicy.FULL_COL,
}


def tile_builder(what: str) -> Builder:
    """The builder, at a place where a tile operation may stand.

    Raises:
        LanguageError: inside T.Parallel, or outside a kernel.
    """
    builder = current()
    builder.require_kernel(what)
    if builder.inside("parallel"):
        fail(
            f"{what} inside T.Parallel",
            expected="elementwise stores only",
            hint="tile operations use all lanes by themselves; put it outside the loop",
        )
    return builder


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """``dst = cast(src)`` elementwise, between any two scopes.

    Args:
        src: a buffer, a slice, or the head element ``A[i, j]`` whose extent `dst` gives. Of a slice
            whose length only the call tells, the other side's constant extent is walked.
        dst: the same; reads outside `src` give its safe value, writes outside `dst` are dropped.
        coalesced_width: advice: elements of one access.
        disable_tma: advice: no bulk transfer unit.
        eviction_policy: advice to the caches.
        prefer_instruction: advice: how to copy.
        annotations: further advice.
        loop_layout: not supported; the layout follows from the fragments.
    """
    if loop_layout is not None:
        refuse("T.copy(loop_layout=...)", "the layout of a copy follows from the buffers")
    if is_head(src) and is_head(dst):
        _copy_element(src, dst)
        return
    builder = tile_builder("T.copy")
    source, target = copy_regions(src, dst, "T.copy", is_open=True)
    is_private = Scope.LOCAL in (source.buffer.scope, target.buffer.scope)
    if has_open_axis(source, target):
        if is_private:
            match_shapes(source, target, "T.copy")
        copy_open(builder, source, target, annotations)
        return
    if is_private:
        local_copy(source, target)
        return
    hints = make_hints(
        {
            "coalesced_width": coalesced_width,
            "disable_tma": disable_tma or None,
            "eviction_policy": eviction_policy,
            "prefer_instruction": prefer_instruction,
        },
        annotations,
    )
    builder.emit(Copy(source, target, hints, caller_loc()))


def _copy_element(src: Any, dst: Any) -> None:
    element = element_of(dst)
    assert element is not None
    current().store(*element, src)


def copy_regions(src: Any, dst: Any, what: str, *, is_open: bool = False) -> tuple[Region, Region]:
    """Source and destination of a copy as regions of equal shape (see `match_shapes`)."""
    if is_head(src):
        target = region_of(dst, f"destination of {what}")
        source = head_region(src, target.shape, f"source of {what}")
    elif is_head(dst):
        source = region_of(src, f"source of {what}")
        target = head_region(dst, source.shape, f"destination of {what}")
    else:
        source = region_of(src, f"source of {what}")
        target = region_of(dst, f"destination of {what}")
    return match_shapes(source, target, what, is_open=is_open)


def fill(buffer: Any, value: Any, annotations: Mapping[str, Any] | None = None) -> None:
    """Set every element of a buffer, slice or variable to `value`."""
    del annotations  # advice about the loop, which a fill does not need
    if isinstance(buffer, Cell):
        buffer.store(value)
        return
    element = element_of(buffer)
    if element is not None:
        current().store(*element, value)
        return
    builder = tile_builder("T.fill")
    region = region_of(buffer, "destination of T.fill")
    expr = ops.to_dtype(value, region.dtype, "fill value")
    if region.buffer.scope is Scope.LOCAL:
        local_fill(region, expr)
        return
    builder.emit(Fill(region, expr, caller_loc()))


def clear(buffer: Any, annotations: Mapping[str, Any] | None = None) -> None:
    """Set every element to zero."""
    fill(buffer, 0, annotations)


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy | WarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    mbar: Any = None,
    annotations: Mapping[str, Any] | None = None,
    use_2cta: bool = False,
) -> None:
    """``C += A @ B``, or ``C = A @ B`` where `clear_accum` holds.

    Args:
        A: shared or fragment tile, (M, K), or (K, M) with `transpose_A`.
        B: shared or fragment tile, (K, N), or (N, K) with `transpose_B`.
        C: fragment tile (M, N). Where C is a local array, A and B may be local too: plain loops.
        transpose_A: A is stored transposed.
        transpose_B: B is stored transposed.
        policy: how C is divided among warps.
        clear_accum: ignore C's old contents; may be a runtime condition.
        k_pack: advice: atoms' k steps taken together.
        mbar: not supported; the compiler places barriers.
        annotations: further advice.
        use_2cta: not supported; pairs of blocks with one matrix unit exist on one architecture.
    """
    if use_2cta:
        refuse(
            "T.gemm(use_2cta=True)",
            "blocks that share a matrix unit exist on one architecture that no backend serves",
        )
    if mbar is not None:
        refuse("T.gemm(mbar=...)", "the compiler places the barriers of a gemm")
    builder = tile_builder("T.gemm")
    a, b, c = (
        normalise(region_of(value, f"operand {name} of T.gemm"), 2)
        for name, value in (("A", A), ("B", B), ("C", C))
    )
    local = [region.buffer.scope is Scope.LOCAL for region in (a, b, c)]
    if any(local):
        for region, name in ((a, "A"), (b, "B"), (c, "C")):
            scopes = (Scope.LOCAL,) if name == "C" else (Scope.LOCAL, Scope.SHARED, Scope.GLOBAL)
            require_scope(region.buffer, scopes, f"operand {name} of a T.gemm in private memory")
        _check_gemm(a, b, c, bool(transpose_A), bool(transpose_B))
        local_gemm(a, b, c, bool(transpose_A), bool(transpose_B), ops.truth(clear_accum))
        return
    for region, name in ((a, "A"), (b, "B")):
        require_scope(region.buffer, (Scope.SHARED, Scope.FRAGMENT), f"operand {name} of T.gemm")
    require_scope(c.buffer, (Scope.FRAGMENT,), "operand C of T.gemm")
    _check_gemm(a, b, c, bool(transpose_A), bool(transpose_B))
    hints = make_hints({"k_pack": k_pack if k_pack != 1 else None}, annotations)
    builder.emit(
        Gemm(
            a,
            b,
            c,
            bool(transpose_A),
            bool(transpose_B),
            ops.truth(clear_accum),
            _policy(policy),
            hints,
            caller_loc(),
        )
    )


def _policy(policy: Any) -> WarpPolicy:
    if isinstance(policy, WarpPolicy):
        return policy
    try:
        return _POLICIES[GemmWarpPolicy(policy)]
    except ValueError:
        fail(
            "unknown warp policy", expected="T.GemmWarpPolicy.Square, FullRow, FullCol", got=policy
        )


def _check_gemm(a: Region, b: Region, c: Region, transpose_a: bool, transpose_b: bool) -> None:
    for region, name in ((a, "A"), (b, "B"), (c, "C")):
        if len(region.axes) != 2:
            fail(f"operand {name} of T.gemm is no matrix", expected="2 axes", got=len(region.axes))
    m, k = reversed(a.shape) if transpose_a else a.shape
    k_b, n = reversed(b.shape) if transpose_b else b.shape
    m_c, n_c = c.shape
    pairs = (("k of A and B", k, k_b), ("m of A and C", m, m_c), ("n of B and C", n, n_c))
    for what, left, right in pairs:
        if not is_equal(left, right):
            fail(
                f"T.gemm shapes disagree: {what}",
                expected="A (m, k), B (k, n), C (m, n) after transposition",
                got=f"A {shape_text(a.shape)}{'.T' * transpose_a}, "
                f"B {shape_text(b.shape)}{'.T' * transpose_b}, C {shape_text(c.shape)}",
            )
    _check_gemm_dtypes(a, b, c)


def _check_gemm_dtypes(a: Region, b: Region, c: Region) -> None:
    narrow_floats = a.dtype.is_float and b.dtype.is_float and a.dtype.bits == b.dtype.bits == 8
    integers = a.dtype.is_int and b.dtype.is_int and a.dtype.bits == b.dtype.bits
    if a.dtype != b.dtype and not narrow_floats and not integers:
        fail("T.gemm operands differ in dtype", expected=f"B of {a.dtype}", got=b.dtype)
    if a.dtype.is_float != c.dtype.is_float:
        kind = "a float" if a.dtype.is_float else "an integer"
        fail("T.gemm accumulates in another kind", expected=f"{kind} accumulator", got=c.dtype)


def transpose(src: Any, dst: Any, annotations: Mapping[str, Any] | None = None) -> None:
    """``dst[..., j, i] = src[..., i, j]``: the last two axes change places."""
    builder = tile_builder("T.transpose")
    source = region_of(src, "source of T.transpose")
    target = region_of(dst, "destination of T.transpose")
    if len(source.axes) < 2:
        fail(
            "T.transpose takes two axes or more",
            expected="a matrix, or a stack of them",
            got=shape_text(source.shape),
        )
    *outer, rows, columns = source.shape
    wanted = (*outer, columns, rows)
    if len(wanted) != len(target.shape) or not all(map(is_equal, wanted, target.shape)):
        fail(
            "shapes differ in T.transpose",
            expected=shape_text(wanted),
            got=f"{shape_text(target.shape)} of {target.buffer.name}",
        )
    names = "ijklmn"[: len(wanted)] if len(wanted) <= 6 else ["i"] * len(wanted)
    variables = tuple(Var(builder.unique(name), int32) for name in names)
    *stack, i, j = variables
    value = ops.cast_expr(Load(source.buffer, source.indices(variables)), target.dtype)
    frame = builder.push("parallel", (var.name for var in variables))
    place = target.indices((*stack, j, i))
    builder.emit(Store(target.buffer, place, value, caller_loc()))
    body = builder.pop(frame)
    hints = make_hints({}, annotations)
    builder.emit(Parallel(variables, source.shape, body, hints, caller_loc()))


def dp4a(A: Any, B: Any, C: Any) -> None:
    """``C += A[0:4] @ B[0:4]``: four int8 products summed in int32.

    Args:
        A: first of four int8 elements along the last axis.
        B: first of four int8 elements along the last axis.
        C: an int32 element.
    """
    total: Any = None
    for k in range(4):
        product = _int8_element(A, k, "A") * _int8_element(B, k, "B")
        total = product if total is None else total + product
    element: Any = element_of(C)
    if isinstance(C, BufferValue | RegionValue):
        place = region_of(C, "accumulator of T.dp4a")
        element = (place.buffer, place.starts)
    if element is None or element[0].dtype.name != "int32":
        fail("T.dp4a accumulates in an int32 element", got=ops.describe(C))
    buffer, indices = element
    current().store(buffer, indices, Scalar(Load(buffer, indices)) + total)


def _int8_element(value: Any, offset: int, name: str) -> Scalar:
    """The element `offset` places after `value`, widened to int32."""
    if isinstance(value, BufferValue | RegionValue):
        region = region_of(value, f"operand {name} of T.dp4a")
        element: Any = (region.buffer, region.starts)
    else:
        element = element_of(value)
    if element is None or element[0].dtype.name != "int8":
        fail(f"operand {name} of T.dp4a is no int8 element", got=ops.describe(value))
    buffer, indices = element
    last = ops.as_index(Scalar(indices[-1]) + offset)
    return Scalar(ops.cast_expr(Load(buffer, (*indices[:-1], last)), int32))


def reshape(src: Any, shape: Sequence[Any]) -> BufferValue:
    """The same storage under another shape of the same size."""
    return view(src, shape)


def view(src: Any, shape: Sequence[Any] | None = None, dtype: Any = None) -> BufferValue:
    """The same storage under another shape and dtype; total bits are kept."""
    builder = current()
    builder.require_kernel("T.view")
    if not isinstance(src, BufferValue):
        fail("T.view takes a whole buffer", expected="a buffer", got=ops.describe(src))
    source = src.buffer
    kind = source.dtype if dtype is None else make_dtype(dtype).ir
    if source.strides is not None:
        fail("T.view needs compact storage", got=f"strided tensor {source.name}")
    extents = _view_shape(source, kind) if shape is None else shape_exprs(shape, "the view")
    before, after = _static_size(source.shape), _static_size(extents)
    if before is not None and after is not None and before * source.dtype.bits != after * kind.bits:
        fail(
            "T.view keeps the number of bits",
            expected=f"{before * source.dtype.bits} bits as {source.name}",
            got=f"{after * kind.bits} bits for {shape_text(extents)} of {kind}",
        )
    name = builder.unique(builder.take_hint(f"{source.name}_view"))
    buffer = Buffer(name, extents, kind, source.scope, loc=caller_loc())
    builder.emit(Alias(buffer, source, caller_loc()), declares=(name,))
    return BufferValue(buffer)


def _view_shape(source: Buffer, kind: Any) -> tuple[Expr, ...]:
    if kind.bits == source.dtype.bits:
        return source.shape
    last = source.shape[-1]
    if not isinstance(last, Const) or last.value * source.dtype.bits % kind.bits:
        fail("T.view cannot derive the shape", hint="give shape= as well")
    extent = ops.weak_const(last.value * source.dtype.bits // kind.bits, ops.dtype_of(last))
    return (*source.shape[:-1], extent)


def _static_size(shape: Sequence[Expr]) -> int | None:
    if all(isinstance(extent, Const) for extent in shape):
        return math.prod(int(extent.value) for extent in shape)  # type: ignore[attr-defined]
    return None
