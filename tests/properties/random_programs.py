"""Random tile programs as source text.

Every value is a small integer in float32, so that sums and products are exact whatever their order:
results are compared bit by bit, over backends, pipeline depths and thread counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from program_text import clamped, indented

TILES = ("acc", "t", "u", "s")  # (BM, BN): three fragments and a shared buffer
LIMIT = 48  # tiles are clamped to it, so that no sum passes 2**24

HEADER = """\
import tilecore.language as T


def make(M, N, K, BM, BN, BK, num_stages, threads):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        X: T.Tensor((M, N), "float32"),
        C: T.Tensor((M, N), "float32"),
        D: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bx, by):
            a = T.alloc_shared((BM, BK), "float32")
            b = T.alloc_shared((BK, BN), "float32")
            s = T.alloc_shared((BM, BN), "float32")
            acc = T.alloc_fragment((BM, BN), "float32")
            t = T.alloc_fragment((BM, BN), "float32")
            u = T.alloc_fragment((BM, BN), "float32")
            row = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            T.clear(acc)
            T.clear(row)
            T.clear(part)
            T.fill(u, 1)
            T.copy(X[by * BM, bx * BN], t)
            T.copy(X[by * BM, bx * BN], s)
"""
FOOTER = """\
            T.copy(acc, C[by * BM, bx * BN])
            for i in T.Parallel(BM):
                if by * BM + i < M:
                    T.atomic_add(D[by * BM + i], row[i] + part[i])

    return main
"""


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """A program's text and its sizes (M, N, K, BM, BN, BK)."""

    body: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def text(self) -> str:
        """The module that makes it."""
        return HEADER + "".join(f"            {line}\n" for line in self.body) + FOOTER


@st.composite
def values(draw: Any, readable: tuple[str, ...], depth: int = 2) -> str:
    """An expression at tile coordinates i, j."""
    if depth == 0 or draw(st.booleans()):
        atoms = [
            *(f"{tile}[i, j]" for tile in readable), "row[i]", "3", "-2",
            "T.cast(i, 'float32')", "T.cast(j - bx, 'float32')",
        ]  # fmt: skip
        return draw(st.sampled_from(atoms))
    x, y = draw(values(readable, depth - 1)), draw(values(readable, depth - 1))
    form = draw(st.sampled_from([
        "({x} + {y})", "({x} - {y})", "T.max({x}, {y})", "T.min({x}, {y})", "T.abs({x})",
        "T.if_then_else({x} > {y}, {x}, 1)", "T.if_then_else((i + j) % 3 == 0, {x}, {y})", "(-{x})",
    ]))  # fmt: skip
    return form.format(x=x, y=y)


@st.composite
def elementwise(draw: Any) -> list[str]:
    """A parallel loop that writes one tile."""
    target = draw(st.sampled_from(TILES))
    readable = TILES
    value = draw(values(readable))
    if target != "s" and draw(st.booleans()):  # another lane's element, through shared memory
        value = f"{value} + s[(i + {draw(st.integers(1, 3))}) % BM, j]"
    sign = draw(st.sampled_from(["= ", "= 1 + "]))
    return ["for i, j in T.Parallel(BM, BN):", f"    {target}[i, j] {sign}{clamped(value, LIMIT)}"]


@st.composite
def reductions(draw: Any) -> list[str]:
    """A reduction of a tile to its rows."""
    op = draw(st.sampled_from(["sum", "max", "min", "absmax", "abssum"]))
    source = draw(st.sampled_from(TILES))
    clear = draw(st.booleans())
    target = draw(st.sampled_from(["row", "part"]))
    option = "" if op == "abssum" else f", clear={clear}"  # it always starts anew
    lines = [f"T.reduce_{op}({source}, {target}, dim=1{option})"]
    bound = clamped(f"{target}[i]", LIMIT)
    return [*lines, "for i in T.Parallel(BM):", f"    {target}[i] = {bound}"]


