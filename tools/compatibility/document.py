"""The page that is made of the results."""
# ruff: noqa: E501  (rows of a table)

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tools.compatibility.pool import Result
from tools.compatibility.verdict import FAIL, NO_PROGRAM, NOT_PORTABLE, PASS, TIME

_INTRODUCTION = """\
# Compatibility

TileLang's public examples and tests (commit `{commit}`), each rewritten by `tilecore.migrate` (only
its imports change) and run as it stands on backend `{backend}`. This page is made by

    python -m tools.compatibility CHECKOUT --limit {limit:g}

where CHECKOUT is a checkout of TileLang that the caller has fetched; nothing of it is kept here.
torch is told to put every tensor on the host. Options that are sizes by their names get smaller
defaults; a program that then fails is run again with its own. Of each parametrised test the first
{each} parameter sets are run, each file for at most {limit:g} s of
processor time.

| result | files | meaning |
| --- | ---: | --- |
| pass | {passed} | ran to its end; what it compares with its reference agrees; in files of tests every portable test passed |
| fail | {failed} | at least one portable test, or the program, does not |
| time limit | {timed} | not decided: it did not end within {limit:g} s of processor time |
| not portable | {foreign} | cannot run anywhere but on its own system: needs a package that is not here, names that TileLang itself keeps in one vendor's package, one vendor's source text, or another compiler's inner forms |
| no program | {empty} | defines functions only |
| not run | {left} | the run was ended before its turn |

Of the {decided} portable files that were decided, {passed} pass: **{share:.1%}**. Counted by tests
(one for each program), {tests_passed} of {tests_decided} pass. Of the examples' files alone
{examples_passed} of {examples_decided} pass.

A run can be resumed with `--keep`: files that were decided before keep their result, also when
tilecore has changed since.

"""


NOTES = {
    "examples/attention_sink/test_example_attention_sink.py": (
        "the forward kernels write a fragment of `heads` = 1 elements at every row; writes beyond "
        "the end are dropped here, and with a fragment of `block_M` elements the program passes"
    ),
}
"""What was found out about a failure, by hand."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _row(result: Result) -> str:
    counts = result.counts
    portable = counts.get(PASS, 0) + counts.get(FAIL, 0)
    passed = f"{counts.get(PASS, 0)}/{portable}" if portable else ""
    name = result.path.rsplit("/", 1)[-1]
    reasons = (
        result.reasons
        if result.state != PASS
        else [reason for reason in result.reasons if counts.get(NOT_PORTABLE)]
    )
    shown = "; ".join(reasons[:3]) + (f"; {len(reasons) - 3} more" if len(reasons) > 3 else "")
    if result.path in NOTES and result.state == FAIL:
        shown += f" ({NOTES[result.path]})"
    return f"| `{name}` | {result.state} | {passed} | {_cell(shown)} |"


def document(
    results: Sequence[Result], *, total: int, commit: str, backend: str, limit: float, each: int
) -> str:
    """The page as Markdown."""
    states = Counter(result.state for result in results)
    decided = states[PASS] + states[FAIL]
    tests_passed = sum(result.counts.get(PASS, 0) for result in results)
    tests_decided = tests_passed + sum(result.counts.get(FAIL, 0) for result in results)
    examples = Counter(one.state for one in results if one.path.startswith("examples/"))
    parts = [
        _INTRODUCTION.format(
            commit=commit, backend=backend, limit=limit, each=each, passed=states[PASS],
            failed=states[FAIL], timed=states[TIME], foreign=states[NOT_PORTABLE],
            empty=states[NO_PROGRAM], left=total - len(results), decided=decided,
            share=states[PASS] / max(1, decided), tests_passed=tests_passed,
            tests_decided=tests_decided, examples_passed=examples[PASS],
            examples_decided=examples[PASS] + examples[FAIL],
        )
    ]  # fmt: skip
    folder = None
    for result in sorted(results, key=lambda one: (one.path.rsplit("/", 1)[0], one.path)):
        if result.path.rsplit("/", 1)[0] != folder:
            folder = result.path.rsplit("/", 1)[0]
            parts.append(
                f"\n## {folder}\n\n| file | result | passed | reason |\n| --- | --- | --- | --- |\n"
            )
        parts.append(_row(result) + "\n")
    return "".join(parts)
