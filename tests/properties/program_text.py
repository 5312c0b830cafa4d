"""Pieces of random programs' text."""

from __future__ import annotations


def indented(lines: list[str]) -> list[str]:
    """The lines one level deeper."""
    return [f"    {line}" for line in lines]


def clamped(text: str, limit: int) -> str:
    """The expression kept within a limit."""
    return f"T.max(T.min({text}, {limit}), {-limit})"
