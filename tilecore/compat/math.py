"""Integer helpers for sizes."""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


__all__ = ["cdiv", "next_power_of_2"]
