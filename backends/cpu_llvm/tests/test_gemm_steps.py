"""Products that read their operands where they lie: any shape, storage and type, and nothing beyond
the result is written."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower
from tilecore.hooks.manager import targets_of
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 1e-2, "float16": 2e-3, "int8": 0.0}
SIZES = ((256, 256, 256), (250, 270, 301), (129, 257, 65), (61, 700, 130), (1, 65, 33))
TILES = ((64, 64, 64), (128, 160, 520), (250, 256, 100))


def run(problem: GemmProblem, tile: tuple[int, int, int]) -> None:
    """Compare with the reference; rows before and after the result must stay as they were."""
    a, b = GEMM.inputs(problem, np.random.default_rng(7))
    kernel = tilecore.compile(GEMM.program(problem, GemmConfig(*tile, 1, 128)), "cpu_llvm")
    dtype = numpy_dtype(dtype_of(problem.result_dtype))
    whole = np.full((problem.m + 2, problem.n), 7, dtype)
    kernel(a, b, whole[1:-1])
    (want,) = GEMM.reference(problem, a, b)
    error = np.abs(whole[1:-1].astype(np.float64) - want).max() / np.abs(want).max()
    assert error <= TOLERANCE[problem.dtype]
    assert (whole[[0, -1]] == 7).all()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_sizes(dtype: str, size: tuple[int, int, int], tile: tuple[int, int, int]) -> None:
    run(GemmProblem(*size, dtype), tile)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("storage", [(True, False), (False, True), (True, True)], ids=str)
def test_transposed_operands(dtype: str, storage: tuple[bool, bool]) -> None:
    problem = GemmProblem(250, 270, 301, dtype, "", *storage)
    run(problem, (128, 96, 128))


def matmul(
    m: int,
    n: int,
    k: int,
    tile: tuple[int, int, int],
    rounds: int | None = None,
    first: float = 3.0,
    dtype: str = "float32",
) -> Any:
    """A product by hand; `rounds` cuts the sums short, which begin at `first`."""
    bm, bn, bk = tile
    steps = T.ceildiv(k, bk) if rounds is None else rounds

    @T.prim_func
    def product(
        A: T.Tensor((m, k), dtype),  # type: ignore[valid-type]
        B: T.Tensor((k, n), dtype),  # type: ignore[valid-type]
        C: T.Tensor((m, n), "float32"),  # type: ignore[valid-type]
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            T.fill(c, first)
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(A[by * bm, step * bk], a)
                T.copy(B[step * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return product


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))  # type: ignore[return-value]


def test_the_kernel_runs_as_steps() -> None:
    text = lower(matmul(128, 128, 128, (64, 64, 64)), "cpu_llvm").source.text
    assert "@step0_64x64x64(" in text


FIRST = pytest.mark.parametrize("first", [0.0, 3.0])
"""The first round of sums that begin at zero takes the place of the statement that says so."""


@FIRST
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_result_of_few_rounds(rounds: int, first: float) -> None:
    a, b = operands(96, 130, 128)
    c = np.full((96, 130), np.nan, np.float32)
    program = matmul(96, 130, 128, (64, 64, 64), rounds, first)
    tilecore.compile(program, "cpu_llvm")(a, b, c)
    want = first + (a[:, : 64 * rounds] @ b[: 64 * rounds])
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)


@FIRST
@pytest.mark.parametrize("depth", [64, 128], ids=["rounds", "one round"])
@pytest.mark.parametrize("which", [0, 1], ids=["a", "b"])
def test_result_in_the_memory_of_an_operand(which: int, depth: int, first: float) -> None:
    """One block reads all before it writes, in program order; so must the steps."""
    a, b = operands(128, 128, 128)
    want = first + a.astype(np.float64) @ b
    out = (a, b)[which]
    program = matmul(128, 128, 128, (128, 128, depth), None, first)
    tilecore.compile(program, "cpu_llvm")(a, b, out)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [(129, 257, 65), (300, 300, 300)], ids=str)
def test_sums_are_read_after_the_product(dtype: str, size: tuple[int, int, int]) -> None:
    """An epilogue reads all of the sums, also those outside of the result."""
    problem = GemmProblem(*size, dtype, has_bias=True, activation="gelu")
    a, b, bias = GEMM.inputs(problem, np.random.default_rng(7))
    kernel = tilecore.compile(GEMM.program(problem, GemmConfig(160, 160, 128, 1, 128)), "cpu_llvm")
    got = np.empty((problem.m, problem.n), a.dtype)
    kernel(a, b, bias, got)
    (want,) = GEMM.reference(problem, a, b, bias)
    error = np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()
    assert error <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("size", [(700, 150, 2048), (1041, 97, 1500)], ids=str)
def test_chunks_of_rows(dtype: str, size: tuple[int, int, int]) -> None:
    """More rows than the second-level cache holds: packed panels are used again."""
    run(GemmProblem(*size, dtype), (1056, 160, 2048))


@pytest.mark.parametrize("size", [512, 1000, 1024, 1999, 2048])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_little_code(dtype: str, size: int) -> None:
    """Compile time is proportional: one loop over k in a register block, few register blocks."""
    target = targets_of("cpu_llvm")[0]
    text = lower(GEMM.build(GemmProblem(size, size, size, dtype), target), "cpu_llvm").source.text
    blocks = text.count("define internal void @block")
    assert blocks <= 4
    assert text.count("call <16 x float> @llvm.fma") <= blocks * 4 * 28
    assert text.count("\n") <= 1500 + 550 * blocks


def test_not_finite_values_stay_where_they_are() -> None:
    a, b = operands(100, 100, 100)
    a[3, 5], b[7, 90] = np.inf, np.nan
    c = np.zeros((100, 100), np.float32)
    tilecore.compile(matmul(100, 100, 100, (64, 64, 64)), "cpu_llvm")(a, b, c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(c, 3.0 + a @ b, rtol=1e-4, atol=1e-4)
