"""Route fragment accesses that layouts cannot serve through shared memory.

After `infer_layouts` most elements are in a register of the lane that wants them. Where they are
not, a nest over the fragment's own places may find them (`slide_nests`). Else (a transposed read,
a gemm operand computed in another layout, an index that lanes compute) the fragment is copied to a
scratch buffer in shared memory and accessed there; a written fragment is copied back. Never wrong,
but not free: `Kernel.hints` tells of each (``staged.<fragment>`` = bytes of scratch).

    nest: out[i] = f(F[j, i])   ->   Allocate F_staged (shared); Copy(F -> F_staged)
                                     nest: out[i] = f(F_staged[j, i])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr, Load
from tilecore.ir.layout import THREAD, FragmentLayout, FragmentMode, Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import (
    Allocate,
    Atomic,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Parallel,
    Reduce,
    Stmt,
    Store,
    While,
)
from tilecore.ir.visit import map_exprs, map_stmts
from tilecore.passes.accesses import Access, accesses_of
from tilecore.passes.contraction import select_atom, tile_mma
from tilecore.passes.elementwise import as_parallel, loop_layout, static_extents
from tilecore.passes.infer_layouts import operand_layouts
from tilecore.passes.register_maps import register_map
from tilecore.passes.scopes import (
    Names,
    is_whole,
    kernel_ranges,
    loads_in,
    per_kernel,
    rewrite_block,
    static,
    whole,
    with_hint,
)
from tilecore.passes.slide_nests import over_fragment
from tilecore.passes.spread import drop_axis

Layouts = dict[str, Layout | FragmentLayout]


def stage_fragments(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        return _Stager(kernel, kernel_ranges(kernel, program.symbols), names, context).run()

    return per_kernel(program, visit)


def uniform_layout(threads: int) -> FragmentLayout:
    """The loop layout of a statement at block scope: all threads run the one iteration."""
    return FragmentLayout((), (FragmentMode(threads, THREAD, 1),))


class _Stager:
    """Rewrites one kernel; collects new layouts and hints on the way."""

    def __init__(self, kernel: Kernel, ranges: Ranges, names: Names, context: Context) -> None:
        self.kernel = kernel
        self.ranges = ranges
        self.names = names
        self.context = context
        self.layouts: Layouts = dict(kernel.layouts)
        self.hints = kernel.hints

    def run(self) -> Kernel:
        body = rewrite_block(self.kernel.body, self.visit)
        return dataclasses.replace(
            self.kernel, body=body, layouts=tuple(sorted(self.layouts.items())), hints=self.hints
        )

    def visit(self, stmt: Stmt) -> Block | None:
        match stmt:
            case Gemm():
                return self.gemm(stmt)
            case Reduce():
                return self.reduce(stmt)
            case Store() | Atomic() if as_parallel(stmt) is None:
                return self.nest(Parallel((), (), (stmt,), loc=stmt.loc), unwrap=True)
            case Let(value=value):
                return self.uniform((value,), lambda new: dataclasses.replace(stmt, value=new[0]))
            case If(condition=condition):
                return self.branch(stmt, condition)
            case For(start=start, extent=extent):
                if any(self.fragments_in(e) for e in (start, extent)):
                    return self.loop(stmt)
                return None
            case While(condition=condition):
                assert not self.fragments_in(condition), "normalize_tiles asks inside the loop"
                return None
            case Allocate():
                return None
            case _ if (nest := as_parallel(stmt)) is not None:
                return self.nest(nest, original=stmt)
            case _:
                return None

    # --- block scope ---------------------------------------------------------------------------

    def fragments_in(self, expr: Expr) -> list[Load]:
        return [load for load in loads_in(expr) if load.buffer.scope is Scope.FRAGMENT]

    def uniform(
        self, exprs: tuple[Expr, ...], make: Callable[[tuple[Expr, ...]], Stmt]
    ) -> Block | None:
        """A statement whose expressions read fragments for the whole block."""
        before, new = self.stage_uniform(exprs)
        return (*before, make(new)) if before else None

    def stage_uniform(self, exprs: tuple[Expr, ...]) -> tuple[Block, tuple[Expr, ...]]:
        before: list[Stmt] = []
        scratch: dict[str, Buffer] = {}
        for load in (found for expr in exprs for found in self.fragments_in(expr)):
            name = load.buffer.name
            if name not in scratch and not self.fits_uniform(load):
                scratch[name] = self.scratch(load.buffer)
                before += [Allocate(scratch[name]), Copy(whole(load.buffer), whole(scratch[name]))]
        new = tuple(_reload(expr, scratch) for expr in exprs)
        return tuple(before), new

    def fits_uniform(self, load: Load) -> bool:
        nest = Parallel((), (), ())
        access = Access(load.buffer, load.indices, False, False)
        return self.fits(nest, (), access, uniform_layout(self.kernel.threads))

    def branch(self, stmt: If, condition: Expr) -> Block | None:
        before, (new,) = self.stage_uniform((condition,))
        if not before:
            return None
        then = rewrite_block(stmt.then, self.visit)
        otherwise = rewrite_block(stmt.otherwise, self.visit)
        return (*before, If(new, then, otherwise, stmt.loc))

    def loop(self, stmt: For) -> Block | None:
        before, (start, extent) = self.stage_uniform((stmt.start, stmt.extent))
        body = rewrite_block(stmt.body, self.visit)
        return (*before, dataclasses.replace(stmt, start=start, extent=extent, body=body))

    # --- tile statements -----------------------------------------------------------------------

    def nest(
        self, nest: Parallel, original: Stmt | None = None, unwrap: bool = False
    ) -> Block | None:
        """Stage what does not fit; None when all fits."""
        before: list[Stmt] = []
        after: list[Stmt] = []
        body = nest.body
        changed = False
        # Partial writes need the old contents around them.
        rewritten = isinstance(original, Copy | Fill) and is_whole(original.dst)
        while True:
            current = dataclasses.replace(nest, body=body)
            misfit = self.misfit(current)
            if misfit is None:
                break
            changed = True
            over = over_fragment(current, misfit, self.ranges, self.names)
            if over is not None and self.misfit(over) is None:
                nest, body = over, over.body
                break
            fragment = misfit.buffer
            scratch = self.scratch(fragment)
            touching = [a for a in accesses_of(current) if a.buffer.name == fragment.name]
            before.append(Allocate(scratch, loc=nest.loc))
            if not rewritten or any(not access.is_write for access in touching):
                before.append(Copy(whole(fragment), whole(scratch), loc=nest.loc))
            if any(access.is_write for access in touching):
                after.append(Copy(whole(scratch), whole(fragment), loc=nest.loc))
            body = _rebuffer(body, fragment, scratch)
        if not changed:
            return None if not unwrap else nest.body
        staged: Block = body if unwrap else (dataclasses.replace(nest, body=body),)
        return (*before, *staged, *after)

    def misfit(self, nest: Parallel) -> Access | None:
        fragments = [a for a in accesses_of(nest) if a.buffer.scope is Scope.FRAGMENT]
        if not fragments:
            return None
        extents = static_extents(nest, self.ranges)
        if nest.vars:
            loop = loop_layout(nest, self.layouts, self.kernel.threads, self.ranges)
        else:
            loop = uniform_layout(self.kernel.threads)
        if extents is None or loop is None:
            return fragments[0]
        return next((a for a in fragments if not self.fits(nest, extents, a, loop)), None)

    def fits(
        self, nest: Parallel, extents: tuple[int, ...], access: Access, loop: FragmentLayout
    ) -> bool:
        layout = self.layouts[access.buffer.name]
        assert isinstance(layout, FragmentLayout)
        threads = self.kernel.threads
        return register_map(nest, extents, access, loop, layout, threads) is not None

    def reduce(self, stmt: Reduce) -> Block | None:
        source = self.layouts[stmt.src.buffer.name]
        assert isinstance(source, FragmentLayout)
        keep = len(stmt.dst.shape) == len(stmt.src.shape)
        natural = drop_axis(source, stmt.axis, keep)
        if self.layouts[stmt.dst.buffer.name] == natural:
            return None
        part = self.fragment(stmt.dst.buffer, natural)
        new = dataclasses.replace(stmt, dst=whole(part))
        old = () if stmt.clear else self.copy(stmt.dst.buffer, part)
        return (Allocate(part, loc=stmt.loc), *old, new, *self.copy(part, stmt.dst.buffer))

    def gemm(self, stmt: Gemm) -> Block | None:
        atom = select_atom(stmt, self.kernel.threads, self.context)
        if atom is None:
            return None  # multiply-adds take the accumulator in any layout
        tiled = tile_mma(stmt, atom, self.kernel.threads)
        a_layout, b_layout = operand_layouts(stmt, tiled.a_layout, tiled.b_layout)
        before: list[Stmt] = []
        after: list[Stmt] = []
        changes: dict[str, object] = {}
        for field, wanted in (("a", a_layout), ("b", b_layout), ("c", tiled.c_layout)):
            region = getattr(stmt, field)
            if region.buffer.scope is not Scope.FRAGMENT or wanted is None:
                continue
            assert is_whole(region)
            if self.layouts[region.buffer.name] == wanted:
                continue
            part = self.fragment(region.buffer, wanted)
            before += [Allocate(part, loc=stmt.loc), *self.copy(region.buffer, part)]
            if field == "c":
                after += self.copy(part, region.buffer)
            changes[field] = whole(part)
        if not changes:
            return None
        return (*before, dataclasses.replace(stmt, **changes), *after)  # type: ignore[arg-type]

    def copy(self, source: Buffer, target: Buffer) -> Block:
        """A copy between fragments, staged when their threads differ."""
        stmt = Copy(whole(source), whole(target))
        nest = as_parallel(stmt)
        assert nest is not None
        return self.nest(nest, original=stmt) or (stmt,)

    def fragment(self, like: Buffer, layout: FragmentLayout) -> Buffer:
        part = self.names.buffer(f"{like.name}_part", static(like), like.dtype, Scope.FRAGMENT)
        self.layouts[part.name] = layout
        return part

    def scratch(self, fragment: Buffer) -> Buffer:
        shape = static(fragment)
        buffer = self.names.buffer(f"{fragment.name}_staged", shape, fragment.dtype, Scope.SHARED)
        size = fragment.dtype.bytes
        for extent in shape:
            size *= extent
        self.hints = with_hint(self.hints, f"staged.{fragment.name}", size)
        return buffer


def _reload(expr: Expr, scratch: dict[str, Buffer]) -> Expr:
    from tilecore.passes.scopes import replace_buffer_loads

    return replace_buffer_loads(
        expr,
        lambda load: (
            Load(scratch[load.buffer.name], load.indices) if load.buffer.name in scratch else None
        ),
    )


def _rebuffer(body: Block, old: Buffer, new: Buffer) -> Block:
    """`body` with every access to `old` going to `new`."""

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_exprs(
            stmt,
            lambda node: (
                Load(new, node.indices) if isinstance(node, Load) and node.buffer == old else None
            ),
        )
        if isinstance(stmt, Store) and stmt.buffer == old:
            return dataclasses.replace(stmt, buffer=new)
        if isinstance(stmt, Atomic) and stmt.dst.buffer == old:
            region = dataclasses.replace(stmt.dst, buffer=new)
            return dataclasses.replace(stmt, dst=region)
        return stmt

    return map_stmts(body, visit)
