"""The team of threads: GNU OpenMP's runtime where it is, a Python thread pool elsewhere.

Generated code calls ``GOMP_parallel`` and ``omp_get_max_threads``; this module says where they are.
An OpenMP runtime that the process has loaded already (torch brings one) is shared, so that two
teams do not compete for the cores, and ``OMP_NUM_THREADS`` holds for both.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
_COUNT = ctypes.CFUNCTYPE(ctypes.c_int)

MOST_THREADS = 1024
"""However many OMP_NUM_THREADS says: each has memory of its own set apart."""


def available_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _loaded_runtime() -> str | None:
    """Path of a libgomp in this process, if there is one."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = [line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line]
    return paths[0] if paths else None


@lru_cache(maxsize=1)
def runtime_symbols() -> dict[str, int]:
    """Addresses of the two functions that generated code calls."""
    for name in (_loaded_runtime(), ctypes.util.find_library("gomp")):
        if name is None or os.environ.get("TILECORE_CPU_THREADS") == "pool":
            continue
        try:
            library = ctypes.CDLL(name)
            return {
                symbol: ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
                for symbol in ("GOMP_parallel", "omp_get_max_threads")
            }
        except (OSError, AttributeError):
            continue
    return _pool_symbols()


def requested_threads() -> int:
    """Threads of the fallback pool: OMP_NUM_THREADS, else all cores."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not (text.isascii() and text.isdigit()):
        return available_cores()
    return max(1, min(int(text[:9]), max(available_cores(), MOST_THREADS)))


class _Fork:
    """Whether this process was forked from one whose team may have been at work.

    A fork has none of its parent's threads, yet both runtimes believe in theirs and would wait for
    them forever.
    """

    lost_team = False

    @classmethod
    def in_child(cls) -> None:
        """Called in every forked process."""
        if runtime_symbols.cache_info().currsize or _loaded_runtime() is not None:
            cls.lost_team = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Fork.in_child)


def team_limit(most: int) -> int:
    """The number of threads that a launch may use: `most`, in forked processes one."""
    return 1 if _Fork.lost_team else most


@lru_cache(maxsize=1)
def _pool_symbols() -> dict[str, int]:
    callbacks = _pool_callbacks()
    return {name: ctypes.cast(one, ctypes.c_void_p).value or 0 for name, one in callbacks.items()}


@lru_cache(maxsize=1)
def _pool_callbacks() -> dict[str, Any]:
    """The same two functions over a thread pool; workers run without Python's lock."""
    pool = ThreadPoolExecutor(requested_threads(), thread_name_prefix="tilecore")

    def parallel(work: int, record: int, count: int, flags: int) -> None:
        call = _WORK(work)
        others = [pool.submit(call, record) for _ in range(count - 1)]
        call(record)
        for other in others:
            other.result()

    return {"GOMP_parallel": _PARALLEL(parallel), "omp_get_max_threads": _COUNT(requested_threads)}
