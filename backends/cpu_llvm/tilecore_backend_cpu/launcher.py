"""Loaded programs: scratch memory and the call into generated code."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any

from tilecore.errors import DeviceAssertError
from tilecore.hooks.records import Artifact, Source
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.program import Program
from tilecore.ir.signature import program_arguments

from .diagnostics import callback_symbols, take_failure
from .entry import ENTRY, WORKSPACE
from .jit import LoadedCode, load_object
from .threads import available_cores, requested_threads, runtime_symbols, team_limit

_PAGE = 4096
_LARGE_PAGE = 2 << 20
"""Where the system has pages of this size, memory has to begin at one to be made of them."""


MOST_WORKSPACE_BYTES = 1 << 31
"""Above this, blocks pack their own tiles rather than keep all of an operand a second time."""


class Pages:
    """Memory aligned to a page, to a large one if it is as large; it costs nothing until touched.

    Packed tiles on small pages were measured up to a quarter slower: each multiplication reads
    four or more of them at a time, more than the processor keeps addresses of.
    """

    __slots__ = ("_map", "address", "bytes")

    def __init__(self, size: int) -> None:
        self.bytes = max(_PAGE, size)
        align = _LARGE_PAGE if self.bytes >= _LARGE_PAGE // 2 else _PAGE
        size = -(-self.bytes // align) * align + align
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError, AttributeError):  # only advice: some kernels lack it
            self._map.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = -(-start // align) * align


class Scratch:
    """Memory of one call: a part for each thread, and a workspace for shared tiles."""

    __slots__ = ("bytes_per_thread", "pages", "workspace")

    def __init__(self) -> None:
        self.bytes_per_thread = 0
        self.pages: Pages | None = None
        self.workspace: Pages | None = None

    def reserve(self, bytes_per_thread: int, threads: int, workspace_bytes: int) -> tuple[int, int]:
        """Addresses of the threads' parts and of the workspace (0 for none); grows as needed."""
        if self.pages is None or self.bytes_per_thread < bytes_per_thread:
            # An odd number of cache lines between threads keeps them out of each other's sets.
            self.bytes_per_thread = -(-bytes_per_thread // _PAGE) * _PAGE + 64
            self.pages = Pages(self.bytes_per_thread * threads)
        if workspace_bytes == 0 or workspace_bytes > MOST_WORKSPACE_BYTES:
            return self.pages.address, 0
        if self.workspace is None or self.workspace.bytes < workspace_bytes:
            self.workspace = Pages(workspace_bytes)
        return self.pages.address, self.workspace.address


_free_scratch: list[Scratch] = []


class CpuLauncher:
    """Calls a compiled program. Safe from several Python threads at once."""

    __slots__ = ("_call", "_code", "_has_assert", "_scratch_bytes", "_threads", "_workspace")

    def __init__(self, program: Program, source: Source, artifact: Artifact) -> None:
        symbols = {**runtime_symbols(), **callback_symbols()}
        self._code: LoadedCode = load_object(artifact.data, [ENTRY, WORKSPACE], symbols)
        types: list[Any] = []
        for argument in program_arguments(program):
            if isinstance(argument, Buffer):
                types.append(ctypes.c_void_p)
            else:
                types.append(ctypes.c_double if argument.dtype.is_float else ctypes.c_int64)
        fixed = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self._call = self._code.function(ENTRY, None, *fixed, *types)
        self._workspace = self._workspace_of(program, types)
        extras = [dict(kernel.extra) for kernel in source.kernels]
        self._scratch_bytes = max((int(extra["scratch_bytes"]) for extra in extras), default=0)  # type: ignore[call-overload]
        self._has_assert = any(extra["has_assert"] for extra in extras)
        self._threads = max(available_cores(), requested_threads())

    def _workspace_of(self, program: Program, types: list[Any]) -> int | Any:
        """Workspace bytes: a number, or the function that tells for the sizes of a call."""
        function = self._code.function(WORKSPACE, ctypes.c_int64, *types)
        if program.symbols or any(isinstance(param, Var) for param in program.params):
            return function
        return int(function(*[0] * len(types)))

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Run all kernels and return when they are done (a CPU has no streams)."""
        try:
            scratch = _free_scratch.pop()
        except IndexError:
            scratch = Scratch()
        wanted = (
            self._workspace if isinstance(self._workspace, int) else self._workspace(*arguments)
        )
        memory, workspace = scratch.reserve(self._scratch_bytes, self._threads, wanted)
        limit = team_limit(self._threads)
        self._call(memory, scratch.bytes_per_thread, limit, workspace, *arguments)
        failure = take_failure(memory) if self._has_assert else None
        _free_scratch.append(scratch)
        if failure is not None:
            raise DeviceAssertError(failure)
