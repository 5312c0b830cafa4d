"""What an outcome means: passed, failed, or not portable, and why."""

from __future__ import annotations

import ast
import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from tilecore.errors import TilecoreError, UnsupportedError
from tilecore.language.refused import reason_of

PASS, FAIL, NOT_PORTABLE, NO_PROGRAM = "pass", "fail", "not portable", "no program"
TIME = "time limit"

# Reasons that speak of something outside the shared vocabulary: one vendor's instructions or
# source text, or another compiler's forms. So do names that the checkout's own packages define
# for one vendor only (`load_dialects`). Any other refusal counts as a failure.
_OUTSIDE = re.compile(
    r"one target|one architecture|one toolchain|another compiler|no backend serves|another target"
    r"|is not edited|compiler's installation|no host source|emit source text|no part of tilecore"
)
_REFUSED = re.compile(r"\bT\.(\w+) is not supported")
_dialects: set[str] = set()


def load_dialects(checkout: Path) -> None:
    """Learn which names are one vendor's: those of ``tilelang/<vendor>/language`` alone."""
    for vendor in ("cuda", "rocm"):
        for path in sorted((checkout / "tilelang" / vendor / "language").glob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    _dialects.add(node.name)
                elif isinstance(node, ast.ImportFrom) and not (node.module or "").endswith(
                    ".common"
                ):
                    _dialects.update(alias.asname or alias.name for alias in node.names)


def is_outside(message: str) -> bool:
    """True for a refusal of what lies outside the shared vocabulary."""
    found = _REFUSED.search(message)
    return bool(_OUTSIDE.search(message)) or bool(found and found[1] in _dialects)


_SOURCE = re.compile(r"source|src|code|ptx|sass|script|count\(|\bre\.|T\.copy\(", re.IGNORECASE)


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


def judge(error: BaseException, root: Path) -> Outcome:
    """The verdict for an exception that ended a program or a test under `root`."""
    message = short(f"{type(error).__name__}: {error}")
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.split(".")[0]
        if top != "tilecore":
            return Outcome(NOT_PORTABLE, f"needs the package {top}")
        return Outcome(NOT_PORTABLE, f"imports a part of another compiler: {error.name}")
    chained = error.__cause__ or error.__context__
    if isinstance(error, UnsupportedError) and is_outside(str(error)):
        return Outcome(NOT_PORTABLE, short(error.reason))
    if isinstance(error, UnsupportedError) and error.loc is not None:
        others = outside_names(Path(error.loc.file).read_text("utf-8"))
        if others:  # another line of the same program cannot be had here either
            return Outcome(NOT_PORTABLE, short(others[0]))
    if isinstance(error, TilecoreError):
        return Outcome(FAIL, message)
    if isinstance(chained, UnsupportedError) and is_outside(str(chained)):
        return Outcome(NOT_PORTABLE, short(chained.reason))
    if isinstance(error, AttributeError) and "'PrimFunc' object has no" in str(error):
        return Outcome(NOT_PORTABLE, "reads another compiler's form of the program")
    if isinstance(error, RuntimeError) and "compute capability" in str(error):
        return Outcome(NOT_PORTABLE, message)
    if isinstance(error, AssertionError | StopIteration) and _speaks_of_source(error, root):
        return Outcome(NOT_PORTABLE, "asserts on another compiler's generated source")
    return Outcome(FAIL, message)


def outside_names(text: str) -> list[str]:
    """Names of a program that lie outside the shared vocabulary, each with its reason."""
    names = sorted(set(re.findall(r"\bT\.(\w+)", text)))
    reasons = ((name, reason_of(name)) for name in names)
    return [
        f"T.{name}: {reason}"
        for name, reason in reasons
        if reason and (name in _dialects or _OUTSIDE.search(reason))
    ]


def _speaks_of_source(error: BaseException, root: Path) -> bool:
    """True when the assertion that failed is the program's own, about generated text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if root in Path(frame.filename).parents]
    return bool(own) and own[-1] is frames[-1] and bool(_SOURCE.search(own[-1].line or ""))
