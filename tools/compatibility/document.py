"""The page that is made of the results."""
# ruff: noqa: E501  (rows of a table)

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tools.compatibility.families import FAMILIES, in_family
from tools.compatibility.notes import NOTES
from tools.compatibility.pool import Result
from tools.compatibility.runs import Run
from tools.compatibility.small_sizes import EMULATED, EMULATED_NAMES, LIMITS
from tools.compatibility.verdict import (
    FAIL,
    NOT_PORTABLE,
    PASS,
    PORTABLE,
    TIME,
    TOO_LARGE,
)

_INTRODUCTION = """\
# Compatibility

TileLang's public examples and tests (commit `{commit}`), each rewritten by `tilecore.migrate` (only
its imports change) and run as it stands. This page is made by

    python -m tools.compatibility CHECKOUT --backend BACKEND [--native] --keep FOLDER
    python -m tools.compatibility CHECKOUT --show FOLDER ...

where CHECKOUT is a checkout of TileLang that the caller has fetched; nothing of it is kept here. A
backend's programs run on the host (`cpu_llvm`), on the device that is here (`--native`), or in the
emulator, which executes the generated text lane by lane and reports races, accesses outside a
buffer, reads of on-chip memory that nobody wrote, and barriers that not all lanes reach.

| backend | files run | portable | pass | fail | time limit | too large | pass of portable |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{runs}

A run need not reach every file (`--only` gives the order; a column is empty below where it did not).
A file that did not end in time counts as portable. Which are portable depends on the packages that are installed beside torch and pytest.

| backend | tests passed (a program is one) | packages | trees of tilecore (portable files) |
| --- | ---: | --- | --- |
{details}

| result | meaning |
| --- | --- |
| pass | ran to its end; what it compares with its reference agrees; in files of tests every portable test passed |
| fail | at least one portable test, or the program, does not |
| time limit | did not end within its seconds of processor time ({limits}) |
| not portable | see the rule |
| too large | tiles, chosen for another device, need more memory on the chip than the target has |
| no program | defines functions only |

## The rules

**Portable** is every file and every test that nothing of this ends: a package that is not installed,
or an argument that has no default; a `T.` name that TileLang's own `tilelang/language/common.py` does
not list among those of all its targets, or lists only because its compiler's intermediate form has
it; a property of the device that it, or what stands in for it, has not (compute capability 9.0); an
inner form of that compiler: modules of passes, targets and tools, attributes of its objects, other
files of its sources; and what a test says of that compiler rather than of a program: of its generated
text, of whether and in which words it refuses. On a device a program for the host, with its tensors
there, is not portable. A test that fails for another reason and reaches such a name in its own
functions, or asks about generated text only, is not portable either. A test that passes counts as
passed, whatever it names. A refusal of a common name is a failure.

**The host stands in for the device** where no device runs the programs. Every tensor is put on the
host; a float tensor is divided by a number as accelerators do it, by multiplying with the reciprocal.
A measurement is one call, a search tries one configuration.

**Two functions of `flash_attn`**, with which programs of variable lengths compare their results or
their time, are computed with torch (`tools/compatibility/reference_attention.py`) where that package
is not installed.

**Sizes** are lowered where an integer is a size by the name it is given to, in options of `argparse`,
in entry functions (main, run_..., test_..., benchmark...) with their defaults, calls and assignments, and
in modules of the checkout that are imported; of a list of settings the first is run. Names and limits:
{sizes} (in the emulator {emulated}). What fails so is run again as it is written. Of each parametrised
test the first {each} parameter sets are run.

A run can be resumed with `--keep`: files that were decided before keep their result, also when
tilecore has changed since.

## By what they compute

"""


