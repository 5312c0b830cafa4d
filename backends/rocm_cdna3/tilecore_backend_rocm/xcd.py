"""Block order over the XCDs of an MI300X.

The device deals workgroups to its 8 accelerator dies (XCDs) round robin; each has 4 MiB of second
level cache of its own (AMD, "CDNA 3 Architecture" white paper). Kernels with matrix instructions
share operands between neighbouring blocks, so an XCD should get runs of neighbours: of a gemm in
panels a square of tiles, of attention all query tiles of one head, whose keys then stay in its
cache.
"""

from __future__ import annotations

import math

from tilecore.ir.expr import Const
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import While
from tilecore.ir.visit import walk_stmts

from .occupancy import uses_mfma

XCDS = 8


def block_chunk(kernel: Kernel) -> int:
    """Neighbouring blocks that one XCD should take together; 0 leaves the device's own order.

    Only for grids of constant size with matrix instructions, and only as many as give every XCD a
    chunk. Kernels that wait in a loop of their own keep the order in which blocks start: they may
    wait for an earlier block.
    """
    extents = [int(e.value) for e in kernel.grid if isinstance(e, Const)]
    if len(extents) != len(kernel.grid) or not uses_mfma(kernel):
        return 0
    if any(isinstance(stmt, While) for stmt in walk_stmts(kernel.body)):
        return 0
    count = math.prod(extents)
    order = kernel.block_order
    wish = order.panel * order.panel if order is not None and len(extents) > 1 else extents[0]
    chunk = next((c for c in range(min(wish, count // XCDS), 1, -1) if wish % c == 0), 0)
    return chunk if count >= 2 * XCDS else 0
