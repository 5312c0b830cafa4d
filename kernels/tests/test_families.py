"""Every family: its programs mean what its reference says, and its configurations are legal."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilecore.errors import UnsupportedError
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.reference import run
from tilecore.target import Target
from tilecore_kernels import FAMILIES
from tilecore_kernels.attention_problem import (
    AttentionConfig,
    AttentionProblem,
    visible_pairs,
    with_heads_inside,
)
from tilecore_kernels.backward_problem import BackwardConfig
from tilecore_kernels.conv2d import Conv2dProblem
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem
from tilecore_kernels.elementwise import AddProblem, BiasActivationProblem
from tilecore_kernels.flash_attention import flash_attention
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig
from tilecore_kernels.gemm_grouped import GroupedGemmProblem
from tilecore_kernels.gemm_scaled import ScaledGemmProblem
from tilecore_kernels.gemv import GemvProblem
from tilecore_kernels.reduce import ReduceProblem
from tilecore_kernels.rms_norm import NormProblem
from tilecore_kernels.score_mods import Alibi, Softcap
from tilecore_kernels.softmax import SoftmaxProblem
from tilecore_kernels.transpose import TransposeProblem
from tilecore_kernels.varlen_problem import VarlenProblem

CORE = Target("host", "any")
LANES = (
    Target("wide", "large_memory", 32, 1024, 232_448, 255),
    Target("wide", "middle_memory", 32, 1024, 166_912, 255),
    Target("wide", "small_memory", 32, 1024, 101_376, 255),
    Target("wide", "wide_warps", 64, 1024, 65_536, 512),
)
"""Numbers of targets as they occur: warps of 32 and 64 lanes, 64 to 227 KiB of shared memory."""

FP8 = "float8_e4m3fn"
_UNEQUAL = ((33, 33), (3, 100), (0, 5), (40, 7), (1, 1))
SMALL: dict[str, tuple[Any, ...]] = {
    "add": (AddProblem(5, 33), AddProblem(1, 1, "float16"), AddProblem(0, 7)),
    "bias_activation": tuple(
        BiasActivationProblem(3, 65, name)
        for name in ("identity", "relu", "gelu", "gelu_tanh", "silu", "tanh")
    ),
    "softmax": (SoftmaxProblem(3, 33), SoftmaxProblem(2, 5000), SoftmaxProblem(1, 1)),
    "rms_norm": (NormProblem(3, 33), NormProblem(2, 70_000)),
    "layer_norm": (NormProblem(3, 33), NormProblem(2, 70_000)),
    "reduce": (
        ReduceProblem(3, 33), ReduceProblem(2, 70_000, "max"), ReduceProblem(3, 65, "min", "int8"),
        ReduceProblem(3, 65, "absmax", "float16"),
    ),
    "transpose": (TransposeProblem(33, 65), TransposeProblem(1, 7, "float16")),
    "gemm": (
        GemmProblem(33, 65, 17),
        GemmProblem(7, 5, 0),
        GemmProblem(33, 31, 65, "float16", transpose_a=True, has_bias=True, activation="gelu"),
        GemmProblem(31, 33, 64, "int8", transpose_b=True),
        GemmProblem(16, 16, 16, "float64", activation="relu"),
        GemmProblem(9, 17, 33, "float16", batch=3, transpose_b=True, has_bias=True),
    ),
    "grouped_gemm": (
        GroupedGemmProblem(70, 33, 24, 3),
        GroupedGemmProblem(5, 9, 16, 7, "float32"),
        GroupedGemmProblem(0, 9, 16, 2),
    ),
    "split_gemm": (
        GemmProblem(3, 65, 300, "float16"),
        GemmProblem(33, 31, 65, "float16", transpose_b=True),
    ),
    "conv2d": (
        Conv2dProblem(2, 6, 5, 4, 7),
        Conv2dProblem(1, 9, 8, 3, 5, kernel=5, stride=2, dilation=2, pad=3, has_bias=True),
        Conv2dProblem(3, 4, 4, 16, 8, kernel=1, pad=0, activation="relu"),
        Conv2dProblem(0, 4, 4, 8, 8),
        Conv2dProblem(1, 2, 2, 8, 8, pad=0),
    ),
    "gemv": (GemvProblem(65, 130), GemvProblem(33, 300, "float32", transpose_b=True)),
    "scaled_gemm": (
        ScaledGemmProblem(33, 65, 256),
        ScaledGemmProblem(33, 200, 384, "block"),
        ScaledGemmProblem(3, 5, 0, "block"),
    ),
    "flash_attention": (
        AttentionProblem(1, 2, 33, 16),
        AttentionProblem(2, 4, 17, 16, kv_heads=2, kv_len=33, right=0, has_lse=True),
        AttentionProblem(1, 2, 33, 16, kv_len=7, right=0),
        AttentionProblem(1, 2, 33, 16, kv_heads=1, left=5, right=0),
        AttentionProblem(2, 2, 9, 16, kv_len=33, padded=True),
        AttentionProblem(1, 1, 9, 16, dim_v=8, softmax_scale=0.5),
        AttentionProblem(1, 2, 9, 16, score_mod=lambda s, h, q, k: s - 0.1 * (q - k)),
        AttentionProblem(1, 4, 33, 16, right=0, score_mod=Alibi(4), has_lse=True),
        AttentionProblem(1, 2, 33, 16, score_mod=Softcap(0.5)),
        AttentionProblem(1, 2, 33, 16, right=0, lag=0.0, has_lse=True),
        AttentionProblem(1, 2, 33, 16, kv_len=7, right=0, has_sinks=True, has_lse=True),
        AttentionProblem(2, 2, 9, 16, kv_len=33, padded=True, has_sinks=True),
        with_heads_inside(AttentionProblem(2, 4, 33, 16, kv_heads=2, kv_len=17, dim_v=8)),
    ),
    "flash_attention_fp8": (
        AttentionProblem(1, 2, 33, 32, FP8),
        AttentionProblem(2, 4, 17, 32, FP8, kv_heads=2, kv_len=70, right=0, has_lse=True),
        AttentionProblem(1, 2, 33, 32, FP8, kv_len=7, right=0, dim_v=64, has_lse=True),
    ),
    "attention_backward": (
        AttentionProblem(1, 2, 33, 16, has_lse=True),
        AttentionProblem(2, 4, 17, 16, kv_heads=2, kv_len=33, right=0, has_lse=True),
        AttentionProblem(1, 2, 33, 16, kv_len=7, right=0, dim_v=8, has_lse=True),
        AttentionProblem(2, 2, 40, 16, kv_heads=1, left=5, right=3, padded=True),
        with_heads_inside(AttentionProblem(2, 2, 33, 16, "float16", right=0, has_lse=True)),
    ),
    "flash_decode": (
        DecodeProblem(1, 4, 33, 16),
        DecodeProblem(3, 8, 130, 16, kv_heads=2, dim_v=32, heads_inside=True),
        DecodeProblem(2, 4, 70, 16, "bfloat16", kv_heads=1, page_size=16),
        DecodeProblem(2, 4, 530, 16, kv_heads=2, page_size=64, pages=30, heads_inside=True),
    ),
    "flash_varlen": (
        VarlenProblem(4, 16, 40, kv_heads=2, right=0, lengths=_UNEQUAL),
        VarlenProblem(2, 16, 64, "float32", dim_v=8, left=9, right=3, lengths=_UNEQUAL),
        VarlenProblem(2, 16, 40, right=0, page_size=16, max_pages=7, lengths=_UNEQUAL),
        VarlenProblem(2, 16, 40, page_size=64, max_pages=2, lengths=((1, 70),)),
    ),
    "varlen_backward": (
        VarlenProblem(4, 16, 40, kv_heads=2, right=0, lengths=_UNEQUAL),
        VarlenProblem(2, 16, 64, "float32", dim_v=8, left=9, right=3, lengths=_UNEQUAL),
        VarlenProblem(1, 8, 300, lengths=((0, 0), (130, 0), (0, 3), (65, 290))),
    ),
    "mla_decode": (
        DecodeProblem(2, 20, 70, 48, kv_heads=1, dim_v=32),
        DecodeProblem(2, 4, 530, 48, kv_heads=1, dim_v=32, page_size=64),
    ),
}  # fmt: skip
PROBLEMS = [(name, problem) for name, problems in SMALL.items() for problem in problems]


def _label(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _check(name: str, problem: Any, config: Any) -> None:
    """Run a program in float64 and compare: only the program's own logic can differ."""
    family = FAMILIES[name]
    program = family.program(problem, config).program
    arrays = family.inputs(problem, np.random.default_rng(0))
    outputs = [
        np.zeros(shape, numpy_dtype(dtype_of(dtype))) for shape, dtype in family.outputs(problem)
    ]
    names = [param.name for param in program.params]
    arguments = dict(zip(names, (*arrays, *outputs), strict=True))
    results = run(program, arguments, check_uninitialised=True)
    wanted = family.reference(problem, *arrays)
    for parameter, value in zip(names[len(arrays) :], wanted, strict=True):
        got = results.get(parameter, outputs[names.index(parameter) - len(arrays)])
        np.testing.assert_allclose(got.astype(np.float64), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "problem"), PROBLEMS, ids=_label)
