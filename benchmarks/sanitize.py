"""The conformance suite's kernels under the GPU vendor's checkers of memory and synchronisation.

    python benchmarks/sanitize.py --backend cuda_hopper [--tools memcheck racecheck synccheck]
        [--sample 1] [--workers 8] [-k EXPRESSION]

Runs a sample of the suite at level run under compute-sanitizer: `--sample` cases of each program.
Every process writes a report; the figures of all reports are added up for each tool. Fails when a
case fails, a tool reports anything, or no report was written.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck")
SUITE = Path(__file__).resolve().parents[1] / "conformance"
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
SHOWN = 40
"""Lines of a report that are shown when a tool found something."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one tool said.

    Attributes:
        tool: its name.
        exit_status: of the test run.
        reports: processes that ended with a summary.
        found: errors or hazards of all of them.
        text: the reports of those that found something, and the end of the run's output.
    """

    tool: str
    exit_status: int
    reports: int
    found: int
    text: str

    @property
    def is_clean(self) -> bool:
        """True when the cases passed, and were seen by a tool that found nothing."""
        return self.exit_status == 0 and self.reports > 0 and self.found == 0


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


def check(sanitizer: str, tool: str, options: argparse.Namespace) -> Outcome:
    """Run the sample under one tool."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sanitizer, "--tool", tool, "--target-processes", "all", "--log-file",
            f"{folder}/%p.log", sys.executable, "-m", "pytest", str(SUITE), "-q", "-p",
            "no:cacheprovider", "--backend", options.backend, "--level", "run", "--sample",
            str(options.sample), "-k", options.k,
        ]  # fmt: skip
        if options.workers > 1:
            command += ["-n", str(options.workers)]
        result = subprocess.run(command, capture_output=True, text=True)
        reports, found, text = read_reports(Path(folder))
        end = "\n".join(result.stdout.splitlines()[-SHOWN:])
        return Outcome(tool, result.returncode, reports, found, f"{text}{end}\n{result.stderr}")


def main() -> int:
    """Check with every tool; 1 when one is not clean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--sample", type=int, default=1, help="cases of each program")
    parser.add_argument("--workers", type=int, default=1, help="processes, with pytest-xdist")
    parser.add_argument("-k", default="test_case", help="of pytest: which of the sampled cases")
    options = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on the path", file=sys.stderr)
        return 2
    outcomes = []
    for tool in options.tools:
        outcome = check(sanitizer, tool, options)
        outcomes.append(outcome)
        if not outcome.is_clean:
            print(outcome.text, flush=True)
        passed = re.findall(r"\d+ passed[^\n]*", outcome.text)
        print(
            f"{tool}: {'clean' if outcome.is_clean else 'NOT CLEAN'}, {outcome.found} found in "
            f"{outcome.reports} processes, exit status {outcome.exit_status}, {passed[-1:]}",
            flush=True,
        )
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
