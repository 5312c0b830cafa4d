"""Slots of rings counted along: the same numbers as by division, and no division in the loop."""

import re
from dataclasses import replace

import numpy as np
import pytest
from passes_support import context, kernel_of

import tilecore
import tilecore.language as T
from tilecore.compiler import lower, program_of
from tilecore.ir.expr import Binary, walk
from tilecore.ir.stmts import For
from tilecore.ir.visit import exprs_of, map_stmts, walk_stmts
from tilecore.passes.lowering.count_slots import COUNTED, count_slots
from tilecore.reference import run


def numbered(slots: int, first: int, count: int, skips: bool = False):
    """Slots and turns around step ``Base[0] + k``, written down by a warp of its own."""

    @T.prim_func
    def program(Base: T.Tensor((1,), "int32"), Y: T.Tensor((count, 6), "int32")):
        with T.Kernel(1, threads=128) as _, T.ws(0):
            base = Base[0]
            for k in T.serial(first, first + count):
                if skips and k == first + 1:
                    continue
                Y[k - first, 0] = (base + k) % slots
                Y[k - first, 1] = (base + k) // slots
                Y[k - first, 2] = (base + (k - 1)) % slots
                Y[k - first, 3] = (base + k + 1) // slots
                Y[k - first, 4] = (k + base + slots - 1) % slots
                Y[k - first, 5] = (base + 2 * k) % slots

    return program


def divisions(program) -> int:
    loops = [s for s in walk_stmts(kernel_of(program).body) if isinstance(s, For)]
    return sum(
        isinstance(node, Binary) and node.op in ("floordiv", "floormod")
        for stmt in walk_stmts(loops[0].body)
        for expr in exprs_of(stmt)
        for node in walk(expr)
    )


@pytest.mark.parametrize("slots", [3, 5, 6, 7])
@pytest.mark.parametrize(("first", "base"), [(1, 0), (2, 11)])
def test_numbers_stay_the_same(slots: int, first: int, base: int) -> None:
    before = program_of(numbered(slots, first, 20))
    after = count_slots(before, context())
    assert (divisions(before), divisions(after)) == (6, 1)  # twice the step is no place in a ring
    start, results = np.array([base], np.int32), []
    for program in (before, after):
        out = np.zeros((20, 6), np.int32)
        results.append(run(program, {"Base": start, "Y": out}).get("Y", out))
    np.testing.assert_array_equal(*results)


def test_slots_a_whole_turn_apart_share_a_counter() -> None:
    after = count_slots(program_of(numbered(3, 1, 5)), context())
    text = str(sorted({b.name for b in _locals(after)}))
    assert len(re.findall(r"slot", text)) == 3  # at distances -1, which is 2 of 3, 0 and 1


def _locals(program):
    return [s.buffer for s in walk_stmts(kernel_of(program).body) if hasattr(s, "buffer")]


@pytest.mark.parametrize("slots", [2, 4])
def test_powers_of_two_are_cheap_already(slots: int) -> None:
    before = program_of(numbered(slots, 1, 5))
    assert count_slots(before, context()) == before


def test_loops_that_pass_over_their_end_are_left() -> None:
    before = program_of(numbered(3, 1, 5, skips=True))
    assert count_slots(before, context()) == before


@pytest.mark.parametrize("num_stages", [2, 3, 5])
def test_rings_of_warp_roles(num_stages: int) -> None:
    pytest.importorskip("tilecore_backend_cuda_hopper")
    m, n, k = 128, 128, 640

    @T.prim_func
    def matmul(
        A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):  # fmt: skip
        with T.Kernel(n // 64, m // 64, threads=128) as (bx, by):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for step in T.Pipelined(k // 64, num_stages=num_stages):
                T.copy(A[by * 64, step * 64], a)
                T.copy(B[step * 64, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    tilecore.compile(matmul, backend="cuda_hopper", device="emulator")(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    text = lower(matmul, backend="cuda_hopper", device="emulator").source.text
    assert bool(re.search(r"\bint slot\w* = ", text)) is (num_stages != 2)


@pytest.mark.parametrize("slots", [2, 4, 8])
@pytest.mark.parametrize(("first", "base"), [(1, 0), (2, 11)])
def test_loops_that_ask_for_it_count_powers_of_two(slots: int, first: int, base: int) -> None:
    before = program_of(numbered(slots, first, 20))
    body = kernel_of(before).body
    hinted = map_stmts(
        body, lambda s: replace(s, hints=((COUNTED, True),)) if isinstance(s, For) else s
    )
    before = replace(before, kernels=(replace(kernel_of(before), body=hinted),))
    after = count_slots(before, context())
    assert (divisions(before), divisions(after)) == (6, 1)
    start, results = np.array([base], np.int32), []
    for program in (before, after):
        out = np.zeros((20, 6), np.int32)
        results.append(run(program, {"Base": start, "Y": out}).get("Y", out))
    np.testing.assert_array_equal(*results)
