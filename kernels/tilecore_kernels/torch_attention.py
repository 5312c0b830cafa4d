"""Attention as torch operators, forward and backward.

Tensors are (batch, heads, length, dim) in any strides whose last is 1: transposed views of
(batch, length, heads, dim) and slices of a fused projection are read where they lie.
"""

from __future__ import annotations

from typing import Any

import torch

from tilecore.errors import ArgumentError
from tilecore_kernels.attention_problem import AttentionProblem, Strides
from tilecore_kernels.torch_kernels import dtype_name, kernel_for, require_rank

Tensor = torch.Tensor


def problem_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    window: int,
    scale: float,
    has_lse: bool = False,
    deterministic: bool = False,
) -> AttentionProblem:
    """The problem that these arguments pose; the output is compact.

    Raises:
        ArgumentError: a tensor that is not four-dimensional, or whose last axis has a stride.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        require_rank(tensor, 4, name)
        if tensor.stride(3) != 1 and tensor.shape[3] > 1:
            raise ArgumentError(
                f"{name} has a strided last axis", expected="stride 1", got=tensor.stride(3)
            )
    batch, heads, q_len, dim = query.shape
    dim_v = value.shape[3]
    strides = None
    if not all(tensor.is_contiguous() for tensor in (query, key, value)):
        out = (heads * q_len * dim_v, q_len * dim_v, dim_v, 1)
        strides = Strides(query.stride(), key.stride(), value.stride(), out)
    return AttentionProblem(
        batch,
        heads,
        q_len,
        dim,
        dtype_name(query),
        kv_heads=key.shape[1],
        kv_len=key.shape[2],
        dim_v=dim_v,
        left=None if window < 0 else window,
        right=0 if causal else None,
        has_lse=has_lse,
        softmax_scale=scale or None,
        strides=strides,
        deterministic=deterministic,
    )


@torch.library.custom_op("tilecore::flash_attention", mutates_args=())
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    window: int = -1,
    scale: float = 0.0,
) -> Tensor:
    """Attention without gradients; fewer heads of keys than of queries is GQA.

    Args:
        query: (batch, heads, q_len, dim).
        key: (batch, kv_heads, kv_len, dim).
        value: (batch, kv_heads, kv_len, dim_v).
        causal: mask aligned to the bottom right.
        window: keys visible before the diagonal; negative is no limit.
        scale: factor of the scores; 0 means ``dim ** -0.5``.
    """
    problem = problem_of(query, key, value, causal, window, scale)
    out = query.new_empty(problem.shapes()["Out"])
    kernel_for("flash_attention", problem, query.device.type)(query, key, value, out)
    return out


@flash_attention.register_fake
def _(
    query: Any, key: Any, value: Any, causal: bool = False, window: int = -1, scale: float = 0.0
) -> Any:
    return query.new_empty(*query.shape[:3], value.shape[3])


@torch.library.custom_op("tilecore::attention_lse", mutates_args=())
def attention_lse(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, window: int, scale: float,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`flash_attention`, with the natural log-sum-exp (batch, heads, q_len) in float32;
    `deterministic` is for the gradients."""
    problem = problem_of(query, key, value, causal, window, scale, has_lse=True)
    out = query.new_empty(problem.shapes()["Out"])
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    kernel_for("flash_attention", problem, query.device.type)(query, key, value, out, lse)
    return out, lse


@attention_lse.register_fake
def _(
    query: Any, key: Any, value: Any, causal: bool, window: int, scale: float,
    deterministic: bool = False,
) -> Any:  # fmt: skip
    out = query.new_empty(*query.shape[:3], value.shape[3])
    return out, query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.custom_op("tilecore::attention_backward", mutates_args=())
def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    window: int,
    scale: float,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, in their strides.

    Args:
        grad: gradient of `out`, compact.
        query, key, value: as given to `attention_lse`.
        out, lse: what it returned.
        causal, window, scale: as given to it.
        deterministic: the same bits each time, from two kernels that add nothing in any order.
    """
    problem = problem_of(query, key, value, causal, window, scale, True, deterministic)
    grads = tuple(
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        for x in (query, key, value)
    )
    kernel = kernel_for("attention_backward", problem, query.device.type)
    kernel(query, key, value, out, lse, grad, *grads)
    return grads


@attention_backward.register_fake
def _(
    grad: Any, query: Any, key: Any, value: Any, out: Any, lse: Any,
    causal: bool, window: int, scale: float, deterministic: bool = False,
) -> Any:  # fmt: skip
    return tuple(
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        for x in (query, key, value)
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, *options = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(query, key, value, out, lse)
    ctx.options = options


def _gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    # Gradients of sums come as expanded views: made compact where they are not.
    grads = attention_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.options)
    return (*grads, None, None, None, None)


torch.library.register_autograd("tilecore::attention_lse", _gradients, setup_context=_save)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    window: int = -1,
    scale: float = 0.0,
    deterministic: bool = False,
) -> Tensor:
    """`flash_attention` with gradients; the log-sum-exp is kept for the backward pass.

    Gradients have the same bits each time where `deterministic` is set, or where torch is told to
    use deterministic algorithms; else the faster kernels compute them, which add in any order.
    """
    same = deterministic or torch.are_deterministic_algorithms_enabled()
    out, _ = attention_lse(query, key, value, causal, window, scale, same)
    return out
