"""Choose how every fragment is spread over the block's threads.

The author's own layouts stand. Gemm accumulators and operands take the layouts of their atom;
elementwise nests pass layouts on between the fragments they touch; a reduction's result takes the
layout of its source with copies over the reduced lanes. What is still free takes a layout for
coalesced access from the first nest that touches it; where nests number the elements of several
axes by one index, one without places to spare, which flat fragments can have, too. A fragment that
two statements want in two layouts keeps the first; `stage_fragments` moves it where the other
needs it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilecore.hooks.context import Context
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr, Var
from tilecore.ir.layout import REGISTER, FragmentLayout, FragmentMode, Layout
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.stmts import Gemm, Parallel, Reduce, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.accesses import Access, accesses_of
from tilecore.passes.contraction import gemm_shape, select_atom, tile_mma
from tilecore.passes.elementwise import as_parallel, loop_layout, static_extents
from tilecore.passes.lowering.lower_fma import fma_layout
from tilecore.passes.mixed_digits import digits_of, joined
from tilecore.passes.scopes import kernel_ranges, per_kernel, static
from tilecore.passes.spread import (
    Spread,
    compact_registers,
    default_spread,
    drop_axis,
    even_spread,
    fits_shape,
    operand_of,
)

REGISTER_BYTES = 4

Nests = list[tuple[Stmt, Parallel | None]]


@dataclass(frozen=True, slots=True)
class _Lanes:
    """What fragments are spread over.

    Attributes:
        threads: of the block.
        registers: 32-bit ones of a lane; 0 where they are no resource.
        ranges: of the kernel's variables.
        spread: how nests are spread whose fragments are all free.
    """

    threads: int
    registers: int
    ranges: Ranges
    spread: Spread


def infer_layouts(program: Program, context: Context) -> Program:
    """Fill `Kernel.layouts` for every fragment."""
    return per_kernel(program, lambda kernel: _infer(kernel, program, context))


def _infer(kernel: Kernel, program: Program, context: Context) -> Kernel:
    ranges = kernel_ranges(kernel, program.symbols)
    layouts: dict[str, Layout | FragmentLayout] = dict(kernel.layouts)
    stmts = list(_outer_stmts(kernel))
    for stmt in stmts:
        if isinstance(stmt, Gemm):
            _from_atom(stmt, kernel.threads, layouts, context)
    fragments = [b for b in buffers_in(kernel.body) if b.scope is Scope.FRAGMENT]
    nests = [(stmt, as_parallel(stmt)) for stmt in stmts]
    spread = even_spread if _has_flat_indices(nests, ranges) else default_spread
    lanes = _Lanes(kernel.threads, context.target.registers_per_thread, ranges, spread)
    while True:
        changed = True
        while changed:
            changed = False
            for stmt, nest in nests:
                changed |= _pass_on(stmt, nest, layouts, lanes)
        free = [fragment for fragment in fragments if fragment.name not in layouts]
        if not free:
            break
        _seed(free, nests, layouts, lanes)
    return dataclasses.replace(kernel, layouts=tuple(sorted(layouts.items())))


def _outer_stmts(kernel: Kernel) -> list[Stmt]:
    """Statements at block scope: not those inside elementwise nests."""
    inside = {
        id(inner)
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Parallel)
        for inner in walk_stmts(stmt.body)
    }
    return [stmt for stmt in walk_stmts(kernel.body) if id(stmt) not in inside]


def _from_atom(
    gemm: Gemm, threads: int, layouts: dict[str, Layout | FragmentLayout], context: Context
) -> None:
    atom = select_atom(gemm, threads, context)
    if atom is None:
        m, n, _ = gemm_shape(gemm)
        layouts.setdefault(gemm.c.buffer.name, fma_layout(m, n, threads))
        return
    tiled = tile_mma(gemm, atom, threads)
    layouts.setdefault(gemm.c.buffer.name, tiled.c_layout)
    a_layout, b_layout = operand_layouts(gemm, tiled.a_layout, tiled.b_layout)
    if gemm.a.buffer.scope is Scope.FRAGMENT and a_layout is not None:
        layouts.setdefault(gemm.a.buffer.name, a_layout)
    if gemm.b.buffer.scope is Scope.FRAGMENT and b_layout is not None:
        layouts.setdefault(gemm.b.buffer.name, b_layout)


def operand_layouts(
    gemm: Gemm, a: FragmentLayout | None, b: FragmentLayout | None
) -> tuple[FragmentLayout | None, FragmentLayout | None]:
    """Operand layouts over the operands' stored axes."""
    if a is not None and gemm.transpose_a:
        a = FragmentLayout((a.axes[1], a.axes[0]), a.replication)
    if b is not None and gemm.transpose_b:
        b = FragmentLayout((b.axes[1], b.axes[0]), b.replication)
    return a, b


