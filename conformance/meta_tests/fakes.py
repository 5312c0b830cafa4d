"""Backends with one deliberate fault each, on top of the reference interpreter.

`HEALTHY` has none and must pass. Faults are either rewrites of the program (a compiler that
misunderstands something) or wrappers of the launch (a runtime that misbehaves).
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilecore.hooks.manager import register_backend
from tilecore.hooks.records import Artifact, DeviceInfo, KernelSource, Source
from tilecore.hooks.specs import hookimpl
from tilecore.ir import expr as E
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import numpy_dtype
from tilecore.ir.layout import Layout
from tilecore.ir.printer import format_program
from tilecore.ir.program import Program
from tilecore.ir.signature import kernel_arguments, program_arguments
from tilecore.ir.visit import map_exprs, map_stmts, walk_stmts
from tilecore.reference import ReferenceLauncher
from tilecore.target import Target

Launch = Callable[..., None]
OutputEdit = Callable[[np.ndarray], None]


@dataclass(frozen=True)
class Fault:
    """What is wrong with a backend.

    Attributes:
        name: also the backend's name, behind ``broken_``.
        caught_by: patterns of the cases (or names of tests) that must see it.
        rewrite: changes one statement, or None.
        launch: wraps the launch of (program, healthy launch), or None.
        noise: the emitted text differs each time.
        layout: what every shared buffer gets as its layout, or None for core's.
    """

    name: str
    caught_by: str
    rewrite: Callable[[S.Stmt], S.Stmt | tuple[S.Stmt, ...] | None] | None = None
    launch: Callable[[Program, Launch], Launch] | None = None
    noise: bool = False
    layout: Callable[[tuple[int, ...]], Layout] | None = None


class FakeBackend:
    """A plugin whose kernels the interpreter runs."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.name = f"broken_{fault.name}"
        self._counter = itertools.count()

    @hookimpl
    def tilecore_describe_targets(self) -> list[Target]:
        return [Target(self.name, "fake")]

    @hookimpl
    def tilecore_probe_device(self, target: Target) -> DeviceInfo:
        return DeviceInfo("interpreter", target.arch, 1)

    @hookimpl
    def tilecore_schedule(self, program: Program) -> Program:
        if self.fault.rewrite is None:
            return program
        kernels = tuple(
            replace(kernel, body=map_stmts(kernel.body, self.fault.rewrite))
            for kernel in program.kernels
        )
        return replace(program, kernels=kernels)

    @hookimpl
    def tilecore_choose_layout(self, request: Any) -> Layout | None:
        if self.fault.layout is None:
            return None
        return self.fault.layout(request.buffer.static_shape)

    @hookimpl
    def tilecore_emit(self, program: Program) -> Source:
        text = format_program(program)
        if self.fault.noise:
            text += f"\n# {next(self._counter)}"
        kernels = tuple(
            KernelSource(k.name, kernel_arguments(program, k), k.grid, k.threads)
            for k in program.kernels
        )
        return Source(text, "tile", kernels)

    @hookimpl
    def tilecore_toolchain_fingerprint(self) -> str:
        return self.name

    @hookimpl
    def tilecore_compile(self, source: Source) -> Artifact:
        return Artifact(source.text.encode(), "tile")

    @hookimpl
    def tilecore_create_launcher(self, program: Program) -> Launch:
        launch: Launch = ReferenceLauncher(program, exact_dtypes=False)
        return launch if self.fault.launch is None else self.fault.launch(program, launch)

    @hookimpl
    def tilecore_synchronize(self) -> bool:
        return True


# --- faults of a compiler ------------------------------------------------------------------------


def _in_exprs(change: Callable[[E.Expr], E.Expr | None]) -> Callable[[S.Stmt], S.Stmt]:
    return lambda stmt: map_exprs(stmt, change)


def _swap_subtraction(node: E.Expr) -> E.Expr | None:
    if isinstance(node, E.Binary) and node.op == "sub" and node.dtype.is_float:
        return replace(node, a=node.b, b=node.a)
    return None


def _strict_comparison(node: E.Expr) -> E.Expr | None:
    if isinstance(node, E.Binary) and node.op == "le":
        return replace(node, op="lt")
    return None


def _truncating_division(node: E.Expr) -> E.Expr | None:
    if isinstance(node, E.Binary) and node.op == "floordiv" and isinstance(node.a, E.Load):
        zero = E.Const(0, node.dtype)
        below = E.Binary("lt", node.a, zero, E.TRUE.dtype)
        up = E.Binary("add", node, E.Const(1, node.dtype), node.dtype)
        return E.Select(below, up, node, node.dtype)
    return None


