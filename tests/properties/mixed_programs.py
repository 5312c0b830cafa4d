"""Random programs around pipelined contractions, made from a seed.

What plans of a target are chosen by is drawn: tiles that matrix units take or not, operands of
many dtypes, turned, shared by several contractions or held in registers, chained contractions,
elementwise work, reductions, atomics and conditions in the loop, loops that begin late, end early
or run no round, several loops. Values are small whole numbers that every dtype in use holds, so
that results are the same bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from mixed_frames import FRAMES, SPLITS, Frames
from mixed_tiles import ROUNDS
from program_text import clamped, indented

from tilecore.ir.dtypes import dtype_of, numpy_dtype

OPERANDS = (
    "float16", "float16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "float32",
)  # fmt: skip
NARROW = ("float8_e4m3fn", "float8_e5m2")
WARP_TILES = (
    (64, 64, 32), (128, 64, 64), (64, 128, 64), (128, 128, 32), (64, 32, 64), (64, 96, 64),
)  # fmt: skip
ODD_TILES = (
    (48, 72, 40), (192, 24, 16), (16, 16, 16), (32, 48, 24), (80, 40, 48), (64, 20, 32),
    (17, 33, 9), (64, 88, 72), (24, 64, 64), (128, 8, 32), (8, 128, 16), (64, 40, 128),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MixedProgram:
    """A program's text and how it is called.

    Attributes:
        lines: of the kernel's body.
        head: up to the kernel's body.
        sizes: M, N, K of the tensors.
        operand: dtype of A, B and V.
        shapes: of A, B, V.
        seed: it came from.
        threads: that it is made for.
        stages: that it is made for.
    """

    lines: tuple[str, ...]
    head: str
    sizes: tuple[int, int, int]
    operand: str
    shapes: tuple[tuple[int, int], ...]
    seed: int
    threads: int
    stages: int

    @property
    def text(self) -> str:
        """The module that makes it."""
        body = "".join(f"        {line}\n" for line in self.lines)
        return f"{self.head}{body}\n    return main\n"

    def arguments(self) -> list[np.ndarray]:
        """Inputs and zeroed outputs, the same at each call."""
        rng = np.random.default_rng(self.seed)
        m, n, _ = self.sizes
        operand = numpy_dtype(dtype_of(self.operand))
        inputs = [rng.integers(-2, 3, shape).astype(operand) for shape in self.shapes]
        x = rng.integers(-4, 5, (m, n)).astype(np.float32)
        table = rng.integers(0, 4, ROUNDS).astype(np.int32)
        whole = ((m, n), np.float32)
        shapes: tuple[Any, ...] = (whole, ((m,), np.int32), whole, ((1,), np.int32))
        outputs = [np.zeros(shape, kind) for shape, kind in shapes]
        return [*inputs, x, table, *outputs]


OUTPUTS = ("C", "D", "E", "count")
"""The last arguments."""


class Maker(Frames):
    """Draws one program."""

    def __init__(self, seed: int, largest: int, tiles: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.calm = rng.random() < 0.5  # little that keeps matrix units and copy engines away
        self.operand = rng.choice(OPERANDS[:4] if self.calm and rng.random() < 0.8 else OPERANDS)
        self.tile = rng.choice(WARP_TILES if self.calm or rng.random() < 0.3 else ODD_TILES)
        self.turned = self.chance(0.2), rng.random() < 0.5
        bm, bn, bk = self.tile
        aligned = self.calm or rng.random() < 0.5
        grain = 16 if aligned else 1
        self.sizes = tuple(
            max(1, -(-rng.randint(1, min(largest, 3 * extent)) // grain) * grain)
            for extent in (bm, bn, 2 * bk)
        )
        if tiles:
            self.sizes = (tiles * bm - grain * rng.randint(0, 3), min(self.sizes[1], bn), bk)
        self.limit = 4 if self.operand in NARROW else 8
        self.accum = "int32" if self.operand == "int8" else "float32"
        self.keeps_half = self.chance(0.35)
        self.chains = rng.random() < 0.4
        self.frame = rng.choice(FRAMES)
        self.is_dynamic = rng.random() < 0.2
        self.odd_columns = bool(bn % 2)
        self.issues = rng.random() < 0.12  # the author issues copies and waits for them
        self.number = 0
        self.fragments = ["acc", "other"]

    # --- the loops ----------------------------------------------------------------------------

    def loads(self, step: str) -> list[str]:
        """Copies of a round's tiles of A and B."""
        rng = self.rng
        at = self.place(step)
        if self.chance(0.1):
            at = f"table[{step} % {ROUNDS}] * BK"  # where it begins is loaded
        a = f"A[{at}, by * BM]" if self.turned[0] else f"A[by * BM, {at}]"
        b = f"B[bx * BN, {at}]" if self.turned[1] else f"B[{at}, bx * BN]"
        lines = [f"T.copy({a}, a)", f"T.copy({b}, b)"]
        if self.chance(0.15):
            lines.reverse()
        if self.issues:
            lines = [line.replace("T.copy", "T.async_copy") for line in lines]
            lines += ["T.async_commit()", "T.async_wait(0)"]
        if self.chance(0.2):
            change = rng.choice(["-{x}", "T.max({x}, 0)", "{x} * {x}"])
            target, extents = rng.choice([("a", self.shape_a()), ("b", self.shape_b())])
            work = change.format(x=f"{target}[i, l]")
            lines += [f"for i, l in T.Parallel{extents}:",
                      f"    {target}[i, l] = {clamped(work, self.limit)}"]  # fmt: skip
        return lines

    def place(self, step: str) -> str:
        """Where a round begins along K."""
        if self.frame == "split":
            return f"(bz * T.ceildiv(T.ceildiv(K, BK), {SPLITS}) + {step}) * BK"
        return f"{step} * BK"

    def product(self, a: str, way: str, into: str) -> list[str]:
        """A contraction, whole or by parts of its operands."""
        bm, _, bk = self.tile
        at_a = "{0}[:, {1}:{2}]" if not self.turned[0] else "{0}[{1}:{2}, :]"
        at_b = "{0}[{1}:{2}, :]" if not self.turned[1] else "{0}[:, {1}:{2}]"
        if self.chance(0.12) and bk % 2 == 0 and a == "a":  # halves along K
            return [
                f"T.gemm({at_a.format(a, lo, hi)}, {at_b.format('b', lo, hi)}, {into}, {way})"
                for lo, hi in (("0", "BK // 2"), ("BK // 2", "BK"))
            ]
        if self.chance(0.08) and bm % 2 == 0 and a == "a":  # halves along M
            rows = "{0}[{1}:{2}, :]" if not self.turned[0] else "{0}[:, {1}:{2}]"
            return [
                f"T.gemm({rows.format(a, lo, hi)}, b, {into}[{lo}:{hi}, :], {way})"
                for lo, hi in (("0", "BM // 2"), ("BM // 2", "BM"))
            ]
        return [f"T.gemm({a}, b, {into}, {way})"]

    def shape_a(self) -> str:
        """Of the shared tile of A."""
        return "(BK, BM)" if self.turned[0] else "(BM, BK)"

    def shape_b(self) -> str:
        """Of the shared tile of B."""
        return "(BN, BK)" if self.turned[1] else "(BK, BN)"

    def contraction(self) -> list[str]:
        """One or several contractions of the round's tiles."""
        rng = self.rng
        way = f"transpose_A={self.turned[0]}, transpose_B={self.turned[1]}"
        policy = rng.choice(["", "", "", ", policy=T.GemmWarpPolicy.FullRow",
                             ", policy=T.GemmWarpPolicy.FullCol"])  # fmt: skip
        way += policy
        lines: list[str] = []
        if self.keeps_half and not self.turned[0]:
            change = rng.choice(["half[i, l] * 2", "T.max(half[i, l], 0)", "half[i, l] + row[i]"])
            lines += ["T.copy(a, half)", "for i, l in T.Parallel(BM, BK):",
                      f"    half[i, l] = {clamped(change, self.limit)}",
                      *self.product("half", way, "acc")]  # fmt: skip
        else:
            lines += self.product("a", way, "acc")
        if self.chance(0.35):
            clear = rng.choice(["", ", clear_accum=True", f", clear_accum=n > {rng.randint(0, 3)}"])
            lines += [f"T.gemm(a, b, other, {way}{clear})"]
        if self.chains:
            score = rng.choice(["scores[i, j] - part[i]", "scores[i, j]"])
            lines += [
                f"T.gemm(a, b, scores, {way}, clear_accum=True)",
                "T.reduce_max(scores, part, dim=1)" if self.chance(0.6) else "T.fill(part, 3)",
                "for i, j in T.Parallel(BM, BN):", f"    scores[i, j] = {clamped(score, 2)}",
                *(["for i in T.Parallel(BM):", f"    row[i] = {clamped('row[i] + part[i]', 9)}"]
                  if self.chance(0.5) else []),
                *(["for i, j in T.Parallel(BM, BD):",
                   "    out[i, j] = T.if_then_else(part[i] > 3, out[i, j], -out[i, j])"]
                  if self.chance(0.5) else []),
                "T.copy(scores, weights)",
                f"T.gemm(weights, v, out{policy})",
            ]  # fmt: skip
        return lines

    def main_loop(self) -> list[str]:
        """A pipelined loop over rounds."""
        rng = self.rng
        step = self.name("k")
        rounds = "T.ceildiv(K, BK)"
        if self.frame == "split":
            rounds = f"T.ceildiv({rounds}, {SPLITS})"
        whole = [("0", rounds)] * (12 if self.calm else 3)
        begin, end = rng.choice([
            *whole, ("0", "table[by % 8]"), ("bx", "bx + 3"), ("0", "by"),
            ("1", f"{rounds} + 1"), ("0", f"T.min(by + 1, {rounds})"), ("table[0]", rounds),
            ("(bx * 3 + by) % 3", f"T.min((bx * 3 + by) % 3 + 2, {rounds})"),
        ])  # fmt: skip
        inside = self.loads(step)
        if self.chains:
            inside.insert(rng.randint(1, 2), f"T.copy(V[{step} * BN, 0], v)")
        body = self.contraction()
        if self.chance(0.2):
            test = rng.choice([f"{step} % 2 == 0", f"table[{step} % 8] > 0", "bx < 1", "n < 9"])
            body = [f"if {test}:", *indented(body)]
        if self.chance(0.12):
            leave = rng.choice(["break", "continue"])
            body = [f"if table[{step} % {ROUNDS}] == 3:", f"    {leave}", *body]
        inside += body
        for _ in range(rng.choice([0, 0, 0, 1] if self.calm else [0, 0, 1, 1, 2])):
            work = self.statement(0)
            if self.chance(0.3):
                work = [f"if {step} % 2 == 1:", *indented(work)]
            top = [at for at, line in enumerate(inside) if not line.startswith((" ", "else"))]
            place = rng.choice([len(inside), len(inside), rng.choice(top)])
            inside[place:place] = work
        if self.chance(0.1):
            inside += ["n += 1"]
        loop = f"T.Pipelined({begin}, {end}, num_stages=num_stages)"
        head = f"for {step} in {f'T.serial({begin}, {end})' if self.issues else loop}:"
        lines = [head, *indented(inside)]
        if self.chance(0.1):
            lines = [f"for {self.name('o')} in T.serial(2):", *indented(lines)]
        names = ["acc", "other", *(["out"] if self.chains else [])]
        for name in names:
            extent = "BD" if name == "out" else "BN"
            lines += [f"for i, j in T.Parallel(BM, {extent}):",
                      f"    {name}[i, j] = {clamped(f'{name}[i, j]', 40)}"]  # fmt: skip
        return lines

    # --- the whole ----------------------------------------------------------------------------

    def buffers(self) -> list[str]:
        """Allocations."""
        kind, accum = self.operand, self.accum
        lines = [
            f"a = T.alloc_shared({self.shape_a()}, '{kind}')",
            f"b = T.alloc_shared({self.shape_b()}, '{kind}')",
            f"kept = T.alloc_shared((BM, BN), '{kind}')",
            *(f"{name} = T.alloc_fragment((BM, BN), '{accum}')" for name in ("acc", "other")),
            f"row = T.alloc_fragment((BM,), '{accum}')",
            f"col = T.alloc_fragment((BN,), '{accum}')",
            "n = T.alloc_var('int32')",
        ]
        if self.keeps_half:
            lines.append(f"half = T.alloc_fragment((BM, BK), '{kind}')")
        if self.chains:
            lines += [
                f"v = T.alloc_shared((BN, BD), '{kind}')",
                f"scores = T.alloc_fragment((BM, BN), '{accum}')",
                f"weights = T.alloc_fragment((BM, BN), '{kind}')",
                f"out = T.alloc_fragment((BM, BD), '{accum}')",
                f"part = T.alloc_fragment((BM,), '{accum}')",
            ]
        if self.chance(0.2):
            lines.append(f"T.use_swizzle({self.rng.randint(1, 4)})")
        return lines + self.layouts()

    def body(self) -> list[str]:
        """What is done for each tile."""
        lines = [
            "n = 1", "T.clear(acc)", "T.fill(other, 1)", "T.fill(row, 1)", "T.clear(col)",
            "T.copy(X[by * BM, bx * BN], kept)", *(["T.clear(out)"] if self.chains else []),
        ]  # fmt: skip
        if self.chance(0.15):
            lines += ["T.clear(a)", "T.fill(b, 1)"]
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            lines += self.statement()
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            lines += self.main_loop()
        for _ in range(self.rng.choice([0, 1, 2])):
            lines += self.statement()
        if self.chance(0.2):
            lines += self.viewed()
        if self.chance(0.1):
            lines += self.apart()
        if self.chance(0.2):
            lines += [
                "for i, j in T.Parallel(BM, BN):",
                f"    other[i, j] = other[i, j] + T.cast(kept[i, j], '{self.accum}')",
            ]
        return lines + self.stores()

    def stores(self) -> list[str]:
        """What leaves a tile; parts of a sum are added up."""
        result, lines = "acc", []
        if self.chains:
            lines += ["for i, j in T.Parallel(BM, BN):",
                      "    other[i, j] = other[i, j] + acc[i, j]"]  # fmt: skip
            if self.tile[1] == self.depth:
                result = "out"
            else:
                lines.append("T.reduce_max(out, row, dim=1, clear=False)")
        place, both = "E[by * BM + i, bx * BN + j]", "T.cast(both, 'float32')"
        is_split = self.frame == "split"
        lines += ["for i, j in T.Parallel(BM, BN):",
                  "    if by * BM + i < M and bx * BN + j < N:",
                  "        both = acc[i, j] + other[i, j] * 3 + n",
                  f"        T.atomic_add({place}, {both})" if is_split
                  else f"        {place} = {both}",
                  "for i in T.Parallel(BM):", "    if by * BM + i < M:",
                  "        T.atomic_add(D[by * BM + i], T.cast(row[i], 'int32'))"]  # fmt: skip
        if is_split:
            lines += [f"T.atomic_add(C[by * BM, bx * BN], {result})"] * (self.accum == "float32")
        else:
            lines.append(f"T.copy({result}, C[by * BM, bx * BN])")
        return lines

    def make(self) -> MixedProgram:
        """The program."""
        m, n, k = self.sizes
        bm, bn, bk = self.tile
        self.depth = bn if self.chance(0.5) else self.rng.choice([32, 64, 16])
        if not self.chains:
            self.depth = bn
        lines = self.framed(self.buffers(), self.body())
        rows = max(1, -(-k // bk)) * bn
        shapes = (
            (k, m) if self.turned[0] else (m, k),
            (n, k) if self.turned[1] else (k, n),
            (rows, self.depth),
        )
        types = ("(K, M)" if self.turned[0] else "(M, K)", "(N, K)" if self.turned[1] else "(K, N)")
        head = f"""\
import tilecore.language as T

M, N, K, BM, BN, BK, BD = {m}, {n}, {k}, {bm}, {bn}, {bk}, {self.depth}
{"M, N = T.dynamic('M, N')" if self.is_dynamic else ""}


def make(num_stages, threads):
    @T.prim_func
    def main(
        A: T.Tensor({types[0]}, "{self.operand}"),
        B: T.Tensor({types[1]}, "{self.operand}"),
        V: T.Tensor({shapes[2]}, "{self.operand}"),
        X: T.Tensor((M, N), "float32"),
        table: T.Tensor(({ROUNDS},), "int32"),
        C: T.Tensor((M, N), "float32"),
        D: T.Tensor((M,), "int32"),
        E: T.Tensor((M, N), "float32"),
        count: T.Tensor((1,), "int32"),
    ):
"""
        warpgroups = [128, 128, 256, 256, 384, 512]
        threads = self.rng.choice(warpgroups + ([] if self.calm else [32, 64, 96, 160]))
        stages = self.rng.choice([0, 1, 2, 2, 3, 3, 4])
        return MixedProgram(
            tuple(lines), head, self.sizes, self.operand, shapes, self.seed, threads, stages
        )


def mixed_program(seed: int, largest: int = 260, tiles: int = 0) -> MixedProgram:
    """The program of a seed: extents of at most `largest`, or `tiles` tiles along M."""
    return Maker(seed, largest, tiles).make()