def _pass_on(
    stmt: Stmt,
    nest: Parallel | None,
    layouts: dict[str, Layout | FragmentLayout],
    lanes: _Lanes,
) -> bool:
    """Give layouts to the unknown fragments of one statement that has a known one."""
    if isinstance(stmt, Reduce):
        source = layouts.get(stmt.src.buffer.name)
        if stmt.dst.buffer.name in layouts or not isinstance(source, FragmentLayout):
            return False
        keep = len(stmt.dst.shape) == len(stmt.src.shape)
        layouts[stmt.dst.buffer.name] = drop_axis(source, stmt.axis, keep)
        return True
    if nest is None:
        return False
    fragments = [a for a in accesses_of(nest) if a.buffer.scope is Scope.FRAGMENT]
    if not any(a.buffer.name in layouts for a in fragments):
        return False
    return _derive(nest, fragments, layouts, lanes)


def _derive(
    nest: Parallel,
    fragments: list[Access],
    layouts: dict[str, Layout | FragmentLayout],
    lanes: _Lanes,
) -> bool:
    loop = loop_layout(nest, layouts, lanes.threads, lanes.ranges, lanes.spread)
    extents = static_extents(nest, lanes.ranges)
    if loop is None or extents is None:
        return False
    changed = False
    for access in fragments:
        if access.buffer.name in layouts:
            continue
        derived = _operand_layout(access, nest, extents, loop, lanes.registers)
        if derived is not None:
            layouts[access.buffer.name] = derived
            changed = True
    return changed


def _operand_layout(
    access: Access,
    nest: Parallel,
    extents: tuple[int, ...],
    loop: FragmentLayout,
    lane_registers: int,
) -> FragmentLayout | None:
    """The layout that puts an operand's elements where the nest's iterations want them.

    An axis that no loop variable indexes is kept whole in each thread's registers, where half of
    them are enough for it; None where they are not.
    """
    shape = static(access.buffer)
    kept: list[tuple[FragmentMode, ...]] = []
    used: set[int] = set()
    for index in access.indices:
        digits = _digits(index, nest, extents)
        modes = None
        if digits and not used & set(digits):
            modes = joined(tuple(loop.axes[k] for k in digits), tuple(extents[k] for k in digits))
        if modes is not None:
            used |= set(digits)
        kept.append(modes or (FragmentMode(1, REGISTER, 1),))
    layout = operand_of(loop, tuple(kept), used)
    register = layout.registers
    grown = list(layout.axes)
    for axis, extent in enumerate(shape):
        have = layout.shape[axis]
        if have < extent:
            more = -(-extent // have)
            grown[axis] = (*grown[axis], FragmentMode(more, REGISTER, register))
            register *= more
    half_bytes = lane_registers * REGISTER_BYTES // 2
    if register > layout.registers and 0 < half_bytes < register * access.buffer.dtype.bytes:
        return None
    return compact_registers(tuple(grown), layout.replication)


def _digits(index: Expr, nest: Parallel, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Which of the nest's variables the index is, or is the number of; none of them otherwise."""
    if isinstance(index, Var) and index in nest.vars:
        return (nest.vars.index(index),)
    return digits_of(index, nest.vars, extents) or ()


def _has_flat_indices(nests: Nests, ranges: Ranges) -> bool:
    """True when a fragment is indexed by the number of an iteration of several loops."""
    for _, nest in nests:
        extents = None if nest is None else static_extents(nest, ranges)
        if nest is None or extents is None:
            continue
        fragments = [a for a in accesses_of(nest) if a.buffer.scope is Scope.FRAGMENT]
        if any(digits_of(index, nest.vars, extents) for a in fragments for index in a.indices):
            return True
    return False


def _seed(
    free: list[Buffer],
    nests: Nests,
    layouts: dict[str, Layout | FragmentLayout],
    lanes: _Lanes,
) -> None:
    """Decide one free fragment: by the first nest that also touches memory, else by its shape."""
    names = {fragment.name for fragment in free}
    largest = max(free, key=lambda b: (_elements(b), -free.index(b)))
    for _, nest in nests:
        if nest is None:
            continue
        touched = accesses_of(nest)
        wanted = [
            a
            for a in touched
            if a.buffer.name in names and _elements(a.buffer) == _elements(largest)
        ]
        memory = [a for a in touched if a.buffer.scope in (Scope.GLOBAL, Scope.SHARED)]
        if wanted and memory and _derive(nest, wanted[:1], layouts, lanes):
            name = wanted[0].buffer.name
            if fits_shape(layouts[name], static(wanted[0].buffer)):  # type: ignore[arg-type]
                return
            del layouts[name]
    shape = static(largest)
    width = max(1, 16 // largest.dtype.bytes)
    while width > 1 and (
        shape[-1:] == () or shape[-1] % width or _elements(largest) // width < lanes.threads
    ):
        width //= 2
    layouts[largest.name] = lanes.spread(shape, width, lanes.threads)


def _elements(buffer: Buffer) -> int:
    total = 1
    for extent in static(buffer):
        total *= extent
    return total
