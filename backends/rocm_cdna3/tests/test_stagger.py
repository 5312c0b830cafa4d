"""Halves of a workgroup one phase apart: same results, equal barriers, what clang makes of it."""

from __future__ import annotations

import dataclasses
import importlib
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T
from backends.rocm_cdna3.tests.test_isa import IN_STEP, compiled, expect_clean, planned_waves
from backends.rocm_cdna3.tests.test_pipeline import check, product
from tilecore.emulator import KernelFaults, LaunchShape, RunOptions, build_kernel, launch
from tilecore.errors import VerifyError
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import CompileOptions, KernelSource
from tilecore.ir.stmts import For
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.passes.scopes import kernel_ranges
from tilecore.passes.stagger import PHASE
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.emulation import SUPPORT

attentions = pytest.importorskip("tilecore_kernels.flash_attention")
gemms = pytest.importorskip("tilecore_kernels.gemm")
barriers = importlib.import_module("tilecore.passes.insert_barriers")

(TARGET,) = targets_of("rocm_cdna3")
CONFIG = attentions.AttentionConfig(256, 32, 2, 512)


def text_of(program: Any, options: CompileOptions | None = None) -> str:
    return tilecore.lower(program, target=TARGET, options=options).source.text


def is_staggered(program: Any, options: CompileOptions | None = None) -> bool:
    return "cdna3::next_phase" in text_of(program, options)


# --- which loops ---------------------------------------------------------------------------------


def test_only_eight_wavefronts_with_two_slots() -> None:
    tile = (64, 128, 64)
    assert is_staggered(product(64, 128, 256, tile, 2, 512, trans_b=True))
    assert not is_staggered(product(64, 128, 256, tile, 2, 512, trans_b=True), IN_STEP)
    assert not is_staggered(product(64, 128, 256, tile, 1, 512, trans_b=True))
    assert not is_staggered(product(64, 128, 256, tile, 2, 256, trans_b=True))
    assert not is_staggered(product(256, 256, 256, (256, 256, 64), 2, 512, trans_b=True))  # LDS


def test_loops_in_which_lanes_meet_for_other_reasons_stay_in_step() -> None:
    @T.prim_func
    def scaled(
        A: T.Tensor((128, 256), "float16"), B: T.Tensor((128, 256), "float16"),
        S: T.Tensor((256,), "float32"), C: T.Tensor((128, 128), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=512) as _:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((128, 64), "float16")
            s = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            T.clear(total)
            for step in T.Pipelined(4, num_stages=2):
                T.copy(A[0, step * 64], a)
                T.copy(B[0, step * 64], b)
                T.copy(S[step * 64 : step * 64 + 64], s)
                for i in T.Parallel(64):
                    total[i] += s[63 - i]
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)
            T.copy(total, S[0:64])

    assert not is_staggered(scaled)


# --- the same results ----------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm_of_every_length(steps: int, trans_b: bool) -> None:
    shape = (64, 128, 64 * steps)
    program = product(*shape, (64, 128, 64), 2, 512, "float16", False, trans_b)
    assert is_staggered(program) == (steps > 1)
    check(program, *shape, np.float16, False, trans_b)


@pytest.mark.parametrize("shape", [(72, 136, 88), (65, 33, 135), (1, 8, 72)])
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("bfloat16", ml_dtypes.bfloat16), ("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)],
)  # fmt: skip
def test_gemm_with_edges(shape: tuple[int, int, int], dtype: str, kind: Any) -> None:
    program = product(*shape, (64, 128, 64), 2, 512, dtype, trans_b=True)
    assert is_staggered(program)
    check(program, *shape, kind, False, True)


@pytest.mark.parametrize(
    ("queries", "keys", "right"), [(256, 160, None), (300, 300, 0), (64, 100, None), (270, 33, 0)]
)
def test_attention(queries: int, keys: int, right: int | None) -> None:
    problem = attentions.AttentionProblem(1, 2, queries, 128, "bfloat16", kv_len=keys, kv_heads=1,
                                          right=right)  # fmt: skip
    program = attentions.flash_attention(problem, CONFIG)
    assert is_staggered(program)
    family = attentions.FLASH_ATTENTION
    arrays = family.inputs(problem, np.random.default_rng(0))
    out = np.full((1, 2, queries, 128), np.nan, ml_dtypes.bfloat16)
    tilecore.compile(program, "rocm_cdna3", device="emulator")(*arrays, out)
    in_step = np.full_like(out, np.nan)
    kernel = tilecore.compile(program, "rocm_cdna3", device="emulator", options=IN_STEP)
    kernel(*arrays, in_step)
    np.testing.assert_array_equal(out, in_step)
    want = family.reference(problem, *arrays)
    want = want[0] if isinstance(want, tuple | list) else want
    assert np.abs(out.astype(float) - np.asarray(want, float)).max() < 0.02


# --- barriers: equal for all, none too few -------------------------------------------------------


