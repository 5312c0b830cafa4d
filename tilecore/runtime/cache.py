"""The disk cache of compiled kernels: content-addressed, shared by processes, self-checking.

An entry is one file named by its key. It appears by an atomic rename, so a reader sees all of it
or none; it carries a checksum, so a damaged one is noticed, reported and compiled anew; a lock per
key makes several processes that want the same kernel compile it once.

Environment:
    TILECORE_CACHE_DIR: where the cache lives instead of the user's cache directory.
    TILECORE_CACHE_BYTES: its size bound in bytes.
    TILECORE_DISABLE_CACHE: anything but ``""`` and ``"0"`` turns it off.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from tilecore.errors import CacheWarning
from tilecore.forking import FreshLock
from tilecore.runtime.entry import CacheEntry, CorruptEntry

DEFAULT_MAX_BYTES = 2 * 2**30
_KEEP_SHARE = 0.8  # eviction goes this far below the bound, so that it is rare
_LOCK_SECONDS = 600.0  # longer than any compilation; a lock held longer has a hung holder
_SUFFIX = ".kernel"
_UNFINISHED = ".new-"  # begins the name of a file that is being written
_UNFINISHED_SECONDS = 3600.0  # after which it will not be finished


class KernelCache:
    """Compiled kernels on disk, found by key.

    Args:
        root: directory; None takes ``TILECORE_CACHE_DIR`` or the user's cache directory.
        max_bytes: size bound; None takes ``TILECORE_CACHE_BYTES`` or 2 GiB. The entries that
            were not used for longest are removed first.
        enabled: None follows ``TILECORE_DISABLE_CACHE``, read at each call.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        max_bytes: int | None = None,
        enabled: bool | None = None,
    ) -> None:
        self._root = None if root is None else Path(root)
        self._max_bytes = max_bytes
        self._enabled = enabled
        self._known_bytes: int | None = None  # size of the entries, by our last look
        self._guard = FreshLock()

    @property
    def root(self) -> Path:
        """Where the entries are."""
        if self._root is not None:
            return self._root
        configured = os.environ.get("TILECORE_CACHE_DIR")
        return Path(configured) if configured else platformdirs.user_cache_path("tilecore")

    @property
    def enabled(self) -> bool:
        """False when nothing is read or written."""
        if self._enabled is not None:
            return self._enabled
        return os.environ.get("TILECORE_DISABLE_CACHE", "") in ("", "0")

    @property
    def max_bytes(self) -> int:
        """The size bound in bytes."""
        if self._max_bytes is not None:
            return self._max_bytes
        given = os.environ.get("TILECORE_CACHE_BYTES", "")
        if not given or (given.isascii() and given.isdigit()):
            return int(given or DEFAULT_MAX_BYTES)
        _warn(f"TILECORE_CACHE_BYTES is no number of bytes: {given!r}; it is {DEFAULT_MAX_BYTES}")
        return DEFAULT_MAX_BYTES

    def get(self, key: str) -> CacheEntry | None:
        """The entry of `key`, or None. A damaged entry is removed, with a `CacheWarning`."""
        if not self.enabled:
            return None
        path = self._path(key)
        try:
            entry = CacheEntry.from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(f"cannot read {path} ({error.strerror}); compiling again")
            return None
        except CorruptEntry as error:
            _warn(f"damaged cache entry {path}: {error}; compiling again")
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)  # its age is what eviction goes by
        return entry

    def put(self, key: str, entry: CacheEntry) -> None:
        """Store `entry`. A cache that cannot be written is reported, and is no error."""
        if not self.enabled:
            return
        path = self._path(key)
        content = entry.to_bytes()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, content)
        except OSError as error:
            _warn(f"cannot write {path} ({error.strerror}); this kernel is not cached")
            return
        self._grow(len(content))

    def get_or_create(self, key: str, create: Callable[[], CacheEntry]) -> CacheEntry:
        """The entry of `key`, made by `create` if there is none.

        Of several processes and threads that ask at once, one calls `create` and the others wait
        for its entry. What `create` raises passes through, and the next one in line tries.
        """
        if not self.enabled:
            return create()
        entry = self.get(key)
        if entry is not None:
            return entry
        lock = self._acquire(key)
        try:
            entry = self.get(key)  # someone may have made it while we waited
            if entry is None:
                entry = create()
                self.put(key, entry)
            return entry
        finally:
            if lock is not None:
                lock.release()

    def clear(self) -> None:
        """Remove every entry."""
        for path, _, _ in self._entries():
            with suppress(OSError):
                path.unlink()
        self._remove_unfinished()
        self._known_bytes = 0

    def size_bytes(self) -> int:
        """Bytes that the entries take."""
        return sum(size for _, size, _ in self._entries())

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / (key + _SUFFIX)

    def _acquire(self, key: str) -> FileLock | None:
        """The lock of one key, or None (with a warning) where the disk cannot give one."""
        path = self.root / "locks" / (key + ".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not a singleton and not thread-local: two threads of this process exclude each other.
            lock = FileLock(path, timeout=_LOCK_SECONDS, thread_local=False)
            lock.acquire()
        except Timeout:
            _warn(f"{path} was held for {_LOCK_SECONDS:.0f} s; compiling without it")
            return None
        except (OSError, NotImplementedError) as error:
            _warn(f"cannot lock {path} ({error}); compiling without it")
            return None
        return lock

    def _entries(self) -> list[tuple[Path, int, float]]:
        """(path, bytes, time of last use) of every entry that is still there."""
        found: list[tuple[Path, int, float]] = []
        for path in self.root.glob(f"??/*{_SUFFIX}"):
            with suppress(OSError):
                status = path.stat()
                found.append((path, status.st_size, status.st_mtime))
        return found

    def _grow(self, added: int) -> None:
        """Count what was written; look at the disk only when the bound may have been passed."""
        with self._guard:
            if self._known_bytes is None:
                self._known_bytes = self.size_bytes()
            else:
                self._known_bytes += added
            if self._known_bytes > self.max_bytes:
                self._known_bytes = self._evict()

    def _evict(self) -> int:
        """Remove entries, oldest use first, and the locks no one holds; the bytes that stay."""
        self._remove_unfinished()
        entries = sorted(self._entries(), key=lambda item: item[2])
        total = sum(size for _, size, _ in entries)
        goal = int(self.max_bytes * _KEEP_SHARE)
        for path, size, _ in entries[:-1]:  # the newest stays even if it alone is too big
            if total <= goal:
                break
            with suppress(OSError):
                path.unlink()
                total -= size
                _remove_idle_lock(self.root / "locks" / (path.stem + ".lock"))
        return total

    def _remove_unfinished(self) -> None:
        """Remove what killed processes left of entries."""
        for path in self.root.glob(f"??/{_UNFINISHED}*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _UNFINISHED_SECONDS:
                    path.unlink()


def _remove_idle_lock(path: Path) -> None:
    # A process that waits on the removed file compiles beside a newcomer: twice the work, one
    # result, since entries are published by rename.
    with suppress(OSError, Timeout), FileLock(path, timeout=0):
        path.unlink()


def _write_atomically(path: Path, content: bytes) -> None:
    """Write beside `path`, and rename over it.

    Not flushed to the disk, which takes as long as some passes: an entry that a crash of the
    machine left unfinished fails its checksum.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=3)
