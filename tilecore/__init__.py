"""tilecore: one tile program, every kind of hardware.

>>> import tilecore, tilecore.language as T
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilecore.compiler import lower
    from tilecore.driver import compile
    from tilecore.hooks.manager import installed_backends, register_backend
    from tilecore.hooks.records import CompileOptions
    from tilecore.kernel import CompiledKernel
    from tilecore.language.jit import jit
    from tilecore.targets import synchronize

__all__ = [
    "CompileOptions",
    "CompiledKernel",
    "compile",
    "installed_backends",
    "jit",
    "lower",
    "register_backend",
    "synchronize",
]

_PLACES = {
    "compile": "tilecore.driver",
    "lower": "tilecore.compiler",
    "CompiledKernel": "tilecore.kernel",
    "CompileOptions": "tilecore.hooks.records",
    "jit": "tilecore.language.jit",
    "register_backend": "tilecore.hooks.manager",
    "installed_backends": "tilecore.hooks.manager",
    "synchronize": "tilecore.targets",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that ``import tilecore`` stays quick."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tilecore' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
