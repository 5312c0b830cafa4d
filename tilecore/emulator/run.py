"""Runs emulated kernels: arguments in, results back into the arrays, faults raised together."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilecore.emulator.build import EmulatedKernel, build_kernel
from tilecore.emulator.memory import EmulatedMemory, argument_cell
from tilecore.emulator.report import KernelFault, KernelFaults, LaunchReport, SharedAccess
from tilecore.errors import LaunchError, Loc

# Order of `enum class Fault` in native/engine.h.
FAULT_KINDS = (
    "global_out_of_bounds",
    "global_misaligned",
    "global_read_only",
    "shared_out_of_bounds",
    "shared_misaligned",
    "shared_uninitialised",
    "shared_in_flight",
    "shared_race",
    "barrier_divergence",
    "warp_divergence",
    "deadlock",
    "barrier_misuse",
    "copy_never_waited",
    "not_uniform",
    "registers_out_of_bounds",
    "assertion",
    "timeout",
)

Size3 = tuple[int, int, int]


class _MemoryRange(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_int32),
        ("padding", ctypes.c_int32),
    )


class _LaunchConfig(ctypes.Structure):  # struct LaunchConfig of native/internal.h
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("ranges", ctypes.POINTER(_MemoryRange)),
        ("range_count", ctypes.c_int32),
        ("grid", ctypes.c_int32 * 3),
        ("shape", ctypes.c_int32 * 3),
        ("cluster", ctypes.c_int32 * 3),
        ("shared_bytes", ctypes.c_int32),
        ("lanes_per_warp", ctypes.c_int32),
        ("workers", ctypes.c_int32),
        ("max_faults", ctypes.c_int32),
        ("resident", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("time_limit_seconds", ctypes.c_double),
    )


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How a kernel is launched.

    Attributes:
        grid: blocks along x, y, z; any 0 means that nothing runs.
        block: lanes along x, y, z.
        shared_bytes: dynamic shared memory of a block.
        cluster: blocks of a cluster along x, y, z; divides the grid.
        resident: all blocks run together and may wait for each other (cooperative launch).
    """

    grid: Size3
    block: Size3
    shared_bytes: int = 0
    cluster: Size3 = (1, 1, 1)
    resident: bool = False

    def __post_init__(self) -> None:
        lanes = self.block[0] * self.block[1] * self.block[2]
        if not 1 <= lanes <= 1024:
            raise LaunchError("lanes of a block", expected="1 to 1024", got=self.block)
        if any(g < 0 or c < 1 or g % c for g, c in zip(self.grid, self.cluster, strict=True)):
            raise LaunchError(
                "the cluster must divide the grid", expected=self.cluster, got=self.grid
            )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the emulator runs a launch.

    Attributes:
        seed: chooses the order of lanes, warps, blocks and deliveries.
        workers: OS threads that blocks are spread over; 0 means one a processor that this
            process may use.
        time_limit_seconds: of processor time; when one of its OS threads has used it, the launch
            ends with a ``timeout`` fault.
        max_faults: kinds-and-places of faults after which the launch stops.
        source_file: the author's file, for the lines of TC_LINE.
        lines: author's place of each TC_LINE number, where a file name is not enough.
    """

    seed: int = 0
    workers: int = 0
    time_limit_seconds: float = 60.0
    max_faults: int = 32
    source_file: str | None = None
    lines: Mapping[int, Loc] | None = None


def launch(
    kernel: EmulatedKernel,
    arguments: Sequence[Any],
    shape: LaunchShape,
    options: RunOptions | None = None,
    *,
    memories: Sequence[EmulatedMemory] = (),
) -> LaunchReport:
    """Runs a kernel to its end, and copies results back into the writable arrays.

    Args:
        kernel: from ``build_kernel``.
        arguments: in the order of the kernel's parameters: arrays (or EmulatedMemory) for
            pointers; NumPy scalars, ctypes values or bytes for what is passed by value. An array
            given twice is one buffer.
        shape: grid, block, shared memory.
        options: seed, limits and names.
        memories: further buffers that the kernel reaches through structures.

    Raises:
        KernelFaults: the kernel did something undefined; lists every fault. Results are copied
            back nevertheless.
        ArgumentError: an argument of unknown width, or an array that is not contiguous.
    """
    options = options or RunOptions()
    buffers: dict[int, EmulatedMemory] = {id(memory.array): memory for memory in memories}
    cells: list[ctypes.Array[ctypes.c_char]] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            argument = buffers.setdefault(id(argument), EmulatedMemory(argument))
        elif isinstance(argument, EmulatedMemory):
            buffers.setdefault(id(argument.array), argument)
        cells.append(argument_cell(argument))
    ranges = list(buffers.values())
    raw = _run(kernel, cells, ranges, shape, options)
    for memory in ranges:
        memory.copy_back()
    report = _decode(kernel, raw, options)
    if report.faults:
        raise KernelFaults(kernel.name, report, options.seed)
    return report


def _available_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run(
    kernel: EmulatedKernel,
    cells: Sequence[ctypes.Array[ctypes.c_char]],
    memories: Sequence[EmulatedMemory],
    shape: LaunchShape,
    options: RunOptions,
) -> dict[str, Any]:
    run, free, entry = _loaded(kernel)
    addresses = (ctypes.c_void_p * max(len(cells), 1))(*map(ctypes.addressof, cells))
    ranges = (_MemoryRange * max(len(memories), 1))(
        *(_MemoryRange(m.address, m.bytes, int(m.writable), 0) for m in memories)
    )
    three = ctypes.c_int32 * 3
    config = _LaunchConfig(
        entry=ctypes.cast(entry, ctypes.c_void_p),
        arguments=ctypes.cast(addresses, ctypes.c_void_p),
        ranges=ranges,
        range_count=len(memories),
        grid=three(*shape.grid),
        shape=three(*shape.block),
        cluster=three(*shape.cluster),
        shared_bytes=shape.shared_bytes,
        lanes_per_warp=kernel.support.lanes_per_warp,
        workers=options.workers or _available_processors(),
        max_faults=options.max_faults,
        resident=int(shape.resident),
        seed=options.seed % 2**62,  # the engine adds to it
        time_limit_seconds=options.time_limit_seconds,
    )
    text = run(ctypes.byref(config))
    if not text:
        raise LaunchError(f"the emulator ran out of memory in kernel {kernel.name}")
    try:
        decoded: dict[str, Any] = json.loads(ctypes.string_at(text).decode(errors="replace"))
    finally:
        free(text)
    return decoded


def _loaded(kernel: EmulatedKernel) -> tuple[Callable[..., int | None], Callable[..., None], Any]:
    """The engine's functions and the kernel's entry; built again if someone deleted the files."""
    try:
        return *_engine(kernel.engine), _entry(kernel.library)
    except OSError:
        again = build_kernel(kernel.text, kernel.name, kernel.support)
        return *_engine(again.engine), _entry(again.library)


@functools.cache
def _engine(path: Path) -> tuple[Callable[..., int | None], Callable[..., None]]:
    library = ctypes.CDLL(str(path))
    library.tc_emulator_launch.restype = ctypes.c_void_p
    library.tc_emulator_free.argtypes = [ctypes.c_void_p]
    return library.tc_emulator_launch, library.tc_emulator_free


@functools.cache
def _entry(path: Path) -> Any:
    return ctypes.CDLL(str(path)).tc_emulator_entry


def _decode(kernel: EmulatedKernel, raw: Mapping[str, Any], options: RunOptions) -> LaunchReport:
    def place(line: int) -> Loc | None:
        if line == 0:
            return None
        if options.lines is not None and line in options.lines:
            return options.lines[line]
        return Loc(options.source_file or f"<author of {kernel.name}>", line)

    faults = tuple(
        KernelFault(
            kind=FAULT_KINDS[entry["kind"]],
            message=entry["message"],
            loc=place(entry["line"]),
            other_loc=place(entry["other_line"]),
            text_line=entry["text_line"],
            block=tuple(entry["block"]),
            lanes=tuple(entry["lanes"]),
            count=entry["count"],
        )
        for entry in raw["faults"]
    )
    accesses = tuple(
        SharedAccess(
            loc=place(entry["line"]),
            text_line=entry["text_line"],
            bytes_per_lane=entry["bytes"],
            is_write=bool(entry["is_write"]),
            accesses=entry["accesses"],
            wavefronts=entry["wavefronts"],
            ideal_wavefronts=entry["ideal"],
        )
        for entry in raw["shared_accesses"]
    )
    return LaunchReport(faults, accesses, raw["prints"], raw["fault_count"], raw["switches"])
