"""Which loads neighbouring blocks need alike: a cluster makes them once for all of its blocks."""

from __future__ import annotations

import dataclasses

from tilecore.hooks.records import PipelinePlan
from tilecore.ir.expr import binary, const, free_vars
from tilecore.ir.stmts import For, Gemm, Let
from tilecore.passes.contraction import select_atom
from tilecore.passes.roles.bulk_stores import BulkStores
from tilecore.passes.roles.delayed_schedule import later_group
from tilecore.passes.roles.persistent_tiles import may_pair
from tilecore.passes.roles.ring import Group, inlined
from tilecore.passes.scopes import ceil_div


class SharedLoads(BulkStores):
    """One kernel, with the groups of its copies that blocks of a cluster share."""

    def paired(self, loop: For, groups: list[Group], plan: PipelinePlan) -> list[Group]:
        """The groups, shared by neighbours along the first axis, with the kernel made of clusters.

        Where the last contraction runs one iteration late and all blocks make equally many steps;
        else the groups as they were.
        """
        kernel = self.kernel
        axis, size = kernel.grid_vars[0], kernel.grid[0]
        lets = tuple(s for s in self.common if isinstance(s, Let))
        values = {s.var: s.value for s in lets}
        fits = kernel.cluster == (1, 1, 1) and kernel.block_order is None and may_pair(size)
        if not fits or axis in free_vars(inlined(loop.extent, values)):
            return groups
        if later_group(loop, groups, self.runs_beside, plan) is None:
            return groups
        pairs = [self.shared(group, loop, plan, lets, 0) for group in groups]
        if any(len(group.shared) != len(group.copies) for group in pairs):
            return groups
        padded = binary("mul", ceil_div(size, plan.cluster), const(plan.cluster))
        grid, cluster = (padded, *kernel.grid[1:]), (plan.cluster, 1, 1)
        self.kernel = dataclasses.replace(kernel, grid=grid, cluster=cluster)
        return pairs

    def shared(
        self,
        group: Group,
        loop: For,
        plan: PipelinePlan,
        lets: tuple[Let, ...],
        axis: int | None,
    ) -> Group:
        """The group with the copies that neighbours along a grid axis need alike, if any."""
        if plan.cluster < 2 or axis is None:
            return group
        values = {s.var: s.value for s in (*lets, *loop.body) if isinstance(s, Let)}
        along = self.kernel.grid_vars[axis]
        if any(along in free_vars(inlined(at, values)) for at in (loop.start, loop.step)):
            return group
        found = []
        for number, copy in enumerate(group.copies):
            starts = [inlined(start, values) for start in copy.src.starts]
            alike = not any(along in free_vars(start) for start in starts)
            dst = group.ring.slot(copy.dst, group.ring.buffers[number], const(0))
            if alike and self.bulk_plan(dataclasses.replace(copy, dst=dst), plan.cluster):
                found.append(number)
        if not found:
            return group
        ring = dataclasses.replace(group.ring, sharers=plan.cluster)
        return dataclasses.replace(group, ring=ring, shared=tuple(found))

    def runs_beside(self, gemm: Gemm) -> bool:
        """True when a gemm's atom reads shared memory while its warps go on."""
        atom = select_atom(gemm, self.kernel.threads, self.context)
        return atom is not None and atom.b is None
