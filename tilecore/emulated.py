"""A launcher that runs generated lane code in the emulator: ``device="emulator"``."""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import numpy as np

from tilecore.emulator import (
    EmulatedMemory,
    LaunchReport,
    LaunchShape,
    RunOptions,
    build_kernel,
    launch,
)
from tilecore.errors import LaunchError, Loc
from tilecore.hooks.records import EmulatorSupport, KernelSource, Source
from tilecore.ir.attached import attached
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import numpy_dtype
from tilecore.ir.packing import storage_shape, storage_strides
from tilecore.ir.program import Program
from tilecore.ir.signature import Argument, program_arguments
from tilecore.ir.stmts import Stmt
from tilecore.ir.visit import walk_stmts
from tilecore.runtime.grids import Grid, launch_grid
from tilecore.runtime.idle_kernels import idle_kernels
from tilecore.runtime.scalar_grids import call_sizes, grid_scalars, launch_sizes
from tilecore.runtime.sizes import Sizes, compile_sizes
from tilecore.runtime.written import written_buffers
from tilecore.target import Target

PERSISTENT_BLOCKS = 3
"""Blocks of kernels whose blocks take one tile after the other: few, so that each takes several."""


class EmulatedLauncher:
    """Runs every kernel of a program in the emulator, on host memory.

    Args:
        program: the tile program; gives shapes, and which buffers are written.
        source: the generated C++.
        support: the backend's emulated header.
        target: what it was compiled for; gives the limits of grids.

    Attributes:
        options: how to run: seed (0: what ``TILECORE_EMULATOR_SEED`` says at a call), workers,
            limits.
        reports: one report per kernel of the last call.
    """

    device_kind = "cpu"

    def __init__(
        self, program: Program, source: Source, support: EmulatorSupport, target: Target
    ) -> None:
        self.program = program
        self.target = target
        self.order = program_arguments(program)
        self.options = RunOptions()
        self.reports: list[LaunchReport] = []
        self._written = written_buffers(program)
        self._kernels = [
            (one, build_kernel(source.text, one.name, support)) for one in source.kernels
        ]
        given = launch_sizes(program)
        self._scalars = grid_scalars(program)
        self._grids = [compile_sizes(one.grid, given) for one in source.kernels]
        self._is_idle = idle_kernels(program)
        self._attached = attached(program)
        self._bytes = {
            buffer.name: compile_sizes((*buffer.shape, *(buffer.strides or ())), program.symbols)
            for buffer in self.order
            if isinstance(buffer, Buffer) and buffer.name not in self._attached
        }
        self._lines = _lines_of(program)

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Run all kernels now.

        Raises:
            KernelFaults: a kernel did something undefined.
        """
        count = len(self.program.symbols)
        numbers = call_sizes(arguments, count, self._scalars)
        sizes = numbers[:count]
        given = dict(zip((one.name for one in self.order), arguments, strict=True))
        values = {one.name: self._value(one, given[one.name], sizes) for one in self.order}
        self.reports = []
        seed = _seed()
        for (one, kernel), grid in zip(self._kernels, self._grids, strict=True):
            blocks = launch_grid(one, grid(numbers), self.target)
            if blocks is None or self._is_idle(one.name, numbers):
                blocks = (0, 0, 0)
            shape = _shape_of(one, blocks)
            options = RunOptions(
                self.options.seed or seed,
                self.options.workers,
                self.options.time_limit_seconds,
                self.options.max_faults,
                lines=self._lines,
            )
            passed = [values[argument.name] for argument in one.arguments]
            named = dict(zip((s.name for s in self.program.symbols), sizes, strict=True))
            found: Any = dict(one.extra).get("descriptors", ())
            passed += [d.emulate(values[d.buffer].address, named) for d in found]
            if dict(one.extra).get("counter"):
                passed.append(EmulatedMemory(np.zeros(4, np.uint8), writable=True))
            reached = [values[name] for name in dict.fromkeys(d.buffer for d in found)]
            self.reports.append(launch(kernel, passed, shape, options, memories=reached))

    def _value(self, argument: Argument, value: int | float, sizes: Sizes) -> Any:
        dtype = numpy_dtype(argument.dtype)
        if not isinstance(argument, Buffer):
            return dtype.type(value)
        if argument.name in self._attached:
            return EmulatedMemory(np.empty(0, np.uint8), writable=True)
        numbers = self._bytes[argument.name](sizes)
        shape, strides = numbers[: argument.rank], numbers[argument.rank :]
        shape = storage_shape(argument.dtype, shape)
        strides = storage_strides(argument.dtype, strides)
        if 0 in shape:
            elements = 0
        elif strides:
            elements = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        else:
            elements = math.prod(shape)
        flat = np.empty(0, np.uint8)
        if elements:
            total = elements * argument.dtype.bytes
            memory: Any = (ctypes.c_uint8 * total).from_address(int(value))
            flat = np.frombuffer(memory, np.uint8)
        return EmulatedMemory(flat, writable=argument.name in self._written)


def _seed() -> int:
    """Of this moment: kernels are kept, and the next call may be under another one."""
    given = os.environ.get("TILECORE_EMULATOR_SEED") or "0"
    try:
        return int(given)
    except ValueError as error:
        raise LaunchError(
            "TILECORE_EMULATOR_SEED is no number", expected="an integer", got=repr(given)
        ) from error


def _shape_of(kernel: KernelSource, blocks: Grid) -> LaunchShape:
    if dict(kernel.extra).get("persistent"):
        step = kernel.cluster[0]
        most = -(-PERSISTENT_BLOCKS // step) * step
        blocks = (min(blocks[0], most), blocks[1], blocks[2])
    return LaunchShape(
        (blocks[0], blocks[1], blocks[2]),
        (kernel.threads, 1, 1),
        kernel.smem_bytes,
        kernel.cluster,
    )


def _lines_of(program: Program) -> dict[int, Loc]:
    """The author's place of each line number that the generated code names."""
    found: dict[int, Loc] = {}
    for kernel in program.kernels:
        for stmt in walk_stmts(kernel.body):
            loc = _loc(stmt)
            if loc is not None:
                found.setdefault(loc.line, loc)
    return found


def _loc(stmt: Stmt) -> Loc | None:
    return getattr(stmt, "loc", None)
