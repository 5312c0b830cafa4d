"""Block order: every block once, whatever the grid, the groups and the chunks."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tilecore.codegen.simt.block_order import NAMES, chunked, grid_lines
from tilecore.codegen.simt.spelling import RESERVED
from tilecore.ir.program import BlockOrder

AXES = "xyz"


@given(st.integers(1, 3000), st.integers(1, 9), st.integers(1, 70))
def test_chunks_are_a_bijection(count: int, groups: int, chunk: int) -> None:
    places = [chunked(block, count, groups, chunk) for block in range(count)]
    assert sorted(places) == list(range(count))


@given(st.integers(2, 9), st.integers(2, 40), st.integers(1, 4))
def test_a_group_gets_runs_of_neighbours(groups: int, chunk: int, rounds: int) -> None:
    count = groups * chunk * rounds
    for group in range(groups):
        places = [chunked(b, count, groups, chunk) for b in range(group, count, groups)]
        for first in range(0, len(places), chunk):
            run = places[first : first + chunk]
            assert run == list(range(run[0], run[0] + chunk)) and run[0] % chunk == 0


def test_names_of_the_lines_are_kept_from_authors() -> None:
    defined: set[str] = set()
    for rank in (1, 2, 3):
        names = list(AXES[:rank])
        for order in (None, BlockOrder(2)):
            lines = grid_lines(names, order, groups=2, chunk=2)
            defined |= set(re.findall(r"const int (\w+) =", "\n".join(lines))) - set(names)
    assert defined == NAMES
    assert RESERVED >= NAMES


def evaluate(
    lines: list[str], names: list[str], grid: tuple[int, ...], block: tuple[int, ...]
) -> tuple[int, ...]:
    """What the printed lines give, read as Python (all numbers are non-negative)."""
    known: dict[str, int] = {}
    for line in lines:
        if line.startswith("//"):
            continue
        name, _, text = line.removeprefix("const int ").rstrip(";").partition(" = ")
        for axis, extent, at in zip(AXES, (*grid, 1, 1), (*block, 0, 0), strict=False):
            text = text.replace(f"tc::grid_{axis}()", str(extent))
            text = text.replace(f"tc::block_{axis}()", str(at))
        text = text.replace("tc::min", "min").replace("/", "//")
        condition, asks, rest = text.partition(" ? ")
        if asks:
            then, _, otherwise = rest.partition(" : ")
            text = f"({then}) if ({condition}) else ({otherwise})"
        known[name] = eval(text, {"min": min}, known)  # our own text, over integers
    return tuple(known[name] for name in names)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from(["row", "column"]),
)
def test_printed_lines_visit_every_block_once(
    extents: list[int], groups: int, chunk: int, panel: int | None, order: str
) -> None:
    names = ["bx", "by", "bz"][: len(extents)]
    grid = tuple(extents)
    panels = None if panel is None else BlockOrder(panel, order)
    lines = list(grid_lines(names, panels, groups, chunk))
    seen = set()
    for number in range(grid[0] * (grid[1] if len(grid) > 1 else 1) * (grid[2:] or (1,))[0]):
        rest, block = number, []
        for extent in grid:
            rest, at = divmod(rest, extent)
            block.append(at)
        place = evaluate(lines, names, grid, tuple(block))
        assert all(0 <= at < extent for at, extent in zip(place, grid, strict=True))
        seen.add(place)
    assert len(seen) == number + 1
