"""Choosing what to compile for: the backend, the architecture, native or emulated."""

from __future__ import annotations

from dataclasses import replace

from tilecore.errors import BackendError
from tilecore.hooks.manager import hooks_of, installed_backends, targets_of
from tilecore.hooks.records import DeviceInfo
from tilecore.target import Target

DEVICES = ("native", "emulator")


def present_device(backend: str) -> tuple[Target, DeviceInfo] | None:
    """The backend's best target for which a device is here, with that device; else None."""
    hooks = hooks_of(backend)
    for target in targets_of(backend):
        info = hooks.call("tilecore_probe_device", target=target)
        if info is not None:
            return target, info
    return None


def best_backend() -> str:
    """The installed backend that makes the most of this machine.

    Lane-parallel devices come before the host, and of two backends for one device the more
    specialised one (the longer plugin chain) wins.

    Raises:
        BackendError: no installed backend finds a device.
    """
    ranked: list[tuple[bool, int, str]] = []
    for name in installed_backends():
        found = present_device(name)
        if found is not None:
            ranked.append((found[0].lanes_per_warp > 1, len(hooks_of(name).chain), name))
    if not ranked:
        raise BackendError(
            "no installed backend finds a device here",
            got=f"installed: {', '.join(installed_backends()) or 'none'}",
            hint="pip install tilecore-backend-cpu",
        )
    return max(ranked)[2]


def choose_target(
    backend: str | None = None, arch: str | None = None, device: str = "native"
) -> Target:
    """The target for the given names; what is None is chosen by what is present here.

    Raises:
        BackendError: unknown backend, architecture or device.
    """
    if device not in DEVICES:
        raise BackendError(
            "unknown device",
            expected=f"one of {', '.join(DEVICES)}, or reference in tilecore.compile",
            got=device,
        )
    name = backend or best_backend()
    targets = targets_of(name)
    if arch is None:
        found = present_device(name) if device == "native" else None
        target = targets[0] if found is None else found[0]
    else:
        by_arch = {target.arch: target for target in targets}
        if arch not in by_arch:
            raise BackendError(
                f"backend {name!r} has no such architecture",
                expected=f"one of {', '.join(by_arch)}",
                got=arch,
            )
        target = by_arch[arch]
    return target if device == "native" else replace(target, device=device)


def synchronize(target: Target) -> None:
    """Wait until all work launched on `target`'s current device is done."""
    hooks_of(target.backend).call("tilecore_synchronize", target=target)
