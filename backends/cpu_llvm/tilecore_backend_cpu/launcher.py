"""Loaded programs: scratch memory and the call into generated code."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from tilecore.errors import DeviceAssertError
from tilecore.hooks.records import Artifact, Source
from tilecore.ir.buffers import Buffer
from tilecore.ir.program import Program
from tilecore.ir.signature import program_arguments

from .diagnostics import callback_symbols, take_failure
from .jit import LoadedCode, load_object
from .kernel_emitter import ENTRY
from .threads import available_cores, requested_threads, runtime_symbols

_PAGE = 4096


class Scratch:
    """Page-aligned memory for all threads of one call; pages cost nothing until touched."""

    __slots__ = ("_map", "address", "bytes_per_thread")

    def __init__(self, bytes_per_thread: int, threads: int) -> None:
        # An odd number of cache lines between threads keeps them out of each other's sets.
        self.bytes_per_thread = -(-bytes_per_thread // _PAGE) * _PAGE + 64
        self._map = mmap.mmap(-1, max(_PAGE, self.bytes_per_thread * threads))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


_free_scratch: list[Scratch] = []


class CpuLauncher:
    """Calls a compiled program. Safe from several Python threads at once."""

    __slots__ = ("_call", "_code", "_has_assert", "_scratch_bytes", "_threads")

    def __init__(self, program: Program, source: Source, artifact: Artifact) -> None:
        symbols = {**runtime_symbols(), **callback_symbols()}
        self._code: LoadedCode = load_object(artifact.data, [ENTRY], symbols)
        types: list[Any] = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        for argument in program_arguments(program):
            if isinstance(argument, Buffer):
                types.append(ctypes.c_void_p)
            else:
                types.append(ctypes.c_double if argument.dtype.is_float else ctypes.c_int64)
        self._call = self._code.function(ENTRY, None, *types)
        extras = [dict(kernel.extra) for kernel in source.kernels]
        self._scratch_bytes = max((int(extra["scratch_bytes"]) for extra in extras), default=0)  # type: ignore[call-overload]
        self._has_assert = any(extra["has_assert"] for extra in extras)
        self._threads = max(available_cores(), requested_threads())

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Run all kernels and return when they are done (a CPU has no streams)."""
        try:
            scratch = _free_scratch.pop()
        except IndexError:
            scratch = Scratch(self._scratch_bytes, self._threads)
        if scratch.bytes_per_thread < self._scratch_bytes:
            scratch = Scratch(self._scratch_bytes, self._threads)
        self._call(scratch.address, scratch.bytes_per_thread, self._threads, *arguments)
        _free_scratch.append(scratch)
        if self._has_assert:
            failure = take_failure()
            if failure is not None:
                raise DeviceAssertError(failure)
