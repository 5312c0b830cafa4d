"""Object code that is reloaded, threads, scratch memory, assertions."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from cpu_programs import build, call

from tilecore.errors import DeviceAssertError
from tilecore.hooks.manager import hooks_of, targets_of
from tilecore.hooks.records import Artifact, CompileOptions
from tilecore.ir.parser import parse_program

WHO = """program f(x: int32[{n}]) level tile {{
  kernel k(b in {n}) threads 32 {{
    x[b] = x[b] + 1
  }}
}}
"""


def test_every_block_runs_once() -> None:
    for count in (1, 2, 7, 1000, 4097):
        x = np.zeros(count, np.int32)
        call(WHO.format(n=count), x)
        assert (x == 1).all()


def test_hooks_compile_to_bytes_that_load_again() -> None:
    hooks = hooks_of("cpu_llvm")
    target = targets_of("cpu_llvm")[0]
    options = CompileOptions()
    program = parse_program(WHO.format(n=3))
    scheduled = hooks.call("tilecore_schedule", program=program, target=target, options=options)
    source = hooks.call("tilecore_emit", program=scheduled, target=target, options=options)
    made = hooks.call("tilecore_compile", source=source, target=target, options=options)
    again = Artifact(bytes(bytearray(made.data)), made.format)
    arguments = {"program": scheduled, "source": source, "target": target}
    for artifact in (made, again):
        launcher = hooks.call("tilecore_create_launcher", artifact=artifact, **arguments)
        x = np.zeros(3, np.int32)
        launcher((x.ctypes.data,))
        assert x.tolist() == [1, 1, 1]
    assert hooks.call("tilecore_probe_device", target=target).processors >= 1
    assert hooks.call("tilecore_synchronize", target=target) is True


def test_the_same_program_gives_the_same_source() -> None:
    hooks, target, options = hooks_of("cpu_llvm"), targets_of("cpu_llvm")[0], CompileOptions()
    texts = set()
    for _ in range(2):
        program = parse_program(WHO.format(n=9))
        scheduled = hooks.call("tilecore_schedule", program=program, target=target, options=options)
        texts.add(
            hooks.call("tilecore_emit", program=scheduled, target=target, options=options).text
        )
    assert len(texts) == 1


def test_calls_from_several_threads_do_not_share_scratch() -> None:
    text = """program f(x: float32[64, 64], y: float32[64, 64]) level tile {
      kernel k(b in 64) threads 32 {
        shared t: float32[1, 64]
        copy x[b:+1, :] -> t[:, :]
        parallel (i, j) in (1, 64) { t[i, j] = t[i, j] * 2.0 }
        copy t[:, :] -> y[b:+1, :]
      }
    }
    """
    launcher = build(text.replace("{ t[i, j] = t[i, j] * 2.0 }", "{\nt[i, j] = t[i, j] * 2.0\n}"))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((64, 64), seed, np.float32)
        for _ in range(200):
            y = np.zeros_like(x)
            launcher((x.ctypes.data, y.ctypes.data))
            if not (y == 2 * seed).all():
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_failed_assertions_are_raised_with_their_message() -> None:
    text = """program f(x: int32[4]) level tile {
      kernel k(b in 4) threads 32 {
        assert x[b] > 0, "x must be positive"
      }
    }
    """
    call(text, np.ones(4, np.int32))
    with pytest.raises(DeviceAssertError, match="x must be positive"):
        call(text, np.array([1, 1, 0, 1], np.int32))
    call(text, np.ones(4, np.int32))


TWO_KERNELS = """program f(x: int32[{n}]) level tile {{
  kernel k(b in {n}) threads 32 {{
    assert x[b] != 1, "one"
    assert x[b] != 2, "two"
  }}
  kernel l(b in {n}) threads 32 {{
    assert x[b] != 3, "three"
  }}
}}
"""


def test_what_is_told_is_the_failure_of_the_first_block() -> None:
    """Whichever thread was faster; and an earlier kernel's comes first."""
    launcher = build(TWO_KERNELS.format(n=1000))
    for places, said in (((700, 300), "one"), ((300, 700), "two"), ((999, 0), "one")):
        x = np.zeros(1000, np.int32)
        x[0] = 3
        x[list(places)] = 2, 1
        for _ in range(20):
            with pytest.raises(DeviceAssertError, match=said):
                launcher((x.ctypes.data,))
    x = np.full(1000, 3, np.int32)
    with pytest.raises(DeviceAssertError, match="three"):
        launcher((x.ctypes.data,))