def test_program_means_its_reference_on_a_core(name: str, problem: Any) -> None:
    _check(name, problem, FAMILIES[name].default_config(problem, CORE))


@pytest.mark.parametrize(("name", "problem"), PROBLEMS, ids=_label)
def test_program_means_its_reference_on_lanes(name: str, problem: Any) -> None:
    _check(name, problem, FAMILIES[name].default_config(problem, LANES[3]))


@pytest.mark.parametrize("name", ["flash_decode", "mla_decode"])
@pytest.mark.parametrize(("page", "tile"), [(64, 48), (32, 48), (128, 96)])
def test_tiles_of_keys_may_straddle_pages(name: str, page: int, tile: int) -> None:
    problem = DecodeProblem(2, 4, 530, 16, kv_heads=1, dim_v=16, page_size=page)
    _check(name, problem, DecodeConfig(16, tile, 2, 128, 2))


@pytest.mark.parametrize("target", [CORE, *LANES], ids=lambda target: target.arch)
@pytest.mark.parametrize("name", FAMILIES)
def test_configs_exist_and_do_not_repeat(name: str, target: Target) -> None:
    family = FAMILIES[name]
    for problem in (*family.problems, *SMALL[name]):
        configs = family.configs(problem, target)
        assert configs, f"no legal configuration for {problem}"
        assert len(set(configs)) == len(configs)
        if target.max_threads:
            assert all(c.threads <= target.max_threads for c in configs)
            assert all(c.threads % target.lanes_per_warp == 0 for c in configs)


