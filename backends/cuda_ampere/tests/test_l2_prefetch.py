"""How much the second-level cache fetches along with a copy, as the author chooses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language.cuda as T
from tilecore.errors import LanguageError, UnsupportedError

ROWS, COLUMNS = 50, 64  # the last tile of 16 rows is ragged
SIZES = (0, 64, 128, 256)


def rows_sum(advice: dict[str, int] | None, num_stages: int, asynchronous: bool = False) -> Any:
    """Column sums, tile after tile of rows through shared memory."""

    @T.prim_func
    def main(x: T.Tensor((ROWS, COLUMNS), "float32"), y: T.Tensor((COLUMNS,), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((16, COLUMNS), "float32")
            total = T.alloc_fragment((COLUMNS,), "float32")
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(ROWS, 16), num_stages=num_stages):
                if asynchronous:
                    T.async_copy(x[step * 16, 0], tile, annotations=advice)
                    T.async_commit()
                    T.async_wait(0)
                else:
                    T.copy(x[step * 16, 0], tile, annotations=advice)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y)

    return main


X = np.random.default_rng(3).integers(-8, 8, (ROWS, COLUMNS)).astype(np.float32)


def run(program: Any, backend: str, **options: Any) -> np.ndarray:
    y = np.full(COLUMNS, np.nan, np.float32)
    tilecore.compile(program, backend, **options)(X, y)
    return y


# Where the author issues copies and waits for them, there are no stages.
WAYS = [(0, False), (1, False), (2, False), (3, False), (0, True)]


@pytest.mark.parametrize(("num_stages", "asynchronous"), WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_the_chosen_size_is_in_every_copy_and_changes_no_result(
    size: int, num_stages: int, asynchronous: bool
) -> None:
    program = rows_sum(T.l2_prefetch(size), num_stages, asynchronous)
    kernel = tilecore.compile(program, "cuda_ampere", arch="sm_80", device="emulator")
    assert f"ampere::copy_async<4, {size}>(" in kernel.source
    assert "tc::copy_async<" not in kernel.source
    np.testing.assert_array_equal(run(program, "cuda_ampere", device="emulator"), X.sum(0))


def test_without_advice_the_text_is_the_common_one() -> None:
    kernel = tilecore.compile(rows_sum(None, 2), "cuda_ampere", arch="sm_80", device="emulator")
    assert "tc::copy_async<4>(" in kernel.source and "ampere::copy_async" not in kernel.source


@pytest.mark.parametrize("size", SIZES)
def test_the_device_compiler_takes_it(size: int) -> None:
    kernel = tilecore.compile(rows_sum(T.l2_prefetch(size), 2), "cuda_ampere", arch="sm_80")
    assert kernel.resources[0].registers


@pytest.mark.parametrize("backend", ["cpu_llvm", "cuda_hopper", "rocm_cdna3"])
def test_other_backends_take_it_as_advice(backend: str) -> None:
    options = {} if backend == "cpu_llvm" else {"device": "emulator"}
    result = run(rows_sum(T.l2_prefetch(256), 2), backend, **options)
    np.testing.assert_array_equal(result, X.sum(0))


@pytest.mark.parametrize("size", [1, 100, 512, -64, True, "128", None])
def test_other_sizes_are_refused_at_the_authors_line(size: Any) -> None:
    with pytest.raises(
        LanguageError, match=r"test_l2_prefetch.py:\d+: .*expected 0, 64, 128, 256.*got "
    ):
        T.l2_prefetch(size)


def test_an_annotation_written_by_hand_is_checked_when_it_is_used() -> None:
    with pytest.raises(UnsupportedError, match=r"test_l2_prefetch.py:\d+: .*expected 0.*got 96"):
        tilecore.compile(rows_sum({"cuda.l2_prefetch": 96}, 2), "cuda_ampere", device="emulator")
