"""What an outcome means: passed, failed, or not portable, and why.

The rule of portability (`document` states it on the page). A program or test is not portable when
what ended it is one of these, and fails otherwise (tiles that a GPU's on-chip memory does not hold
are told apart):

* a package that is not installed;
* a name that the framework does not list among those of all its targets (`vocabulary`), or a
  property of the device that the stand-in does not have;
* an inner form of its compiler: modules of passes, targets and tools, attributes of its objects,
  generated source text, and whether and in which words it refuses a program.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from tilecore.errors import ArgumentError, ResourceError, TilecoreError, UnsupportedError
from tools.compatibility.reachable import ACCESSORS, reached_outside, reached_text, reads_text_only
from tools.compatibility.vocabulary import is_common

PASS, FAIL, NOT_PORTABLE, NO_PROGRAM = "pass", "fail", "not portable", "no program"
TIME = "time limit"
TOO_LARGE = "too large"
PORTABLE = (PASS, FAIL, TIME)
"""States of files that count: those that pass, fail, or do not end in time."""

# Reasons that speak of something outside the shared vocabulary: one vendor's instructions or
# source text, or another compiler's forms. Any other refusal of a common name is a failure.
_OUTSIDE = re.compile(
    r"one target|one architecture|one toolchain|another compiler|no backend serves|another target"
    r"|is not edited|compiler's installation|no host source|emit source text|no part of tilecore"
)
_REFUSED = re.compile(r"\bT\.(\w+) is not supported")
_REFUSALS = re.compile(r"DID NOT RAISE|Regex pattern did not match|Expected regex")
_TEXT = re.compile(
    r"kernel_source|get_host_source|host_source|\.script\(|\.source\b|inspect_source|buffer_map"
    r"|\bcode\b|\bsrc\b|\bptx\b|\bsass\b|\bsource\b|PrimFunc|\.func\.|capfd|capsys"
)
_NUMERIC = re.compile(r"allclose|assert_close|assert_similar|equal\(|diff|\.max\(\)|err\b|\.sum\(")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One verdict: the state, and the reason unless it passed."""

    state: str
    reason: str = ""


