"""The grid of one launch: none where nothing is to be done, refused over a target's limits."""

from __future__ import annotations

from tilecore.errors import LaunchError, ResourceError
from tilecore.hooks.records import KernelSource
from tilecore.target import Target

Grid = tuple[int, int, int]


def launch_grid(kernel: KernelSource, extents: tuple[int, ...], target: Target) -> Grid | None:
    """Blocks along each axis of a launch, or None for a launch of no blocks.

    Args:
        kernel: whose grid it is.
        extents: its evaluated `KernelSource.grid`, one to three numbers.
        target: gives the limits, `Target.grid_limits`.

    Raises:
        ResourceError: more blocks along an axis than the target launches.
        LaunchError: blocks that do not make whole clusters.
    """
    x, y, z = (*extents, 1, 1)[:3]
    if min(x, y, z) <= 0:
        return None  # devices refuse empty grids
    for axis, extent, limit in zip("xyz", (x, y, z), target.grid_limits, strict=True):
        if extent > limit:
            raise ResourceError(
                f"kernel {kernel.name} has too many blocks along {axis}",
                expected=f"at most {limit}",
                got=f"{extent}, grid ({x}, {y}, {z})",
                hint="larger tiles, or put the long axis first",
            )
    if any(extent % of for extent, of in zip((x, y, z), kernel.cluster, strict=True)):
        raise LaunchError(
            f"clusters of kernel {kernel.name} do not divide its grid",
            expected=f"multiples of {kernel.cluster}",
            got=(x, y, z),
        )
    return x, y, z
