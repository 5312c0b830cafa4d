"""Layouts that programs annotate. They are advice: values never depend on them."""

from __future__ import annotations

from tilecore.compat.refused import refusing
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

__getattr__ = refusing("layout")
