"""Facts of architectures that programs ask for: only those of the device that is present."""

from __future__ import annotations

from tilecore.compat import driver
from tilecore.compat.refused import refusing

__all__ = ["driver"]

__getattr__ = refusing("carver.arch")
