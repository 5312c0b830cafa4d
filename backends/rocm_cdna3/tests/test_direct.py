"""Loads straight to LDS: what they may do, what they are compiled to, and that waits are needed."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T
from backends.rocm_cdna3.tests.test_pipeline import check, product
from tilecore.compiler import Lowered
from tilecore.emulator import KernelFaults, LaunchShape, RunOptions, build_kernel, launch
from tilecore.errors import TilecoreError
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import CompileOptions
from tilecore.ir.layout import Layout, Mode, Swizzle
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.emulation import SUPPORT
from tilecore_backend_rocm.resources import read_figures
from tilecore_backend_rocm.toolchain import assembly_of

(TARGET,) = targets_of("rocm_cdna3")
DIRECT = CompileOptions(extra=(("direct_to_lds", True),))


def lowered(program: Any, options: CompileOptions = DIRECT) -> Lowered:
    return tilecore.lower(program, target=TARGET, options=options)


def uses(program: Any, options: CompileOptions = DIRECT) -> bool:
    return "cdna3::load_to_lds" in lowered(program, options).source.text


@pytest.mark.parametrize(("stages", "steps"), [(2, 1), (2, 4), (3, 2), (3, 5), (4, 3), (4, 6)])
@pytest.mark.parametrize(
    ("dtype", "kind", "depth"),
    [("bfloat16", ml_dtypes.bfloat16, 32), ("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 64)],
)  # fmt: skip
def test_every_depth_gives_the_same_result(
    stages: int, steps: int, dtype: str, kind: Any, depth: int
) -> None:
    k = depth * steps
    program = product(64, 64, k, (64, 64, depth), stages, 256, dtype, trans_b=True)
    assert uses(program)
    check(program, 64, 64, k, kind, False, True, options=DIRECT)


@pytest.mark.parametrize("shape", [(72, 40, 88), (65, 33, 34), (1, 8, 8)])
def test_ragged_edges_arrive_as_zeros(shape: tuple[int, int, int]) -> None:
    program = product(*shape, (64, 64, 32), 2, 256, "bfloat16", trans_b=True)
    assert uses(program)
    check(program, *shape, ml_dtypes.bfloat16, False, True, options=DIRECT)


def test_only_where_asked_for_and_legal() -> None:
    whole = product(64, 64, 128, (64, 64, 32), 2, 256, "bfloat16", trans_b=True)
    assert not uses(whole, CompileOptions()) and uses(whole)
    # one slot only; odd rows, whose pairs of 16-bit elements are not aligned; B that is turned
    assert not uses(product(64, 64, 128, (64, 64, 32), 1, 256, "bfloat16", trans_b=True))
    assert not uses(product(64, 64, 35, (64, 64, 32), 2, 256, "bfloat16", trans_b=True))
    assert not uses(product(64, 64, 128, (64, 64, 32), 2, 256, "bfloat16"))
    # fewer pieces than lanes
    assert not uses(product(16, 64, 128, (16, 64, 8), 2, 256, "bfloat16", trans_b=True))


def test_copies_outside_loops_and_buffers_of_unknown_size() -> None:
    rows = T.dynamic("rows")

    def moving(extent: Any) -> Any:
        @T.prim_func
        def moving(A: T.Tensor((extent, 64), "float32"), B: T.Tensor((extent, 64), "float32")):
            with T.Kernel(T.ceildiv(extent, 64), threads=128) as block:
                tile = T.alloc_shared((64, 64), "float32")
                T.copy(A[block * 64, 0], tile)
                T.copy(tile, B[block * 64, 0])

        return moving

    assert not uses(moving(rows))
    program = moving(200)
    assert uses(program)
    a, b = np.random.default_rng(0).random((200, 64), np.float32), np.zeros((200, 64), np.float32)
    tilecore.compile(program, "rocm_cdna3", device="emulator", options=DIRECT)(a, b)
    np.testing.assert_array_equal(a, b)


def test_lanes_swizzle_what_they_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """In LDS, tile rows lie where the layout says: read back raw, without the layout's help."""
    from tilecore_backend_rocm import layout as chosen

    swizzled = Layout(((Mode(32, 32),), (Mode(32, 1),)), Swizzle(2, 3, 2))
    monkeypatch.setattr(chosen, "choose_layout", lambda request: swizzled)

    @T.prim_func
    def turning(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float16")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_shared((32, 32), "float16")
            T.copy(A, tile)
            T.copy(tile, B)

    text = lowered(turning).source.text
    (call,) = re.findall(r"cdna3::load_to_lds<2>\((.*)\);", text)
    place, source = call.split(", ")[0], call.split(", ")[2]
    assert "^" not in place
    assert "^" in source or re.search(rf"const int {source.split(' ')[0]} = .*\^", text)
    a, b = np.arange(1024, dtype=np.float16).reshape(32, 32), np.zeros((32, 32), np.float16)
    tilecore.compile(turning, "rocm_cdna3", device="emulator", options=DIRECT)(a, b)
    np.testing.assert_array_equal(a, b)


READS_BEFORE = """
TC_KERNEL(128, 1) k(const float* A, float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 128);
  const int i = tc::lane_in_block();
  TC_LINE(3);
  cdna3::load_to_lds<1>(S + PLACE, A, i, 128);
  tc::copy_async_commit();
  WAIT
  cdna3::barrier_under_loads();
  TC_LINE(4);
  tc::store_global(B + i, tc::load_shared(S + (127 - i)));
  cdna3::wait_for_lds<0, 0>();
}
"""


def faults(wait: str, place: str = "i", seed: int = 0) -> set[str]:
    text = READS_BEFORE.replace("WAIT", wait).replace("PLACE", place)
    arrays = [np.arange(128, dtype=np.float32), np.zeros(128, np.float32)]
    try:
        launch(build_kernel(text, "k", SUPPORT), arrays,
               LaunchShape((1, 1, 1), (128, 1, 1), 512), RunOptions(seed=seed))  # fmt: skip
    except KernelFaults as caught:
        return set(caught.kinds)
    np.testing.assert_array_equal(arrays[1], arrays[0][::-1])
    return set()


@pytest.mark.parametrize("seed", range(4))
def test_a_read_before_the_wait_is_found(seed: int) -> None:
    assert faults("cdna3::wait_for_lds<0, 0>();", seed=seed) == set()
    assert "shared_in_flight" in faults("", seed=seed)
    assert "shared_in_flight" in faults("cdna3::wait_for_lds<1, 1>();", seed=seed)


def test_lanes_that_do_not_lie_side_by_side_are_found() -> None:
    assert "not_uniform" in faults("cdna3::wait_for_lds<0, 0>();", place="(i ^ 1)")


@pytest.mark.parametrize("slots", [2, 3])
def test_the_instruction_and_its_counted_waits(compiler: Compiler, slots: int) -> None:
    gemms = pytest.importorskip("tilecore_kernels.gemm")
    big = gemms.GemmProblem(8192, 8192, 8192, "bfloat16", transpose_b=True)
    tile = {2: (256, 256, 32, 2, 512), 3: (128, 128, 32, 3, 256)}[slots]
    source = lowered(gemms.gemm(big, gemms.GemmConfig(*tile, 8))).source
    text = assembly_of(source, TARGET, DIRECT)
    figures = read_figures(text)[source.kernels[0].name]
    assert (figures.spilled, figures.scratch_bytes) == (0, 0)
    each = (tile[0] + tile[1]) * 32 * 2 // (4 * tile[4])  # of a lane in an iteration: 16
    loads = re.findall(r"s_mov_b32 m0, .*\n(?:.*\n){0,3}?\s+buffer_load_dword .* offen lds", text)
    assert each == 16 and len(loads) == text.count(" lds\n") == slots * each
    assert not re.search("buffer_load_dwordx", text)
    # of the loop (where one iteration's loads may be under way: not at its end), and after it
    waits = re.findall(r"s_waitcnt vmcnt\((\d+)\)", text[: text.index("buffer_store")])
    assert waits == (["0", "0"] if slots == 2 else [str(each), "0", "0"])


def by_author(pending: Any) -> Any:
    @T.prim_func
    def by_author(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=64) as _:
            tiles = T.alloc_shared((4, 64), "float32")
            for step in T.serial(4):
                T.async_copy(A[step, 0:64], tiles[step, 0:64])
                T.async_commit()
                T.async_wait(step if pending is None else pending)
            T.async_wait(0)
            T.copy(tiles, B)

    return by_author


@pytest.mark.parametrize("backend", ["rocm_cdna3", "cuda_ampere"])
@pytest.mark.parametrize("pending", [0, 1, 3])
@pytest.mark.parametrize("options", [CompileOptions(), DIRECT], ids=["registers", "direct"])
def test_the_authors_own_groups(backend: str, pending: int, options: CompileOptions) -> None:
    program = by_author(pending)
    assert uses(program, options) == (options is DIRECT)
    a, b = np.random.default_rng(0).random((4, 64), np.float32), np.zeros((4, 64), np.float32)
    tilecore.compile(program, backend, device="emulator", options=options)(a, b)
    np.testing.assert_array_equal(a, b)


def test_a_wait_for_an_unknown_number_is_refused() -> None:
    with pytest.raises(TilecoreError, match="must be a constant"):
        lowered(by_author(None))
