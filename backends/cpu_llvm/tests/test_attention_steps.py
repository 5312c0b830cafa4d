"""Attention whose products run under its softmax, against its reference, in all its variants."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilecore
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.score_mods import Softcap

PLAIN = AttentionProblem(2, 2, 130, 64, "bfloat16")
PROBLEMS = {
    "full": PLAIN,
    "causal": replace(PLAIN, right=0),
    "window": replace(PLAIN, left=40, right=0),
    "look ahead": replace(PLAIN, left=0, right=70),
    "one query": replace(PLAIN, q_len=1, kv_len=200),
    "few keys": replace(PLAIN, kv_len=31),
    "no keys": replace(PLAIN, kv_len=0, has_lse=True),
    "rows without keys": replace(PLAIN, kv_len=70, right=0, has_lse=True),
    "shared heads": replace(PLAIN, heads=4, kv_heads=1, kv_len=257),
    "padded": replace(PLAIN, padded=True, kv_len=150),
    "sinks": replace(PLAIN, has_sinks=True, right=0, has_lse=True),
    "score function": replace(PLAIN, score_mod=Softcap(10.0)),
    "no slack": replace(PLAIN, lag=0.0),
    "wide": replace(PLAIN, dim=128, dim_v=96),
}


@pytest.mark.parametrize("tile", [(32, 64), (64, 128)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_variants(name: str, tile: tuple[int, int]) -> None:
    problem = PROBLEMS[name]
    config = AttentionConfig(*tile, 1, 128)
    kernel = tilecore.compile(FLASH_ATTENTION.program(problem, config), "cpu_llvm")
    arrays = FLASH_ATTENTION.inputs(problem, np.random.default_rng(len(name)))
    want = FLASH_ATTENTION.reference(problem, *arrays)
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
    got = [np.full(shape, 7, kinds[dtype]) for shape, dtype in FLASH_ATTENTION.outputs(problem)]
    kernel(*arrays, *got)
    for value, right in zip(got, want, strict=True):
        np.testing.assert_allclose(
            value.astype(np.float64), right.astype(np.float64), rtol=3e-2, atol=2e-2
        )
