"""One program in one process: runs it and writes one JSON line for each verdict."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import resource
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tilecore import driver
from tilecore.compat.settings import is_on_accelerator
from tools.compatibility.host_device import OnHost, pretend
from tools.compatibility.reachable import reached_outside
from tools.compatibility.reference_attention import offer
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

    def __init__(self, out: Any, root: Path, written: Path, *, has_device: bool = False) -> None:
        self.out = out
        self.root = root
        self.written = written
        self.has_device = has_device

    def write(self, name: str, outcome: Outcome) -> None:
        """Append one verdict."""
        record = {"name": name, "state": outcome.state, "reason": outcome.reason}
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def wait(self) -> None:
        """Until the device has done all: a launch that failed is seen here at the latest."""
        if self.has_device:
            torch.cuda.synchronize()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Any:
        """A test has ended when the device has done what it launched."""
        result = yield
        self.wait()
        return result

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
    """Run a file of tests with pytest, any other file as a program.

    Where no accelerator is meant to run it, the host stands in for the one it asks for.
    """
    has_device = is_on_accelerator()
    os.chdir(path.parent)
    sys.path[:0] = [str(path.parent), str(root)]  # tests import from `examples`, of the checkout
    sys.argv = [str(path)]
    if not has_device:
        pretend()
    if small:
        shrink(root)
    offer(path)
    place = contextlib.nullcontext() if has_device else OnHost()
    with out.open("w", encoding="utf-8") as stream, place:
        written = checkout / path.relative_to(root)
        recorder = Recorder(stream, root, written, has_device=has_device)
        if path.name.startswith("test_"):
            options = ["-q", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts="]
            pytest.main([str(path), *options, f"--rootdir={root}"], plugins=[recorder])
        else:
            recorder.write("main", _run_main(path, recorder, small=small))
        recorder.note_sizes()


def _run_main(path: Path, recorder: Recorder, *, small: bool) -> Outcome:
    """The verdict on a program that is run as ``python FILE`` would run it."""
    if not runs_something(path.read_text(encoding="utf-8")):
        return Outcome(NO_PROGRAM, "defines functions only")
    wrong = WRONG_ON_PURPOSE.get(path.relative_to(recorder.root).as_posix())
    if wrong is not None:
        return wrong
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        code = compile(
            with_small_sizes(tree) if small else tree, str(path), "exec", dont_inherit=True
        )
        module = ModuleType("__main__")
        module.__file__ = str(path)
        sys.modules["__main__"] = module
        exec(code, vars(module))
        recorder.wait()
    except SystemExit as error:
        if _wants_arguments(error):
            return Outcome(NOT_PORTABLE, "asks for arguments that have no default")
        if error.code not in (None, 0):
            other = reached_outside(recorder.written, None)
            if other:
                return Outcome(NOT_PORTABLE, short(other))
            return Outcome(FAIL, f"exit status {error.code}")
    except BaseException as error:
        return judge(error, recorder.root, recorder.written)
    if not driver._memory:
        return Outcome(NO_PROGRAM, "compiles no kernel when it is run")
    return Outcome(PASS)


def _wants_arguments(error: SystemExit) -> bool:
    """True where the parser of a program's arguments ended it."""
    frames = traceback.extract_tb(error.__traceback__)
    return error.code == 2 and Path(frames[-1].filename).name == "argparse.py"


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
