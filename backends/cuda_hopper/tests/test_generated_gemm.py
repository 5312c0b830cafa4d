"""Generated gemms in the emulator against NumPy, over sizes, tiles, stages, types and storage."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hopper_programs import Matmul, matmul, ragged, split_sum

import tilecore
from tilecore.compiler import lower
from tilecore.driver import clear_memory_cache
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_backend_cuda_hopper import copy

CASES = (
    Matmul(256, 256, 128),
    Matmul(200, 136, 72, stages=2),
    Matmul(130, 264, 200, tile_n=256, stages=4),
    Matmul(64, 192, 128, 64, 64, threads=128),
    Matmul(64, 192, 128, 64, 192, stages=2, trans_b=True),
    Matmul(192, 96, 104, 192, 96, stages=2, threads=384),
    Matmul(300, 80, 72, tile_n=80),
    Matmul(256, 128, 128, tile_m=256, stages=2),
    Matmul(136, 120, 96, tile_k=32),
    Matmul(128, 128, 136, trans_a=True, trans_b=True),
    Matmul(136, 72, 136, trans_a=True),
    Matmul(72, 136, 136, trans_b=True, stages=2),
    Matmul(128, 176, 72, tile_n=176, dtype="bfloat16"),
    Matmul(128, 128, 160, trans_b=True, tile_k=128, dtype="int8"),
    Matmul(128, 128, 160, trans_b=True, tile_k=128, dtype="float8_e4m3fn"),
    Matmul(136, 72, 96, trans_b=True, tile_k=32, dtype="tfloat32"),
    Matmul(1000, 264, 72, 64, 64, stages=4, threads=128),  # several tiles a block, clusters
    Matmul(640, 512, 136, tile_n=256),
    Matmul(100, 100, 100, stages=2),  # strides that no tensor map takes: cp.async
)


@pytest.fixture(autouse=True, scope="module")
def clusters_for_little_work() -> Iterator[None]:
    """Small problems take the ways of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "SHORT_WORK", 0)
        patch.setattr(copy, "SHORT_STRADDLING_WORK", 0)
        clear_memory_cache()
        yield
    clear_memory_cache()


def arrays(case: Matmul) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape_a = (case.k, case.m) if case.trans_a else (case.m, case.k)
    shape_b = (case.n, case.k) if case.trans_b else (case.k, case.n)
    dtype = dtype_of(case.dtype)
    if dtype.is_int:
        return tuple(rng.integers(-8, 8, s).astype(np.int8) for s in (shape_a, shape_b))
    return tuple(rng.standard_normal(s).astype(numpy_dtype(dtype)) for s in (shape_a, shape_b))


def run(case: Matmul) -> tuple[np.ndarray, np.ndarray]:
    """(result, float64 reference)."""
    kernel = tilecore.compile(matmul(case), backend="cuda_hopper", device="emulator")
    a, b = arrays(case)
    out = dtype_of("int32" if case.dtype == "int8" else case.dtype)
    if out.bits == 8:
        out = dtype_of("float16")
    c = np.zeros((case.m, case.n), numpy_dtype(out))
    kernel(a, b, c)
    left = (a.T if case.trans_a else a).astype(np.float64)
    right = (b.T if case.trans_b else b).astype(np.float64)
    return c.astype(np.float64), left @ right


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gemm_equals_numpy(case: Matmul) -> None:
    got, want = run(case)
    if case.dtype == "int8":
        np.testing.assert_array_equal(got, want)
        return
    step = 2.0**-8 if case.dtype == "bfloat16" else 2.0**-11
    lost = 4e-3 if case.dtype == "tfloat32" else 1e-3
    np.testing.assert_allclose(got, want, rtol=step, atol=lost * np.sqrt(case.k))


@pytest.mark.parametrize("case", CASES[:-1], ids=str)
def test_producer_warps_and_wgmma_are_used(case: Matmul) -> None:
    text = lower(matmul(case), backend="cuda_hopper").source.text
    wide_enough = case.tile_m % 64 == 0 and (case.trans_b or case.tile_n % 16 == 0)
    assert ("TC_WGMMA" in text) == wide_enough
    assert "hopper::bulk_load" in text


def test_columns_that_warpgroups_cannot_share_go_to_the_base_backend() -> None:
    case = Matmul(64, 192, 128, 64, 192, stages=2)  # 96 columns each: no whole panels of 64
    text = lower(matmul(case), backend="cuda_hopper").source.text
    assert "ampere::mma_m16n8k16" in text and "hopper::bulk_load" in text
    got, want = run(case)
    np.testing.assert_allclose(got, want, rtol=2.0**-11, atol=1e-2)


def test_what_no_tensor_map_takes_is_copied_by_lanes() -> None:
    text = lower(matmul(CASES[-1]), backend="cuda_hopper").source.text
    assert "copy_async<" in text and "bulk_load" not in text
    assert "TC_WGMMA" in text and "hopper::publish();" in text


