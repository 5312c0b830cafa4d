"""What the runtime asks of a backend's launcher, beyond being callable.

`hooks.records.Launcher` is all that a backend must give. The attributes below are optional; they
say where the kernel's memory lives and open a faster way to launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tilecore.runtime.scalar_grids import bind_scalars
from tilecore.runtime.sizes import Sizes

BoundLaunch = Callable[..., None]
"""A launch for fixed dynamic sizes on one device's current stream.

Takes one positional argument for each parameter and workspace: an address (0 for workspaces that
programs find elsewhere) or a Python number.
"""


@dataclass(frozen=True, slots=True)
class InlineLaunch:
    """A bound launch as text: fast functions contain it instead of calling it.

    A `BoundLaunch` may carry one as its attribute ``inline``.

    Attributes:
        lines: statements, indented by four spaces, over the values ``v0``, ``v1``, ... and `at`:
            None, or one object for as long as all these values stay what they are. Their own names
            are free to choose, but for `known` and ``x``, ``p`` and ``m`` with a number.
        names: the globals that they use; each begins with ``launch_``.
    """

    lines: tuple[str, ...]
    names: Mapping[str, Any]


class BindableLauncher(Protocol):
    """A launcher that can prepare everything that depends only on the dynamic sizes.

    Attributes:
        device_kind: where tensors must live, ``"cpu"``, ``"cuda"`` or ``"rocm"``.
        alignment_bytes: every tensor's address must be a multiple of this.
        scalars: optional; positions of scalar parameters (`scalar_grids.grid_scalars`) whose
            values `bind` takes behind the dynamic sizes, since grids follow them.
    """

    device_kind: str
    alignment_bytes: int

    def bind(self, sizes: Sizes, device: int) -> BoundLaunch:
        """Prepare launches with these dynamic sizes on the device of this index.

        The result may be called from several threads at once.
        """
        ...

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Launch as `hooks.records.Launcher` says."""
        ...


def device_kind_of(launcher: Any) -> str:
    """Where a launcher's tensors must live; launchers that do not say run on the host."""
    return str(getattr(launcher, "device_kind", "cpu"))


def alignment_of(launcher: Any) -> int:
    """The alignment in bytes that a launcher's addresses must have."""
    return int(getattr(launcher, "alignment_bytes", 1))


def bind(launcher: Any, sizes: Sizes, device: int) -> BoundLaunch:
    """A launch for fixed sizes, by the launcher's own `bind` where it has one."""
    if hasattr(launcher, "bind"):
        positions = tuple(getattr(launcher, "scalars", ()))
        if positions:
            return bind_scalars(launcher.bind, positions, sizes, device)
        return cast(BindableLauncher, launcher).bind(sizes, device)
    plain = cast(Callable[[tuple[int | float, ...]], None], launcher)

    def launch(*values: int | float) -> None:
        plain((*values, *sizes))

    return launch
