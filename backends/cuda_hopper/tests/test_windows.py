"""Windows of an image by the copy engine in the emulator: walks, borders, and each way back to
lanes that gather them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hopper_programs import Convolution, convolution

import tilecore
from tilecore.driver import clear_memory_cache
from tilecore.errors import EmulatorFault
from tilecore.ir.dtypes import numpy_dtype
from tilecore_backend_cuda_hopper import copy, window_map
from tilecore_backend_cuda_hopper.window_map import Walk
from tilecore_kernels.conv2d import Conv2dProblem, reference

C = Convolution
WALKED = (
    C(2, 9, 7, 64, 40),
    C(2, 9, 7, 64, 40, pad=0),
    C(1, 12, 11, 64, 64, stride=2),
    C(3, 11, 5, 64, 24, stride=3, pad=2),
    C(2, 10, 10, 128, 72, dilation=2, pad=2, tile_k=128),  # two panels a step
    C(2, 9, 9, 32, 32, kernel=5, stride=3, pad=2, tile_k=32),  # rows of 64 bytes
    C(1, 8, 8, 16, 8, pad=3, tile_k=16),  # rows of 32 bytes, windows that lie in the border
    C(5, 4, 3, 64, 16, kernel=2, pad=0),  # tiles over several images
    C(1, 20, 19, 64, 8, kernel=7, stride=8, pad=3),
    C(1, 12, 12, 192, 8, kernel=1, pad=0),
    C(2, 6, 6, 64, 16, tile_k=128),  # the last step reaches over the last column of a window
    C(2, 6, 7, 64, 16, dtype="bfloat16", tile_m=128, threads=256),
    C(1, 7, 6, 128, 16, dtype="float8_e4m3fn", tile_k=128),
    C(4, 13, 11, 64, 72, tile_m=128, threads=256, stages=4),  # several tiles a block, clusters
)
GATHERED = (
    (C(1, 7, 7, 24, 16), "24 channels are no multiple of a panel's 64 columns"),
    (C(1, 7, 7, 96, 16), "96 channels are no multiple of a panel's 64 columns"),
    (C(1, 30, 30, 64, 8, stride=9), "a stride of 9 pixels, at most 8"),
    (C(1, 270, 2, 64, 8, kernel=2, dilation=257, pad=129), "a window of 258 pixels, at most 256"),
    (C(1, 2, 2, 64, 8, kernel=2, pad=129, stride=8), "a corner of -129 pixels, -128 to 127"),
    (C(1, 7, 7, 64, 16, apart=4), "X needs contiguous channels, other strides in multiples of 16"),
    (C(1, 7, 7, 64, 16, stages=1), "its loop has no producer warps"),
    (C(1, 7, 7, 64, 16, writes_image=True), "its loop has no producer warps"),
)


@pytest.fixture(autouse=True)
def clusters_for_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems take the ways of large ones."""
    monkeypatch.setattr(copy, "SHORT_WORK", 0)


def run(case: Convolution) -> tuple[Any, np.ndarray, np.ndarray]:
    """(kernel, result, wanted) of a convolution of normal values."""
    facts = (case.kernel, case.stride, case.dilation, case.pad)
    problem = Conv2dProblem(case.n, case.h, case.w, case.c, case.f, *facts)
    rows, filters, length = problem.product
    rng = np.random.default_rng(3)
    dtype = numpy_dtype(case.element)
    stored = rng.standard_normal((case.n, case.h, case.w, case.c + case.apart)).astype(dtype)
    image, weights = stored[..., : case.c], rng.standard_normal((filters, length)).astype(dtype)
    kernel = tilecore.compile(convolution(case), backend="cuda_hopper", device="emulator")
    out = np.full((rows, filters), np.nan, np.float32)
    kernel(image, weights, out)
    (wanted,) = reference(problem, image, weights)
    return kernel, out, wanted


@pytest.mark.parametrize("case", WALKED, ids=str)
def test_windows_are_walked_by_the_engine(case: Convolution) -> None:
    kernel, out, wanted = run(case)
    assert "hopper::bulk_load_windows(" in kernel.source
    assert "gathered." not in kernel.ir("scheduled")
    np.testing.assert_allclose(out, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.parametrize(("case", "reason"), GATHERED, ids=str)
def test_what_the_engine_does_not_take_is_gathered_and_said(case: Convolution, reason: str) -> None:
    kernel, out, wanted = run(case)
    assert "bulk_load_windows" not in kernel.source
    found = re.search(r'gathered\.x="([^"]*)"', kernel.ir("scheduled"))
    assert found is not None and found[1].startswith(reason)
    np.testing.assert_allclose(out, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())


def test_same_result_for_all_stages_and_ways() -> None:
    """The bits do not depend on who brings the windows, nor on how many are under way."""
    results = [run(C(2, 9, 7, 64, 40, stages=stages))[1] for stages in (1, 2, 3, 4)]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize(("batch", "size"), [(0, 5), (1, 2)], ids=["no images", "no windows"])
def test_nothing_to_do(batch: int, size: int) -> None:
    _, out, _ = run(C(batch, size, size, 64, 8, pad=0))
    assert out.size == 0


def test_sizes_of_the_call() -> None:
    """One kernel for images of every size."""
    kernel = None
    for n, h, w in ((1, 5, 4), (3, 8, 9), (2, 3, 17)):
        case = C(n, h, w, 64, 24, stride=2)
        problem = Conv2dProblem(n, h, w, 64, 24, stride=2)
        rows, filters, length = problem.product
        if kernel is None:
            program = convolution(case, dynamic=True)
            kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
            assert "hopper::bulk_load_windows(" in kernel.source
        rng = np.random.default_rng(4)
        image = rng.standard_normal((n, h, w, 64)).astype(np.float16)
        weights = rng.standard_normal((filters, length)).astype(np.float16)
        out = np.full((rows, filters), np.nan, np.float32)
        kernel(image, weights, out)
        np.testing.assert_allclose(out, reference(problem, image, weights)[0], rtol=2e-3, atol=0.1)


@pytest.mark.parametrize(
    ("walk", "rule"),
    [
        (Walk(-1, -1, 3), "a first pixel at a whole step"),
        (Walk(0, -1, 2), "a first pixel where windows begin"),
        (Walk(-1, -1, 9), "windows 1 to 8 pixels apart"),
    ],
)
def test_a_wrong_map_is_a_fault(monkeypatch: pytest.MonkeyPatch, walk: Walk, rule: str) -> None:
    """The emulated engine knows the rules that the device answers with wrong values."""
    monkeypatch.setenv("TILECORE_DISABLE_CACHE", "1")
    clear_memory_cache()
    monkeypatch.setattr(window_map, "walk_of", lambda windows: walk)
    with pytest.raises(EmulatorFault, match=rule):
        run(C(1, 24, 23, 64, 64, stride=2))
    clear_memory_cache()
