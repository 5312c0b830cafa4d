"""Random tile programs over several dtypes and most of the vocabulary, as source text.

Values stay whole numbers of at most `LIMIT`, which every dtype in use holds exactly, and sums stay
below what their dtype holds: results are compared bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from program_text import clamped, indented

LIMIT = 48
DTYPES = ("float32", "float16", "bfloat16", "int32", "int8")
FLAT = 40  # elements of the tensor that is only written by atomics

HEADER = """\
import tilecore.language as T


def make(M, N, K, BM, BN, BK, num_stages, threads):
    {size}
    @T.prim_func
    def main(
        A: T.Tensor({a_shape}, "{operand}"),
        B: T.Tensor({b_shape}, "{operand}"),
        X: T.Tensor((M, N), "float32"),
        C: T.Tensor((M, N), "float32"),
        D: T.Tensor((M,), "int32"),
        E: T.Tensor(({flat},), "int32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bx, by):
            f = T.alloc_fragment((BM, BN), "{f}")
            g = T.alloc_fragment((BM, BN), "{g}")
            s = T.alloc_shared((BM, BN), "{s}")
            h = T.alloc_shared((BN, BM), "{h}")
            row = T.alloc_fragment((BM,), "{row}")
            col = T.alloc_fragment((BN,), "float32")
            n = T.alloc_var("int32", init=1)
            T.copy(X[by * BM, bx * BN], f)
            T.fill(g, 2)
            T.copy(f, s)
            T.transpose(s, h)
            T.fill(row, -1)
            T.clear(col)
"""
FOOTER = """\
            for i, j in T.Parallel(BM, BN):
                g[i, j] = g[i, j] + T.cast(h[j, i], "{g}")
            T.copy(f, s)
            for i, j in T.Parallel(BM, BN):
                if by * BM + i < M and bx * BN + j < N:
                    T.atomic_add(C[by * BM + i, bx * BN + j], s[i, j] + g[i, j] + col[j])
            for i in T.Parallel(BM):
                if by * BM + i < M:
                    T.atomic_add(D[by * BM + i], T.cast(row[i], "int32") + n)

    return main
"""


@dataclass(frozen=True, slots=True)
class WideProgram:
    """A program: its body, its sizes (M, N, K, BM, BN, BK), its dtypes, and how A and B lie.

    Attributes:
        body: lines.
        sizes: extents and tile extents.
        dtypes: of f, g, s, h, row.
        operand: dtype of A and B.
        turned: whether A and B are stored transposed.
        dynamic: whether M is known only at the call.
    """

    body: tuple[str, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    operand: str = "float16"
    turned: tuple[bool, bool] = (False, False)
    dynamic: bool = False

    @property
    def text(self) -> str:
        """The module that makes it."""
        names = dict(zip(("f", "g", "s", "h", "row"), self.dtypes, strict=True))
        lines = "".join(f"            {line}\n" for line in self.body)
        head = HEADER.format(
            **names,
            a_shape="(K, M)" if self.turned[0] else "(M, K)",
            b_shape="(N, K)" if self.turned[1] else "(K, N)",
            operand=self.operand,
            flat=FLAT,
            size='M = T.dynamic("M")' if self.dynamic else "",
        )
        return head + lines + FOOTER.format(**names)


def bounded(text: str) -> str:
    """The expression kept within `LIMIT`."""
    return clamped(text, LIMIT)


@st.composite
def values(draw: Any, depth: int = 2) -> str:
    """An expression at tile coordinates i, j."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([
            "f[i, j]", "g[i, j]", "s[i, j]", "h[j, i]", "row[i]", "col[j]", "3", "-2", "n",
            "T.cast(i - j, 'int32')", "T.cast(f[i, j], 'int8')", "T.cast(g[i, j], 'bfloat16')",
            "(T.cast(s[i, j], 'int32') // 3)", "(T.cast(f[i, j], 'int32') % 5)",
            "(T.cast(g[i, j], 'int32') & 7)", "(T.cast(h[j, i], 'int32') >> 1)",
        ]))  # fmt: skip
    x, y = draw(values(depth - 1)), draw(values(depth - 1))
    form = draw(st.sampled_from([
        "({x} + {y})", "({x} - {y})", "T.max({x}, {y})", "T.min({x}, {y})", "T.abs({x})",
        "T.if_then_else({x} > {y}, {x}, {y})", "T.if_then_else((i + j) % 3 == 0, {x}, {y})",
        "T.Select(T.Not({x} <= {y}), {x}, 1)", "T.clamp({x}, -5, 9)",
    ]))  # fmt: skip
    return form.format(x=x, y=y)


