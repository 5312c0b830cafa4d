"""Indented text."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class Writer:
    """Collects lines; `braces` indents what is written inside it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("  " * self._depth + text if text else "")

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Generator[None, None, None]:
        """`head`, an indented part, `tail`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"