def _logical_shift(node: E.Expr) -> E.Expr | None:
    if isinstance(node, E.Binary) and node.op == "shr" and node.dtype.is_signed:
        mask = E.Const((1 << (node.dtype.bits - 1)) - 1, node.dtype)
        return E.Binary("bitand", node, mask, node.dtype)
    return None


def _swap_gemm_operands(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.Gemm) and stmt.a.shape == stmt.b.shape:
        return replace(stmt, a=stmt.b, b=stmt.a)
    return None


def _forget_transposition(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.Gemm) and stmt.b.shape[0] == stmt.b.shape[1]:
        return replace(stmt, transpose_b=False)
    return None


def _never_clear(stmt: S.Stmt) -> S.Stmt | None:
    return replace(stmt, clear_accum=E.FALSE) if isinstance(stmt, S.Gemm) else None


def _lose_last_step(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.For) and stmt.pipeline is not None and stmt.pipeline.num_stages >= 2:
        return replace(stmt, extent=E.binary("sub", stmt.extent, E.Const(1, stmt.extent.dtype)))
    return None


def _stale_stage(stmt: S.Stmt) -> S.Stmt | None:
    """The first copy of a step fetches the first step's tile again: a slot never refilled."""
    if isinstance(stmt, S.For) and stmt.pipeline is not None and stmt.pipeline.num_stages >= 3:
        first, *rest = stmt.body
        if isinstance(first, S.Copy):
            first = map_exprs(first, lambda node: stmt.start if node == stmt.var else None)
            return replace(stmt, body=(first, *rest))
    return None


def _lose_update(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.Atomic) and stmt.op == "add":
        return replace(stmt, op="exchange" if stmt.previous is not None else "store")
    return None


def _flip_nan(stmt: S.Stmt) -> S.Stmt | None:
    if isinstance(stmt, S.Reduce) and stmt.op in ("max", "min"):
        return replace(stmt, nan_propagate=not stmt.nan_propagate)
    return None


def _always_clear(stmt: S.Stmt) -> S.Stmt | None:
    return replace(stmt, clear=True) if isinstance(stmt, S.Reduce) else None


def _forward_scan(stmt: S.Stmt) -> S.Stmt | None:
    return replace(stmt, reverse=False) if isinstance(stmt, S.Scan) else None


def _ignore_break(stmt: S.Stmt) -> S.Stmt | tuple[S.Stmt, ...] | None:
    return () if isinstance(stmt, S.Break) else None


# --- faults of a runtime -------------------------------------------------------------------------


def _outputs(program: Program, arguments: tuple[Any, ...]) -> list[np.ndarray]:
    """The written buffers of constant shape, as arrays over the caller's memory."""
    written = {
        region.buffer.name
        for kernel in program.kernels
        for stmt in walk_stmts(kernel.body)
        for region in [getattr(stmt, "dst", None)]
        if region is not None
    } | {
        stmt.buffer.name
        for kernel in program.kernels
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, S.Store)
    }
    found = []
    for item, address in zip(program_arguments(program), arguments, strict=True):
        if not isinstance(item, Buffer) or item.name not in written:
            continue
        shape = item.static_shape
        if shape is None or 0 in shape:
            continue
        dtype = numpy_dtype(item.dtype)
        raw = (ctypes.c_byte * (int(np.prod(shape)) * dtype.itemsize)).from_address(int(address))
        found.append(np.ctypeslib.as_array(raw).view(dtype))
    return found


def _edits(edit: OutputEdit) -> Callable[[Program, Launch], Launch]:
    """A launch after which each output is edited in place."""

    def wrap(program: Program, healthy: Launch) -> Launch:
        def launch(arguments: tuple[Any, ...], stream: int = 0) -> None:
            healthy(arguments, stream)
            for array in _outputs(program, arguments):
                edit(array)

        return launch

    return wrap


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def _drop_tail(program: Program, healthy: Launch) -> Launch:
    def launch(arguments: tuple[Any, ...], stream: int = 0) -> None:
        kept = [array[-1:].copy() for array in _outputs(program, arguments)]
        healthy(arguments, stream)
        for array, last in zip(_outputs(program, arguments), kept, strict=True):
            if array.size % 32:
                array[-1:] = last

    return launch


def _write_behind(program: Program, healthy: Launch) -> Launch:
    """The predicate of a ragged tile is ignored: the element behind the end is written too."""

    def launch(arguments: tuple[Any, ...], stream: int = 0) -> None:
        healthy(arguments, stream)
        for array in _outputs(program, arguments):
            if array.size % 32:
                ctypes.memset(array.ctypes.data + array.nbytes, 0, array.itemsize)

    return launch


