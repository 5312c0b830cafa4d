"""What programs import from passes: option keys, and a simplifier that has nothing left to do."""

from __future__ import annotations

from typing import Any

from tilecore.compat.pass_configs import PassConfigKey


def simplify_prim_func(func: Any) -> Any:
    """The function itself: programs are simplified when they are compiled."""
    return func


__all__ = ["PassConfigKey", "simplify_prim_func"]
