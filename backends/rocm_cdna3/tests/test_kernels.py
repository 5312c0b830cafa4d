"""Kernels of the collection, unchanged, in their first configuration for this target.

Small problems on the emulator against the float64 reference; the sizes worth measuring compiled,
without spills.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
from tilecore.hooks.manager import targets_of
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.resources import read_figures
from tilecore_backend_rocm.toolchain import assembly_of

gemms = pytest.importorskip("tilecore_kernels.gemm")
scaled = pytest.importorskip("tilecore_kernels.gemm_scaled")
attentions = pytest.importorskip("tilecore_kernels.flash_attention")
decodes = pytest.importorskip("tilecore_kernels.flash_decode")
latents = pytest.importorskip("tilecore_kernels.mla_decode")

(TARGET,) = targets_of("rocm_cdna3")
SMALL = {
    "gemm": (gemms.GEMM, gemms.GemmProblem(150, 136, 200, "bfloat16", transpose_b=True)),
    "gemm plain": (gemms.GEMM, gemms.GemmProblem(130, 144, 72, "float16")),
    "fp8 gemm, fnuz": (
        scaled.SCALED_GEMM, scaled.ScaledGemmProblem(96, 144, 256, "tensor", "float8_e4m3fnuz")
    ),
    "fp8 gemm, ocp": (scaled.SCALED_GEMM, scaled.ScaledGemmProblem(96, 144, 256, "tensor")),
    "fp8 gemm, scales of blocks": (
        scaled.SCALED_GEMM, scaled.ScaledGemmProblem(70, 128, 256, "block", "float8_e4m3fnuz")
    ),
    "attention": (
        attentions.FLASH_ATTENTION, attentions.AttentionProblem(1, 2, 300, 64, "bfloat16")
    ),
    "attention, causal, grouped": (
        attentions.FLASH_ATTENTION,
        attentions.AttentionProblem(1, 2, 140, 128, "float16", kv_heads=1, kv_len=210, right=0),
    ),
    "flash decoding": (
        decodes.FLASH_DECODE, decodes.DecodeProblem(2, 8, 300, 64, kv_heads=2)
    ),
    "flash decoding, pages": (
        decodes.FLASH_DECODE, decodes.DecodeProblem(2, 8, 200, 128, kv_heads=2, page_size=32)
    ),
    "latent decoding": (latents.MLA_DECODE, latents.latent_problem(1, 70, heads=16)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SMALL))
def test_results_on_the_emulator(name: str) -> None:
    family, problem = SMALL[name]
    inputs = family.inputs(problem, np.random.default_rng(7))
    outputs = [np.zeros(s, numpy_dtype(dtype_of(d))) for s, d in family.outputs(problem)]
    kernel = tilecore.compile(family.build(problem, TARGET), "rocm_cdna3", device="emulator")
    kernel(*inputs, *outputs)
    for got, want in zip(outputs, family.reference(problem, *inputs), strict=True):
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
        assert error < 4e-3, f"relative error {error:.3g}"


BIG: list[Any] = [
    pytest.param(family, problem, id=f"{family.name}-{number}")
    for family in (
        gemms.GEMM, scaled.SCALED_GEMM, attentions.FLASH_ATTENTION, decodes.FLASH_DECODE,
        latents.MLA_DECODE,
    )
    for number, problem in enumerate(family.problems[:3])
]  # fmt: skip


@pytest.mark.parametrize(("family", "problem"), BIG)
def test_measured_sizes_compile_without_spills(
    compiler: Compiler, family: Any, problem: Any
) -> None:
    lowered = tilecore.lower(family.build(problem, TARGET), target=TARGET)
    figures = read_figures(assembly_of(lowered.source, TARGET))
    assert [k.name for k in lowered.source.kernels] and all(
        (figures[k.name].spilled, figures[k.name].scratch_bytes) == (0, 0)
        for k in lowered.source.kernels
    )
    assert "cdna3::mfma_" in lowered.source.text
