"""The conformance suite's kernels under the GPU vendor's checkers of memory and synchronisation.

    python benchmarks/sanitize.py --backend cuda_hopper [--tools memcheck racecheck synccheck]
        [--sample 1] [--workers 15] [-k EXPRESSION]

Runs a sample of the suite at level run under compute-sanitizer: `--sample` cases of each program.
The cases are dealt out to processes, each with a sanitizer of its own (one sanitizer serves its
processes one after the other), all tools beside each other. Every process writes a report; the
figures of all reports are added up for each tool. Fails when a case fails or was not run, a tool
reports anything, or a process ended without a report.

Compile first (`pytest conformance --level compile --sample 1`): the disk cache then has the cubins.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck")
SUITE = Path(__file__).resolve().parents[1] / "conformance"
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
PASSED = re.compile(r"(\d+) passed")
SHOWN = 40
"""Lines of a report that are shown when a tool found something."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one tool said of some cases.

    Attributes:
        cases: how many were given to it.
        passed: how many of them passed.
        exit_status: of the test run.
        reports: processes that ended with a summary.
        found: errors or hazards of all of them.
        text: the reports of those that found something, and the end of the run's output.
    """

    cases: int
    passed: int
    exit_status: int
    reports: int
    found: int
    text: str

    @property
    def is_clean(self) -> bool:
        """True when all cases passed, and were seen by a tool that found nothing."""
        return (
            self.exit_status == 0
            and self.passed == self.cases
            and self.reports > 0
            and self.found == 0
        )


def read_reports(folder: Path) -> tuple[int, int, str]:
    """(reports with a summary, errors or hazards in them, text of those that have any)."""
    reports = found = 0
    text = ""
    for path in sorted(folder.glob("*.log")):
        content = path.read_text("utf-8", "replace")
        counts = [int(count) for count in SUMMARY.findall(content)]
        reports += bool(counts)
        found += sum(counts)
        if sum(counts):
            text += "\n".join(content.splitlines()[:SHOWN]) + "\n"
    return reports, found, text


def pytest_command(options: argparse.Namespace) -> list[str]:
    """pytest over the suite's sample, without the cases' names."""
    return [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        "--backend", options.backend, "--level", "run", "--sample", str(options.sample),
    ]  # fmt: skip


def sampled_cases(options: argparse.Namespace) -> list[str]:
    """Names of the sampled cases that `options.k` chooses.

    Raises:
        SystemExit: pytest could not collect them, or there are none.
    """
    command = [*pytest_command(options), "--collect-only", "-k", options.k, str(SUITE)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=SUITE.parent)
    names = [line for line in result.stdout.splitlines() if "::" in line]
    if result.returncode or not names:
        raise SystemExit(f"no cases collected:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return names


def check(sanitizer: str, tool: str, names: list[str], options: argparse.Namespace) -> Outcome:
    """Run cases under one tool, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sanitizer, "--tool", tool, "--target-processes", "all", "--log-file",
            f"{folder}/%p.log", *pytest_command(options), *names,
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, cwd=SUITE.parent)
        reports, found, text = read_reports(Path(folder))
    end = "\n".join(result.stdout.splitlines()[-SHOWN:])
    passed = sum(int(count) for count in PASSED.findall(end))
    text = f"{text}{end}\n{result.stderr}"
    print(f"  {tool}: {passed} of {len(names)} passed, {found} found", file=sys.stderr, flush=True)
    return Outcome(len(names), passed, result.returncode, reports, found, text)


def main() -> int:
    """Check with every tool; 1 when one is not clean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--sample", type=int, default=1, help="cases of each program")
    parser.add_argument("--workers", type=int, default=1, help="processes beside each other")
    parser.add_argument("-k", default="test_case", help="of pytest: which of the sampled cases")
    options = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on the path", file=sys.stderr)
        return 2
    names = sampled_cases(options)
    shards = max(1, min(len(names), options.workers // len(options.tools)))
    work = [(tool, names[shard::shards]) for shard in range(shards) for tool in options.tools]
    with ThreadPoolExecutor(max(1, options.workers)) as pool:
        outcomes = list(pool.map(lambda one: check(sanitizer, *one, options), work))
    clean = True
    for tool in options.tools:
        own = [outcome for (of, _), outcome in zip(work, outcomes, strict=True) if of == tool]
        for outcome in own:
            if not outcome.is_clean:
                print(outcome.text, flush=True)
        tool_is_clean = all(outcome.is_clean for outcome in own)
        clean = clean and tool_is_clean
        print(
            f"{tool}: {'clean' if tool_is_clean else 'NOT CLEAN'}, {sum(o.found for o in own)} "
            f"found in {sum(o.reports for o in own)} reports of {len(own)} processes, "
            f"{sum(o.passed for o in own)} of {len(names)} cases passed",
            flush=True,
        )
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