def short(text: str, limit: int = 160) -> str:
    """One line of a message, without places in the file system."""
    line = " ".join(text.split())
    line = re.sub(r"(/[\w.+-]+)+/([\w.+-]+)", r"\2", line)
    line = re.sub(r"0x[0-9a-f]{6,}", "0x…", line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def is_outside(message: str) -> bool:
    """True for a refusal of what lies outside the shared vocabulary."""
    found = _REFUSED.search(message)
    return bool(_OUTSIDE.search(message)) or bool(found and not is_common(found[1]))


def judge(
    error: BaseException, root: Path, written: Path | None = None, test: str | None = None
) -> Outcome:
    """The verdict for an exception that ended a program or a test under `root`.

    Args:
        error: what ended it.
        root: where the programs with new imports are.
        written: the file as its authors wrote it; its other lines may lie outside as well.
        test: name of the test function, None for a program.
    """
    message = short(f"{type(error).__name__}: {error}")
    if isinstance(error, ResourceError):  # only lane-parallel targets have such limits
        return Outcome(TOO_LARGE, message)
    reason = (
        _missing_package(error, root)
        or _outside_reason(error)
        or _inner_form(error)
        or _refusal(error, root)
        or _about_text(error, root, written, test)
        or _elsewhere(written, test)
    )
    return Outcome(FAIL, message) if reason is None else Outcome(NOT_PORTABLE, short(reason))


def _elsewhere(written: Path | None, test: str | None) -> str | None:
    """Another line that the same program or test reaches lies outside, or its only questions do."""
    if written is None:
        return None
    if reads_text_only(written, test):
        return "asserts on another compiler's generated source"
    return reached_outside(written, test)


def _missing_package(error: BaseException, root: Path) -> str | None:
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.split(".")[0]
        if top != "tilecore":
            return f"needs the package {top}"
        return f"imports a part of another compiler: {error.name}"
    if isinstance(error, NameError) and error.name:  # its import failed and was passed over
        for frame in _own_frames(error, root):
            for node in ast.walk(ast.parse(Path(frame.filename).read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and any(
                    (alias.asname or alias.name) == error.name for alias in node.names
                ):
                    top = (node.module or "").split(".")[0]
                    if top and importlib.util.find_spec(top) is None:
                        return f"needs the package {top}"
    return None


def _outside_reason(error: BaseException) -> str | None:
    chained = error.__cause__ or error.__context__
    for one in (error, chained):
        if isinstance(one, UnsupportedError) and is_outside(str(one)):
            return one.reason
    if isinstance(error, RuntimeError) and "compute capability" in str(error):
        return str(error)
    if isinstance(error, ArgumentError) and "wrong device" in error.reason:
        return "puts its tensors on the host, for a target that is the host"
    return None


def _inner_form(error: BaseException) -> str | None:
    if "No module named 'tilelang'" in str(error):
        return "runs a tool of another compiler in a process of its own"
    if isinstance(error, FileNotFoundError):
        return f"reads a file of another compiler's sources: {error.filename}"
    if isinstance(error, TypeError) and "__init__() got an unexpected keyword" in str(error):
        return f"makes an object of another compiler: {error}"
    if isinstance(error, AttributeError) and "<tilecore." in str(error):
        return f"reads an inner form of another compiler: {error}"
    if isinstance(error, ImportError) and (error.name or "").startswith("tilecore."):
        return f"imports an inner form of another compiler: {error}"
    if isinstance(error, AttributeError) and not isinstance(error, TilecoreError):
        kind = error.obj if isinstance(error.obj, ModuleType) else type(error.obj)
        where = kind.__name__ if isinstance(kind, ModuleType) else kind.__module__
        if where.startswith("tilecore.") and where != "tilecore.language":
            return f"reads an inner form of another compiler: {error.name} of {kind.__name__}"
    return None


_WORDS = "expects that another compiler refuses a program, in its own words"


def _refusal(error: BaseException, root: Path) -> str | None:
    """The test waits for an error: none came, it has other words, or it is of another class."""
    if isinstance(error, pytest.fail.Exception | AssertionError) and _REFUSALS.search(str(error)):
        return _WORDS
    if not isinstance(error, TilecoreError):
        return None
    for frame in _own_frames(error, root):
        for node in ast.walk(ast.parse(Path(frame.filename).read_text("utf-8"))):
            inside = isinstance(node, ast.With) and node.body[0].lineno <= (frame.lineno or 0) <= (
                node.end_lineno or 0
            )
            items = node.items if isinstance(node, ast.With) else []
            if inside and any("raises" in ast.unparse(item.context_expr) for item in items):
                return _WORDS
    return None


def _own_frames(error: BaseException, root: Path) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if root in Path(frame.filename).parents]


def _about_text(
    error: BaseException, root: Path, written: Path | None, test: str | None
) -> str | None:
    """The program's own assertion failed, and it or its function looks at generated text."""
    if not isinstance(error, AssertionError | StopIteration | ValueError | IndexError):
        return None
    if re.search(r"\bdeclare \w+ @|__global__|level tile \{", str(error)):
        return "asserts on another compiler's generated source"
    frames = traceback.extract_tb(error.__traceback__)
    own = _own_frames(error, root)
    if not own or own[-1] != frames[-1]:
        return None
    line = own[-1].line or ""
    if _TEXT.search(line):
        return "asserts on another compiler's generated source"
    if _NUMERIC.search(line) or isinstance(error, TilecoreError):
        return None
    reached = "" if written is None or test is None else reached_text(written, test)
    if _TEXT.search(_function_text(own[-1])) or ACCESSORS.search(reached):
        return "asserts on another compiler's generated source"
    return None


def _function_text(frame: traceback.FrameSummary) -> str:
    tree = ast.parse(Path(frame.filename).read_text("utf-8"))
    line = frame.lineno or 0
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return ast.unparse(max(inside, key=lambda node: node.lineno)) if inside else ""
