"""For programs written in the same vocabulary elsewhere: ``import tilecore.compat as tilelang``.

`tilecore.migrate` rewrites a program's imports to this package. What it offers has the names and
meanings that such programs use; what it does not offer is refused by name with the reason
(``refused_modules.txt``, ``pass_configs.txt``). New programs use `tilecore` itself.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilecore.compat.autotuner import autotune
from tilecore.compat.jit import JITImpl, compile, jit, par_compile
from tilecore.compat.kernel import JITKernel
from tilecore.compat.math import cdiv, next_power_of_2
from tilecore.compat.pass_configs import PassConfigKey
from tilecore.compat.profiler import Profiler, do_bench
from tilecore.compat.refused import Refused, install, reason_of
from tilecore.compat.settings import use
from tilecore.compat.supply import TensorSupplyType
from tilecore.language.dtypes import dtype as DataType

__version__ = "0.1.13"  # the version of the vocabulary, as programs compare it
lazy_jit = jit
install()

MODULES = {
    "language": "tilecore.language",
    "autotuner": "tilecore.compat.autotuner",
    "carver.arch": "tilecore.compat.arch",
    "carver.arch.driver": "tilecore.compat.driver",
    "cpu.language": "tilecore.language",
    "cuda.language": "tilecore.language",
    "cuda.intrinsics": "tilecore.compat.layout",
    "cuda.intrinsics.sparse_layout": "tilecore.compat.sparse_layout",
    "env": "tilecore.compat.env",
    "intrinsics": "tilecore.compat.layout",
    "jit": "tilecore.compat.jit",
    "jit.kernel": "tilecore.compat.kernel",
    "language.common": "tilecore.language",
    "language.dtypes": "tilecore.compat.dtypes",
    "language.fp8": "tilecore.compat.fp8",
    "layout": "tilecore.compat.layout",
    "layout.swizzle": "tilecore.compat.layout",
    "math": "tilecore.compat.math",
    "profiler": "tilecore.compat.profiler",
    "rocm.language": "tilecore.language",
    "testing": "tilecore.compat.testing",
    "tileop.base": "tilecore.language",
    "transform": "tilecore.compat.transform",
    "tvm": "tilecore.compat.tvm",
    "tvm.target": "tilecore.compat.tvm.target",
    "tvm.tirx": "tilecore.compat.tvm.tirx",
    "utils": "tilecore.compat.utils",
    "utils.tensor": "tilecore.compat.utils.tensor",
}
"""Where the contents of a module of such programs' framework are found here, by its name."""


def enable_cache() -> None:
    """Nothing to do: kernels are cached by contents, and a cached kernel is the same kernel."""


def disable_cache() -> None:
    """Nothing to do: kernels are cached by contents, and a cached kernel is the same kernel."""


def is_cache_enabled() -> bool:
    """Always true."""
    return True


def set_log_level(level: Any) -> None:
    """Nothing to do: errors are exceptions, and nothing else is reported."""


def __getattr__(name: str) -> Any:
    """Modules on first use; what is refused raises its reason when it is used."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in MODULES:
        found = importlib.import_module(MODULES[name])
        globals()[name] = found
        return found
    if reason_of(name) is not None:
        return Refused(name)
    raise AttributeError(f"tilecore.compat has no {name!r}")


__all__ = [
    "MODULES", "DataType", "JITImpl", "JITKernel", "PassConfigKey", "Profiler", "TensorSupplyType",
    "autotune", "cdiv", "compile", "disable_cache", "do_bench", "enable_cache",
    "is_cache_enabled", "jit", "lazy_jit", "next_power_of_2", "par_compile", "reason_of",
    "set_log_level", "use",
]  # fmt: skip