def test_result_does_not_depend_on_stages() -> None:
    results = [run(dataclasses.replace(CASES[1], stages=stages))[0] for stages in (2, 3, 4)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_order_of_lanes_and_deliveries(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    clear_memory_cache()
    got, want = run(Matmul(320, 136, 200, 64, 64, stages=2, threads=128))
    np.testing.assert_allclose(got, want, rtol=2.0**-11, atol=2e-2)


def test_clusters_share_the_tile_that_neighbours_need() -> None:
    lowered = lower(matmul(Matmul(512, 512, 128, tile_n=256)), backend="cuda_hopper")
    (kernel,) = lowered.source.kernels
    assert kernel.cluster == (2, 1, 1)
    assert "bulk_load_shared<2>" in lowered.source.text
    alone = lower(matmul(Matmul(128, 512, 128, tile_n=256)), backend="cuda_hopper")
    assert alone.source.kernels[0].cluster == (1, 1, 1)


def test_little_work_has_no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that straddle lines of memory need them sooner."""
    monkeypatch.setattr(copy, "SHORT_WORK", 1536)
    monkeypatch.setattr(copy, "SHORT_STRADDLING_WORK", 64)
    for size, cluster in ((512, 1), (4096, 1), (4104, 2), (8192, 2)):
        lowered = lower(matmul(Matmul(size, size, size, tile_n=256)), backend="cuda_hopper")
        assert lowered.source.kernels[0].cluster == (cluster, 1, 1)


def test_a_store_leaves_under_the_next_tile() -> None:
    case = Matmul(256, 1280, 320, tile_n=256, stages=2)  # ten tiles, five steps, four panels
    text = lower(matmul(case), backend="cuda_hopper").source.text
    assert "hopper::hold<" in text and "hopper::store_panel<" in text
    assert "store_tile" not in text
    got, want = run(case)
    np.testing.assert_allclose(got, want, rtol=2.0**-11, atol=2e-2)


def test_loops_shorter_than_a_store_keep_it_at_their_end() -> None:
    text = lower(matmul(Matmul(256, 1280, 192, tile_n=256)), backend="cuda_hopper").source.text
    assert "hopper::store_tile<" in text and "store_panel" not in text


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-4), ("float16", 0.1)])
def test_tiles_are_added_in_bulk(dtype: str, limit: float) -> None:
    program = split_sum(200, 136, 320, 3, 64, dtype)
    assert "true>(" in lower(program, backend="cuda_hopper").source.text
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((200, 320), (136, 320)))
    start = rng.standard_normal((200, 136)).astype(dtype)
    c = start.copy()
    kernel(a, b, c)
    want = start.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c, want, atol=limit)


@pytest.mark.parametrize("dtype", ["int8", "tfloat32"])
def test_sums_of_32_bits_leave_in_bulk(dtype: str) -> None:
    case = Matmul(200, 104, 128, tile_n=96, trans_b=True, tile_k=32, dtype=dtype)
    text = lower(matmul(case), backend="cuda_hopper").source.text
    assert ("hopper::store_tile<" in text) == (dtype == "int8")  # one type, or a cast
    got, want = run(case)
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=5e-2)


@pytest.mark.parametrize("rows", [7 * 64, 7 * 64 - 5, 6 * 64 + 1])
def test_blocks_stay_where_tiles_make_unequally_many_steps(rows: int) -> None:
    steps = (3, 0, 1, 4, -2, 2, 5)
    program = ragged(rows, steps)
    text = lower(program, backend="cuda_hopper").source.text
    assert "steps_used" in text and "store_tile" in text and "finish_stores" in text
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64 * 7, 160)).astype(np.float16)
    b = rng.standard_normal((160, 64)).astype(np.float16)
    c = np.full((64 * 7, 64), 7.0, np.float16)
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    kernel(a, b, np.array(steps, np.int32), c)
    for tile, count in enumerate(steps):
        at, depth = slice(64 * tile, min(rows, 64 * tile + 64)), 32 * max(0, count)
        want = a[at, :depth].astype(np.float64) @ b[:depth].astype(np.float64)
        np.testing.assert_allclose(c[at].astype(np.float64), want, atol=2e-2, rtol=2e-3)
    assert (c[rows:] == 7.0).all(), "nothing is written behind the rows"


@pytest.mark.parametrize("tile_n", [64, 128, 256])
def test_sums_in_half_precision_where_the_author_asks(tile_n: int) -> None:
    m, n, k = 200, 136, 136
    program = matmul(Matmul(m, n, k, tile_n=tile_n, sums="float16"))
    text = lower(program, backend="cuda_hopper").source.text
    assert "TC_WGMMA(f16_f16" in text
    assert "hopper::store_panel<" in text or "hopper::store_tile<" in text  # leaves in bulk
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float16)
    tilecore.compile(program, backend="cuda_hopper", device="emulator")(a, b, c)
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(c.astype(np.float64) - want) / np.linalg.norm(want)
    steps = -(-k // 16)  # each instruction rounds its sums once
    assert 2.0**-13 < error < steps * 2.0**-11
