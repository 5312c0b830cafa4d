"""Pipelines whose copies wait in registers: the same result for every depth, order and edge."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import CompileOptions

(TARGET,) = targets_of("rocm_cdna3")


def product(
    m: int, n: int, k: int, tile: tuple[int, int, int], stages: int, threads: int,
    dtype: str = "float16", trans_a: bool = False, trans_b: bool = False,
) -> Any:  # fmt: skip
    tile_m, tile_n, tile_k = tile
    shape_a, tile_a = ((k, m), (tile_k, tile_m)) if trans_a else ((m, k), (tile_m, tile_k))
    shape_b, tile_b = ((n, k), (tile_n, tile_k)) if trans_b else ((k, n), (tile_k, tile_n))

    @T.prim_func
    def gemm(
        A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), "float32")
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=threads) as (bx, by):
            a = T.alloc_shared(tile_a, dtype)
            b = T.alloc_shared(tile_b, dtype)
            c = T.alloc_fragment((tile_m, tile_n), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=stages):
                if trans_a:
                    T.copy(A[step * tile_k, by * tile_m], a)
                else:
                    T.copy(A[by * tile_m, step * tile_k], a)
                if trans_b:
                    T.copy(B[bx * tile_n, step * tile_k], b)
                else:
                    T.copy(B[step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(c, C[by * tile_m, bx * tile_n])

    return gemm


def check(
    program: Any, m: int, n: int, k: int, kind: Any, trans_a: bool, trans_b: bool,
    options: CompileOptions | None = None,
) -> None:  # fmt: skip
    random = np.random.default_rng(m + n + k)
    a = random.integers(-3, 4, (k, m) if trans_a else (m, k)).astype(kind)
    b = random.integers(-3, 4, (n, k) if trans_b else (k, n)).astype(kind)
    c = np.full((m, n), np.nan, np.float32)
    tilecore.compile(program, "rocm_cdna3", device="emulator", options=options)(a, b, c)
    left, right = (x.astype(np.float64) for x in (a, b))
    want = (left.T if trans_a else left) @ (right.T if trans_b else right)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 3, 6])
@pytest.mark.parametrize("threads", [256, 512])
def test_depth_changes_nothing(stages: int, steps: int, threads: int) -> None:
    k = 32 * steps
    program = product(64, 64, k, (64, 64, 32), stages, threads)
    check(program, 64, 64, k, np.float16, False, False)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("shape", [(64, 64, 64), (72, 40, 88), (65, 33, 35), (1, 8, 8)])
def test_orders_and_edges(trans_a: bool, trans_b: bool, shape: tuple[int, int, int]) -> None:
    program = product(*shape, (64, 64, 32), 2, 256, "float16", trans_a, trans_b)
    check(program, *shape, np.float16, trans_a, trans_b)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("bfloat16", ml_dtypes.bfloat16), ("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
     ("float8_e5m2", ml_dtypes.float8_e5m2), ("float32", np.float32)],
)  # fmt: skip
def test_dtypes(dtype: str, kind: Any) -> None:
    program = product(64, 128, 136, (64, 64, 64), 2, 256, dtype)
    check(program, 64, 128, 136, kind, False, False)


def slots(program: Any) -> int:
    """LDS that the pipeline takes, in single tiles of A and B."""
    lowered = tilecore.lower(program, target=TARGET)
    return lowered.source.kernels[0].smem_bytes // ((64 + 64) * 32 * 2)


def test_a_second_slot_only_where_it_costs_no_wavefronts() -> None:
    assert slots(product(64, 64, 256, (64, 64, 32), 2, 512, trans_b=True)) == 2
    assert slots(product(64, 64, 256, (64, 64, 32), 2, 256, trans_b=True)) == 1
    assert slots(product(64, 64, 256, (64, 64, 32), 1, 512, trans_b=True)) == 1


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("columns", "trans_b"), [(176, False), (176, True), (208, False)])
def test_slots_are_counted_as_they_are_laid_out(columns: int, trans_b: bool, direct: bool) -> None:
    """Padded columns and whole periods of a swizzle take more than elements: two slots of all that
    would pass 64 KiB (176, in columns: 61440 bytes of elements, 68608 as they lie) become one."""
    program = product(512, 512, 512, (64, columns, 64), 2, 128, trans_b=trans_b)
    options = CompileOptions(extra=(("direct_to_lds", direct),))
    (kernel,) = tilecore.lower(program, target=TARGET, options=options).source.kernels
    assert kernel.smem_bytes <= TARGET.smem_bytes


def test_loads_for_later_iterations_stand_before_the_products() -> None:
    text = tilecore.lower(product(64, 64, 256, (64, 64, 32), 2, 512), target=TARGET).source.text
    loop = text[text.index("for (int step") :]
    store, load, multiply = (loop.index(w) for w in ("store_shared", "load_bounded", "cdna3::mfma"))
    assert store < load < multiply
    assert re.search(r"if \(step \+ 2 < 8\)", loop)


def test_accesses_to_bounded_buffers_have_no_branch() -> None:
    text = tilecore.lower(product(100, 104, 72, (64, 64, 32), 2, 256), target=TARGET).source.text
    assert "load_global" not in text and "store_global" not in text
    # rows beyond the end lie outside the buffer by themselves; columns need their test
    first = re.search(r"tc::load_bounded<8>\(A_in, A, [^;]*, 7200(, [^;]*)?\);", text)
    assert first is not None
    assert "< 72" in text and "< 100" not in text


def test_dynamic_sizes_keep_their_guards() -> None:
    rows = T.dynamic("rows")

    @T.prim_func
    def twice(A: T.Tensor((rows, 64), "float32"), B: T.Tensor((rows, 64), "float32")):
        with T.Kernel(T.ceildiv(rows, 32), threads=64) as block:
            for i, j in T.Parallel(32, 64):
                B[block * 32 + i, j] = A[block * 32 + i, j] * 2.0

    text = tilecore.lower(twice, target=TARGET).source.text
    assert "tc::load_global<4>" in text and "_bounded" not in text and "if (" in text
