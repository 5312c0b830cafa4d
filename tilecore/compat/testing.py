"""Helpers of test files: what they require, seeds, and running themselves."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable
from typing import Any

from tilecore.compat.settings import backend_for, is_on_accelerator, settings
from tilecore.compat.utils.tensor import torch_assert_close
from tilecore.errors import TilecoreError

_REPLACED_VERSION = (9, 0)  # what tests are told when another backend stands in for the device


def main() -> None:
    """Run the calling file's tests with pytest, and end the process with its status."""
    import pytest

    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    assert caller is not None
    sys.exit(pytest.main([caller.f_code.co_filename]))


def set_random_seed(seed: int = 42) -> None:
    """Seed Python's, NumPy's and torch's random numbers."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _requires(condition: bool, reason: str) -> Callable[[Any], Any]:
    import pytest

    return pytest.mark.skipif(not condition, reason=reason)


def _has(kind: str) -> bool:
    """True when a backend for that kind of target finds its device, or another stands in."""
    if settings.backend is not None:
        return True
    from tilecore.targets import present_device

    try:
        backend = backend_for(kind)
    except TilecoreError:
        return False
    return backend is not None and present_device(backend) is not None


def _version() -> tuple[int, int]:
    import torch

    if is_on_accelerator():
        return torch.cuda.get_device_capability()
    return _REPLACED_VERSION


def requires_cuda(func: Any) -> Any:
    """Skip where no such device is."""
    return _requires(_has("cuda"), "needs a CUDA device")(func)


def requires_rocm(func: Any) -> Any:
    """Skip where no such device is."""
    return _requires(_has("hip"), "needs a ROCm device")(func)


def requires_llvm(func: Any) -> Any:
    """Skip where no CPU backend is."""
    return _requires(_has("llvm"), "needs the CPU backend")(func)


def _requires_version(
    major: int, minor: int, holds: Callable[[tuple[int, int], tuple[int, int]], bool], sign: str
) -> Callable[[Any], Any]:
    version = (major, minor)
    fits = _has("cuda") and holds(_version(), version)
    return _requires(fits, f"needs compute capability {sign} {major}.{minor}")


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Any:
    """Skip where the device's version does not compare as `mode` says."""
    return _BY_MODE[mode](major, minor)


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Any:
    """Skip below that version."""
    return _requires_version(major, minor, lambda a, b: a >= b, ">=")


def requires_cuda_compute_version_gt(major: int, minor: int = 0) -> Any:
    """Skip at or below that version."""
    return _requires_version(major, minor, lambda a, b: a > b, ">")


def requires_cuda_compute_version_eq(major: int, minor: int = 0) -> Any:
    """Skip at any other version."""
    return _requires_version(major, minor, lambda a, b: a == b, "==")


def requires_cuda_compute_version_le(major: int, minor: int = 0) -> Any:
    """Skip above that version."""
    return _requires_version(major, minor, lambda a, b: a <= b, "<=")


def requires_cuda_compute_version_lt(major: int, minor: int = 0) -> Any:
    """Skip at or above that version."""
    return _requires_version(major, minor, lambda a, b: a < b, "<")


def process_func(func: Callable[..., Any], name: str | None = None, /, **arguments: Any) -> Any:
    """Call a program's measuring function and print what it returns."""
    result = func(**arguments)
    print(f"{name or func.__name__}: {result}")
    return result


def regression(prefixes: tuple[str, ...] = ("regression_",)) -> None:
    """Call the calling file's functions whose names begin so."""
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    assert caller is not None
    for name, value in list(caller.f_globals.items()):
        if name.startswith(prefixes) and inspect.isfunction(value):
            value()


_BY_MODE: dict[str, Callable[[int, int], Any]] = {
    "ge": requires_cuda_compute_version_ge,
    "gt": requires_cuda_compute_version_gt,
    "eq": requires_cuda_compute_version_eq,
    "le": requires_cuda_compute_version_le,
    "lt": requires_cuda_compute_version_lt,
}

__all__ = [
    "main", "process_func", "regression", "requires_cuda", "requires_cuda_compute_version",
    "requires_cuda_compute_version_eq",
    "requires_cuda_compute_version_ge", "requires_cuda_compute_version_gt",
    "requires_cuda_compute_version_le", "requires_cuda_compute_version_lt", "requires_llvm",
    "requires_rocm", "set_random_seed", "torch_assert_close",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Requirements that nothing here meets skip their test (other devices, other tools)."""
    if name.startswith("_check_is_"):  # one vendor's device, which no stand-in is
        return lambda: False
    if not name.startswith("requires_"):
        raise AttributeError(name)
    what = name.removeprefix("requires_")

    def skip(*args: Any, **_: Any) -> Any:
        marked = _requires(False, f"needs {what}, which no backend here serves")
        return marked(args[0]) if len(args) == 1 and inspect.isroutine(args[0]) else marked

    return skip
