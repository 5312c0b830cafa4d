"""Processes that are forked while another thread compiles: they compile, too, or say why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tilecore import forking
from tilecore.errors import ToolchainError
from tilecore.forking import FreshLock, no_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

FORKS = 30

WHILE_COMPILING = """
import itertools, os, signal, sys, threading, time, traceback
import numpy as np
import tilecore
import tilecore.language as T

backend, arch, device, forks = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def program(factor):
    @T.prim_func
    def scale(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < 100:
                    B[bx * 32 + i] = A[bx * 32 + i] * factor

    return scale


def compile_and_run(factor):
    kernel = tilecore.compile(program(float(factor)), backend, arch=arch or None, device=device)
    if device == "emulator" or backend == "cpu_llvm":
        a, b = np.ones(100, np.float32), np.zeros(100, np.float32)
        kernel(a, b)
        assert (b == factor).all()


numbers = itertools.count(1)
started, done = threading.Event(), threading.Event()


def compile_on():
    try:
        while not done.is_set():
            compile_and_run(next(numbers))
            started.set()
    except BaseException:
        traceback.print_exc()
        os._exit(4)


thread = threading.Thread(target=compile_on)
thread.start()
started.wait()
hung = 0
for turn in range(forks):
    time.sleep(0.003 * (turn % 7))
    child = os.fork()
    if child == 0:
        signal.alarm(200)
        try:
            compile_and_run(100_000 + turn)
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(repr(error))
            os._exit(3)
    hung += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    if hung:
        break
done.set()
thread.join()
print(hung)
"""


def forked(folder: Path, *arguments: object) -> str:
    script = folder / "forks.py"
    script.write_text(WHILE_COMPILING)
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        env={**os.environ, "TILECORE_DISABLE_CACHE": "1"},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_children_forked_while_a_thread_compiles(tmp_path: Path) -> None:
    assert forked(tmp_path, "cpu_llvm", "", "native", FORKS) == "0\n"


@pytest.mark.slow  # compilers of seconds, for which each fork waits
@pytest.mark.parametrize("device", ["native", "emulator"])
def test_children_forked_while_a_thread_compiles_for_lanes(device: str, tmp_path: Path) -> None:
    if device == "native":
        pytest.importorskip("cuda.bindings.nvrtc")
    assert forked(tmp_path, "cuda_ampere", "sm_80", device, 10) == "0\n"


def in_child(work: Callable[[], bool]) -> bool:
    """What `work` says in a forked process. One that hangs is ended."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(200)
        answer = False
        try:
            answer = work()
        finally:
            os._exit(0 if answer else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def another_thread_inside(section: Any) -> Iterator[Callable[[], None]]:
    """Another thread is in `section` until the block ends, or what is given is called."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with section:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    try:
        yield leave.set
    finally:
        leave.set()
        thread.join()


def test_a_lock_that_another_thread_held_is_free_in_a_child() -> None:
    lock, mine = FreshLock(), FreshLock()

    def take() -> bool:
        with lock, mine:
            return True

    with another_thread_inside(lock), mine:
        assert in_child(take)
    assert in_child(take)


def test_a_fork_waits_for_what_is_under_way_and_not_for_its_own_thread() -> None:
    def enter() -> bool:
        with no_fork():
            return True

    with another_thread_inside(no_fork()) as leave:
        threading.Timer(0.3, leave).start()
        assert in_child(enter)
    with no_fork():
        assert in_child(enter)
    assert enter()


def test_a_fork_that_waited_long_goes_ahead_and_compiles_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(forking, "FORK_SECONDS", 0.1)

    def refused() -> bool:
        with pytest.raises(ToolchainError, match="forked while another thread"), no_fork():
            pass
        return True

    with another_thread_inside(no_fork()):
        assert in_child(refused)
        assert in_child(lambda: in_child(refused))
    with no_fork():
        pass


def test_locks_from_outside_are_held_around_a_fork(monkeypatch: Any) -> None:
    lock, seen = threading.Lock(), []
    monkeypatch.setattr(forking, "_holders", [])
    forking.hold_around_forks(lock.acquire, lambda: (seen.append(lock.locked()), lock.release()))
    assert in_child(lambda: seen == [True] and not lock.locked())
    assert seen == [True] and not lock.locked()