def test_failures_are_raised_by_the_calls_that_failed() -> None:
    """Of several at the same time, of one kernel."""
    launcher = build(TWO_KERNELS.format(n=64))
    wrong: list[str] = []

    def work(value: int, said: str) -> None:
        x = np.full(64, value, np.int32)
        for _ in range(300):
            told = "nothing"
            try:
                launcher((x.ctypes.data,))
            except DeviceAssertError as error:
                told = str(error)
            if said not in told:
                wrong.append(f"{told} instead of {said}")

    cases = ((0, "nothing"), (1, "one"), (2, "two"), (3, "three"))
    workers = [threading.Thread(target=work, args=case) for case in cases]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, wrong[:3]


def test_print_shows_values(capfd: pytest.CaptureFixture[str]) -> None:
    text = """program f(x: float32[3]) level tile {
      kernel k(b in 1) threads 32 {
        fragment t: float32[3]
        copy x[:] -> t[:]
        print "t is", &t[:]
        print "first", t[0]
      }
    }
    """
    call(text, np.array([1.5, 2.5, 3.5], np.float32))
    shown = capfd.readouterr().out
    assert "t is [1.5 2.5 3.5]" in shown and "first 1.5" in shown


CHILD = """
import sys
sys.path.insert(0, {folder!r})
import os
import numpy as np
from cpu_programs import build, call
build({text!r})
BEFORE = len(os.listdir("/proc/self/task"))
x = np.zeros(1000, np.int32)
call({text!r}, x)
assert (x == 1).all()
from tilecore_backend_cpu.threads import requested_threads
print(requested_threads(), len(os.listdir("/proc/self/task")) - BEFORE)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no list of threads here")
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("runtime", ["", "pool"], ids=["openmp", "pool"])
def test_both_thread_runtimes_take_as_many_as_they_are_told(runtime: str, threads: int) -> None:
    child = CHILD.format(folder=os.path.dirname(__file__), text=WHO.format(n=1000))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TILECORE_CPU_THREADS": runtime}
    done = subprocess.run(
        [sys.executable, "-c", child], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    requested, started = map(int, done.stdout.split())
    assert requested == threads
    # The calling thread works, too; the pool starts no more threads than it finds idle ones.
    least = min(threads - 1, 1) if runtime == "pool" else threads - 1
    assert least <= started <= threads - 1


FORKED = """
import sys
sys.path.insert(0, {folder!r})
import os, signal
import numpy as np
from cpu_programs import build, call
x = np.zeros(1000, np.int32)
call({text!r}, x)
def run_in_child(text, depth):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(200)
    y = np.zeros(1000, np.int32)
    call(text, y)
    below = run_in_child(text, depth - 1) if depth else 0
    os._exit(below if (y == 1).all() else 3)
assert run_in_child({text!r}, 1) == 0  # and a fork of the fork
assert run_in_child({text!r}.replace("p()", "q()").replace("program p", "program q"), 0) == 0
call({text!r}, x)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("runtime", ["", "pool"], ids=["openmp", "pool"])
def test_kernels_run_in_a_process_forked_after_others_ran(runtime: str) -> None:
    """It has none of its parent's threads, and must not wait for them."""
    child = FORKED.format(folder=os.path.dirname(__file__), text=WHO.format(n=1000))
    environment = {**os.environ, "OMP_NUM_THREADS": "4", "TILECORE_CPU_THREADS": runtime}
    done = subprocess.run(
        [sys.executable, "-c", child], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
