"""Block order over the XCDs: every block once, and runs of neighbours on each XCD."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilecore
import tilecore.language as T
from tilecore.hooks.manager import targets_of
from tilecore_backend_rocm.xcd import XCDS, block_chunk

gemms = pytest.importorskip("tilecore_kernels.gemm")
attentions = pytest.importorskip("tilecore_kernels.flash_attention")
(TARGET,) = targets_of("rocm_cdna3")


def chunk_of(program: Any) -> int:
    lowered = tilecore.lower(program, target=TARGET)
    return block_chunk(dict(lowered.stages)["lane"].kernels[0])


def dealt(program: Any, grid: tuple[int, int, int]) -> list[int]:
    """For each block in the device's order the number that the generated text gives it."""
    text = tilecore.lower(program, target=TARGET).source.text
    (line,) = re.findall(r"const int dealt = (.*) \? block_number : (.*);", text)
    condition, chosen = (
        part.replace("tc::grid_x()", str(grid[0])).replace("tc::grid_y()", str(grid[1]))
        .replace("tc::grid_z()", str(grid[2])).replace("/", "//")
        for part in line
    )  # fmt: skip
    numbers = []
    for block_number in range(grid[0] * grid[1] * grid[2]):
        names = {"block_number": block_number, "block_local": block_number // XCDS}
        stays = eval(condition, {}, names)
        numbers.append(block_number if stays else eval(chosen, {}, names))
    return numbers


@pytest.mark.parametrize("size", [8192, 4096, 6400])
def test_a_gemms_xcds_get_squares_of_tiles(size: int) -> None:
    problem = gemms.GemmProblem(size, size, size, "bfloat16", transpose_b=True)
    program = gemms.gemm(problem, gemms.GemmConfig(256, 256, 32, 2, 512, 8))
    tiles = size // 256
    chunk = chunk_of(program)
    numbers = dealt(program, (tiles, tiles, 1))
    assert sorted(numbers) == list(range(tiles * tiles))
    assert chunk > 1 and 64 % chunk == 0
    for xcd in range(XCDS):
        own = numbers[xcd::XCDS]
        whole = tiles * tiles // (chunk * XCDS) * chunk  # the ragged rest is left as it is
        for start in range(0, whole, chunk):
            assert own[start : start + chunk] == list(range(own[start], own[start] + chunk))


def test_attentions_heads_stay_on_one_xcd() -> None:
    problem = attentions.AttentionProblem(1, 16, 16384, 128, "bfloat16")
    program = attentions.flash_attention(problem, attentions.AttentionConfig(256, 64, 2, 512))
    assert chunk_of(program) == 64  # all query tiles of a head
    numbers = dealt(program, (64, 16, 1))
    assert sorted(numbers) == list(range(64 * 16))
    for xcd in range(XCDS):
        heads = [number // 64 for number in numbers[xcd::XCDS]]
        assert len(set(heads)) == 2 and heads == sorted(heads, key=heads.index)


def test_kernels_that_must_keep_the_devices_order() -> None:
    rows = T.dynamic("rows")

    @T.prim_func
    def product(A: T.Tensor((rows, 64), "float16"), C: T.Tensor((rows, 64), "float32")):
        with T.Kernel(T.ceildiv(rows, 64), threads=64) as block:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A[block * 64, 0], a)
            T.clear(c)
            T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C[block * 64, 0])

    assert chunk_of(product) == 0
    few = gemms.GemmProblem(512, 512, 512, "bfloat16", transpose_b=True)
    assert chunk_of(gemms.gemm(few, gemms.GemmConfig(256, 256, 32, 2, 512, 8))) == 0
