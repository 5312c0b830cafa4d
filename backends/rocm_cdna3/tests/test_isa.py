"""What the compiler makes of gemm and attention: instructions, widths, registers, occupancy."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import tilecore
from tilecore.hooks.manager import targets_of
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.resources import read_figures, waves_per_simd
from tilecore_backend_rocm.toolchain import assembly_of

gemms = pytest.importorskip("tilecore_kernels.gemm")
attentions = pytest.importorskip("tilecore_kernels.flash_attention")

(TARGET,) = targets_of("rocm_cdna3")


def compiled(function: object) -> tuple[Counter[str], str, tilecore.Lowered]:
    lowered = tilecore.lower(function, target=TARGET)
    text = assembly_of(lowered.source, TARGET)
    return Counter(re.findall(r"^\s+([a-z]\w+)", text, re.M)), text, lowered


def test_gemm(compiler: Compiler) -> None:
    problem = gemms.GemmProblem(4096, 4096, 4096, "bfloat16", transpose_b=True)
    config = gemms.GemmConfig(128, 128, 64, num_stages=1, threads=256)
    used, text, lowered = compiled(gemms.gemm(problem, config))
    # a wavefront has 64 x 64 of C: 2 x 2 tiles, 64 / 8 steps of k
    assert used["v_mfma_f32_32x32x8_bf16"] == 2 * 2 * 8
    assert used["ds_read_b128"] == 2 * (2 + 2) * 2  # 16 bytes feed two steps
    assert used["global_load_dwordx4"] == used["ds_write_b128"] == 8
    assert not [name for name in used if name.startswith(("scratch_", "flat_"))]
    figures = read_figures(text)["gemm"]
    assert (figures.spilled, figures.scratch_bytes) == (0, 0)
    assert waves_per_simd(figures, 256, lowered.source.kernels[0].smem_bytes) == 2


def test_attention(compiler: Compiler) -> None:
    problem = attentions.AttentionProblem(1, 16, 4096, 128, "bfloat16")
    config = attentions.AttentionConfig(128, 64, num_stages=1, threads=256)
    used, text, _ = compiled(attentions.flash_attention(problem, config))
    # a wavefront has 32 queries: 32 x 64 scores of depth 128, then 32 x 128 of depth 64
    assert used["v_mfma_f32_32x32x8_bf16"] == 2 * 16 + 4 * 8
    assert used["ds_read_b128"] >= 16 and used["global_load_dwordx4"] >= 8
    # P goes from one product to the next in registers; rows are reduced by one exchange each
    assert used["ds_bpermute_b32"] == 2
    figures = read_figures(text)["flash_attention"]
    assert (figures.spilled, figures.scratch_bytes) == (0, 0)
