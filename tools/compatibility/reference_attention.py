"""Stands in for the package ``flash_attn`` where it is not installed.

Programs of the list call two of its functions, for a reference or for its time. Here they are
computed with torch in 32 bits, after the package's own description: a query at place i of n sees,
when causal, keys up to place i + m - n of m; a head of queries uses the head of keys of its group.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import torch

PACKAGE = "flash_attn"


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None, causal: bool
) -> torch.Tensor:
    """One sequence: q (n, heads, d), k (m, kv heads, d), v (m, kv heads, dv); (n, heads, dv)."""
    groups = q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(groups, dim=1)
    values = v.float().repeat_interleave(groups, dim=1)
    scores = torch.einsum("nhd,mhd->hnm", q.float(), keys)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        n, m = scores.shape[1:]
        last = torch.arange(n, device=q.device)[:, None] + (m - n)
        hidden = torch.arange(m, device=q.device)[None, :] > last
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1))  # a query that sees no key: zeros
    return torch.einsum("hnm,mhd->nhd", weights, values).to(q.dtype)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Attention of sequences that lie one after another.

    Args:
        q: (sum of lengths, heads, d).
        k: (sum of lengths, kv heads, d).
        v: (sum of lengths, kv heads, dv).
        cu_seqlens_q: where each sequence of `q` begins, and the end of the last.
        cu_seqlens_k: the same for `k` and `v`.
        max_seqlen_q: the longest length; not needed here.
        max_seqlen_k: likewise.
        dropout_p: only 0.
        softmax_scale: of the products; 1 / sqrt(d) if None.
        causal: queries see no later keys; the ends of both sequences are aligned.
    """
    if dropout_p:
        raise NotImplementedError("dropout is not offered by this stand-in")
    starts, ends = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    parts = [
        _attend(q[a:b], k[c:d], v[c:d], softmax_scale, causal)
        for a, b, c, d in zip(starts, starts[1:], ends, ends[1:], strict=False)
    ]
    return torch.cat(parts)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Attention of a few queries over a cache.

    Args:
        q: (batch, n, heads, d).
        k_cache: (batch, m, kv heads, d), or pages (pages, places, kv heads, d).
        v_cache: the same with dv.
        cache_seqlens: (batch,) places of the cache that are in use.
        block_table: (batch, pages of a sequence) numbers of pages, in order.
        softmax_scale: as in `flash_attn_varlen_func`.
        causal: likewise.
    """
    outs = []
    for index, length in enumerate(cache_seqlens.tolist()):
        if block_table is None:
            keys, values = k_cache[index], v_cache[index]
        else:
            pages = block_table[index][: -(-length // k_cache.shape[1])].long()
            keys, values = k_cache[pages].flatten(0, 1), v_cache[pages].flatten(0, 1)
        outs.append(_attend(q[index], keys[:length], values[:length], softmax_scale, causal))
    return torch.stack(outs)


def _names_it(program: Path) -> bool:
    """True where a program, or a module beside it that it imports, names the package."""
    text = program.read_text(encoding="utf-8")
    if PACKAGE in text:
        return True
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    files = (program.with_name(f"{name}.py") for name in names)
    return any(one.is_file() and PACKAGE in one.read_text(encoding="utf-8") for one in files)


def offer(program: Path) -> bool:
    """Let a program that names the package, or imports a module beside it that does, import this.

    Not where the package itself is installed.
    """
    if not _names_it(program):
        return False
    found = importlib.util.find_spec(PACKAGE)
    if found is not None and found.origin is not None:  # more than a folder of other parts
        return False
    module = ModuleType(PACKAGE, __doc__)
    module.__spec__ = ModuleSpec(PACKAGE, None)
    for function in (flash_attn_varlen_func, flash_attn_with_kvcache):
        setattr(module, function.__name__, function)
    sys.modules[PACKAGE] = module
    return True
