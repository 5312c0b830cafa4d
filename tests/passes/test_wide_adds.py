"""Additions of neighbouring registers to neighbouring elements: one operation, the same sums."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower

ROWS, COLUMNS = 32, 64


def adding(dtype: str, columns: int = COLUMNS, shift: int = 0, apart: int = 1) -> Any:
    """Sums += A, all rows of `columns`; elements `apart`, the first one at `shift`."""
    size = (ROWS * COLUMNS + shift) * apart

    @T.prim_func
    def adding(A: T.Tensor((ROWS, columns), dtype), Sums: T.Tensor((size,), dtype)):
        with T.Kernel(2, threads=128):
            a = T.alloc_fragment((ROWS, COLUMNS), dtype)
            T.copy(A[0:ROWS, 0:COLUMNS], a)
            for i, d in T.Parallel(ROWS, COLUMNS):
                if d < columns:
                    T.atomic_add(Sums[(i * COLUMNS + d + shift) * apart], a[i, d])

    return adding


@pytest.mark.parametrize(
    "dtype, shift, apart, columns, width",
    [
        ("float32", 0, 1, COLUMNS, 4),
        ("float32", 4, 1, COLUMNS, 4),
        ("float32", 2, 1, COLUMNS, 1),  # elements of four are not in one line
        ("float32", 0, 2, COLUMNS, 1),
        ("float32", 0, 1, COLUMNS - 3, 1),  # each element has a guard of its own
    ],
)
@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
def test_neighbours_are_added_at_once(
    backend: str, dtype: str, shift: int, apart: int, columns: int, width: int
) -> None:
    program = adding(dtype, columns, shift, apart)
    text = lower(program, backend=backend).source.text
    assert (f"atomic_add_global<{width}>" in text) == (width > 1)
    kernel = tilecore.compile(program, backend=backend, device="emulator")
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ROWS, columns)).astype(np.float32)
    start = rng.standard_normal((ROWS * COLUMNS + shift) * apart).astype(np.float32)
    want = start.astype(np.float64)
    places = (np.arange(ROWS)[:, None] * COLUMNS + np.arange(columns) + shift) * apart
    want[places] += 2.0 * a  # two blocks
    got = start.copy()
    kernel(a, got)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_nothing_is_widened_where_the_old_value_is_wanted() -> None:
    @T.prim_func
    def counting(A: T.Tensor((128,), "float32"), Old: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=32):
            one = T.alloc_fragment((128,), "float32")
            T.fill(one, 1.0)
            for i in T.Parallel(128):
                T.atomic_max(A[i], one[i])
            T.copy(one, Old)

    text = lower(counting, backend="cuda_ampere").source.text
    assert "atomic_max_global(" in text and "atomic_add_global" not in text
