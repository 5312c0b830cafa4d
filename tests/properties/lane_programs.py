"""Random programs written per lane, as source: variables, exchanges, shared boxes, barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from program_text import indented

NAMES = ("x", "y", "z")
BINS = 8  # of the shared counters

HEADER = """\
import tilecore.language as T


def make(blocks, threads):
    @T.prim_func
    def main(
        X: T.Tensor((blocks, threads), "int32"),
        Y: T.Tensor((blocks, threads), "int32"),
        Z: T.Tensor((blocks, 3), "int32"),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            lane = T.get_thread_binding(0)
            warp_lane, warp = T.get_lane_idx(), T.get_warp_idx()
            box = T.alloc_shared((threads,), "int32")
            bins = T.alloc_shared(({bins},), "int32")
            own = T.alloc_local((4,), "int32")
            x = T.alloc_var("int32", init=X[bx, lane])
            y = T.alloc_var("int32", init=lane)
            z = T.alloc_var("int32", init=3)
            for k in T.serial(4):
                own[k] = x + k
"""
FOOTER = """\
            Y[bx, lane] = x + y * 3 + z * 5 + own[0] + own[1] * 2 + own[2] * 3 + own[3]
            if lane < 3:
                Z[bx, lane] = T.if_then_else(lane == 0, x, y) + z

    return main
"""

_sites = st.integers(-9, 9).map(lambda v: f"({v})")
atoms = st.sampled_from([*NAMES, *NAMES, "lane", "warp_lane", "warp", "bx"]) | _sites
names = st.sampled_from(NAMES)


@dataclass(frozen=True)
class LaneProgram:
    """A program's statements, and the sizes that it is run with."""

    lines: tuple[str, ...]
    blocks: int
    threads: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Blocks, and threads of each."""
        return self.blocks, self.threads

    @property
    def text(self) -> str:
        """The whole module."""
        body = "".join(f"            {line}\n" for line in self.lines)
        return HEADER.format(bins=BINS) + body + FOOTER


@st.composite
def values(draw: Any, depth: int = 2) -> str:
    """An int32 expression between -44 and 44, of the lane's own values."""
    if depth == 0 or draw(st.booleans()):
        return str(draw(atoms))
    a, b = draw(values(depth - 1)), draw(values(depth - 1))
    form = draw(st.sampled_from([
        "({a} + {b})", "({a} - {b})", "({a} * {b})", "T.max({a}, {b})", "({a} ^ {b})",
        "T.if_then_else({a} < {b}, {b}, -({a}))", "({a} // 3)", "T.abs({a})",
    ]))  # fmt: skip
    return f"({form.format(a=a, b=b)} % 89 - 44)"


@st.composite
def exchanges(draw: Any) -> str:
    """A value that comes from other lanes, of the warp or of the block."""
    value = draw(names)
    width = draw(st.sampled_from([32, 16, 8, 2]))
    kind = draw(st.integers(0, 7))
    if kind == 7:
        vote = draw(st.sampled_from(["count", "and", "or"]))
        return f"T.cast(T.syncthreads_{vote}({value} < {draw(values(1))}), 'int32') + {value}"
    if kind == 0:
        return f"T.shfl_xor({value}, {draw(st.integers(0, 31))})"
    if kind == 1:
        return f"T.shfl_sync({value}, {draw(values(1))} & 31)"
    if kind == 2:
        way = draw(st.sampled_from(["up", "down"]))
        return f"T.shfl_{way}({value}, {draw(st.integers(0, width - 1))}, width={width})"
    if kind == 3:
        op = draw(st.sampled_from(["sum", "max", "min"]))
        return f"T.warp_reduce_{op}({value}) % 97"
    if kind == 4:
        return f"T.cast(T.popcount(T.ballot({value} > {draw(values(1))})), 'int32')"
    if kind == 5:
        test = f"{value} == {draw(values(1))}"
        return f"T.if_then_else(T.{draw(st.sampled_from(['any', 'all']))}_sync({test}), 7, {value})"
    return f"T.shfl_sync({value}, {draw(st.integers(0, 31))})"


@st.composite
def statements(draw: Any, depth: int = 2) -> list[str]:
    """One statement that all lanes of the block reach."""
    name = draw(names)
    kind = draw(st.integers(0, 8 if depth else 6))
    if kind == 0:
        return [f"{name} = {draw(values())}"]
    if kind in (1, 2):
        return [f"{name} = {draw(exchanges())}"]
    if kind == 3:  # a lane's own element goes to another lane, by shared memory
        a, b = draw(st.sampled_from([1, 3, 5, 7])), draw(st.integers(0, 40))
        lines = [f"box[lane] = {draw(values())}", "T.sync_threads()"]
        if draw(st.booleans()):  # and the block works on it together in between
            step = draw(st.sampled_from(["box[i] + 2", "box[i] * 3 % 89", "T.max(box[i], bx)"]))
            lines += ["for i in T.Parallel(threads):", f"    box[i] = {step}"]
        return [*lines, f"{name} = box[(lane * {a} + {b}) % threads]", "T.sync_threads()"]
    if kind == 4:  # counted by atomics
        return [
            f"if lane < {BINS}:", "    bins[lane] = 0", "T.sync_threads()",
            f"T.atomic_add(bins[{draw(values())} % {BINS}], 1)", "T.sync_threads()",
            f"{name} = bins[lane % {BINS}]", "T.sync_threads()",
        ]  # fmt: skip
    if kind == 5:
        place = draw(st.integers(0, 3))
        return [f"own[{place}] = {draw(values())}", f"{name} = own[{draw(st.integers(0, 3))}]"]
    if kind == 6:  # some lanes only
        inner = [f"{draw(names)} = {draw(values())}" for _ in range(draw(st.integers(1, 2)))]
        other = ["else:", *indented([f"{name} = {draw(values())}"])] if draw(st.booleans()) else []
        test = f"{draw(values(1))} {draw(st.sampled_from(['<', '>=', '==']))} {draw(values(1))}"
        return [f"if {test}:", *indented(inner), *other]
    inner = draw(bodies(depth - 1))
    if kind == 7:
        rounds = draw(st.sampled_from(["2", "3", "bx + 1"]))
        return [f"for r{depth} in T.serial({rounds}):", *indented(inner)]
    return [f"if bx % 2 == {draw(st.integers(0, 1))}:", *indented(inner)]


@st.composite
def bodies(draw: Any, depth: int = 2) -> list[str]:
    """One to four statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        lines += draw(statements(depth))
    return lines


@st.composite
def lane_programs(draw: Any) -> LaneProgram:
    """A program of up to 40 lines over a few warps and blocks."""
    lines = draw(bodies().filter(lambda found: len(found) <= 40))
    return LaneProgram(tuple(lines), draw(st.integers(1, 3)), draw(st.sampled_from([32, 64, 96])))
