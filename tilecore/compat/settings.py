"""What programs written for other hardware run on here, when that is said from outside.

``TILECORE_COMPAT_BACKEND=cpu_llvm`` compiles every program for that backend, whatever target it
names; ``TILECORE_COMPAT_DEVICE=emulator`` likewise. `use` does the same from Python.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tilecore.errors import BackendError
from tilecore.hooks.manager import installed_backends

_PREFIXES = {
    "cuda": "cuda", "hip": "rocm", "rocm": "rocm", "llvm": "cpu", "c": "cpu", "cpu": "cpu",
}  # fmt: skip


@dataclass(slots=True)
class Settings:
    """What stands in for what programs name.

    Attributes:
        backend: compiled for, in place of the target that the program names; None follows it.
        device: ``"native"``, ``"emulator"`` or ``"reference"``.
        quick: time one call where a program asks for a measurement, and try one configuration
            where it asks for a search: to see whether programs run, not how fast.
    """

    backend: str | None = None
    device: str = "native"
    quick: bool = False


settings = Settings(
    backend=os.environ.get("TILECORE_COMPAT_BACKEND") or None,
    device=os.environ.get("TILECORE_COMPAT_DEVICE", "native"),
    quick=os.environ.get("TILECORE_COMPAT_QUICK", "") not in ("", "0"),
)
"""The settings of this process."""


current_targets: list[str] = []
"""Targets of the ``with`` blocks that are open, innermost last."""


def use(backend: str | None = None, device: str = "native", *, quick: bool = False) -> None:
    """Compile for `backend` and `device` from now on, whatever target a program names."""
    settings.backend, settings.device, settings.quick = backend, device, quick


def is_on_accelerator() -> bool:
    """Whether programs run on an accelerator that torch sees, so that their tensors are there.

    Not with a backend that compiles for the host, nor in the emulator or the reference.
    """
    import torch

    from tilecore.hooks.manager import targets_of

    if settings.device != "native":
        return False
    if settings.backend is not None and targets_of(settings.backend)[0].lanes_per_warp == 1:
        return False
    return bool(torch.cuda.is_available())


def target_kind(target: object) -> str | None:
    """``"cuda"`` of ``"cuda -arch=..."``, ``{"kind": "cuda"}`` or ``"cuda"``; None for auto."""
    if isinstance(target, dict):
        target = target.get("kind")
    if target is None or target == "auto":
        return None
    words = str(target).split()
    return words[0] if words else None


def backend_for(target: object) -> str | None:
    """The backend that a program's target means; None leaves the choice to what is present.

    Raises:
        BackendError: no installed backend serves such targets.
    """
    if settings.backend is not None:
        return settings.backend
    if target_kind(target) is None and current_targets:
        target = current_targets[-1]
    kind = target_kind(target)
    if kind is None:
        return None
    prefix = _PREFIXES.get(kind)
    if prefix is None:
        raise BackendError(
            f"no backend serves target {kind!r}", expected=f"one of {', '.join(_PREFIXES)}"
        )
    matching = [name for name in installed_backends() if name.startswith(prefix)]
    if not matching:
        raise BackendError(
            f"no installed backend serves target {kind!r}",
            got=f"installed: {', '.join(installed_backends()) or 'none'}",
        )
    return _present(matching) or matching[0]


def _present(names: list[str]) -> str | None:
    """The most specialised of these backends that finds a device here."""
    from tilecore.hooks.manager import hooks_of
    from tilecore.targets import present_device

    found = [name for name in names if present_device(name) is not None]
    return max(found, key=lambda name: len(hooks_of(name).chain)) if found else None