def _write_input(program: Program, healthy: Launch) -> Launch:
    def launch(arguments: tuple[Any, ...], stream: int = 0) -> None:
        healthy(arguments, stream)
        first = program.params[0]
        if isinstance(first, Buffer) and first.static_shape and 0 not in first.static_shape:
            ctypes.memset(int(arguments[0]), 0, 1)

    return launch


def _refuse_empty(program: Program, healthy: Launch) -> Launch:
    def launch(arguments: tuple[Any, ...], stream: int = 0) -> None:
        sizes = arguments[len(program.params) + len(program.workspaces) :]
        if 0 in sizes:
            raise RuntimeError("invalid launch configuration: a grid of no blocks")
        healthy(arguments, stream)

    return launch


_first_of_a_name: dict[str, Launch] = {}


def _stale_kernel(program: Program, healthy: Launch) -> Launch:
    """A cache whose key is only the kernel's name."""
    return _first_of_a_name.setdefault(program.name, healthy)


_noise = np.random.default_rng(0)


def _coarse(array: np.ndarray) -> None:
    if array.dtype == np.float32:
        with np.errstate(over="ignore"):
            array[...] = array.astype(np.float16)


def _truncate(array: np.ndarray) -> None:
    """Clears the last stored bit: what rounding towards zero gives, half of the time."""
    if _is_float(array) and array.itemsize == 2:
        array.view(np.uint16)[...] &= 0xFFFE


def _flush(array: np.ndarray) -> None:
    if array.dtype == np.float32:
        array[np.abs(array) < np.finfo(np.float32).tiny] = 0


def _positive_zero(array: np.ndarray) -> None:
    if _is_float(array):
        array[array == 0] = 0


def _tremble(array: np.ndarray) -> None:
    if array.dtype == np.float32:
        array *= (1.0 + 1e-7 * _noise.integers(0, 2, array.size)).astype(np.float32)


def _quiet_nan(array: np.ndarray) -> None:
    if _is_float(array):
        array[np.isnan(array.astype(np.float32))] = 0


FAULTS = (
    Fault("swapped_subtraction", "*/binary-*op.sub*", _in_exprs(_swap_subtraction)),
    Fault("strict_comparison", "attention/*causal.True*", _in_exprs(_strict_comparison)),
    Fault(
        "truncating_division", "*/binary-*op.floordiv-dtype.int32", _in_exprs(_truncating_division)
    ),
    Fault("logical_shift", "*/binary-*op.shr*", _in_exprs(_logical_shift)),
    Fault("swapped_operands", "gemm/gemm_tiled*tile.32x32x32*", _swap_gemm_operands),
    Fault("forgotten_transposition", "gemm/gemm_tiled*tile.32x32x32*", _forget_transposition),
    Fault("never_cleared", "gemm/gemm_clear*", _never_clear),
    Fault("lost_step", "pipeline/*", _lose_last_step),
    Fault("stale_stage", "pipeline/*", _stale_stage),
    Fault("lost_update", "atomics/*", _lose_update),
    Fault("flipped_nan", "special/nan_reduce*", _flip_nan),
    Fault("cleared_reduce", "reduce/*clear.False*", _always_clear),
    Fault("forward_scan", "scan/*reverse.True*", _forward_scan),
    Fault("ignored_break", "control_flow/break_continue*", _ignore_break),
    Fault("dropped_tail", "copy/copy_route*", launch=_drop_tail),
    Fault("ignored_predicate", "predication/*", launch=_write_behind),
    Fault("written_input", "copy/copy_route*", launch=_write_input),
    Fault("refused_empty", "dynamic/*", launch=_refuse_empty),
    Fault("coarse_accumulator", "gemm/gemm_tiled*float32*", launch=_edits(_coarse)),
    Fault("truncated_rounding", "casts/*target.float16", launch=_edits(_truncate)),
    Fault("flushed_subnormals", "special/subnormal*", launch=_edits(_flush)),
    Fault("lost_zero_sign", "casts/*target.float32", launch=_edits(_positive_zero)),
    Fault("lost_nan", "special/*", launch=_edits(_quiet_nan)),
    Fault("stale_kernel", "test_a_changed_constant_is_another_kernel", launch=_stale_kernel),
    Fault("trembling_result", "test_runs_give_the_same_bits", launch=_edits(_tremble)),
    Fault("noisy_text", "test_emits_the_same_text_twice", noise=True),
    Fault(
        "folded_layout",
        "test_shared_layouts_are_injective",
        layout=lambda shape: Layout.strided(shape, (0,) * len(shape)),
    ),
)
HEALTHY = Fault("healthy", "")


def register_all() -> None:
    """Make every fake known to this process."""
    for fault in (HEALTHY, *FAULTS):
        backend = FakeBackend(fault)
        register_backend(backend.name, backend)


register_all()
