"""Which 8-bit floats a platform computes in: every backend here takes the ``fn`` kinds."""

from __future__ import annotations

from typing import Any

from tilecore.errors import ArgumentError

_NAMES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def determine_fp8_type(fp8_format: str = "e4m3") -> str:
    """The dtype's name for ``"e4m3"`` or ``"e5m2"``."""
    if fp8_format not in _NAMES:
        raise ArgumentError("unknown format", expected=", ".join(_NAMES), got=fp8_format)
    return _NAMES[fp8_format]


def determine_torch_fp8_type(fp8_format: str = "e4m3") -> Any:
    """The torch dtype for ``"e4m3"`` or ``"e5m2"``."""
    import torch

    return getattr(torch, determine_fp8_type(fp8_format))


__all__ = ["determine_fp8_type", "determine_torch_fp8_type"]
