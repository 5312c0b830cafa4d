"""LDS layouts: bank conflicts counted from the layouts, for every access that kernels make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.ir.visit import buffers_in
from tilecore.passes.bank_conflicts import degree
from tilecore.passes.swizzled_layouts import swizzled_panels
from tilecore_backend_rocm.layout import columns_together

# Lanes that LDS serves together at 16 bytes a lane, as others measured: not neighbours.
PHASES_OF_16_BYTES = [
    (0, 1, 2, 3, 12, 13, 14, 15), (20, 21, 22, 23, 24, 25, 26, 27),
    (4, 5, 6, 7, 8, 9, 10, 11), (16, 17, 18, 19, 28, 29, 30, 31),
]  # fmt: skip


def conflicts(offsets: list[int], lane_bytes: int) -> int:
    return degree(offsets, lane_bytes)


@pytest.mark.parametrize("element_bytes", [1, 2, 4])
@pytest.mark.parametrize("row_bytes", [64, 128, 256])
def test_operands_in_rows(element_bytes: int, row_bytes: int) -> None:
    """16 bytes a lane: 32 rows for an MFMA, and lines of the copy that fills them."""
    columns, vector = row_bytes // element_bytes, 16 // element_bytes
    layout = swizzled_panels((128, columns), element_bytes)
    assert layout is not None and layout.is_injective()
    for column in range(0, columns, vector):
        places = [layout.offset((row, column)) * element_bytes for row in range(32)]
        for phase in (*PHASES_OF_16_BYTES, *(range(p, p + 8) for p in range(0, 32, 8))):
            assert conflicts([places[lane] for lane in phase], 16) == 1
    across = columns // vector
    for first in range(0, 64 * across, 64):
        lanes = [divmod(first + lane, across) for lane in range(64)]
        places = [layout.offset((r, c * vector)) * element_bytes for r, c in lanes]
        assert conflicts(places, 16) == 1


@pytest.mark.parametrize("element_bytes", [1, 2])
@pytest.mark.parametrize("rows", [16, 32, 64, 128])
@pytest.mark.parametrize("read_bytes", [8, 16])
def test_operands_in_columns(element_bytes: int, rows: int, read_bytes: int) -> None:
    """Neighbouring columns are read, every eighth is written, 8 bytes at a time."""
    layout = columns_together((rows, 128), element_bytes, read_bytes)
    assert layout.is_injective() and layout.vector_run(0) * element_bytes >= min(
        read_bytes, rows * element_bytes
    )
    for row in range(0, rows, read_bytes // element_bytes):
        places = [layout.offset((row, column)) * element_bytes for column in range(32)]
        assert all(place % read_bytes == 0 for place in places)
        assert conflicts(places, read_bytes) == 1
    for row in range(0, rows, 8 // element_bytes):
        for j in range(8):
            places = [layout.offset((row, 8 * i + j)) * element_bytes for i in range(16)]
            # columns aligned to 16 bytes cannot also be written without any conflict
            assert conflicts(places, 8) <= (1 if read_bytes == 8 else 2)
    waste = layout.span / (rows * 128)
    assert waste < (1.3 if rows * element_bytes >= 64 else 2.2)


def attention(rows: int) -> Any:
    """Tiles of 128 columns, with V's columns turned on their way where they fit with gaps."""
    shape, row = (256, 128), T.GemmWarpPolicy.FullRow

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"), K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"), Out: T.Tensor(shape, "float16"),
    ):  # fmt: skip
        with T.Kernel(256 // rows, threads=256) as bx:
            q = T.alloc_shared((rows, 128), "float16")
            k = T.alloc_shared((rows, 128), "float16")
            v = T.alloc_shared((rows, 128), "float16")
            s = T.alloc_fragment((rows, rows), "float32")
            p = T.alloc_fragment((rows, rows), "float16")
            o = T.alloc_fragment((rows, 128), "float32")
            T.copy(Q[bx * rows, 0], q)
            T.clear(o)
            for step in T.Pipelined(256 // rows, num_stages=1):
                T.copy(K[step * rows, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True, policy=row)
                T.copy(s, p)
                T.copy(V[step * rows, 0], v)
                T.gemm(p, v, o, policy=row)
            T.copy(o, Out[bx * rows, 0])

    return main


def test_gaps_give_way_where_a_kernel_does_not_fit_with_them() -> None:
    for rows, has_gaps in ((64, True), (128, False)):
        lowered = tilecore.lower(attention(rows), "rocm_cdna3")
        scheduled = dict(lowered.stages)["scheduled"].kernels[0]
        layout = scheduled.layout_of(next(b for b in buffers_in(scheduled.body) if b.name == "v"))
        assert (layout.span > rows * 128) == has_gaps, rows


def test_results_without_gaps() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-2, 3, (256, 128)).astype(np.float16) for _ in range(3))
    q[:, 4:] = 0  # sums stay exact
    out = np.zeros_like(q)
    tilecore.compile(attention(128), "rocm_cdna3", device="emulator")(q, k, v, out)
    scores = (q.astype(np.float64) @ k.T.astype(np.float64)).astype(np.float16)
    expected = scores.astype(np.float64) @ v.astype(np.float64)
    np.testing.assert_array_equal(out, expected.astype(np.float16))
