"""The switches that programs turn: all of them leave results alone."""

from __future__ import annotations

from tilecore.compat import disable_cache, enable_cache, is_cache_enabled


class Environment:
    """`enable_cache` and its kind, as methods."""

    enable_cache = staticmethod(enable_cache)
    disable_cache = staticmethod(disable_cache)
    is_cache_enabled = staticmethod(is_cache_enabled)


env = Environment()
"""The one instance."""

__all__ = ["Environment", "env"]
