"""TileLang's example of block-scaled 8-bit products, as a peer where TileLang is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from measuring import example_at

COLUMNS = (128, 64, 32, 16)
"""block_N of the example; its first ones that run are tried, and the best is its figure."""

Call = Callable[[], Any]
Timer = Callable[[Call], float]


def block_scaled(
    path: str, a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor,
    milliseconds: Timer,
) -> Call:  # fmt: skip
    """The fastest of the example's configurations, as a call.

    Args:
        path: the example ``example_deepgemm_fp8_2xAcc.py``: ``tl_gemm(A, B, scales_a, scales_b,
            block_N, in_dtype, out_dtype, accum_dtype)``, which returns C.
        a, b: (m, k) and (n, k), e4m3.
        of_a: factors of A, (k / 128, m).
        of_b: factors of B, (n / 128, k / 128).
        milliseconds: how long a call takes.

    Raises:
        RuntimeError: no configuration ran.
        ImportError: TileLang is not installed.
    """
    module = example_at(path)
    T = module.T
    factors = of_a.t().contiguous()
    best: tuple[float, Call | None] = (float("inf"), None)
    for columns in COLUMNS:

        def call(columns: int = columns) -> Any:
            return module.tl_gemm(
                a, b, factors, of_b, columns, T.float8_e4m3fn, T.bfloat16, T.float32
            )

        try:
            call()
            ms = milliseconds(call)
        except Exception as error:
            print(f"  tilelang block_N {columns}: {str(error)[:200]}", flush=True)
            continue
        print(f"  tilelang block_N {columns}: {ms:.4f} ms", flush=True)
        if ms < best[0]:
            best = (ms, call)
    if best[1] is None:
        raise RuntimeError("no configuration of TileLang's example ran")
    return best[1]