def faults_of(kernel: KernelSource, text: str, arrays: list[np.ndarray]) -> set[str]:
    """Kinds of fault that `kernel` has with another text."""
    found: set[str] = set()
    for seed in range(3):
        try:
            shape = LaunchShape((1, 1, 1), (512, 1, 1), kernel.smem_bytes)
            launch(build_kernel(text, kernel.name, SUPPORT), arrays, shape, RunOptions(seed=seed))
        except KernelFaults as caught:
            found |= set(caught.kinds)
    return found


def test_the_emulator_finds_a_missing_phase_and_an_unequal_count() -> None:
    source = tilecore.lower(
        product(64, 128, 256, (64, 128, 64), 2, 512, trans_b=True), target=TARGET
    ).source
    (kernel,), text = source.kernels, source.text
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, s).astype(np.float16) for s in ((64, 256), (128, 256)))
    arrays = [a, b, np.zeros((64, 128), np.float32)]
    phases = [m.start() for m in re.finditer(r"cdna3::next_phase<512>\(\);", text)]
    assert len(phases) == 2
    assert faults_of(kernel, text, arrays) == set()
    np.testing.assert_array_equal(arrays[2], a.astype(float) @ b.astype(float).T)
    for at in phases:  # all wavefronts meet less often: they then touch one slot in one phase
        assert "shared_race" in faults_of(kernel, text[:at] + "//" + text[at:], arrays)
    for name in ("begin", "end"):  # the halves would meet unequally often
        broken = text.replace(f"cdna3::{name}_phases<512>();", "tc::barrier();")
        assert "deadlock" in faults_of(kernel, broken, arrays)


@pytest.mark.parametrize("which", ["gemm", "attention"])
def test_the_compiler_finds_a_missing_phase(which: str) -> None:
    program = product(64, 128, 256, (64, 128, 64), 2, 512, trans_b=True)
    if which == "attention":
        problem = attentions.AttentionProblem(1, 1, 512, 128, "bfloat16")
        program = attentions.flash_attention(problem, CONFIG)
    scheduled = dict(tilecore.lower(program, target=TARGET).stages)["scheduled"]
    (kernel,) = scheduled.kernels
    ranges = kernel_ranges(kernel, scheduled.symbols)
    assert barriers.find_conflicts(kernel, ranges) == []
    (loop,) = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and PHASE in s.body]
    for at in [k for k, stmt in enumerate(loop.body) if stmt == PHASE]:
        fewer = dataclasses.replace(loop, body=(*loop.body[:at], *loop.body[at + 1 :]))
        body = map_stmts(kernel.body, lambda s, fewer=fewer: fewer if s == loop else None)
        broken = dataclasses.replace(kernel, body=body)
        assert barriers.find_conflicts(broken, ranges)
        with pytest.raises(VerifyError, match="a phase apart"):
            barriers.insert_barriers(dataclasses.replace(scheduled, kernels=(broken,)), None)


# --- machine code --------------------------------------------------------------------------------


def test_gemm_multiplies_in_one_phase_and_loads_in_the_other(compiler: Compiler) -> None:
    big = gemms.GemmProblem(8192, 8192, 8192, "bfloat16", transpose_b=True)
    kernel = compiled(gemms.gemm(big, gemms.GemmConfig(256, 256, 32, 2, 512, 8)))
    expect_clean(kernel)
    assert kernel.waves == planned_waves(kernel) == 2
    loop = kernel.loop()
    assert loop.count("s_barrier") == 2 and loop.count("s_setprio 1") == 1
    multiplies = loop[loop.index("s_setprio 1") : loop.index("s_setprio 0")]
    assert multiplies.count("v_mfma") == loop.count("v_mfma") == 32
    assert not re.search("ds_|buffer_|vmcnt", multiplies)
    assert loop.count("ds_read_b128") == 12 and loop.count("ds_write_b128") == 4
    # loads of the next iteration but one stay under way over both barriers
    assert loop.count("buffer_load_dwordx4") == 4 and "vmcnt(0)" not in multiplies
    # the upper half meets once more before the loop, the lower half after it
    assert kernel.text.count("s_barrier") == 2 + 3


def test_attention_multiplies_in_one_phase_and_weighs_in_the_other(compiler: Compiler) -> None:
    problem = attentions.AttentionProblem(1, 16, 16384, 128, "bfloat16")
    kernel = compiled(attentions.flash_attention(problem, CONFIG))
    expect_clean(kernel)
    assert kernel.waves == planned_waves(kernel) == 2
    loop = kernel.loop()
    assert loop.count("s_barrier") == 2
    head, middle, tail = loop.split("s_barrier")
    parts = [tail + head, middle]
    with_products = [part for part in parts if "v_mfma" in part]
    with_exponentials = [part for part in parts if "v_exp_f32" in part]
    assert with_products and with_exponentials
    assert not any("v_exp_f32" in part for part in with_products)
    assert loop.count("v_mfma") == 16 + 16