@st.composite
def elementwise(draw: Any) -> list[str]:
    """A parallel loop over one tile, a part of it, or its flat view."""
    kind = draw(st.sampled_from(["whole", "part", "local", "masked", "nested", "turned"]))
    value = bounded(f"T.cast({draw(values())}, 'float32')")
    tile = draw(st.sampled_from("fg"))
    if kind == "whole":
        return ["for i, j in T.Parallel(BM, BN):", f"    {tile}[i, j] = {value}"]
    if kind == "part":
        return ["for i, j in T.Parallel(BM // 2, BN):", f"    s[i, j] = {value}"]
    if kind == "masked":
        test = draw(st.sampled_from(["(i + j) % 2 == 0", "i * BN + j < BM", f"{tile}[i, j] > 1"]))
        return [
            "for i, j in T.Parallel(BM, BN):",
            f"    if {test}:",
            f"        {tile}[i, j] = {value}",
        ]
    if kind == "nested":
        return [
            "for i in T.Parallel(BM):",
            "    for j in T.Parallel(BN):",
            f"        s[i, j] = {value}",
        ]
    if kind == "turned":
        return ["for j, i in T.Parallel(BN, BM):", f"    h[j, i] = {value}"]
    return [
        "for i, j in T.Parallel(BM, BN):",
        "    kept = T.alloc_local((2,), 'float32')",
        f"    kept[0] = {value}",
        "    kept[1] = kept[0] - 1",
        f"    {tile}[i, j] = {bounded('kept[0] + kept[1]')}",
    ]


@st.composite
def moves(draw: Any) -> list[str]:
    """Copies that convert, slices, fills, transpositions, views."""
    return draw(st.sampled_from([
        ["T.copy(f, g)"], ["T.copy(g, s)"], ["T.copy(s, f)"], ["T.transpose(s, h)"],
        ["T.transpose(h, s)"], ["T.fill(s[0:BM // 2, :], 4)"], ["T.fill(h, -3)"],
        ["T.copy(X[by * BM, bx * BN], s)"], ["T.copy(s[0:1, :], s[BM - 1 : BM, :])"],
        ["T.copy(X[by * BM : (by + 1) * BM, bx * BN : (bx + 1) * BN], g)"],
        ["flat = T.view(s, (BM * BN,))", "for k in T.Parallel(BM * BN):",
         f"    flat[k] = {bounded('flat[k] + T.cast(k % 3, flat.dtype)')}"],
        ["wide = T.reshape(s, (BM // 2, BN * 2))", "T.fill(wide[0:1, 0:BN], 5)"],
    ]))  # fmt: skip


@st.composite
def reductions(draw: Any) -> list[str]:
    """Reductions along either axis, scans, and a reducer."""
    kind = draw(st.sampled_from(["row", "col", "scan", "reducer", "any"]))
    if kind == "row":
        op = draw(st.sampled_from(["sum", "max", "min", "absmax"]))
        source, clear = draw(st.sampled_from("gs")), draw(st.booleans())
        keep = ["for i in T.Parallel(BM):", f"    row[i] = {bounded('row[i]')}"]
        return [
            "for i, j in T.Parallel(BM, BN):",
            f"    {source}[i, j] = T.max(T.min({source}[i, j], 1), -1)",
            f"T.reduce_{op}({source}, row, dim=1, clear={clear})",
            *keep,
        ]
    if kind == "col":
        op = draw(st.sampled_from(["sum", "max", "min"]))
        return [
            "T.copy(f, g)",
            f"T.reduce_{op}(f, col, dim=0, clear={draw(st.booleans())})"
            if op != "sum"
            else "T.reduce_max(f, col, dim=0, clear=False)",
            "for j in T.Parallel(BN):",
            f"    col[j] = {bounded('col[j]')}",
        ]
    if kind == "scan":
        op = draw(st.sampled_from(["cumsum", "cummax"]))
        return [
            "for i, j in T.Parallel(BM, BN):",
            "    s[i, j] = T.max(T.min(s[i, j], 1), -1)",
            f"T.{op}(s, dim={draw(st.integers(0, 1))}, reverse={draw(st.booleans())})",
        ]
    if kind == "any":
        return [f"if T.{draw(st.sampled_from(['any_of', 'all_of']))}(s):", "    n = n + 1"]
    op = draw(st.sampled_from(["sum", "max", "bitor"]))
    return [
        f"total = T.alloc_reducer((BN,), 'int32', op='{op}')",
        "T.reducer_init(total)",
        "for i, j in T.Parallel(BM, BN):",
        "    T.reducer_update(total[j], T.cast(f[i, j], 'int32'))",
        "last = T.alloc_fragment((BN,), 'int32')",
        "T.finalize_reducer(total, last)",
        "for j in T.Parallel(BN):",
        f"    col[j] = T.cast({bounded('last[j]')}, 'float32')",
    ]


