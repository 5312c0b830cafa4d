"""Attention over packed sequences as a torch operator."""

from __future__ import annotations

from typing import Any

import torch

from tilecore_kernels.tiles import pow2_at_least
from tilecore_kernels.torch_kernels import dtype_name, kernel_for, require_rank
from tilecore_kernels.varlen_problem import VarlenProblem

Tensor = torch.Tensor


@torch.library.custom_op("tilecore::flash_varlen", mutates_args=())
def flash_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    max_q: int,
    table: Tensor | None = None,
    causal: bool = False,
    window: int = -1,
    scale: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention within each of some packed sequences; returns O and the natural log-sum-exp.

    One compiled kernel serves all numbers of sequences and rows, and all `max_q` up to the same
    power of two.

    Args:
        query: (total_q, heads, dim).
        key: (total_k, kv_heads, dim), with a table (pages, page, kv_heads, dim).
        value: the same with dim_v.
        starts_q, starts_k: int32 (batch + 1,), where the sequences start, and the last one's end.
        max_q: no sequence has more queries.
        table: int32 (batch, pages of a sequence), or None.
        causal: mask aligned to each sequence's bottom right.
        window: keys visible before the diagonal; negative is no limit.
        scale: factor of the scores; 0 means ``dim ** -0.5``.
    """
    require_rank(query, 3, "query")
    require_rank(key, 3 if table is None else 4, "key")
    total, heads, dim = query.shape
    problem = VarlenProblem(
        heads, dim, pow2_at_least(max_q), dtype_name(query), key.shape[-2], value.shape[-1],
        None if window < 0 else window, 0 if causal else None,
        0 if table is None else key.shape[1], 0 if table is None else table.shape[1],
        scale or None,
    )  # fmt: skip
    out = query.new_empty(total, heads, value.shape[-1])
    lse = query.new_empty(heads, total, dtype=torch.float32)
    rest = (starts_q, starts_k) if table is None else (starts_q, starts_k, table)
    kernel_for("flash_varlen", problem, query.device.type)(query, key, value, *rest, out, lse)
    return out, lse


@flash_varlen.register_fake
def _(
    query: Any, key: Any, value: Any, starts_q: Any, starts_k: Any, max_q: int, table: Any = None,
    causal: bool = False, window: int = -1, scale: float = 0.0,
) -> Any:  # fmt: skip
    total, heads, _ = query.shape
    lse = query.new_empty(heads, total, dtype=torch.float32)
    return query.new_empty(total, heads, value.shape[-1]), lse
