"""One run of the suite: its subjects, its lists, and the matrix that it prints."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tilecore.errors import TilecoreError
from tilecore_conformance.cases import Case, all_cases, sampled
from tilecore_conformance.lists import Entry, ListError, check_entries, find_entry, read_list
from tilecore_conformance.plugin import PROPERTY, SUITE
from tilecore_conformance.subjects import Subject, describe, find_subjects

OUTCOMES = ("pass", "FAIL", "xfail", "skip", "not run")
HERE = Path(__file__).parent


class ConformanceSession:
    """Registered as a pytest plugin when the suite is among what is collected."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        try:
            self.subjects = find_subjects(option("backend"), option("level"), option("arch"))
            self.skips = self._read(config, "skips", option("skips_file"))
            self.xfails = self._read(config, "xfails", option("xfails_file"))
        except (ListError, TilecoreError) as error:
            raise pytest.UsageError(str(error)) from error
        self.counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def _read(self, config: pytest.Config, kind: str, own: list[str]) -> dict[str, list[Entry]]:
        known = [case.id for case in all_cases()] + list(_plain_test_ids())
        found: dict[str, list[Entry]] = {}
        for backend in {subject.backend for subject in self.subjects}:
            paths = [HERE / kind / f"{backend}.txt", *(config.rootpath / path for path in own)]
            missing = [path for path in paths[1:] if not path.exists()]
            if missing:
                raise ListError(f"no such file: {missing[0]}")
            found[backend] = [entry for path in paths for entry in read_list(path)]
            check_entries(found[backend], known)
        return found

    # --- collection ----------------------------------------------------------------------------

    def parametrize(self, metafunc: Any) -> None:
        """Give each test its subjects, and the data-driven one its cases."""
        if SUITE not in Path(metafunc.module.__file__).resolve().parents:
            return
        names = metafunc.fixturenames
        if "subject" not in names:
            return
        if "case" in names:
            count = int(metafunc.config.getoption("--sample"))
            pairs = [
                (s, c)
                for s in self.subjects
                for c in sampled([c for c in all_cases() if _applies(c, s)], count)
            ]
            metafunc.parametrize(
                ("subject", "case"), pairs, ids=[f"{s.id}-{c.id}" for s, c in pairs]
            )
        else:
            metafunc.parametrize("subject", self.subjects, ids=[s.id for s in self.subjects])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Apply the lists, and note on each item which cell of the matrix it counts in."""
        for item in items:
            callspec = getattr(item, "callspec", None)
            subject = callspec and callspec.params.get("subject")
            if not isinstance(subject, Subject):
                continue
            case = callspec.params.get("case")
            case_id = case.id if case is not None else _plain_id(item)
            note = {"subject": subject.id, "area": case_id.split("/")[0], "not_run": False}
            if subject.obstacle:
                note["not_run"] = True
                item.add_marker(pytest.mark.skip(reason=f"not run: {subject.obstacle}"))
            elif entry := find_entry(self.skips[subject.backend], case_id, subject.level):
                item.add_marker(pytest.mark.skip(reason=entry.reason))
            elif entry := find_entry(self.xfails[subject.backend], case_id, subject.level):
                item.add_marker(pytest.mark.xfail(reason=entry.reason, strict=True))
            if subject.is_default and subject.level != "run" and _is_long(case, note["area"]):
                item.add_marker(pytest.mark.slow)
            item.user_properties.append((PROPERTY, note))

    # --- reports -------------------------------------------------------------------------------

    def pytest_report_header(self) -> list[str]:
        """Backend, version, device and toolchain of each subject."""
        return [f"conformance {describe(subject)}" for subject in self.subjects]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one outcome (in the controller, also for tests that ran in workers)."""
        note = dict(report.user_properties).get(PROPERTY)
        if note is None or (report.when != "call" and report.outcome == "passed"):
            return
        key = (note["area"], note["subject"])
        if hasattr(report, "wasxfail"):
            outcome = "xfail" if report.skipped else "FAIL"
        elif report.skipped:
            outcome = "not run" if note["not_run"] else "skip"
        else:
            outcome = "pass" if report.passed else "FAIL"
        self.counts[key][outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the matrix area x subject, each outcome counted apart."""
        if not self.counts:
            return
        terminalreporter.section("conformance matrix")
        subjects = sorted({subject for _, subject in self.counts})
        areas = sorted({area for area, _ in self.counts})
        width = max(len(area) for area in [*areas, "total"]) + 2
        for subject in subjects:
            terminalreporter.write_line(
                f"{subject:<{width}}" + "".join(f"{name:>9}" for name in OUTCOMES)
            )
            total: Counter[str] = Counter()
            for area in areas:
                counts = self.counts.get((area, subject))
                if counts:
                    total += counts
                    terminalreporter.write_line(f"  {area:<{width - 2}}" + _row(counts))
            terminalreporter.write_line(f"  {'total':<{width - 2}}" + _row(total))


def _row(counts: Counter[str]) -> str:
    return "".join(f"{counts[name] or '.':>9}" for name in OUTCOMES)


def _is_long(case: Case | None, area: str) -> bool:
    """Left out of the short selection: most cases, and contracts that need many kernels."""
    return not case.short if case is not None else area not in ("hooks_contract", "bad_input")


def _applies(case: Case, subject: Subject) -> bool:
    if not case.capability:
        return True
    return subject.target is not None and subject.target.has(case.capability)


def _plain_id(item: pytest.Item) -> str:
    """Id of a test that is not data-driven: area (from the module's name) and function."""
    area = Path(str(item.path)).stem.removeprefix("test_")
    return f"{area}/{getattr(item, 'originalname', item.name)}"


def _plain_test_ids() -> list[str]:
    """Ids of all tests of the suite that are not data-driven, read from the sources."""
    import ast

    found: list[str] = []
    for path in sorted(SUITE.glob("test_*.py")):
        area = path.stem.removeprefix("test_")
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.append(f"{area}/{node.name}")
    return found
