"""The page that is made of the results."""
# ruff: noqa: E501  (rows of a table)

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence

from tools.compatibility.pool import Result
from tools.compatibility.small_sizes import LIMITS
from tools.compatibility.verdict import FAIL, NO_PROGRAM, NOT_PORTABLE, PASS, TIME, TOO_LARGE

_INTRODUCTION = """\
# Compatibility

TileLang's public examples and tests (commit `{commit}`), each rewritten by `tilecore.migrate` (only
its imports change) and run as it stands on backend `{backend}`. This page is made by

    python -m tools.compatibility CHECKOUT --limit {limit:g}

where CHECKOUT is a checkout of TileLang that the caller has fetched; nothing of it is kept here.
Packages beside torch and pytest that were installed for this run: {packages}.

| result | files | meaning |
| --- | ---: | --- |
| pass | {passed} | ran to its end; what it compares with its reference agrees; in files of tests every portable test passed |
| fail | {failed} | at least one portable test, or the program, does not |
| time limit | {timed} | did not end within {limit:g} s of processor time |
| not portable | {foreign} | see the rule |
| too large | {large} | tiles need more memory on the chip than the target has |
| no program | {empty} | defines functions only |
| not run | {left} | the run was ended before its turn |

Of the {portable} portable files {passed} pass: **{strict:.1%}** ({share:.1%} of the {decided} that ended within
the limit). Counted by tests (one for each program), {tests_passed} of {tests_decided} pass. Of the examples' files
alone {examples_passed} of {examples_decided} pass.

## The rules

**Portable** is every file and every test that nothing of this ends: a package that is not installed;
a `T.` name that TileLang's own `tilelang/language/common.py` does not list among those of all its
targets, or lists only because its compiler's intermediate form has it; a property of the device that
the stand-in has not (compute capability 9.0); an inner form of that compiler: modules of passes,
targets and tools, attributes of its objects, other files of its sources; and what a test says of
that compiler rather than of a program: of its generated text, of whether and in which words it
refuses. A test that fails for another reason and reaches such a name in its own functions, or asks
about generated text only, is not portable either. A test that passes counts as passed, whatever it
names. A refusal of a common name is a failure.

**The host stands in for the device.** Every tensor is put on the host; a float tensor is divided by a
number as accelerators do it, by multiplying with the reciprocal. A measurement is one call, a search
tries one configuration.

**Sizes** are lowered where an integer is a size by the name it is given to, in options of `argparse`,
in entry functions (main, run_..., test_..., benchmark...) with their defaults, calls and assignments, and
in modules of the checkout that are imported; of a list of settings the first is run. Names and limits:
{sizes}. What fails so is run again as it is written. Of each parametrised test the first {each} parameter
sets are run.

A run can be resumed with `--keep`: files that were decided before keep their result, also when
tilecore has changed since.

"""


NOTES = {
    "examples/attention_sink/test_example_attention_sink.py": (
        "the forward kernels write a fragment of `heads` = 1 elements at every row; writes beyond "
        "the end are dropped here, and with a fragment of `block_M` elements the program passes"
    ),
    "examples/attention_sink/example_gqa_sink_bwd_varlen.py": (
        "with smaller sizes its backward kernel reads `Delta` behind the end of a sequence, which none "
        "of its kernels writes; as it is written a layout of 134 million coordinates is refused"
    ),
    "testing/python/language/test_tilelang_language_ptr.py": (
        "addresses in tensors: no extents come with them, so no access could be guarded"
    ),
    "testing/python/language/test_tilelang_language_copy.py": (
        "a copy between tiles of different constant shapes: refused with both shapes"
    ),
}
"""What was found out about a failure, by hand."""


def _installed() -> list[str]:
    """Packages that programs ask for and that are here."""
    wanted = ("einops", "scipy", "tqdm", "triton", "transformers", "flash_attn", "fla")
    return [f"`{name}`" for name in wanted if importlib.util.find_spec(name) is not None]


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