@st.composite
def atomics(draw: Any) -> list[str]:
    """Additions and maxima by many iterations on few elements, and by tiles."""
    at = draw(st.sampled_from([f"(i * 3 + j) % {FLAT}", f"(bx + by + j) % {FLAT}", "0"]))
    op = draw(st.sampled_from(["add", "max", "or"]))
    value = {"add": "T.cast(g[i, j], 'int32')", "max": "T.cast(i + j, 'int32')", "or": "1"}[op]
    if draw(st.booleans()):
        return ["for i, j in T.Parallel(BM, BN):", f"    T.atomic_add(E[{at}], {value})"]
    return [
        "part = T.alloc_fragment((BM, BN), 'float32')",
        "T.fill(part, 1)",
        "T.atomic_add(C[by * BM, bx * BN], part)",
    ]


@st.composite
def statements(draw: Any, depth: int = 1) -> list[str]:
    """One statement."""
    kinds: list[Any] = [elementwise(), moves(), reductions(), atomics()]
    if depth:
        kinds.append(nested(depth))
    return draw(st.one_of(kinds))


@st.composite
def nested(draw: Any, depth: int) -> list[str]:
    """A branch or loop on values of the block."""
    head, before = draw(st.sampled_from([
        ("if bx % 2 == 0:", []), ("if n > 1:", []), ("for q in T.serial(bx + 1):", []),
        ("for q in range(2):", []), ("for q in T.unroll(2):", []), ("while n < 4:", ["n = n + 1"]),
        ("for q in T.Pipelined(3, num_stages=num_stages):", []),
    ]))  # fmt: skip
    return [head, *indented([*before, *draw(statements(depth - 1))])]


@st.composite
def products(draw: Any, turned: tuple[bool, bool], operand: str) -> list[str]:
    """A pipelined contraction, as the operands lie."""
    first = "(BK, BM)" if turned[0] else "(BM, BK)"
    second = "(BN, BK)" if turned[1] else "(BK, BN)"
    a = "A[ko * BK, by * BM]" if turned[0] else "A[by * BM, ko * BK]"
    b = "B[bx * BN, ko * BK]" if turned[1] else "B[ko * BK, bx * BN]"
    kind = "int32" if operand == "int8" else "float32"
    inside = [f"T.copy({a}, ta)", f"T.copy({b}, tb)"]
    if draw(st.booleans()):
        inside.append("T.fill(tb, 1)" if draw(st.booleans()) else "n = n + 1")
    inside.append(f"T.gemm(ta, tb, acc, transpose_A={turned[0]}, transpose_B={turned[1]})")
    if draw(st.booleans()):
        inside += ["if ko == 0:", *indented(draw(statements(0)))]
    return [
        f"ta = T.alloc_shared({first}, '{operand}')",
        f"tb = T.alloc_shared({second}, '{operand}')",
        f"acc = T.alloc_fragment((BM, BN), '{kind}')",
        "T.clear(acc)",
        "for ko in T.Pipelined(T.ceildiv(K, BK), num_stages=num_stages):",
        *indented(inside),
        "for i, j in T.Parallel(BM, BN):",
        f"    f[i, j] = {bounded('acc[i, j]')}",
    ]


@st.composite
def wide_programs(draw: Any, tile: Any = None, largest: int = 60) -> WideProgram:
    """A program with its sizes; tiles of (BM, BN, BK) from `tile`."""
    default = st.tuples(*[st.sampled_from([4, 8, 12, 16, 32])] * 3)
    block = draw(tile if tile is not None else default)
    extents = draw(st.tuples(*[st.integers(1, largest)] * 3))
    dtypes = tuple(draw(st.sampled_from(DTYPES)) for _ in range(5))
    turned = draw(st.tuples(st.booleans(), st.booleans()))
    operand = draw(st.sampled_from(["float16", "bfloat16", "int8", "float32"]))
    body: list[str] = []
    for _ in range(draw(st.integers(0, 2))):
        body += draw(statements())
    if draw(st.booleans()):
        body += draw(products(turned, operand))
    for _ in range(draw(st.integers(0, 3))):
        body += draw(statements())
    return WideProgram(
        tuple(body), (*extents, *block), dtypes, operand, turned, draw(st.booleans())
    )
