"""The author's own order, stages and groups of T.Pipelined: every form, one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernel_on
from passes_support import kernel_of, run

import tilecore.language as T
from tilecore.errors import LanguageError
from tilecore.ir.stmts import For, Gemm, Intrinsic, PipelineSpec
from tilecore.ir.visit import walk_stmts

TILE, STEPS = 32, 5

# How the three statements of a step (copy a, copy b, product) may be scheduled by the author.
SCHEDULES: dict[str, dict[str, Any]] = {
    "copies together": {"num_stages": 2, "group": [[0, 1]]},
    "copies together, the other first": {"num_stages": 2, "group": [[1, 0]]},
    "copies together, one slot": {"num_stages": 1, "group": [[0, 1]]},
    "all named": {"num_stages": 3, "group": [[0, 1], [2]]},
    "each alone": {"num_stages": 3, "group": [[0], [1], [2]]},
    "copy of a stays with the product": {"num_stages": 2, "group": [[0, 2]]},
    "copy of b stays with the product": {"num_stages": 3, "group": [[1, 2]]},
    "nothing overlaps": {"num_stages": 3, "group": [[0, 1, 2]]},
    "for each statement": {"order": [0, 1, 2], "stage": [0, 0, 1], "group": [[0, 1]]},
    "for each statement, product first": {
        "order": [1, 2, 0], "stage": [0, 0, 2], "group": [[0, 1]],
    },
    "for each group": {"order": [0, 1], "stage": [0, 1], "group": [[0, 1], [2]]},
    "for each group, product first": {"order": [1, 0], "stage": [0, 2], "group": [[0, 1], [2]]},
    "for each group, the product's named first": {
        "order": [0, 1], "stage": [1, 0], "group": [[2], [0, 1]],
    },
    "for each group, one unnamed": {"order": [0, 1], "stage": [0, 3], "group": [[0, 1]]},
    "for each group, left to the compiler": {
        "order": [-1, 0], "stage": [-1, 1], "group": [[0, 1], [2]],
    },
    "stages only": {"stage": [0, 1], "group": [[0, 1], [2]]},
    "order only": {"num_stages": 2, "order": [0, 1], "group": [[0, 1], [2]]},
    "no group": {"order": [0, 1, 2], "stage": [0, 0, 1]},
}  # fmt: skip
BACKENDS = ("cuda_ampere", "cuda_hopper", "rocm_cdna3", "cpu_llvm")


def matmul(read_twice: bool = False, **schedule: Any) -> Any:
    """Chained steps of one tile's product; a may be added to it, too."""

    @T.prim_func
    def program(
        A: T.Tensor((TILE, STEPS * TILE), "float16"),
        B: T.Tensor((STEPS * TILE, TILE), "float16"),
        C: T.Tensor((TILE, TILE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((TILE, TILE), "float16")
            b = T.alloc_shared((TILE, TILE), "float16")
            c = T.alloc_fragment((TILE, TILE), "float32")
            T.clear(c)
            for step in T.Pipelined(STEPS, **schedule):
                T.copy(A[0, step * TILE], a)
                T.copy(B[step * TILE, 0], b)
                T.gemm(a, b, c)
                if read_twice:
                    for i, j in T.Parallel(TILE, TILE):
                        c[i, j] += a[i, j]
            T.copy(c, C)

    return program


A = np.random.default_rng(1).integers(-4, 5, (TILE, STEPS * TILE)).astype(np.float16)
B = np.random.default_rng(2).integers(-4, 5, (STEPS * TILE, TILE)).astype(np.float16)
EXACT = A.astype(np.float32) @ B.astype(np.float32)


def result(program: Any, backend: str) -> np.ndarray:
    c = np.full((TILE, TILE), np.nan, np.float32)
    kernel_on(backend, program)(A, B, c)
    return c


@pytest.mark.parametrize("backend", BACKENDS)
def test_planned_and_unpipelined_loops_give_the_exact_sums(backend: str) -> None:
    for num_stages in range(4):
        np.testing.assert_array_equal(result(matmul(num_stages=num_stages), backend), EXACT)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_authors_schedule_gives_the_same_sums(name: str, backend: str) -> None:
    np.testing.assert_array_equal(result(matmul(**SCHEDULES[name]), backend), EXACT)


def ahead(**schedule: Any) -> set[str]:
    """Operands whose copies are issued before the loop: they run ahead in it."""
    kernel = kernel_of(run(matmul(**schedule)))
    before: set[str] = set()
    for stmt in kernel.body:
        if isinstance(stmt, For) and any(isinstance(s, Gemm) for s in walk_stmts(stmt.body)):
            return before
        before |= {
            s.args[0].buffer.name
            for s in walk_stmts((stmt,))
            if isinstance(s, Intrinsic) and s.op == "async.copy"
        }
    raise AssertionError("no loop with a product")


@pytest.mark.parametrize(
    ("group", "operands"),
    [
        (None, {"A", "B"}),
        ([[0, 1]], {"A", "B"}),
        ([[0, 2]], {"B"}),
        ([[1, 2]], {"A"}),
        ([[0, 1, 2]], set()),
    ],
)
def test_a_copy_that_stays_with_other_work_does_not_run_ahead(group, operands) -> None:
    assert ahead(num_stages=2, group=group) == operands


@pytest.mark.parametrize(
    ("written", "by_group"),
    [
        ({"order": [0, 1, 2], "stage": [0, 0, 1]}, {"order": [0, 1], "stage": [0, 1]}),
        ({"order": [1, 2, 0], "stage": [0, 0, 2]}, {"order": [1, 0], "stage": [0, 2]}),
        ({"order": [-1, -1, 0], "stage": [-1, -1, 1]}, {"order": [-1, 0], "stage": [-1, 1]}),
    ],
)
def test_lists_for_groups_mean_the_same_as_for_their_statements(written, by_group) -> None:
    one = kernel_of(run(matmul(**written)))
    other = kernel_of(run(matmul(**by_group, group=[[0, 1], [2]])))
    assert one.body == other.body


@pytest.mark.parametrize(("group", "commits"), [(None, 2), ([[0, 1]], 1), ([[1, 0]], 1)])
def test_copies_of_a_group_are_issued_together(group, commits) -> None:
    """With one slot, b is free after the product, and a only after the second reader."""
    program = matmul(read_twice=True, num_stages=1, group=group)
    (loop,) = (s for s in kernel_of(run(program)).body if isinstance(s, For))
    issued = [s for s in walk_stmts(loop.body) if isinstance(s, Intrinsic)]
    assert sum(s.op == "async.commit" for s in issued) == commits
    expected = EXACT + sum(np.split(A.astype(np.float32), STEPS, axis=1))
    np.testing.assert_array_equal(result(program, "cuda_ampere"), expected)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"order": [0, 1]}, r"order does not fit .*expected 3 numbers.*got 2: \[0, 1\].*0 Copy"),
    ({"stage": [0, 0, 0, 1]}, r"stage does not fit .*expected 3 numbers.*got 4"),
    ({"order": [0], "stage": [0], "group": [[0, 1]]}, r"3 numbers.*or 2, one for each group"),
    ({"num_stages": 2, "group": [[0, 3]]}, r"group names statement 3.*expected 0 to 2"),
    ({"num_stages": 2, "group": [[0], [0, 1]]}, r"statement 0 is in group twice"),
    ({"num_stages": 2, "group": [[0, 0]]}, r"statement 0 is in group twice"),
    ({"num_stages": 2, "group": [[-1]]}, r"group of T.Pipelined.*integers >= 0.*got \[-1\]"),
    ({"num_stages": 2, "group": [0, 1]}, r"group of T.Pipelined.*lists of indices"),
    ({"num_stages": 2, "group": [[0], []]}, r"an empty list in group"),
    ({"order": [0, 1, 2], "stage": [0, 1, 1], "group": [[0, 1]]}, r"several stages.*got \[0, 1\]"),
    ({"order": [0, 1, 2], "stage": [0, 1]}, r"differ in length.*expected 3.*got 2"),
    ({"stage": [0, 0, True]}, r"stage of T.Pipelined.*integers >= -1"),
    ({"order": "012"}, r"order of T.Pipelined.*list of integers"),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "sentence"), WRONG)
def test_lists_that_do_not_fit_are_refused_at_the_loop(schedule, sentence) -> None:
    with pytest.raises(LanguageError, match=sentence) as refused:
        matmul(**schedule)
    error = refused.value
    assert error.loc is not None and error.loc.file == __file__
    assert error.hint and error.expected is not None and error.got is not None


def test_groups_of_a_body() -> None:
    spec = PipelineSpec(2, group=((3, 1), (4,)))
    assert spec.groups(6) == ((3, 1), (4,), (0,), (2,), (5,))
    assert spec.by_statement((0, 1, 2, 3, 4), 6) == (2, 0, 3, 0, 1, 4)
    assert spec.by_statement((7, 8, 9), 6) is None
