"""The kernels as torch operators: ``torch.ops.tilecore.*``, usable under torch.compile.

Importing this module registers them. Each call compiles its problem once (and finds it again by
the arguments' shapes, dtypes and device). Inputs must be contiguous, but for attention's, which may
have any strides with a contiguous last axis; nothing is copied silently.
"""

from __future__ import annotations

from typing import Any

import torch

from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.rms_norm import NormProblem
from tilecore_kernels.softmax import SoftmaxProblem
from tilecore_kernels.torch_attention import attention, flash_attention
from tilecore_kernels.torch_decode import flash_decode, mla_decode
from tilecore_kernels.torch_kernels import backend_for, dtype_name, kernel_for, require_rank
from tilecore_kernels.torch_varlen import flash_varlen

__all__ = [
    "attention",
    "backend_for",
    "flash_attention",
    "flash_decode",
    "flash_varlen",
    "layer_norm",
    "linear",
    "mla_decode",
    "rms_norm",
    "softmax",
]


@torch.library.custom_op("tilecore::linear", mutates_args=())
def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "identity",
) -> torch.Tensor:
    """``activation(x @ weight.T + bias)`` for x of (..., k) and weight of (n, k)."""
    require_rank(weight, 2, "weight")
    n, k = weight.shape
    rows = x.reshape(-1, k)
    problem = GemmProblem(
        rows.shape[0],
        n,
        k,
        dtype_name(x),
        transpose_b=True,
        has_bias=bias is not None,
        activation=activation,
    )
    out = x.new_empty(rows.shape[0], n)
    operands = (rows, weight) if bias is None else (rows, weight, bias)
    kernel_for("gemm", problem, x.device.type)(*operands, out)
    return out.reshape(*x.shape[:-1], n)


@linear.register_fake
def _(x: Any, weight: Any, bias: Any = None, activation: str = "identity") -> Any:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


@torch.library.custom_op("tilecore::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax along the last axis."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    problem = SoftmaxProblem(*rows.shape, dtype_name(x))
    kernel_for("softmax", problem, x.device.type)(rows, out)
    return out.reshape(x.shape)


@softmax.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x)


@torch.library.custom_op("tilecore::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """RMS norm along the last axis."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    problem = NormProblem(*rows.shape, dtype_name(x), eps)
    kernel_for("rms_norm", problem, x.device.type)(rows, weight, out)
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
    problem = NormProblem(*rows.shape, dtype_name(x), eps)
    kernel_for("layer_norm", problem, x.device.type)(rows, weight, bias, out)
    return out.reshape(x.shape)


@layer_norm.register_fake
def _(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    return torch.empty_like(x)
