"""Kernels for torch tensors: which backend takes them, and compiled problems by their record."""

from __future__ import annotations

import functools
from typing import Any

import torch

from tilecore import installed_backends
from tilecore.errors import ArgumentError, BackendError
from tilecore.targets import present_device
from tilecore_kernels import compile_kernel
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
def kernel_for(name: str, problem: Any, device_type: str) -> Any:
    """The compiled kernel of a problem of the family `name`."""
    return compile_kernel(name, problem, backend_for(device_type))


def dtype_name(tensor: torch.Tensor) -> str:
    """The name of a tensor's dtype, as problems spell it."""
    return str(tensor.dtype).removeprefix("torch.")


def require_rank(tensor: torch.Tensor, rank: int, name: str) -> None:
    """Refuse a tensor with another number of axes.

    Raises:
        ArgumentError: it has not `rank` axes.
    """
    if tensor.dim() != rank:
        raise ArgumentError(f"{name} has the wrong number of axes", expected=rank, got=tensor.dim())