def _table(titles: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _run_row(run: Run) -> str:
    states = run.states()
    numbers = [len(run.results), run.portable(), *(states[one] for one in (PASS, FAIL, TIME))]
    share = states[PASS] / max(1, run.portable())
    cells = [run.title, *numbers, states[TOO_LARGE], f"**{share:.1%}**"]
    return f"| {' | '.join(map(str, cells))} |"


def _details_row(run: Run) -> str:
    passed = run.tests(PASS)
    tests = f"{passed} of {passed + run.tests(FAIL)}"
    trees = ", ".join(f"`{tree}` ({count})" for tree, count in run.trees().most_common())
    return f"| {run.title} | {tests} | {', '.join(run.packages) or 'none'} | {trees} |"


def _state(result: Result | None) -> str:
    """A cell: the state, and of several portable tests how many passed."""
    if result is None:
        return ""
    portable = result.counts.get(PASS, 0) + result.counts.get(FAIL, 0)
    share = f" {result.counts.get(PASS, 0)}/{portable}" if portable > 1 else ""
    return result.state + share


def _reasons(result: Result) -> list[str]:
    """Why not all of a file passed: some reasons, most frequent first."""
    if result.state == PASS and not result.counts.get(NOT_PORTABLE):
        return []
    left = len(result.reasons) - 3
    return result.reasons[:3] + ([f"{left} more"] if left > 0 else [])


def _reason(path: str, runs: Sequence[Run]) -> str:
    """The reasons of all runs; those that another run has too are said once."""
    parts: list[str] = []
    for run in runs:
        result = run.results.get(path)
        new = [one for one in _reasons(result) if one not in parts] if result else []
        if new and parts and result is not None and result.state in (FAIL, TIME, TOO_LARGE):
            new[0] = f"{run.title}: {new[0]}"
        parts += new
    states = {run.results[path].state for run in runs if path in run.results}
    if path in NOTES and states & {FAIL, TIME}:
        parts.append(f"({NOTES[path]})")
    return _cell("; ".join(parts))


def _files(runs: Sequence[Run], paths: Sequence[str]) -> str:
    """A table of files: the state of each in every run, and why not all passed."""
    rows = (
        [
            f"`{path.rsplit('/', 1)[-1]}`",
            *(_state(run.results.get(path)) for run in runs),
            _reason(path, runs),
        ]
        for path in paths
    )
    return _table(["file", *(run.title for run in runs), "reason"], rows)


def _families(runs: Sequence[Run], paths: Sequence[str]) -> str:
    """How many portable files of each family pass; the files are listed below, by folder."""

    def share(run: Run, members: Sequence[str]) -> str:
        found = [run.results[path].state for path in members if path in run.results]
        portable = sum(state in PORTABLE for state in found)
        large = found.count(TOO_LARGE)
        text = f"{found.count(PASS)}/{portable}" if portable else ""
        return text + (f" ({large} too large)" if large else "")

    def rows() -> Iterator[Sequence[str]]:
        for name in FAMILIES:
            members = [path for path in paths if in_family(name, path)]
            yield [name, *(share(run, members) for run in runs)]

    return _table(["programs", *(run.title for run in runs)], rows())


def _limits(run: Run) -> str:
    """Seconds that files had; those of a run that was resumed may differ."""
    others = Counter(one.limit for one in run.results.values() if one.limit not in (0, run.limit))
    more = ", ".join(f"{limit:g} in {count} files" for limit, count in sorted(others.items()))
    return f"{run.title} {run.limit:g}" + (f" ({more})" if more else "")


def _introduction(runs: Sequence[Run], commit: str, each: int) -> str:
    return _INTRODUCTION.format(
        commit=commit,
        runs="\n".join(map(_run_row, runs)),
        details="\n".join(map(_details_row, runs)),
        limits=", ".join(map(_limits, runs)),
        sizes=LIMITS,
        emulated=", ".join(
            [f"{small} for {limit}" for limit, small in EMULATED.items()]
            + [f"`{pattern.pattern}` {limit}" for pattern, limit in EMULATED_NAMES]
        ),
        each=each,
    )


def document(runs: Sequence[Run], *, commit: str, each: int) -> str:
    """The page as Markdown.

    Args:
        runs: what became of the files, one column each.
        commit: of the checkout that the programs are from.
        each: parameter sets that were run of each test.
    """
    everything = {path for run in runs for path in run.results}
    paths = sorted(everything, key=lambda path: (path.rsplit("/", 1)[0], path))
    parts = [_introduction(runs, commit, each), _families(runs, paths)]
    for folder in dict.fromkeys(path.rsplit("/", 1)[0] for path in paths):
        inside = [path for path in paths if path.rsplit("/", 1)[0] == folder]
        parts.append(f"\n## {folder}\n\n{_files(runs, inside)}")
    return "".join(parts)
