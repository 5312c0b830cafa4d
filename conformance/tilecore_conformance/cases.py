"""Cases as data: the tables in ``cases/*.toml``, expanded.

Each file is one area. A ``[[case]]`` names a program of `tilecore_conformance.programs` and its
parameters; lists under ``each`` are expanded as a full product, lists under ``zip`` side by side::

    [[case]]
    program = "copy_through_shared"
    tile = [32, 32]
    each.dtype = ["float32", "float16"]
    zip.rows = [7, 128]
    zip.cols = [33, 129]
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """One conformance case.

    Attributes:
        id: ``area/program-name.value-name.value``, unique, and fit for pytest's ``-k``.
        area: row of the matrix.
        program: name of the builder.
        params: the builder's keyword arguments, as (name, value) pairs.
        smoke: one of the few samples that the contracts of the suite are tried on.
        short: part of the selection that is not marked slow where the plugin chose the level.
        capability: the target must have it, else the case does not apply; "" is none.
    """

    id: str
    area: str
    program: str
    params: tuple[tuple[str, Any], ...]
    smoke: bool = False
    short: bool = False
    capability: str = ""


SHORT_STRIDE = 4  # about one case in eight: two minutes of emulation instead of many
RESERVED = ("program", "each", "zip", "smoke", "capability")


def load_cases(area: str, text: str) -> list[Case]:
    """Expand one file.

    Raises:
        ValueError: unequal ``zip`` lists, or two cases with one id.
    """
    cases: list[Case] = []
    for table in tomllib.loads(text)["case"]:
        fixed = {name: value for name, value in table.items() if name not in RESERVED}
        for number, varied in enumerate(_expand(table)):
            cases.append(
                Case(
                    id=f"{area}/{_label(table['program'], fixed, varied)}",
                    area=area,
                    program=table["program"],
                    params=tuple({**fixed, **varied}.items()),
                    smoke=table.get("smoke", False) and number == 0,
                    short=table.get("smoke", False) and number % SHORT_STRIDE == 0,
                    capability=table.get("capability", ""),
                )
            )
    ids = [case.id for case in cases]
    repeated = {case_id for case_id in ids if ids.count(case_id) > 1}
    if repeated:
        raise ValueError(f"{area}: cases listed twice: {sorted(repeated)}")
    return cases


def _expand(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    side_by_side = table.get("zip", {})
    lengths = {len(values) for values in side_by_side.values()}
    if len(lengths) > 1:
        raise ValueError(f"{table['program']}: zip lists differ in length: {lengths}")
    rows = [
        dict(zip(side_by_side, values, strict=True))
        for values in zip(*side_by_side.values(), strict=True)
    ] or [{}]
    each = table.get("each", {})
    for row in rows:
        for values in itertools.product(*each.values()):
            yield {**row, **dict(zip(each, values, strict=True))}


def _label(program: str, fixed: dict[str, Any], varied: dict[str, Any]) -> str:
    parts = [f"{name}.{_text(value)}" for name, value in {**fixed, **varied}.items()]
    return "-".join([program, *parts])


def _text(value: Any) -> str:
    return "x".join(map(_text, value)) if isinstance(value, list) else str(value)


@functools.lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """Every case of every area, in file order."""
    folder = files("tilecore_conformance") / "cases"
    found: list[Case] = []
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".toml"):
            found.extend(load_cases(entry.name.removesuffix(".toml"), entry.read_text("utf-8")))
    return tuple(found)


def sampled(cases: list[Case], count: int) -> list[Case]:
    """At most `count` cases of each program of each area, spread over all of them; 0 is all."""
    if count <= 0:
        return cases
    programs: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        programs.setdefault((case.area, case.program), []).append(case)
    kept: set[str] = set()
    for own in programs.values():
        taken = min(count, len(own))
        kept |= {own[k * len(own) // taken].id for k in range(taken)}
    return [case for case in cases if case.id in kept]
