"""Forks beside other threads: no lock stays locked in the child, and no compiler stops half-way.

A forked process has one thread, the one that forked. Whatever lock another thread held at that
moment is held for ever in the child, and a compiler in which it was at work is half-way through.
Two means against that: `FreshLock` is free in every forked process, for locks that guard a few
steps of Python; `no_fork` makes a fork wait until a compiler has ended.

A fork that waited for `FORK_SECONDS` goes ahead. `no_fork` then raises in the child, which cannot
go on safely, instead of waiting for what never comes.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType

from tilecore.errors import ToolchainError

FORK_SECONDS = 120.0
"""Longer than nearly every compilation: a fork waits as long for those of other threads."""


class FreshLock:
    """A reentrant lock that no one holds in a process which was just forked."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _fresh_locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget other threads. This one keeps what it holds."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_fresh_locks: weakref.WeakSet[FreshLock] = weakref.WeakSet()


class _Gate:
    """Threads inside of compilers, and the fork that waits for them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside: dict[int, int] = {}  # thread -> depth
        self.forking: int | None = None  # thread
        self.held: list[Callable[[], object]] = []  # releases, to be called after the fork
        self.lost = False  # this process was forked while a compiler of its parent was at work

    def others(self) -> bool:
        """Whether a thread besides this one is in a compiler."""
        return any(thread != threading.get_ident() for thread in self.inside)

    def enter(self) -> None:
        me = threading.get_ident()
        with self.changed:
            if me not in self.inside:  # else the fork waits for this thread
                self.changed.wait_for(lambda: self.forking in (None, me))
            self.inside[me] = self.inside.get(me, 0) + 1

    def leave(self) -> None:
        me = threading.get_ident()
        with self.changed:
            depth = self.inside.pop(me, 1) - 1
            if depth > 0:
                self.inside[me] = depth
            self.changed.notify_all()

    def before_fork(self) -> None:
        me = threading.get_ident()
        with self.changed:
            self.changed.wait_for(lambda: self.forking in (None, me))
            self.forking = me
            self.changed.wait_for(lambda: not self.others(), FORK_SECONDS)
        if not self.others():  # else what they hold is not to be had
            for acquire, release in _holders:
                acquire()
                self.held.append(release)

    def after_fork(self) -> None:
        while self.held:
            self.held.pop()()
        with self.changed:
            self.forking = None
            self.changed.notify_all()

    def in_child(self) -> None:
        for lock in _fresh_locks:
            lock.renew()
        self.lost = self.lost or self.others()
        me = threading.get_ident()
        self.inside = {me: self.inside[me]} if me in self.inside else {}
        self.changed = threading.Condition()
        self.after_fork()


_holders: list[tuple[Callable[[], object], Callable[[], object]]] = []
_gate = _Gate()


@contextmanager
def no_fork() -> Generator[None]:
    """Around the work of a compiler within this process: forks by other threads wait for its end.

    Raises:
        ToolchainError: this process was forked while another thread was in here for long.
    """
    if _gate.lost:
        raise ToolchainError(
            "this process was forked while another thread of its parent compiled",
            expected=f"a compilation of less than {FORK_SECONDS:g} s, or no fork beside it",
            hint='fork before compiling, or start processes by "spawn"',
        )
    _gate.enter()
    try:
        yield
    finally:
        _gate.leave()


def hold_around_forks(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Have a foreign lock held while this process forks, so that it is free in the child.

    Acquired after all threads left `no_fork`, in the order of the calls; released in parent and
    child.
    """
    _holders.append((acquire, release))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_gate.before_fork,
        after_in_parent=_gate.after_fork,
        after_in_child=_gate.in_child,
    )
