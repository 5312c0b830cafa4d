"""Comparing tensors, and torch dtypes by name."""

from __future__ import annotations

from typing import Any

from tilecore.compat.supply import TensorSupplyType, get_tensor_supply, torch_dtype
from tilecore.ir.dtypes import dtype_of


def map_torch_type(name: Any) -> Any:
    """The torch dtype for a dtype's name."""
    return torch_dtype(dtype_of(str(name)))


def torch_assert_close(
    tensor_a: Any,
    tensor_b: Any,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    equal_nan: bool = True,
    check_device: bool = True,
    check_dtype: bool = True,
    check_stride: bool = False,
    base_name: str = "LHS",
    ref_name: str = "RHS",
) -> bool:
    """Compare two tensors elementwise, and allow a ratio of elements to differ.

    Raises:
        AssertionError: shapes or dtypes differ, or more than `max_mismatched_ratio` of the
            elements differ by more than ``atol + rtol * |tensor_b|``.
    """
    import torch

    assert tensor_a.shape == tensor_b.shape, f"{base_name} and {ref_name} differ in shape"
    assert not check_dtype or tensor_a.dtype == tensor_b.dtype, (
        f"dtypes differ: {base_name} {tensor_a.dtype}, {ref_name} {tensor_b.dtype}"
    )
    wide = torch.complex128 if tensor_a.is_complex() else torch.float64
    left, right = tensor_a.detach().cpu().to(wide), tensor_b.detach().cpu().to(wide)
    wrong = ~torch.isclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan)
    count, total = int(wrong.sum()), wrong.numel()
    if verbose:
        print(f"{count} of {total} elements of {base_name} and {ref_name} differ")
    if count > max_mismatched_ratio * total:
        place = tuple(int(index) for index in wrong.nonzero()[0])
        raise AssertionError(
            f"{count} of {total} elements differ, at most {max_mismatched_ratio:.2%} may; first "
            f"at {place}: {base_name} {float(left[place])}, {ref_name} {float(right[place])}"
        )
    return True


__all__ = ["TensorSupplyType", "get_tensor_supply", "map_torch_type", "torch_assert_close"]