@pytest.mark.parametrize("target", LANES, ids=lambda target: target.arch)
def test_gemm_configs_fit_shared_memory(target: Target) -> None:
    for config in FAMILIES["gemm"].configs(GemmProblem(4096, 4096, 4096, "float16"), target):
        assert isinstance(config, GemmConfig)
        row_bytes = 2 * config.block_k
        used = config.num_stages * (config.block_m + config.block_n) * row_bytes
        assert used <= target.smem_bytes


def test_gemm_prefers_large_tiles_for_large_problems() -> None:
    for target in LANES:
        large = FAMILIES["gemm"].default_config(GemmProblem(8192, 8192, 8192, "float16"), target)
        small = FAMILIES["gemm"].default_config(GemmProblem(64, 64, 8192, "float16"), target)
        assert large.block_m * large.block_n >= 128 * 128
        assert small.block_m * small.block_n <= 64 * 64


def test_attention_program_is_short() -> None:
    """The tile program is what an author reads: under 120 lines with everything it covers."""
    assert len(inspect.getsource(flash_attention).splitlines()) < 120


def test_tiles_do_not_change_the_answer() -> None:
    problem = AttentionProblem(1, 2, 37, 16, kv_len=53, right=0, left=20, has_lse=True)
    for block_q, block_k in ((16, 16), (64, 16), (16, 64), (7, 13)):
        _check("flash_attention", problem, AttentionConfig(block_q, block_k, 2, 64))


