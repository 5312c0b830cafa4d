"""The kernels as torch operators: ``torch.ops.tilecore.*``, usable under torch.compile.

Importing this module registers them. Each call compiles its problem once (and finds it again by
the arguments' shapes, dtypes and device). Inputs must be contiguous; nothing is copied silently.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tilecore import installed_backends
from tilecore.errors import ArgumentError, BackendError
from tilecore.targets import present_device
from tilecore_kernels import compile_kernel
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.rms_norm import NormProblem
from tilecore_kernels.softmax import SoftmaxProblem
from tilecore_kernels.tiles import has_lanes


@functools.lru_cache(maxsize=8)
def backend_for(device_type: str) -> str:
    """The installed backend whose kernels take tensors of this torch device type.

    Raises:
        BackendError: none is installed, or none finds a device.
    """
    ranked = []
    for name in installed_backends():
        found = present_device(name)
        if found is not None and has_lanes(found[0]) == (device_type != "cpu"):
            ranked.append((len(found[0].capabilities), name))
    if not ranked:
        raise BackendError(f"no installed backend runs on torch device {device_type!r}")
    return max(ranked)[1]


@functools.lru_cache(maxsize=1024)
def _kernel(name: str, problem: Any, device_type: str) -> Any:
    return compile_kernel(name, problem, backend_for(device_type))


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _require_rank(tensor: torch.Tensor, rank: int, name: str) -> None:
    if tensor.dim() != rank:
        raise ArgumentError(f"{name} has the wrong number of axes", expected=rank, got=tensor.dim())


@torch.library.custom_op("tilecore::flash_attention", mutates_args=())
def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool = False,
    window: int = -1,
    scale: float = 0.0,
) -> torch.Tensor:
    """Attention over (batch, heads, length, dim); fewer heads of keys than of queries is GQA.

    Args:
        query: (batch, heads, q_len, dim).
        key: (batch, kv_heads, kv_len, dim).
        value: (batch, kv_heads, kv_len, dim_v).
        causal: mask aligned to the bottom right.
        window: keys visible before the diagonal; negative is no limit.
        scale: factor of the scores; 0 means ``dim ** -0.5``.
    """
    _require_rank(query, 4, "query")
    batch, heads, q_len, dim = query.shape
    problem = AttentionProblem(
        batch,
        heads,
        q_len,
        dim,
        _dtype_name(query),
        kv_heads=key.shape[1],
        kv_len=key.shape[2],
        dim_v=value.shape[3],
        left=None if window < 0 else window,
        right=0 if causal else None,
        softmax_scale=scale or None,
    )
    out = query.new_empty(batch, heads, q_len, value.shape[3])
    _kernel("flash_attention", problem, query.device.type)(query, key, value, out)
    return out


@flash_attention.register_fake
def _(
    query: Any, key: Any, value: Any, causal: bool = False, window: int = -1, scale: float = 0.0
) -> Any:
    return query.new_empty(*query.shape[:3], value.shape[3])


@torch.library.custom_op("tilecore::linear", mutates_args=())
def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "identity",
) -> torch.Tensor:
    """``activation(x @ weight.T + bias)`` for x of (..., k) and weight of (n, k)."""
    _require_rank(weight, 2, "weight")
    n, k = weight.shape
    rows = x.reshape(-1, k)
    problem = GemmProblem(
        rows.shape[0],
        n,
        k,
        _dtype_name(x),
        transpose_b=True,
        has_bias=bias is not None,
        activation=activation,
    )
    out = x.new_empty(rows.shape[0], n)
    operands = (rows, weight) if bias is None else (rows, weight, bias)
    _kernel("gemm", problem, x.device.type)(*operands, out)
    return out.reshape(*x.shape[:-1], n)


@linear.register_fake
def _(x: Any, weight: Any, bias: Any = None, activation: str = "identity") -> Any:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


@torch.library.custom_op("tilecore::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax along the last axis."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    problem = SoftmaxProblem(*rows.shape, _dtype_name(x))
    _kernel("softmax", problem, x.device.type)(rows, out)
    return out.reshape(x.shape)


@softmax.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x)


@torch.library.custom_op("tilecore::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """RMS norm along the last axis."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    problem = NormProblem(*rows.shape, _dtype_name(x), eps)
    _kernel("rms_norm", problem, x.device.type)(rows, weight, out)
    return out.reshape(x.shape)


@rms_norm.register_fake
def _(x: Any, weight: Any, eps: float = 1e-5) -> Any:
    return torch.empty_like(x)


@torch.library.custom_op("tilecore::layer_norm", mutates_args=())
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    """Layer norm along the last axis."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    problem = NormProblem(*rows.shape, _dtype_name(x), eps)
    _kernel("layer_norm", problem, x.device.type)(rows, weight, bias, out)
    return out.reshape(x.shape)


@layer_norm.register_fake
def _(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    return torch.empty_like(x)
