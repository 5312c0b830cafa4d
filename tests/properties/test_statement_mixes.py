"""Programs drawn from a list of statements: every backend computes what the reference does.

The statements touch one set of buffers in global, shared and private memory and in registers, by
elements, tiles, views and atomics, so that what one leaves another finds by other lanes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import BACKENDS, EMULATED, HOST, kernel_on
from running import module_of
from test_random_programs import needs_cpu, needs_lanes

from tilecore.errors import LanguageError

STATEMENTS = [
    part.strip("\n").split("\n")
    for part in (Path(__file__).parent / "statement_mixes.txt").read_text("utf-8").split("==\n")[1:]
]
AROUND = [
    None, None, None, "for q{n} in T.serial(3):", "if v > 0:", "for q{n} in T.unroll(2):",
    "for q{n} in T.Pipelined(2, num_stages=2):",
]  # fmt: skip
HEAD = """\
import tilecore.language as T
@T.prim_func
def main(
    A: T.Tensor((8, 8), "float32"), I: T.Tensor((8,), "int32"), B: T.Tensor((8, 8), "float32")
):
    with T.Kernel(1, threads={threads}) as bx:
        s = T.alloc_shared((8, 8), "float32")
        s2 = T.alloc_shared((8, 8), "float32")
        f = T.alloc_fragment((8, 8), "float32")
        f2 = T.alloc_fragment((8, 8), "float32")
        r = T.alloc_fragment((8,), "float32")
        l = T.alloc_local((8,), "float32")
        v = T.alloc_var("int32", init=1)
        T.copy(A, s)
        T.copy(A, s2)
        T.copy(A, f)
        T.clear(f2)
        T.copy(I, r)
        for k0 in T.serial(8):
            l[k0] = k0
"""
TAIL = """\
        for i, j in T.Parallel(8, 8):
            B[i, j] = B[i, j] + f[i, j] + s[i, j] * 2 + r[j]
        I[0] = v
"""


def text_of(seed: int) -> str:
    """A program of a few statements, some in loops or branches."""
    rnd = random.Random(seed)
    lines: list[str] = []
    for n in range(rnd.randrange(2, 6)):
        around = rnd.choice(AROUND)
        depth = 8
        if around is not None:
            lines.append(" " * depth + around.format(n=n))
            depth = 12
        for statement in (rnd.choice(STATEMENTS) for _ in range(rnd.choice([1, 1, 2]))):
            lines += [" " * depth + line for line in statement]
    head = HEAD.format(threads=rnd.choice([32, 64, 96, 128]))
    return head + "\n".join(lines) + "\n" + TAIL


def results(kernel: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (8, 8)).astype(np.float32)
    arrays = [a, rng.integers(0, 8, 8).astype(np.int32), np.zeros((8, 8), np.float32)]
    kernel(*arrays)
    return arrays


def check(seed: int, backends: Sequence[str]) -> None:
    text = text_of(seed)
    program = module_of(text).main
    try:
        expected = results(kernel_on("reference", program), seed)
    except LanguageError as error:  # a mix that reads what iterations left in `l`
        assert "is private, and read where" in error.reason, f"{error}\n{text}"
        return
    for backend in backends:
        kernel = kernel_on(backend, program)
        for came, wanted in zip(results(kernel, seed), expected, strict=True):
            np.testing.assert_allclose(
                came, wanted, rtol=1e-4, atol=1e-3, err_msg=f"{backend}\n{text}"
            )


@needs_cpu
@needs_lanes
@pytest.mark.parametrize("seed", range(8))
def test_a_mix_is_what_the_reference_makes_of_it(seed: int) -> None:
    check(seed, [HOST, EMULATED[seed % len(EMULATED)]])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 500, 20))
def test_many_mixes(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed, BACKENDS)
