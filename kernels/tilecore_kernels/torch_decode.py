"""Decoding as torch operators: one new token a sequence against a cache."""

from __future__ import annotations

from typing import Any

import torch

from tilecore_kernels.decode_problem import DecodeProblem
from tilecore_kernels.torch_kernels import dtype_name, kernel_for, require_rank

Tensor = torch.Tensor


def _capacity(cache: Tensor, table: Tensor | None, axis: int) -> tuple[int, int]:
    """(keys of a sequence at most, keys of a page or 0)."""
    if table is None:
        return cache.shape[axis], 0
    return table.shape[1] * cache.shape[axis], cache.shape[axis]


@torch.library.custom_op("tilecore::flash_decode", mutates_args=())
def flash_decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor,
    table: Tensor | None = None,
    heads_inside: bool = False,
    scale: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention of one query a sequence; returns O and the natural log-sum-exp in float32.

    Args:
        query: (batch, heads, dim).
        key: (batch, kv_heads, length, dim), with a table (pages, kv_heads, page, dim).
        value: the same with dim_v.
        lengths: int32 (batch,), keys of each sequence; what lies behind must be finite.
        table: int32 (batch, pages of a sequence), or None.
        heads_inside: the cache's heads stand behind its length: (batch, length, kv_heads, dim).
        scale: factor of the scores; 0 means ``dim ** -0.5``.
    """
    require_rank(query, 3, "query")
    require_rank(key, 4, "key")
    batch, heads, dim = query.shape
    kv_len, page_size = _capacity(key, table, 1 if heads_inside else 2)
    kv_heads, dim_v = key.shape[2 if heads_inside else 1], value.shape[3]
    problem = DecodeProblem(
        batch, heads, kv_len, dim, dtype_name(query), kv_heads, dim_v, page_size,
        key.shape[0] if page_size else 0, heads_inside, scale or None,
    )  # fmt: skip
    group = heads // kv_heads
    out = query.new_empty(batch, kv_heads, group, dim_v)
    lse = query.new_empty(batch, kv_heads, group, dtype=torch.float32)
    rest = (lengths,) if table is None else (lengths, table)
    rows = query.view(batch, kv_heads, group, dim)
    kernel_for("flash_decode", problem, query.device.type)(rows, key, value, *rest, out, lse)
    return out.view(batch, heads, dim_v), lse.view(batch, heads)


@flash_decode.register_fake
def _(
    query: Any, key: Any, value: Any, lengths: Any, table: Any = None,
    heads_inside: bool = False, scale: float = 0.0,
) -> Any:  # fmt: skip
    batch, heads, _ = query.shape
    lse = query.new_empty(batch, heads, dtype=torch.float32)
    return query.new_empty(batch, heads, value.shape[3]), lse


@torch.library.custom_op("tilecore::mla_decode", mutates_args=())
def mla_decode(
    query: Tensor,
    cache: Tensor,
    lengths: Tensor,
    dim_v: int,
    table: Tensor | None = None,
    scale: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Latent attention of one query a sequence; returns O and the natural log-sum-exp.

    Args:
        query: (batch, heads, dim).
        cache: (batch, length, dim), with a table (pages, page, dim); the first `dim_v` columns
            are the values, too.
        lengths: int32 (batch,), keys of each sequence; what lies behind must be finite.
        dim_v: latent columns.
        table: int32 (batch, pages of a sequence), or None.
        scale: factor of the scores; 0 means ``dim ** -0.5``.
    """
    require_rank(query, 3, "query")
    require_rank(cache, 3, "cache")
    batch, heads, dim = query.shape
    kv_len, page_size = _capacity(cache, table, 1)
    problem = DecodeProblem(
        batch, heads, kv_len, dim, dtype_name(query), 1, dim_v, page_size,
        cache.shape[0] if page_size else 0, softmax_scale=scale or None,
    )  # fmt: skip
    out = query.new_empty(batch, 1, heads, dim_v)
    lse = query.new_empty(batch, 1, heads, dtype=torch.float32)
    rest = (lengths,) if table is None else (lengths, table)
    rows = query.view(batch, 1, heads, dim)
    kernel = kernel_for("mla_decode", problem, query.device.type)
    kernel(rows, cache.unsqueeze(1), *rest, out, lse)
    return out.view(batch, heads, dim_v), lse.view(batch, heads)


@mla_decode.register_fake
def _(
    query: Any, cache: Any, lengths: Any, dim_v: int, table: Any = None, scale: float = 0.0
) -> Any:
    batch, heads, _ = query.shape
    lse = query.new_empty(batch, heads, dtype=torch.float32)
    return query.new_empty(batch, heads, dim_v), lse
