"""Layouts that programs annotate. They are advice: values never depend on them."""

from __future__ import annotations

from typing import Any

from tilecore.compat.refused import Refused
from tilecore.language.layouts import Fragment, Layout, make_linear_layout, make_swizzled_layout

make_full_bank_swizzled_layout = make_swizzled_layout
make_half_bank_swizzled_layout = make_swizzled_layout
make_quarter_bank_swizzled_layout = make_swizzled_layout
make_mma_swizzle_layout = make_swizzled_layout

__all__ = [
    "Fragment", "Layout", "make_full_bank_swizzled_layout", "make_half_bank_swizzled_layout",
    "make_linear_layout", "make_mma_swizzle_layout", "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What is refused raises its reason when it is used."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Refused(f"layout.{name}")
