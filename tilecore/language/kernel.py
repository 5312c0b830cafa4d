"""T.Kernel, and the indices of a kernel's blocks and lanes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Call, Const, Expr, Var, binary, const, free_vars
from tilecore.ir.program import Kernel
from tilecore.language import operators as ops
from tilecore.language.builder import Builder, Frame, KernelState, current
from tilecore.language.grid_sync import launches
from tilecore.language.lets import tidy
from tilecore.language.linear import is_equal
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.reserved import RESERVED
from tilecore.language.values import Scalar, expr_text

DEFAULT_THREADS = 128


class KernelLaunch:
    """``with T.Kernel(gx, gy, threads=128) as (bx, by)``: one launch of the program.

    Args:
        blocks: extents of the grid, up to 3 of them, first axis fastest; none means one block.
        threads: threads of one block; several are multiplied. None means 128.
        cluster: blocks of one cluster along each axis.
    """

    def __init__(
        self, blocks: tuple[Any, ...], threads: Any, cluster: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        blocks = blocks or (1,)
        if len(blocks) > 3:
            fail("T.Kernel takes at most 3 grid axes", got=len(blocks))
        self.grid = tuple(ops.as_index(extent, f"grid axis {k}") for k, extent in enumerate(blocks))
        for axis, extent in enumerate(self.grid):
            if isinstance(extent, Const) and extent.value < 0:
                fail(f"grid axis {axis} is negative", expected="0 or more", got=extent.value)
        self.threads = _thread_dims(threads)
        self.cluster = cluster
        self.targets: tuple[str, ...] = ()
        self.as_tuple = len(blocks) > 1
        self.loc = caller_loc()
        self.builder: Builder | None = None
        self.frame: Frame | None = None

    @property
    def description(self) -> str:
        """A short name for messages."""
        return "T.Kernel(...), which only `with T.Kernel(...) as bx:` enters"

    def __iter__(self) -> Iterator[Any]:
        fail("T.Kernel is no loop", got="a `for` statement or an assignment to several names")

    def name_axes(self, targets: tuple[str, ...], as_tuple: bool) -> None:
        """The names after ``as``; called by the rewritten ``with`` statement."""
        if as_tuple and len(targets) != len(self.grid):
            fail("T.Kernel has another number of axes", expected=len(self.grid), got=len(targets))
        self.targets = targets
        self.as_tuple = as_tuple or len(self.grid) > 1

    def __enter__(self) -> Any:
        builder = self.builder = current()
        if builder.kernel is not None:
            fail("T.Kernel inside T.Kernel", hint="launches of a program follow one another")
        count = len(self.grid)
        names = self.targets if len(self.targets) == count else ("bx", "by", "bz")[:count]
        variables = tuple(
            Var(builder.unique("block" if name == "_" else name), int32) for name in names
        )
        for axis, extent in enumerate(self.grid):
            for var in free_vars(extent):
                if not builder.is_alive(var.name):
                    fail(
                        f"size {var.name} of grid axis {axis} is not known at the call",
                        expected="a size of a tensor parameter's shape, or a scalar parameter",
                        got=var.name,
                    )
            builder.check_expr(extent)
        index = len(builder.kernels)
        name = builder.name if index == 0 else builder.unique(builder.name)
        if name in RESERVED:
            name = builder.unique(f"{name}_kernel")
        builder.kernel = KernelState(
            name, variables, self.grid, self.threads, self.loc, cluster=self.cluster
        )
        self.frame = builder.push("kernel", (var.name for var in variables))
        self.frame.stmts.extend(builder.host_asserts)
        builder.host_asserts.clear()
        self.frame.stmts.extend(builder.attachments)
        scalars = tuple(Scalar(var) for var in variables)
        return scalars if self.as_tuple else scalars[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        builder, frame = self.builder, self.frame
        if kind is not None or builder is None or frame is None or builder.kernel is None:
            return
        body = tidy(builder.pop(frame))
        state, builder.kernel = builder.kernel, None
        for part, statements in launches(body, state, builder):
            builder.kernels.append(
                Kernel(
                    part.name,
                    part.grid_vars,
                    part.grid,
                    math.prod(part.thread_dims),
                    statements,
                    tuple(sorted(part.layouts.items())),
                    part.block_order,
                    part.cluster,
                    tuple(sorted(part.hints.items())),
                    part.loc,
                )
            )


def _thread_dims(threads: Any) -> tuple[int, ...]:
    if threads is None:
        return (DEFAULT_THREADS,)
    given = tuple(threads) if isinstance(threads, list | tuple) else (threads,)
    dims = tuple(ops.static_int(dim, "threads") for dim in given)
    if not 1 <= len(dims) <= 3:
        fail("threads has 1 to 3 axes", got=threads)
    return dims


def Kernel_(*blocks: Any, threads: Any = None, prelude: str | None = None) -> KernelLaunch:
    """``T.Kernel``; see `KernelLaunch`."""
    if prelude is not None:
        refuse("T.Kernel(prelude=...)", "source text of one target cannot be part of a program")
    return KernelLaunch(blocks, threads)


def ClusterKernel(
    *blocks: Any, cluster_dims: Any, threads: Any = None, prelude: str | None = None
) -> KernelLaunch:
    """A launch whose blocks form clusters of `cluster_dims` blocks."""
    if prelude is not None:
        refuse("T.ClusterKernel(prelude=...)", "source text of one target is no tile program")
    dims = (cluster_dims,) if isinstance(cluster_dims, int) else tuple(cluster_dims)
    if len(dims) > 3:
        fail("cluster_dims has too many axes", expected="1 to 3", got=len(dims))
    padded = (*dims, 1, 1, 1)[:3]
    padded = tuple(ops.static_int(dim, "cluster_dims") for dim in padded)
    return KernelLaunch(blocks, threads, (padded[0], padded[1], padded[2]))


def get_thread_binding(dim: int = 0) -> Scalar:
    """This lane's index along axis `dim` of the block's threads."""
    kernel = current().require_kernel("T.get_thread_binding")
    dims = kernel.thread_dims
    _check_dim(dim)
    index: Expr = Call("block.thread", (), int32)
    if len(dims) == 1:
        return Scalar(index if dim == 0 else const(0, int32))
    if dim >= len(dims):
        return Scalar(const(0, int32))
    index = binary("floordiv", index, const(math.prod(dims[:dim]), int32))
    if dim < len(dims) - 1:
        index = binary("floormod", index, const(dims[dim], int32))
    return Scalar(index)


def get_thread_bindings() -> tuple[Scalar, Scalar, Scalar]:
    """`get_thread_binding` along all three axes."""
    return get_thread_binding(0), get_thread_binding(1), get_thread_binding(2)


_AXES = {"x": 0, "y": 1, "z": 2}


def thread_binding(
    start: Any,
    stop: Any = None,
    thread: str | None = None,
    *,
    annotations: Any = None,
) -> Bound:
    """An index that the launch gives: ``tx = T.thread_binding(0, 128, thread="threadIdx.x")``.

    Also as a loop, ``for tx in T.thread_binding(128, thread="threadIdx.x")``, which runs its body
    once in each lane. The extent is that of the kernel's axis.

    Args:
        start: 0, or the extent where `stop` is left out.
        stop: the extent.
        thread: ``"threadIdx.x"``, ``"blockIdx.y"`` and their kind.
        annotations: further advice, not needed here.

    Raises:
        LanguageError: outside a kernel, an unknown axis, or another extent than the kernel's.
    """
    del annotations
    if isinstance(stop, str):
        start, stop, thread = 0, start, stop
    elif stop is None:
        start, stop = 0, start
    kind, _, axis = (thread or "").partition(".")
    if kind not in ("threadIdx", "blockIdx") or axis not in _AXES:
        fail(
            "T.thread_binding names no axis",
            expected="thread='threadIdx.x', 'blockIdx.x' or their y and z",
            got=thread,
        )
    kernel = current().require_kernel("T.thread_binding")
    dim = _AXES[axis]
    have: tuple[Any, ...] = kernel.thread_dims if kind == "threadIdx" else kernel.grid
    extent: Any = have[dim] if dim < len(have) else 1
    given = ops.as_index(stop, "extent of T.thread_binding")
    if ops.static_int(start, "start of T.thread_binding", at_least=0) or not is_equal(
        given, ops.as_index(extent)
    ):
        fail(
            f"T.thread_binding({thread}) differs from the kernel's axis",
            expected=f"0 to {expr_text(ops.as_index(extent))}",
            got=f"{start} to {expr_text(given)}",
        )
    index = get_thread_binding(dim) if kind == "threadIdx" else get_block_binding(dim)
    return Bound(index.expr)


class Bound(Scalar):
    """The index that `thread_binding` gives; a loop over it has one round."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Scalar]:
        yield Scalar(self.expr)


def get_thread_extent(dim: int = 0) -> int:
    """Threads of the block along axis `dim`."""
    dims = current().require_kernel("T.get_thread_extent").thread_dims
    _check_dim(dim)
    return dims[dim] if dim < len(dims) else 1


def get_block_binding(dim: int = 0) -> Scalar:
    """This block's index along grid axis `dim`."""
    kernel = current().require_kernel("T.get_block_binding")
    _check_dim(dim)
    if dim >= len(kernel.grid_vars):
        return Scalar(const(0, int32))
    return Scalar(kernel.grid_vars[dim])


def get_block_bindings() -> tuple[Scalar, Scalar, Scalar]:
    """`get_block_binding` along all three axes."""
    return get_block_binding(0), get_block_binding(1), get_block_binding(2)


def _check_dim(dim: int) -> None:
    ops.static_int(dim, "an axis", at_least=0, at_most=2)
