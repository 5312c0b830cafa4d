"""Attention over packed sequences as torch operators, forward and backward."""

from __future__ import annotations

from typing import Any

import torch

from tilecore.errors import UnsupportedError
from tilecore_kernels.tiles import pow2_at_least
from tilecore_kernels.torch_kernels import dtype_name, kernel_for, require_rank
from tilecore_kernels.varlen_problem import VarlenProblem

Tensor = torch.Tensor


def problem_of(
    query: Tensor, key: Tensor, value: Tensor, max_q: int, table: Tensor | None,
    causal: bool, window: int, scale: float,
) -> VarlenProblem:  # fmt: skip
    """The problem that these arguments pose.

    Raises:
        ArgumentError: a tensor with another number of axes.
    """
    require_rank(query, 3, "query")
    require_rank(key, 3 if table is None else 4, "key")
    _, heads, dim = query.shape
    return VarlenProblem(
        heads, dim, pow2_at_least(max_q), dtype_name(query), key.shape[-2], value.shape[-1],
        None if window < 0 else window, 0 if causal else None,
        0 if table is None else key.shape[1], 0 if table is None else table.shape[1],
        scale or None,
    )  # fmt: skip


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

    O has gradients, the log-sum-exp has none; nor has anything where keys lie in pages. One
    compiled kernel serves all numbers of sequences and rows, and all `max_q` up to the same power
    of two.

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
    problem = problem_of(query, key, value, max_q, table, causal, window, scale)
    total, heads, _ = query.shape
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


@torch.library.custom_op("tilecore::varlen_backward", mutates_args=())
def varlen_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    out: Tensor,
    lse: Tensor,
    max_q: int,
    causal: bool,
    window: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; zeros in rows that belong to no sequence.

    They are sums that come in any order, so that last bits differ from time to time.

    Args:
        grad: gradient of `out`, compact.
        query, key, value, starts_q, starts_k, max_q: as given to `flash_varlen`, without a table.
        out, lse: what it returned.
        causal, window, scale: as given to it.
    """
    problem = problem_of(query, key, value, max_q, None, causal, window, scale)
    grads = tuple(torch.zeros_like(x) for x in (query, key, value))
    kernel = kernel_for("varlen_backward", problem, query.device.type)
    kernel(query, key, value, starts_q, starts_k, out, lse, grad, *grads)
    return grads


@varlen_backward.register_fake
def _(
    grad: Any, query: Any, key: Any, value: Any, starts_q: Any, starts_k: Any, out: Any, lse: Any,
    max_q: int, causal: bool, window: int, scale: float,
) -> Any:  # fmt: skip
    return tuple(torch.empty_like(x) for x in (query, key, value))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, starts_q, starts_k, max_q, table, *options = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(query, key, value, starts_q, starts_k, out, lse)
    ctx.options, ctx.has_table = (max_q, *options), table is not None


def _gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    """Gradients of the first three arguments.

    Raises:
        UnsupportedError: keys in pages; torch was told to use deterministic algorithms.
    """
    if ctx.has_table:
        raise UnsupportedError("flash_varlen has no gradients of keys in pages")
    if torch.are_deterministic_algorithms_enabled():
        raise UnsupportedError("flash_varlen's gradients are sums that come in any order")
    # Gradients of sums come as expanded views: made compact where they are not.
    grads = varlen_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.options)
    return (*grads, None, None, None, None, None, None, None)


torch.library.register_autograd("tilecore::flash_varlen", _gradients, setup_context=_save)
