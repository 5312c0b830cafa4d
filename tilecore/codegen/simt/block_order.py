"""Which coordinates a block takes: in panels, and in chunks where processors form groups.

Devices that deal blocks round robin to groups of processors, each with a cache of its own, spread
neighbours over all caches. With G groups and chunks of c, block b of every whole round of G c
takes ``b / G / c * G c + b % G * c + b / G % c`` instead: a group then gets runs of c neighbours.
Blocks behind the last whole round keep their place, so the map is a bijection. The panel order of
`T.use_swizzle` comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilecore.ir.program import BlockOrder

GROUPS, CHUNK = "block_groups", "block_chunk"
"""Hints of a kernel: groups of processors, and neighbours that one group takes."""

NAMES = frozenset({
    "block_number", "block_local", "dealt", "dealt_x", "dealt_y", "dealt_z",
    "block_id", "panel_length", "panel_first", "panel_width", "in_panel",
})  # fmt: skip
"""What `grid_lines` defines besides the grid variables: no author's name is printed so."""

_AXES = "xyz"


def chunked(block: int, count: int, groups: int, chunk: int) -> int:
    """The place that block number `block` of `count` takes; what `grid_lines` prints."""
    if block >= count // (groups * chunk) * (groups * chunk):
        return block
    local = block // groups
    return local // chunk * (groups * chunk) + block % groups * chunk + local % chunk


def grid_lines(
    names: Sequence[str], order: BlockOrder | None, groups: int, chunk: int
) -> Iterator[str]:
    """Definitions of the grid variables, x first."""
    at = [f"tc::block_{axis}()" for axis in _AXES]
    if groups > 1 and chunk > 1:
        yield from _dealt(len(names), groups, chunk)
        at = ["dealt_x", "dealt_y", "dealt_z"]
    if order is not None and len(names) >= 2 and order.panel >= 1:
        yield from _panels(names, order, at)
        names, at = names[2:], at[2:]
    for name, place in zip(names, at, strict=False):
        yield f"const int {name} = {place};"


def _dealt(rank: int, groups: int, chunk: int) -> Iterator[str]:
    x, y, z = (f"tc::grid_{axis}()" for axis in _AXES)
    count = " * ".join((x, y, z)[:rank])
    number = "tc::block_x()"
    if rank > 1:
        number += f" + {x} * " + ("tc::block_y()" if rank == 2 else
                                  f"(tc::block_y() + {y} * tc::block_z())")  # fmt: skip
    whole = groups * chunk
    yield f"// {groups} groups of processors take runs of {chunk} neighbouring blocks in turn"
    yield f"const int block_number = {number};"
    yield f"const int block_local = block_number / {groups};"
    yield (
        f"const int dealt = block_number >= {count} / {whole} * {whole} ? block_number : "
        f"block_local / {chunk} * {whole} + block_number % {groups} * {chunk} + "
        f"block_local % {chunk};"
    )
    if rank == 1:
        yield "const int dealt_x = dealt;"
        return
    yield f"const int dealt_x = dealt % {x};"
    if rank == 2:
        yield f"const int dealt_y = dealt / {x};"
        return
    yield f"const int dealt_y = dealt / {x} % {y};"
    yield f"const int dealt_z = dealt / {x} / {y};"


def _panels(names: Sequence[str], order: BlockOrder, at: Sequence[str]) -> Iterator[str]:
    along, across = (0, 1) if order.order == "row" else (1, 0)
    yield f"// blocks in panels of {order.panel} {order.order}s"
    yield f"const int block_id = {at[0]} + {at[1]} * tc::grid_x();"
    yield f"const int panel_length = tc::grid_{_AXES[along]}() * {order.panel};"
    yield f"const int panel_first = block_id / panel_length * {order.panel};"
    rows_left = f"tc::grid_{_AXES[across]}() - panel_first"
    yield f"const int panel_width = tc::min({order.panel}, {rows_left});"
    yield "const int in_panel = block_id % panel_length;"
    yield f"const int {names[across]} = panel_first + in_panel % panel_width;"
    yield f"const int {names[along]} = in_panel / panel_width;"