@pytest.mark.parametrize("problem", SMALL["attention_backward"], ids=str)
@pytest.mark.parametrize("adds", [False, True])
def test_both_variants_of_gradients_mean_the_same(problem: AttentionProblem, adds: bool) -> None:
    _check("attention_backward", problem, BackwardConfig(16, 16, 16, 16, 2, 64, adds))


def test_additions_in_any_order_are_not_deterministic() -> None:
    problem = AttentionProblem(1, 2, 33, 16, has_lse=True, deterministic=True)
    for target in LANES:
        configs = FAMILIES["attention_backward"].configs(problem, target)
        assert configs and not any(config.adds for config in configs)
    with pytest.raises(UnsupportedError, match="any order"):
        FAMILIES["attention_backward"].program(problem, BackwardConfig(16, 16, 16, 16, 2, 64, True))


def test_masks_are_aligned_to_the_bottom_right() -> None:
    problem = AttentionProblem(1, 1, 2, 8, kv_len=4, right=0)
    assert visible_pairs(problem).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert visible_pairs(replace(problem, left=1)).tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(("lag", "most"), [(0.0, 1.015), (8.0, 1.2)])
@pytest.mark.parametrize("factor", [1, 8])
def test_error_follows_the_lag(lag: float, most: float, factor: int) -> None:
    """Mean error of float16 attention over that of an algorithm that rescales at each maximum."""
    from tilecore import compile as compile_program

    problem = AttentionProblem(1, 2, 128, 64, "float16", kv_len=1024, lag=lag)
    q, k, v = FAMILIES["flash_attention"].inputs(problem, np.random.default_rng(0))
    q = (q * factor).astype(np.float16)
    out = np.zeros(q.shape, np.float16)
    program = flash_attention(problem, AttentionConfig(128, 64, 1, 128))
    compile_program(program, backend="cpu_llvm")(q, k, v, out)
    (want,) = FAMILIES["flash_attention"].reference(problem, q, k, v)
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), k.astype(np.float64))
    peer = _rescaled_at_each_maximum(scores * problem.scale, v, 64)
    ratio = np.abs(out - want).mean() / np.abs(peer - want).mean()
    assert ratio < most
    if lag:
        assert ratio > 1.01  # else there would be no reason for a default of 0


def test_error_is_that_of_rescaling_at_each_maximum_unless_asked_otherwise() -> None:
    assert AttentionProblem(1, 4, 8, 8).lag == VarlenProblem(4, 8, 8).lag == 0.0


def _rescaled_at_each_maximum(scores: np.ndarray, v: np.ndarray, tile: int) -> np.ndarray:
    """Online softmax in float64 but for weights and results, which are float16."""
    anchor = np.full(scores.shape[:-1], -1e30)
    total, out = np.zeros(anchor.shape), np.zeros((*anchor.shape, v.shape[-1]))
    for first in range(0, scores.shape[-1], tile):
        part = scores[..., first : first + tile]
        new = np.maximum(anchor, part.max(axis=-1))
        factor, anchor = np.exp(anchor - new), new
        weights = np.exp(part - anchor[..., None])
        total = total * factor + weights.sum(axis=-1)
        rounded = weights.astype(np.float16).astype(np.float64)
        values = v[:, :, first : first + tile].astype(np.float64)
        out = out * factor[..., None] + rounded @ values
    return (out / total[..., None]).astype(np.float16).astype(np.float64)


def test_wrong_problems_are_refused() -> None:
    from tilecore.errors import LanguageError

    for lag in (-1.0, 16.0, float("nan")):
        with pytest.raises(LanguageError, match="lag"):
            AttentionProblem(1, 4, 8, 8, lag=lag)
        with pytest.raises(LanguageError, match="lag"):
            VarlenProblem(4, 8, 8, lag=lag)

    with pytest.raises(LanguageError, match="multiple"):
        AttentionProblem(1, 4, 8, 8, kv_heads=3)
    for scale in (-1.0, 0.0, float("nan")):
        for make in (
            lambda scale: AttentionProblem(1, 4, 8, 8, softmax_scale=scale),
            lambda scale: VarlenProblem(4, 8, 8, softmax_scale=scale),
            lambda scale: DecodeProblem(1, 4, 8, 8, softmax_scale=scale),
        ):
            with pytest.raises(LanguageError, match="positive"):
                make(scale)
