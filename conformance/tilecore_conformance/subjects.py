"""What is under test: a backend, an architecture, and how far down it is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilecore.errors import BackendError
from tilecore.hooks.manager import hooks_of, installed_backends, targets_of
from tilecore.target import Target
from tilecore.targets import present_device

LEVELS = ("emit", "compile", "emulate", "run")
"""emit: source text. compile: a binary. emulate: run lane by lane on the host. run: on a device."""

REFERENCE = "reference"
"""The pseudo backend that runs the suite on the oracle itself, the tile-level interpreter."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One backend at one level.

    Attributes:
        backend: entry-point name, or ``"reference"``.
        level: one of `LEVELS`.
        target: what to compile for; None for the reference interpreter.
        obstacle: why nothing can be run here (no device, no toolchain), or "" when it can.
        is_default: chosen by the plugin, not asked for: the long emulated cases are marked slow.
    """

    backend: str
    level: str
    target: Target | None
    obstacle: str = ""
    is_default: bool = False

    @property
    def id(self) -> str:
        """Short name in test ids and in the matrix."""
        return f"{self.backend}-{self.level}"

    @property
    def executes(self) -> bool:
        """True when kernels are called and their results compared."""
        return self.level in ("emulate", "run")


def find_subjects(
    backends: Sequence[str], levels: Sequence[str], arch: str | None
) -> list[Subject]:
    """The subjects that the options ask for; none asked means every installed backend.

    Raises:
        BackendError: an unknown or broken backend, or an unknown architecture.
    """
    names = list(dict.fromkeys(backends)) or list(installed_backends())
    subjects: list[Subject] = []
    for name in names:
        if name == REFERENCE:
            subjects.append(Subject(name, "run", None))
            continue
        chosen = list(dict.fromkeys(levels)) or _default_levels(name, arch)
        subjects.extend(
            replace(_subject(name, level, arch), is_default=not levels) for level in chosen
        )
    return subjects


def _target(backend: str, arch: str | None) -> tuple[Target, bool]:
    """The target to use, and whether a device for it is here."""
    if arch is None:
        found = present_device(backend)
        return (targets_of(backend)[0], False) if found is None else (found[0], True)
    by_arch = {target.arch: target for target in targets_of(backend)}
    if arch not in by_arch:
        raise BackendError(
            f"backend {backend!r} has no such architecture",
            expected=f"one of {', '.join(by_arch)}",
            got=arch,
        )
    target = by_arch[arch]
    return target, hooks_of(backend).call("tilecore_probe_device", target=target) is not None


def _missing_toolchain(target: Target) -> str:
    toolchain = hooks_of(target.backend).call("tilecore_probe_toolchain", target=target)
    if toolchain is None:
        return ""  # the backend needs none beyond itself
    return toolchain.missing or ""


def _default_levels(backend: str, arch: str | None) -> list[str]:
    target, has_device = _target(backend, arch)
    if has_device:
        return ["run"]
    levels = ["emit"] if _missing_toolchain(target) else ["compile"]
    if hooks_of(backend).call("tilecore_emulator_support", target=target) is not None:
        levels.append("emulate")
    return levels


def _subject(backend: str, level: str, arch: str | None) -> Subject:
    target, has_device = _target(backend, arch)
    if level == "emulate":
        support = hooks_of(backend).call("tilecore_emulator_support", target=target)
        obstacle = "" if support is not None else "the backend ships no emulator support"
        return Subject(backend, level, replace(target, device="emulator"), obstacle)
    obstacle = ""
    if level == "compile":
        obstacle = _missing_toolchain(target)
    elif level == "run" and not has_device:
        obstacle = "no device"
    return Subject(backend, level, target, obstacle)


def describe(subject: Subject) -> str:
    """One line for the report's header: backend, version, device, toolchain."""
    if subject.target is None:
        return f"{subject.id}: the reference interpreter"
    hooks = hooks_of(subject.backend)
    device = hooks.call("tilecore_probe_device", target=subject.target)
    toolchain = hooks.call("tilecore_probe_toolchain", target=subject.target)
    return (
        f"{subject.id}: {subject.target}"
        f", version {_version(subject.backend)}"
        f", device {'none' if device is None else device.name}"
        f", toolchain {'built in' if toolchain is None else toolchain}"
        + (f", NOT RUN: {subject.obstacle}" if subject.obstacle else "")
    )


def _version(backend: str) -> str:
    from importlib.metadata import entry_points

    for point in entry_points(group="tilecore.backends", name=backend):
        if point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return "not installed (registered in this process)"
