"""Helpers that programs import from their framework's ``utils``."""

from __future__ import annotations

from tilecore.compat.utils.tensor import map_torch_type, torch_assert_close

__all__ = ["map_torch_type", "torch_assert_close"]