_EMULATED = """
## On the GPU backends

The same programs compiled for the GPU backends and run in the emulator, which executes the generated
text lane by lane and reports races, accesses outside a buffer, reads of on-chip memory that nobody
wrote, and barriers that not all lanes reach. Made by

    python -m tools.compatibility CHECKOUT --backend {first} --keep FOLDER --output OTHER_PAGE

and shown here with `--emulated {first}=FOLDER`. Sizes are lowered further, to 128 where a
host's are lowered to 256 (at first to 256 here, too). A file is `too large` where its tiles, chosen for another device, need more memory on the chip
than the target has: refused with the table of its buffers. Files that were not run are not shown.

| backend | files run | pass | fail | time limit | too large | pass of those decided |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}

"""


def _emulated(emulated: Mapping[str, Mapping[str, Result]]) -> str:
    """The section about other backends: a table of states, then what did not pass and why."""
    if not emulated:
        return ""
    shown = (PASS, FAIL, TIME, TOO_LARGE)
    known = {
        name: {path: one for path, one in results.items() if one.state in shown}
        for name, results in emulated.items()
    }
    rows = []
    for name, results in known.items():
        states = Counter(result.state for result in results.values())
        numbers = [states[state] for state in shown]
        decided = max(1, states[PASS] + states[FAIL])
        cells = [f"`{name}`", sum(numbers), *numbers, f"{states[PASS] / decided:.1%}"]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    parts = [_EMULATED.format(first=next(iter(emulated)), rows="\n".join(rows))]
    parts.append(f"| file | {' | '.join(f'`{name}`' for name in emulated)} | reason |\n")
    parts.append("| --- |" + " --- |" * (len(emulated) + 1) + "\n")
    for path in sorted({path for results in known.values() for path in results}):
        found = [results.get(path) for results in known.values()]
        cells = ["" if one is None else one.state for one in found]
        failed = [one for one in found if one is not None and one.state in (FAIL, TIME)]
        reasons = [one.reasons[0] for one in failed]
        if path in EMULATED_NOTES and any(one.state == FAIL for one in failed):
            reasons.append(EMULATED_NOTES[path])
        reason = _cell("; ".join(dict.fromkeys(reasons)))
        parts.append(f"| `{path}` | {' | '.join(cells)} | {reason} |\n")
    return "".join(parts)


_OWN_READ = (
    "the program's own: it scales a whole tile of `S_shared`, of which it wrote only the columns "
    "of the sequence's own blocks"
)
EMULATED_NOTES = {
    "examples/flash_decoding/test_example_flash_decoding.py": _OWN_READ,
    "examples/flash_decoding/example_gqa_decode_varlen_logits.py": _OWN_READ,
}
"""What was found out, by hand, about a failure in the emulator."""


def document(
    results: Sequence[Result],
    *,
    total: int,
    commit: str,
    backend: str,
    limit: float,
    each: int,
    emulated: Mapping[str, Mapping[str, Result]],
) -> str:
    """The page as Markdown; `emulated` has results of other backends, by backend and path."""
    states = Counter(result.state for result in results)
    decided = states[PASS] + states[FAIL]
    tests_passed = sum(result.counts.get(PASS, 0) for result in results)
    tests_decided = tests_passed + sum(result.counts.get(FAIL, 0) for result in results)
    examples = Counter(one.state for one in results if one.path.startswith("examples/"))
    portable = decided + states[TIME]
    parts = [
        _INTRODUCTION.format(
            portable=portable, strict=states[PASS] / max(1, portable), sizes=LIMITS,
            packages=", ".join(_installed()) or "none", commit=commit, backend=backend,
            limit=limit, each=each, passed=states[PASS],
            failed=states[FAIL], timed=states[TIME], foreign=states[NOT_PORTABLE],
            empty=states[NO_PROGRAM], large=states[TOO_LARGE], left=total - len(results), decided=decided,
            share=states[PASS] / max(1, decided), tests_passed=tests_passed,
            tests_decided=tests_decided, examples_passed=examples[PASS],
            examples_decided=examples[PASS] + examples[FAIL],
        )
    ]  # fmt: skip
    parts.append(_emulated(emulated))
    folder = None
    for result in sorted(results, key=lambda one: (one.path.rsplit("/", 1)[0], one.path)):
        if result.path.rsplit("/", 1)[0] != folder:
            folder = result.path.rsplit("/", 1)[0]
            parts.append(
                f"\n## {folder}\n\n| file | result | passed | reason |\n| --- | --- | --- | --- |\n"
            )
        parts.append(_row(result) + "\n")
    return "".join(parts)
