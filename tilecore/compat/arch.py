"""Facts of architectures that programs ask for: only those of the device that is present."""

from __future__ import annotations

from tilecore.compat import driver

__all__ = ["driver"]
