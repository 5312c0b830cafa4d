"""Several programs at a time, each with its time limit."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
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
    """

    path: str
    state: str
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lowered: list[str] = field(default_factory=list)


def read_results(record: Path) -> dict[str, Result]:
    """What an earlier run kept, by path; nothing where there was none."""
    if not record.exists():
        return {}
    rows = map(json.loads, record.read_text("utf-8").splitlines())
    return {one["path"]: Result(**one) for one in rows}


def summarise(path: str, out: Path, seconds: float, *, stopped: bool, limit: float) -> Result:
    """The result of a file from the verdicts that its process wrote."""
    rows = []
    if out.exists():
        rows = [json.loads(row) for row in out.read_text("utf-8").splitlines() if row]
    planned = next((row["planned"] for row in rows if "planned" in row), None)
    verdicts = [row for row in rows if "state" in row]
    counts: dict[str, int] = {}
    for row in verdicts:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
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


def run_all(
    paths: list[str],
    root: Path,
    checkout: Path,
    work: Path,
    *,
    jobs: int,
    limit: float,
    deadline: float | None = None,
    report: Callable[[Result], None],
) -> Iterator[Result]:
    """Run all files below `root`; files that fail with smaller sizes are run with their own."""
    waiting = [(path, True) for path in paths]
    running: dict[int, tuple[str, bool, float]] = {}
    while waiting or running:
        late = deadline is not None and time.time() > deadline
        while waiting and len(running) < jobs and not late:
            path, small = waiting.pop(0)
            out = work / (path.replace("/", "+") + ".json")
            out.unlink(missing_ok=True)
            pid = start(
                root / path,
                root,
                checkout,
                out,
                out.with_suffix(".log"),
                small=small,
                cpu_seconds=round(limit),
            )
            running[pid] = (path, small, time.time())
        if late and not running:
            return
        for pid, (path, small, began) in list(running.items()):
            taken = time.time() - began
            found, status = os.waitpid(pid, os.WNOHANG)
            ended = found == pid
            if not ended and taken < PATIENCE * limit:
                continue
            if not ended:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            ended = ended and not (
                os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
            )
            del running[pid]
            out = work / (path.replace("/", "+") + ".json")
            result = summarise(path, out, taken, stopped=not ended, limit=limit)
            if small and result.lowered and ended and result.state == FAIL:
                waiting.insert(0, (path, False))
                continue
            report(result)
            yield result
        time.sleep(0.05)
