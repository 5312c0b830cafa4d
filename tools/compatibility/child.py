"""One program in one process: runs it and writes one JSON line for each verdict."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilecore import driver
from tools.compatibility.host_device import OnHost, pretend
from tools.compatibility.reachable import reached_outside
from tools.compatibility.small_sizes import changed, shrink, with_small_sizes
from tools.compatibility.verdict import (
    FAIL,
    NO_PROGRAM,
    NOT_PORTABLE,
    PASS,
    Outcome,
    judge,
    short,
)

WRONG_ON_PURPOSE = {
    "examples/autodd/tilelang_buggy.py": Outcome(
        NOT_PORTABLE, "wrong on purpose: input of a tool that reduces failing programs"
    ),
}
"""Programs that must not run."""

TESTS_EACH = 2
"""Parameter sets run of each test function: the first ones."""


class Recorder:
    """A pytest plugin that keeps the first parameter sets and records verdicts."""

    def __init__(self, out: Any, root: Path, written: Path) -> None:
        self.out = out
        self.root = root
        self.written = written

    def write(self, name: str, outcome: Outcome) -> None:
        """Append one verdict."""
        record = {"name": name, "state": outcome.state, "reason": outcome.reason}
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def note_sizes(self) -> None:
        """Say that sizes were lowered, so that a failure is looked at with the program's own."""
        if changed:
            self.out.write(json.dumps({"lowered": sorted(set(changed))}) + "\n")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep `TESTS_EACH` of each function, and announce what is to run."""
        seen: Counter[str] = Counter()
        kept = []
        for item in items:
            seen[item.originalname or item.name] += 1
            if seen[item.originalname or item.name] <= TESTS_EACH:
                kept.append(item)
        items[:] = kept
        self.out.write(json.dumps({"planned": len(kept)}) + "\n")
        self.out.flush()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Record how a test ended."""
        result = yield
        report = result.get_result()
        if call.excinfo is not None and not report.skipped:
            test = item.originalname or item.name
            self.write(item.name, judge(call.excinfo.value, self.root, self.written, test))
        elif report.skipped:
            reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else "skipped"
            self.write(item.name, Outcome(NOT_PORTABLE, str(reason).removeprefix("Skipped: ")))
        elif report.when == "call":
            self.write(item.name, Outcome(PASS))

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        """Record why a file could not be collected."""
        if isinstance(node, pytest.Collector):
            error = call.excinfo.value
            if isinstance(error, node.CollectError):
                error = error.__cause__ or error.__context__ or error
            self.write("import", judge(error, self.root, self.written))


def runs_something(text: str) -> bool:
    """True when a file does something on its own: a ``__main__`` block, or calls at its top."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
            return True
        if isinstance(node, ast.For | ast.With | ast.Assert):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return True
    return False


def run_program(path: Path, root: Path, checkout: Path, out: Path, *, small: bool) -> None:
    """Run a file of tests with pytest, any other file as a program."""
    os.chdir(path.parent)
    sys.path[:0] = [str(path.parent)]
    sys.argv = [str(path)]
    pretend()
    if small:
        shrink(root)
    with out.open("w", encoding="utf-8") as stream, OnHost():
        written = checkout / path.relative_to(root)
        recorder = Recorder(stream, root, written)
        if path.name.startswith("test_"):
            options = ["-q", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts="]
            pytest.main([str(path), *options, f"--rootdir={root}"], plugins=[recorder])
            recorder.note_sizes()
            return
        if not runs_something(path.read_text(encoding="utf-8")):
            recorder.write("main", Outcome(NO_PROGRAM, "defines functions only"))
            return
        outcome = WRONG_ON_PURPOSE.get(path.relative_to(root).as_posix(), Outcome(PASS))
        if outcome.state != PASS:
            recorder.write("main", outcome)
            return
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            code = compile(
                with_small_sizes(tree) if small else tree, str(path), "exec", dont_inherit=True
            )
            module = ModuleType("__main__")
            module.__file__ = str(path)
            sys.modules["__main__"] = module
            exec(code, vars(module))
        except SystemExit as error:
            if error.code not in (None, 0):
                outcome = Outcome(FAIL, f"exit status {error.code}")
                other = reached_outside(written, None)
                if other:
                    outcome = Outcome(NOT_PORTABLE, short(other))
        except BaseException as error:
            outcome = judge(error, root, written)
        if outcome.state == PASS and not driver._memory:
            outcome = Outcome(NO_PROGRAM, "compiles no kernel when it is run")
        recorder.write("main", outcome)
        recorder.note_sizes()


def start(
    path: Path, root: Path, checkout: Path, out: Path, log: Path, *, small: bool, cpu_seconds: int
) -> int:
    """Fork a process that runs one program; its process id. It ends by SIGXCPU at its limit."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    with log.open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    with contextlib.suppress(BaseException):
        run_program(path, root, checkout, out, small=small)
    sys.stdout.flush()
    os._exit(0)
