"""The one-hook backend of docs/writing-a-backend.md is asked, and what it answers computes."""

from __future__ import annotations

import re
import types
from pathlib import Path

import numpy as np

import tilecore
import tilecore.language as T
from tilecore.hooks.manager import register_backend, unregister_backend

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writing-a-backend.md"


@T.prim_func
def product(
    A: T.Tensor((64, 64), "float16"),
    B: T.Tensor((64, 64), "float16"),
    C: T.Tensor((64, 64), "float32"),
):
    with T.Kernel(1, threads=64):
        a = T.alloc_shared((64, 32), "float16")
        b = T.alloc_shared((32, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 32], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
        T.copy(c, C)


def test_one_hook_is_a_backend() -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    plugin = types.ModuleType("padded_plugin")
    exec(text, vars(plugin))
    register_backend("padded", plugin)
    try:
        kernel = tilecore.compile(product, "padded", device="emulator", out_idx=-1)
    finally:
        unregister_backend("padded")
    a, b = (np.random.standard_normal((64, 64)).astype(np.float16) for _ in "ab")
    assert np.allclose(kernel(a, b), a.astype(np.float64) @ b, atol=1e-3)
    assert "layout a = [2:2560, 64:40, 32:1]" in kernel.ir("scheduled")
