"""The size bound of a folder of built files: those not used for longest go first.

Nothing goes that was used within the last hour: a process that has just looked at a file may be
about to load it. What is loaded stays usable when its file goes.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import filelock

DEFAULT_MAX_BYTES = 2 * 2**30
"""As of the cache of compiled kernels; ``TILECORE_CACHE_BYTES`` bounds each of the two."""
KEPT_SHARE = 0.8
"""Eviction goes this far below the bound, so that it is rare."""
IN_USE_SECONDS = 3600.0
LOCK = "eviction.lock"

_known: dict[Path, int] = {}  # bytes in a folder, by this process's last look


def max_bytes() -> int:
    """The bound in bytes; nonsense in the environment is told by the other cache."""
    given = os.environ.get("TILECORE_CACHE_BYTES", "")
    return int(given) if given.isascii() and given.isdigit() else DEFAULT_MAX_BYTES


def note_use(*paths: Path) -> None:
    """Make these files the youngest."""
    for path in paths:
        with suppress(OSError):
            os.utime(path)


def grow(folder: Path, added: int) -> None:
    """Count what was written; look at the disk only when the bound may have been passed."""
    if folder in _known:
        _known[folder] += added
    else:
        _known[folder] = sum(size for _, size, _ in _files(folder))
    if _known[folder] > max_bytes():
        _known[folder] = evict(folder)


def evict(folder: Path) -> int:
    """Remove the oldest files, unless another process does just now; the bytes that stay."""
    try:
        with filelock.FileLock(folder / LOCK, timeout=0, thread_local=False):
            return _evicted(folder)
    except (OSError, NotImplementedError):  # filelock's Timeout is an OSError
        return 0  # counted again after the next bound's worth of files


def _evicted(folder: Path) -> int:
    files = sorted(_files(folder), key=lambda file: file[2])
    total = sum(size for _, size, _ in files)
    goal, youngest = int(max_bytes() * KEPT_SHARE), time.time() - IN_USE_SECONDS
    for path, size, used in files:
        if total <= goal or used > youngest:
            break
        with suppress(OSError):
            path.unlink()
            total -= size
    return total


def _files(folder: Path) -> list[tuple[Path, int, float]]:
    """(path, bytes, time of last use) of all files but locks."""
    found: list[tuple[Path, int, float]] = []
    for place, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(".lock"):
                with suppress(OSError):
                    path = Path(place) / name
                    status = path.stat()
                    found.append((path, status.st_size, status.st_mtime))
    return found
