"""Clusters of blocks that an author asks for: as the target has them, or refused.

A tile program means the same with and without: where a target has no clusters, blocks go alone.
"""

from __future__ import annotations

import dataclasses
import math

from tilecore.errors import UnsupportedError
from tilecore.hooks.context import Context
from tilecore.ir.expr import Const
from tilecore.ir.program import Kernel, Program
from tilecore.passes.scopes import per_kernel

ALONE = (1, 1, 1)


def fit_clusters(program: Program, context: Context) -> Program:
    """See the module's text.

    Raises:
        UnsupportedError: a cluster of more blocks than the target's, or one that does not divide a
            grid of constant extents (others are told at the launch).
    """

    def visit(kernel: Kernel) -> Kernel:
        blocks, most = math.prod(kernel.cluster), context.target.cluster_blocks
        if blocks == 1 or most == 1:
            return dataclasses.replace(kernel, cluster=ALONE)
        if blocks > most:
            raise UnsupportedError(
                f"kernel {kernel.name} asks for clusters of too many blocks",
                expected=f"at most {most} on {context.target}",
                got=f"{blocks}, cluster {kernel.cluster}",
                loc=kernel.loc or program.loc,
            )
        extents = tuple(int(e.value) if isinstance(e, Const) else 0 for e in kernel.grid)
        grid = (*extents, *ALONE)[:3]
        if any(extent % of for extent, of in zip(grid, kernel.cluster, strict=True)):
            raise UnsupportedError(
                f"clusters of kernel {kernel.name} do not divide its grid",
                expected=f"multiples of {kernel.cluster}",
                got=grid,
                loc=kernel.loc or program.loc,
            )
        return kernel

    return per_kernel(program, visit)
