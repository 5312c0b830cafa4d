"""One run of the list: for which backend, on what, and what became of each file."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.compatibility.pool import Result
from tools.compatibility.verdict import PORTABLE

_RECORD = "results.jsonl"
_ABOUT = "run.json"
_ASKED_FOR = ("einops", "scipy", "tqdm", "triton", "transformers", "flash_attn", "fla")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one backend.

    Attributes:
        backend: its name.
        place: what ran the programs: ``"host"``, ``"emulator"``, or a device's name.
        limit: seconds of processor time that a file had.
        packages: those that programs ask for and that were installed.
        results: by path.
    """

    backend: str
    place: str
    limit: float
    packages: tuple[str, ...]
    results: dict[str, Result]

    @property
    def title(self) -> str:
        """How a table names it."""
        return f"`{self.backend}` {self.place}"

    def states(self) -> Counter[str]:
        """How many files ended in each state."""
        return Counter(result.state for result in self.results.values())

    def portable(self) -> int:
        """How many files count."""
        return sum(result.state in PORTABLE for result in self.results.values())

    def tests(self, state: str) -> int:
        """Tests in that state; a program is one test."""
        return sum(result.counts.get(state, 0) for result in self.results.values())

    def trees(self) -> Counter[str]:
        """How many portable files were run with each tree of tilecore."""
        return Counter(one.tree for one in self.results.values() if one.state in PORTABLE)


def _kept(folder: Path) -> dict[str, Result]:
    """The results in the folder's record, by path; none where there is no record."""
    record = folder / _RECORD
    if not record.exists():
        return {}
    rows = map(json.loads, record.read_text("utf-8").splitlines())
    return {one["path"]: Result(**one) for one in rows}


def read_run(folder: Path) -> Run:
    """A run that was kept in a folder (``--keep``)."""
    about = json.loads((folder / _ABOUT).read_text("utf-8"))
    packages = tuple(about["packages"])
    return Run(about["backend"], about["place"], about["limit"], packages, _kept(folder))


def begin(folder: Path, backend: str, place: str, limit: float) -> dict[str, Result]:
    """Note what a run is about; the results that an earlier start of it kept."""
    packages = [name for name in _ASKED_FOR if importlib.util.find_spec(name) is not None]
    about = {"backend": backend, "place": place, "limit": limit, "packages": packages}
    (folder / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
    return _kept(folder)


def keep(folder: Path, result: Result) -> None:
    """Add one result to the folder's record."""
    with (folder / _RECORD).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(result)) + "\n")