@st.composite
def moves(draw: Any) -> list[str]:
    """A copy, a fill, a scan, or a product of tiles."""
    x, y = draw(st.permutations(TILES))[:2]
    kind = draw(st.sampled_from(["copy", "fill", "scan", "store", "load"]))
    if kind == "copy":
        return [f"T.copy({x}, {y})"]
    if kind == "fill":
        return [f"T.fill({x}, {draw(st.integers(-3, 3))})"]
    if kind == "store":
        return [f"T.copy({x}, C[by * BM, bx * BN])", f"T.copy(C[by * BM, bx * BN], {y})"]
    if kind == "load":
        return [f"T.copy(X[by * BM, bx * BN], {x})"]
    bound = clamped("s[i, j]", LIMIT)
    return [
        f"T.cumsum(s, dim={draw(st.integers(0, 1))}, reverse={draw(st.booleans())})",
        "for i, j in T.Parallel(BM, BN):",
        f"    s[i, j] = {bound}",
    ]


@st.composite
def statements(draw: Any, depth: int = 1) -> list[str]:
    """One statement over the tiles."""
    kinds: list[Any] = [elementwise(), reductions(), moves()]
    if depth:
        kinds += [branches(depth), loops(depth)]
    return draw(st.one_of(kinds))


@st.composite
def blocks(draw: Any, depth: int) -> list[str]:
    """One or two statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        lines += draw(statements(depth - 1))
    return lines


@st.composite
def branches(draw: Any, depth: int) -> list[str]:
    """A condition that is the same for the whole block."""
    test = draw(st.sampled_from(["bx % 2 == 0", "by > 0", "bx + by < 2", "(by + 1) * BM <= M"]))
    lines = [f"if {test}:", *indented(draw(blocks(depth)))]
    if draw(st.booleans()):
        lines += ["else:", *indented(draw(blocks(depth)))]
    return lines


@st.composite
def loops(draw: Any, depth: int) -> list[str]:
    """A sequential loop, by its index or with a bound that the block decides."""
    extent = draw(st.sampled_from(["2", "3", "bx + 1", "T.min(by, 2)"]))
    return [f"for q in T.serial({extent}):", *indented(draw(blocks(depth)))]


@st.composite
def main_loops(draw: Any) -> list[str]:
    """The pipelined contraction, with work between its copies and its product."""
    inside = ["T.copy(A[by * BM, ko * BK], a)"]
    if draw(st.booleans()):
        change = draw(st.sampled_from(["a[i, l] * 2", "T.max(a[i, l], 0)", "-a[i, l]"]))
        inside += ["for i, l in T.Parallel(BM, BK):", f"    a[i, l] = {change}"]
    inside += ["T.copy(B[ko * BK, bx * BN], b)"]
    product = draw(st.sampled_from(["T.gemm(a, b, acc)", "T.gemm(a, b, t)", ""]))
    if product:
        inside.append(product)
    if draw(st.booleans()) or not product:
        inside.append("T.reduce_sum(a, part, dim=1, clear=False)")
    if draw(st.booleans()):
        inside += ["if ko % 2 == 1:", *indented(draw(statements(0)))]
    bound = [
        "for i, j in T.Parallel(BM, BN):",
        f"    acc[i, j] = {clamped('acc[i, j]', LIMIT)}",
        f"    t[i, j] = {clamped('t[i, j]', LIMIT)}",
    ]
    head = "for ko in T.Pipelined(T.ceildiv(K, BK), num_stages=num_stages):"
    return [head, *indented(inside), *bound]


@st.composite
def random_programs(draw: Any, tile: Any = None, largest: int = 70) -> RandomProgram:
    """A program with its sizes; tiles of (BM, BN, BK) from `tile`."""
    default = st.tuples(*[st.sampled_from([4, 8, 12, 16, 32])] * 3)
    block = draw(tile if tile is not None else default)
    extents = draw(st.tuples(*[st.integers(1, largest)] * 3))
    body: list[str] = []
    for _ in range(draw(st.integers(0, 2))):
        body += draw(statements())
    if draw(st.booleans()):
        body += draw(main_loops())
    for _ in range(draw(st.integers(0, 2))):
        body += draw(statements())
    return RandomProgram(tuple(body), (*extents, *block))
