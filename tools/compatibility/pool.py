"""Several programs at a time, each with its time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.compatibility.child import start
from tools.compatibility.verdict import FAIL, NO_PROGRAM, NOT_PORTABLE, PASS, TIME, TOO_LARGE

PATIENCE = 8
"""Seconds that a file may take for each second of processor time that it may use."""


@dataclass(slots=True)
class Result:
    """What became of one file.

    Attributes:
        path: below the checkout.
        state: of the whole file.
        counts: verdicts of its tests (or its one program) by state.
        reasons: reasons of those that did not pass, most frequent first, without repetition.
        seconds: it took.
        lowered: names of the sizes that were lowered.
        tree: the commit of tilecore that ran it.
        limit: seconds of processor time that it had; 0 stands for the run's own.
    """

    path: str
    state: str
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lowered: list[str] = field(default_factory=list)
    tree: str = ""
    limit: float = 0.0


def summarise(path: str, out: Path, seconds: float, *, stopped: bool, limit: float) -> Result:
    """The result of a file from the verdicts that its process wrote."""
    rows = []
    if out.exists():
        rows = [json.loads(row) for row in out.read_text("utf-8").splitlines() if row]
    planned = next((row["planned"] for row in rows if "planned" in row), None)
    verdicts = [row for row in rows if "state" in row]
    counts = dict(Counter(row["state"] for row in verdicts))
    ordered = sorted(verdicts, key=lambda row: row["state"] != FAIL)  # failures first
    reasons = list(dict.fromkeys(row["reason"] for row in ordered if row["reason"]))
    if stopped:
        left = "the program" if planned is None else f"{planned - len(verdicts)} of {planned} tests"
        reasons.append(f"{left} not done within {limit:g} s of processor time")
    elif not verdicts:
        what = "no tests in it" if planned == 0 else "the process ended without a verdict"
        state = NO_PROGRAM if planned == 0 else FAIL
        return Result(path, state, counts, [what], seconds)
    lowered = [name for row in rows for name in row.get("lowered", ())]
    for state in (FAIL, TIME, PASS, TOO_LARGE, NOT_PORTABLE, NO_PROGRAM):
        if counts.get(state) or (state == TIME and stopped):
            return Result(path, state, counts, reasons, seconds, lowered)
    raise AssertionError(f"{path}: no state among {counts}")


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has no group of its own yet
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@dataclass(frozen=True, slots=True)
class Pool:
    """Where programs are, and what each of them may use.

    Attributes:
        root: where the rewritten files are.
        checkout: where the files are as they were written.
        work: gets each file's verdicts and its log.
        limit: seconds of processor time of one file.
    """

    root: Path
    checkout: Path
    work: Path
    limit: float

    def _out(self, path: str) -> Path:
        return self.work / (path.replace("/", "+") + ".json")

    def start(self, path: str, small: bool) -> int:
        """Start one file's process; its id."""
        out = self._out(path)
        out.unlink(missing_ok=True)
        log = out.with_suffix(".log")
        seconds = round(self.limit)
        file = self.root / path
        return start(file, self.root, self.checkout, out, log, small=small, cpu_seconds=seconds)

    def collect(self, pid: int, path: str, began: float) -> tuple[Result, bool] | None:
        """The result of a process that ended, and whether it did so itself; None while it runs."""
        taken = time.time() - began
        found, status = os.waitpid(pid, os.WNOHANG)
        ended = found == pid
        if not ended and taken < PATIENCE * self.limit:
            return None
        if not ended:
            _end(pid)
        by_signal = os.WIFSIGNALED(status) and os.WTERMSIG(status) in _LIMIT_SIGNALS
        ended = ended and not by_signal
        limit = self.limit
        return summarise(path, self._out(path), taken, stopped=not ended, limit=limit), ended


_LIMIT_SIGNALS = (signal.SIGXCPU, signal.SIGKILL)


def run_all(
    paths: list[str],
    pool: Pool,
    *,
    jobs: int,
    deadline: float | None = None,
    stop: float | None = None,
) -> Iterator[Result]:
    """Run all files; those that fail with smaller sizes are run with their own.

    Args:
        paths: of the files below the pool's root, in this order.
        pool: where they are and what they may use.
        jobs: files at a time.
        deadline: no file is started after this time (of `time.time`).
        stop: files that run at this time are ended without a result.
    """
    waiting = [(path, True) for path in paths]
    running: dict[int, tuple[str, bool, float]] = {}
    while waiting or running:
        late = deadline is not None and time.time() > deadline
        while waiting and len(running) < jobs and not late:
            path, small = waiting.pop(0)
            running[pool.start(path, small)] = (path, small, time.time())
        if stop is not None and time.time() > stop:
            for pid in running:
                _end(pid)
            return
        if late and not running:
            return
        for pid, (path, small, began) in list(running.items()):
            found = pool.collect(pid, path, began)
            if found is None:
                continue
            del running[pid]
            result, ended = found
            if small and result.lowered and ended and result.state == FAIL:
                waiting.insert(0, (path, False))
                continue
            yield result
        time.sleep(0.05)
