"""Random programs over tiles of two and three axes and sizes of the call, made from a seed.

What the other generators leave out is drawn here: extents of 0 and 1 that only the call tells,
indices with strides that go backwards, reductions along any of three axes with and without the
axis kept, pipelines over tiles of several dtypes with copies under conditions, macros in macros,
views of views, loops that count down, old values of atomics, workspaces between kernels. Values are
small whole numbers, so that results are the same bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from program_text import clamped, indented

from tilecore.ir.dtypes import dtype_of, numpy_dtype

LIMIT = 16  # what every dtype in use holds, with all whole numbers below it
DTYPES = (
    "float32", "float32", "float16", "bfloat16", "int32", "int16", "int8", "int64", "float64",
    "float8_e4m3fn",
)  # fmt: skip
WIDE = ("float32", "float16", "int32", "int64", "float64")  # hold sums of a tile's signs
TILES = ((4, 2, 8), (8, 4, 4), (2, 3, 16), (6, 4, 5), (1, 8, 8), (16, 2, 16), (5, 1, 7))
SIZES = (0, 1, 1, 2, 7, 16, 31, 40)

HEADER = """\
import tilecore.language as T

LIMIT = {limit}


@T.macro
def turned(t, rows, cols, step):
    for i, j in T.Parallel(rows, cols):
        t[i, j] = T.max(T.min(T.cast(t[i, j], "int32") + (i * step - j) % 3, LIMIT), -LIMIT)


@T.macro
def again(t, rows, cols, rounds):
    for q in T.serial(rounds):
        turned(t, rows, cols, q + 1)
        if q % 2 == 1:
            turned(t, rows, cols, 2)


def make(num_stages, threads):
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(
        X: T.Tensor((m, n), "{x}"),
        P: T.Tensor((n,), "{p}"),
        Y: T.Tensor((m, n), "float32"),
        Z: T.Tensor((m,), "int32"),
        W: T.Tensor(({bins},), "int32"),
    ):
        G = T.alloc_global((m, n), "{g}")
        with T.Kernel(T.ceildiv(n, {cols}), T.ceildiv(m, {rows}), threads=threads) as (bx, by):
            s = T.alloc_shared(({rows}, {cols}), "{s}")
            h = T.alloc_shared(({rows}, {cols}), "{h}")
            f = T.alloc_fragment(({rows}, {cols}), "{f}")
            row = T.alloc_fragment(({rows},), "{row}")
            p = T.alloc_shared(({cols},), "{p}")
            bins = T.alloc_shared(({bins},), "int32")
            v = T.alloc_var("int32", init=2)
            T.copy(X[by * {rows}, bx * {cols}], s)
            T.copy(X[by * {rows}, bx * {cols}], f)
            T.copy(P[bx * {cols}], p)
            T.fill(h, -1)
            T.fill(row, 1)
            T.clear(bins)
"""
FOOTER = """\
            T.copy(f, G[by * {rows}, bx * {cols}])
            for i, j in T.Parallel({rows}, {cols}):
                if by * {rows} + i < m and bx * {cols} + j < n:
                    Y[by * {rows} + i, bx * {cols} + j] = s[i, j] * 2 + T.cast(h[i, j], "float32")
            for i in T.Parallel({rows}):
                if by * {rows} + i < m:
                    T.atomic_add(Z[by * {rows} + i], T.cast(row[i], "int32") + v)
            for i in T.Parallel({bins}):
                T.atomic_add(W[i], bins[i])
        with T.Kernel(m, threads=32) as line:
            for j in T.Parallel(n):
                Y[line, j] = Y[line, j] + T.cast(G[m - 1 - line, n - 1 - j], "float32") * 3

    return main
