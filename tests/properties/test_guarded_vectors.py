"""Tiles that lanes load byte by byte, since rows are odd: lanes of a warp meet again behind them.

A lane's share of such a tile may be none. Asked again around each element, hundreds of nested
conditions leave an assembler no place to note where lanes meet, and the warp stays divergent.
"""

from __future__ import annotations

import numpy as np
import pytest
from compiling import EMULATED
from running import on_device, torch_beside

import tilecore
import tilecore.language as T

# (rows of a, rows of b, columns of both, length of a row in memory, threads)
TILES = [(80, 40, 48, 95, 32), (128, 64, 48, 47, 32), (96, 48, 80, 79, 64), (64, 64, 24, 23, 32)]


def product(rows: int, columns: int, depth: int, length: int, threads: int):
    m, n = T.dynamic("m, n")

    @T.prim_func
    def product(
        A: T.Tensor((m, length), "int8"),
        B: T.Tensor((n, length), "int8"),
        C: T.Tensor((m, n), "int32"),
    ):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=threads) as (bx, by):
            a = T.alloc_shared((rows, depth), "int8")
            b = T.alloc_shared((columns, depth), "int8")
            c = T.alloc_fragment((rows, columns), "int32")
            T.clear(c)
            for step in T.serial(T.ceildiv(length, depth)):
                T.copy(A[by * rows, step * depth], a)
                T.copy(B[bx * columns, step * depth], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * rows, bx * columns])

    return product


def operands(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A of 28 rows, B of 85 and zeros for C: no tile is whole."""
    rng = np.random.default_rng(length)
    a = rng.integers(-4, 5, (28, length)).astype(np.int8)
    b = rng.integers(-4, 5, (85, length)).astype(np.int8)
    return a, b, np.zeros((28, 85), np.int32)


@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_products_of_odd_rows(backend: str, tile: tuple[int, ...]) -> None:
    kernel = tilecore.compile(product(*tile), backend, device="emulator")
    a, b, c = operands(tile[3])
    kernel(a, b, c)
    assert np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32).T)


@pytest.mark.parametrize("backend", [n for n in EMULATED if n.startswith("cuda")])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_a_lane_asks_once_whether_a_vector_is_its_own(backend: str, tile: tuple[int, ...]) -> None:
    """In the text around a vector's loop; and in the binary no place to meet is parked."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilecore_backend_cuda_ampere.convergence import parked_barriers

    kernel = tilecore.compile(product(*tile), backend)
    lines = kernel.source.splitlines()
    filled = [n for n, line in enumerate(lines) if "_out[j_" in line and "load_global" in line]
    assert filled
    assert all(lines[n - 1].lstrip().startswith("for (") for n in filled)
    assert parked_barriers(kernel.artifact.data) == 0


@pytest.mark.parametrize("backend", EMULATED)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_products_on_a_device(backend: str, tile: tuple[int, ...]) -> None:
    torch = torch_beside(backend)
    kernel = tilecore.compile(product(*tile), backend)
    a, b, c = operands(tile[3])
    out = on_device(torch, c)
    kernel(on_device(torch, a), on_device(torch, b), out)
    assert np.array_equal(out.cpu().numpy(), a.astype(np.int32) @ b.astype(np.int32).T)
