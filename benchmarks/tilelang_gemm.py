"""TileLang's example of block-scaled 8-bit products, as a peer where TileLang is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measuring import example_at, fastest

COLUMNS = (128, 64, 32, 16)
"""block_N of the example; its first ones that run are tried, and the best is its figure."""


def block_scaled(
    path: str, a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor
) -> Callable[[], Any]:
    """The fastest of the example's configurations, as a call.

    Args:
        path: the example ``example_deepgemm_fp8_2xAcc.py``: ``tl_gemm(A, B, scales_a, scales_b,
            block_N, in_dtype, out_dtype, accum_dtype)``, which returns C.
        a, b: (m, k) and (n, k), e4m3.
        of_a: factors of A, (k / 128, m).
        of_b: factors of B, (n / 128, k / 128).

    Raises:
        RuntimeError: no configuration ran.
        ImportError: TileLang is not installed.
    """
    module = example_at(path)
    T = module.T
    factors = of_a.t().contiguous()

    def with_columns(columns: int) -> Callable[[], Any]:
        dtypes = (T.float8_e4m3fn, T.bfloat16, T.float32)
        return partial(module.tl_gemm, a, b, factors, of_b, columns, *dtypes)

    candidates = (
        (f"tilelang block_N {columns}", partial(with_columns, columns)) for columns in COLUMNS
    )
    return fastest(candidates, settle=10, measure=20)