"""
BINS = 5


@dataclass(frozen=True, slots=True)
class ShapeProgram:
    """A program's text, the (m, n) that it is called with, and its seed."""

    text: str
    sizes: tuple[int, int]
    dtypes: tuple[str, str]
    seed: int

    def arguments(self) -> list[np.ndarray]:
        """Inputs and zeroed outputs, the same at each call."""
        rng = np.random.default_rng(self.seed)
        m, n = self.sizes
        x, p = (numpy_dtype(dtype_of(name)) for name in self.dtypes)
        inputs = [rng.integers(-3, 4, (m, n)).astype(x), rng.integers(-3, 4, n).astype(p)]
        shapes = (((m, n), np.float32), ((m,), np.int32), ((BINS,), np.int32))
        return [*inputs, *(np.zeros(shape, kind) for shape, kind in shapes)]


OUTPUTS = ("Y", "Z", "W")
"""The last arguments."""


class _Maker:
    """Draws the statements of one program."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.tile = self.rng.choice(TILES)
        a, b, c = self.tile
        self.rows, self.cols = (a, b * c) if self.rng.random() < 0.5 else (a * b, c)
        names = ("x", "p", "g", "s", "h", "f", "row")
        self.dtypes = {name: self.rng.choice(DTYPES) for name in names}
        self.dtypes["row"] = self.rng.choice(WIDE)
        self.count = 0

    def name(self, stem: str) -> str:
        """A name that was not used before."""
        self.count += 1
        return f"{stem}{self.count}"

    def axis(self, index: str, extent: int) -> str:
        """Where an iteration looks along an axis: strided, turned, past the ends."""
        step, shift = self.rng.choice([1, 2, 3]), self.rng.randint(0, 3)
        return self.rng.choice([
            index, index, f"{extent - 1} - {index}", f"({index} * {step} + {shift}) % {extent}",
            f"{index} * {step} - {shift}", f"{extent + 1} - {index} * {step}",
            f"({index} + v) % {extent}",
        ])  # fmt: skip

    def element(self) -> str:
        """A value at tile coordinates i, j, in a dtype of exact sums."""
        rng = self.rng
        i, j = self.axis("i", self.rows), self.axis("j", self.cols)
        place = rng.choice([
            "f[i, j]", f"s[{i}, {j}]", f"h[{i}, {j}]", f"p[{j}]", "row[i]",
            f"X[by * {self.rows} + {i}, bx * {self.cols} + {j}]",
        ])  # fmt: skip
        kind = rng.choice(["float32", "int32", "int32", "float64"])
        return rng.choice([f"T.cast({place}, '{kind}')"] * 4 + ["i - j", "v", "m - n", "3"])

    def value(self) -> str:
        """An expression of a few elements, within `LIMIT`."""
        x, y = self.element(), self.element()
        form = self.rng.choice([
            "{x}", "{x} - {y}", "T.max({x}, {y})", "T.if_then_else({x} > {y}, {y}, 1)",
            "{x} if (i + j) % 3 == 1 else {y}",
        ])  # fmt: skip
        return clamped(f"({form.format(x=x, y=y)})", LIMIT)

    def nest(self) -> list[str]:
        """One tile written, all of it or each n-th row, by its own or others' elements."""
        target = self.name("next")
        dtype = self.rng.choice(DTYPES)
        kept = self.rng.choice("fsh")
        step = self.rng.choice([1, 1, 2, 3])
        rows = max(1, self.rows // step)
        place = f"{kept}[i * {step}, j]" if step > 1 else f"{kept}[i, j]"
        back = f"{kept}[{rows - 1} - i, {self.cols - 1} - j]" if kept != "f" else f"{kept}[i, j]"
        source = f"{target}[i, j]" if step > 1 or kept == "f" else f"{target}[{rows - 1} - i, j]"
        return [
            f"{target} = T.alloc_{self.rng.choice(['shared', 'fragment'])}"
            f"(({rows}, {self.cols}), '{dtype}')",
            f"for i, j in T.Parallel({rows}, {self.cols}):",
            f"    {target}[i, j] = {self.value()}",
            f"for i, j in T.Parallel({rows}, {self.cols}):",
            f"    {place if step > 1 else back} = {target}[i, j]"
            if step > 1 or kept == "f" or self.rng.random() < 0.5
            else f"    {kept}[i, j] = {source}",
        ]

    def reduction(self) -> list[str]:
        """Along one of three axes, kept or dropped, into another dtype; then back into the rows."""
        rng = self.rng
        a, b, c = self.tile
        axis, keep = rng.randrange(3), rng.random() < 0.5
        shape = [a, b, c]
        shape[axis : axis + 1] = [1] if keep else []
        op = rng.choice(["sum", "max", "min", "absmax", "bitor", "bitand", "bitxor", "any", "all"])
        source, cube, out = rng.choice("sh"), self.name("cube"), self.name("out")
        kind = rng.choice(WIDE)
        if op.startswith("bit"):
            kind = rng.choice(["int32", "int8", "int16", "int64"])
        to = "bool" if op in ("any", "all") else kind
        scope = rng.choice(["shared", "fragment"])
        clear = rng.random() < 0.6 or op in ("any", "all")
        at = ", ".join("ijk"[: len(shape)])
        extents = ", ".join(map(str, shape))
        sign = clamped(f"T.cast({cube}_v[i, j, k], 'int32')", 1)
        bins = [f"T.atomic_add(bins[(i + j) % {BINS}], T.cast({out}[{at}], 'int32'))"]
        return [
            f"{cube}_v = T.reshape({source}, ({a}, {b}, {c}))",
            f"{cube} = T.alloc_{scope}(({a}, {b}, {c}), '{kind}')",
            f"{out} = T.alloc_{rng.choice(['shared', 'fragment'])}(({extents},), '{to}')",
            f"for i, j, k in T.Parallel({a}, {b}, {c}):",
            f"    {cube}[i, j, k] = {sign}",
            *([] if clear else [f"T.fill({out}, 1)"]),
            f"T.reduce({cube}, {out}, '{op}', dim={axis}, clear={clear})",
            f"for {at} in T.Parallel({extents}):",
            *indented(bins),
        ]

    def pipeline(self) -> list[str]:
        """Tiles of two dtypes brought in rounds, some of them only in some rounds."""
        rng = self.rng
        one, two, acc, k = (self.name(stem) for stem in ("one", "two", "acc", "k"))
        first, second = rng.choice(DTYPES), rng.choice(DTYPES)
        extent = rng.choice(["3", "T.ceildiv(m, 4)", "T.min(n, 3)", "bx + 1", "0", "v"])
        test = rng.choice([f"{k} % 2 == 0", f"{k} > 0", "bx % 2 == 1", f"{k} * 4 < m", "n > 1"])
        bring = [f"T.copy(X[{k} * 4, bx * {self.cols}], {one})"]
        other = [f"T.copy(P[bx * {self.cols} + {k}], {two})"]
        if rng.random() < 0.6:
            other = [f"if {test}:", *indented(other)]
        if rng.random() < 0.3:
            other += [f"if {test}:", f"    T.fill({two}, {k} % 3)"]
        term = rng.choice([
            f"T.cast({one}[i, j], 'float32') + T.cast({two}[j], 'float32')",
            f"T.cast({one}[{3} - i, j], 'float32') - T.cast({two}[{self.cols - 1} - j], 'float32')",
        ])  # fmt: skip
        add = clamped(f"({acc}[i, j] + {term})", LIMIT)
        return [
            f"{one} = T.alloc_shared((4, {self.cols}), '{first}')",
            f"{two} = T.alloc_shared(({self.cols},), '{second}')",
            f"{acc} = T.alloc_fragment((4, {self.cols}), 'float32')",
            f"T.clear({acc})",
            f"T.fill({two}, 1)",
            f"for {k} in T.Pipelined({extent}, num_stages=num_stages):",
            *indented([*bring, *other]),
            f"    for i, j in T.Parallel(4, {self.cols}):",
            f"        {acc}[i, j] = {add}",
            f"for i, j in T.Parallel(4, {self.cols}):",
            "    if i == 1:",
            f"        h[0, j] = {acc}[i, j]",
        ]

    def macro(self) -> list[str]:
        """Macros in macros, over a tile or a view of it."""
        tile = self.rng.choice("sfh")
        rounds = self.rng.choice(["1", "3", "v", "T.min(m, 2)"])
        if self.rng.random() < 0.5:
            return [f"again({tile}, {self.rows}, {self.cols}, {rounds})"]
        view, over = self.name("view"), self.name("over")
        a, b, c = self.tile
        return [
            f"{view} = T.reshape({tile}, ({a * b * c},))",
            f"{over} = T.reshape({view}, ({c}, {a * b}))",
            f"again({over}, {c}, {a * b}, {rounds})",
        ]

    def loop(self) -> list[str]:
        """A loop that counts down or in steps, around a statement."""
        q = self.name("q")
        head = self.rng.choice([
            f"for {q} in range(5, -1, -2):", f"for {q} in T.serial(3, 0, -1):",
            f"for {q} in T.serial(1, 6, 3):", f"for {q} in T.unroll(2):",
            f"for {q} in T.serial(T.min(n, 2)):", "if m > 1:", "if bx == by:", "while v < 5:",
        ])  # fmt: skip
        grow = ["v += 1"] if head.startswith("while") else []
        index = [] if head.startswith(("if", "while")) else [f"v = (v + {q}) % 7"]
        return [head, *indented([*grow, *index, *self.statement(0)])]

    def old_values(self) -> list[str]:
        """What atomics found, each in an element of its own."""
        op = self.rng.choice(["add", "max", "exchange", "xor", "min"])
        shift = self.rng.randint(0, BINS)
        return [
            f"for i in T.Parallel({BINS}):",
            f"    kept = T.atomic_{op}(bins[({BINS - 1} - i + {shift}) % {BINS}], i, "
            "return_prev=True)",
            f"    if i < {self.rows}:",
            f"        h[i, 0] = {clamped('kept', LIMIT)}",
        ]

    def row_work(self) -> list[str]:
        """Reductions of a tile's rows, in the tile's dtype."""
        tile, op = self.rng.choice("sfh"), self.rng.choice(["max", "min", "absmax"])
        most = self.name("most")
        return [
            f"{most} = T.alloc_fragment(({self.rows},), '{self.dtypes[tile]}')",
            f"T.reduce_{op}({tile}, {most}, dim={self.rng.choice(['1', '-1'])})",
            f"for i in T.Parallel({self.rows}):",
            f"    row[i] = {clamped(f'(row[i] - T.cast({most}[i], {chr(39)}int32{chr(39)}))', 9)}",
        ]

    def statement(self, depth: int = 1) -> list[str]:
        """One statement."""
        kinds = [
            self.nest, self.nest, self.reduction, self.pipeline, self.macro, self.old_values,
            self.row_work,
        ]  # fmt: skip
        if depth and self.rng.random() < 0.25:
            return self.loop()
        return self.rng.choice(kinds)()


def shape_program(seed: int) -> ShapeProgram:
    """The program of a seed."""
    maker = _Maker(seed)
    lines: list[str] = []
    for _ in range(maker.rng.randint(2, 5)):
        lines += maker.statement()
    sizes = maker.rng.choice(SIZES), maker.rng.choice(SIZES)
    names = dict(maker.dtypes, rows=maker.rows, cols=maker.cols, bins=BINS, limit=LIMIT)
    body = "".join(f"            {line}\n" for line in lines)
    text = HEADER.format(**names) + body + FOOTER.format(**names)
    return ShapeProgram(text, sizes, (maker.dtypes["x"], maker.dtypes["p"]), seed)
