"""Moving NumPy arrays to where a target's kernels run, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilecore.target import Target
from tilecore_kernels.tiles import has_lanes


def runs_on_device(target: Target) -> bool:
    """True when kernels of this target take device tensors, False when they take host arrays."""
    return has_lanes(target) and target.device == "native"


def to_target(array: np.ndarray, target: Target) -> Any:
    """`array` as a tensor that a kernel of `target` can take: itself, or a torch device tensor."""
    if not runs_on_device(target):
        return array
    import torch

    raw = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy())
    dtype = getattr(torch, array.dtype.name)
    return raw.cuda().view(dtype).reshape(array.shape)


def to_host(tensor: Any) -> np.ndarray:
    """A tensor as a NumPy array (ml_dtypes where NumPy has no such dtype)."""
    if isinstance(tensor, np.ndarray):
        return tensor
    import torch

    from tilecore.ir.dtypes import dtype_of, numpy_dtype

    raw = tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return raw.view(numpy_dtype(dtype_of(tensor.dtype))).reshape(tuple(tensor.shape))


def synchronizer(target: Target) -> Callable[[], Any]:
    """A function that waits for all work launched on `target`."""
    import tilecore

    return lambda: tilecore.synchronize(target)
