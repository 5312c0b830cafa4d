"""Bring tile statements to the forms that later passes know.

Before -> after:
  * gemm whose c is not a whole fragment          -> a whole fragment, copied in and out
  * gemm that sums 16-bit floats, without an atom -> a float32 fragment, where that has one
  * gemm operand in global memory                 -> copied to shared memory first
  * gemm operand that is part of a fragment       -> a whole fragment copied from it, or shared
                                                     memory where the backend has no atom
  * reduce of anything but a whole fragment       -> copied to a whole fragment first
  * scan                                          -> nests over shared memory (`scan_nests`)
  * atomic whose old value is used at block scope -> one lane's, told through shared memory
  * reduce into anything but a whole fragment     -> a whole fragment, copied out
A gemm gets the hint ``atom``: its atom's name, or ``fma`` for multiply-adds.
"""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.hooks.records import MmaAtom
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType, boolean, float32
from tilecore.ir.expr import FALSE, TRUE, Expr, Load, Unary, Var, const
from tilecore.ir.lane_dependence import is_per_lane
from tilecore.ir.program import Kernel, Program
from tilecore.ir.stmts import (
    Allocate,
    Atomic,
    Block,
    Break,
    Copy,
    Fill,
    Gemm,
    If,
    Let,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    Store,
    While,
)
from tilecore.passes.contraction import gemm_shape, select_atom
from tilecore.passes.scan_nests import scan_nests
from tilecore.passes.scopes import (
    Names,
    is_whole,
    loads_in,
    per_kernel,
    rewrite_block,
    static,
    whole,
    with_hint,
)


def normalize_tiles(program: Program, context: Context) -> Program:
    """See the module's text."""
    names = Names(program)

    def visit_kernel(kernel: Kernel) -> Kernel:
        per_lane = is_per_lane(kernel.body)

        def visit(stmt: Stmt) -> Block | None:
            match stmt:
                case Gemm():
                    return _gemm(stmt, kernel.threads, names, context)
                case Reduce():
                    return _reduce(stmt, names)
                case Scan():
                    return scan_nests(stmt, kernel.threads, names)
                case While(condition=condition) if _reads_fragment(condition):
                    return (_asked_inside(stmt, rewrite_block(stmt.body, visit)),)
                case Atomic(previous=Var()) if not per_lane:
                    return _previous(stmt, names)
                case _:
                    return None

        return dataclasses.replace(kernel, body=rewrite_block(kernel.body, visit))

    return per_kernel(program, visit_kernel)


def _reads_fragment(condition: Expr) -> bool:
    return any(load.buffer.scope is Scope.FRAGMENT for load in loads_in(condition))


def _asked_inside(loop: While, body: Block) -> While:
    """The same loop with its condition as a branch at the body's top, which may stage fragments."""
    ends = If(Unary("not", loop.condition, boolean), (Break(loop.loc),), (), loop.loc)
    return While(TRUE, (ends, *body), loop.loc)


def _is_whole_fragment(region: Region) -> bool:
    return region.buffer.scope is Scope.FRAGMENT and is_whole(region)


def _gemm(gemm: Gemm, threads: int, names: Names, context: Context) -> Block:
    if 0 in gemm_shape(gemm):
        clear = Fill(gemm.c, const(0, gemm.c.dtype), gemm.loc)
        return () if gemm.clear_accum == FALSE else (If(gemm.clear_accum, (clear,), (), gemm.loc),)
    before: list[Stmt] = []
    after: list[Stmt] = []
    atom, kind = _atom_and_sums(gemm, threads, context)
    changes: dict[str, object] = {}
    for field in ("a", "b"):
        operand: Region = getattr(gemm, field)
        in_place = atom is not None and _is_whole_fragment(operand)
        if operand.buffer.scope is Scope.SHARED or in_place:
            continue
        in_registers = atom is not None and operand.buffer.scope is Scope.FRAGMENT
        scope = Scope.FRAGMENT if in_registers else Scope.SHARED
        part = names.buffer(f"{operand.buffer.name}_part", static(operand), operand.dtype, scope)
        before += [Allocate(part, loc=gemm.loc), Copy(operand, whole(part), loc=gemm.loc)]
        changes[field] = whole(part)
    gemm = dataclasses.replace(gemm, **changes)  # type: ignore[arg-type]
    if atom is None and changes:  # in shared memory an atom may take what none took in registers
        atom, kind = _atom_and_sums(gemm, threads, context)
    changes = {"hints": with_hint(gemm.hints, "atom", "fma" if atom is None else atom.name)}
    if not _is_whole_fragment(gemm.c) or kind != gemm.c.dtype:
        part = names.buffer(f"{gemm.c.buffer.name}_part", static(gemm.c), kind, Scope.FRAGMENT)
        before.append(Allocate(part, loc=gemm.loc))
        if gemm.clear_accum != TRUE:
            before.append(Copy(gemm.c, whole(part), loc=gemm.loc))
        after.append(Copy(whole(part), gemm.c, loc=gemm.loc))
        changes["c"] = whole(part)
    return (*before, dataclasses.replace(gemm, **changes), *after)  # type: ignore[arg-type]


def _atom_and_sums(gemm: Gemm, threads: int, context: Context) -> tuple[MmaAtom | None, DType]:
    """The atom of a gemm, or None, and in which dtype it sums: C's, or a wider one with an atom."""
    atom, kind = select_atom(gemm, threads, context), gemm.c.dtype
    if atom is None and kind.is_float and kind.bits == 16:
        shape = tuple(map(const, static(gemm.c)))
        wide = whole(Buffer(gemm.c.buffer.name, shape, float32, Scope.FRAGMENT))
        atom = select_atom(dataclasses.replace(gemm, c=wide), threads, context)
        kind = kind if atom is None else float32
    return atom, kind


def _reduce(reduce: Reduce, names: Names) -> Block | None:
    before: list[Stmt] = []
    after: list[Stmt] = []
    src, dst, loc = reduce.src, reduce.dst, reduce.loc
    if not _is_whole_fragment(src):
        part = names.buffer(f"{src.buffer.name}_part", static(src), src.dtype, Scope.FRAGMENT)
        before += [Allocate(part, loc=loc), Copy(src, whole(part), loc=loc)]
        src = whole(part)
    if not _is_whole_fragment(dst):
        part = names.buffer(f"{dst.buffer.name}_part", static(dst), dst.dtype, Scope.FRAGMENT)
        before.append(Allocate(part, loc=loc))
        if not reduce.clear:
            before.append(Copy(dst, whole(part), loc=loc))
        after.append(Copy(whole(part), dst, loc=loc))
        dst = whole(part)
    if not before:
        return None
    return (*before, dataclasses.replace(reduce, src=src, dst=dst), *after)


def _previous(atomic: Atomic, names: Names) -> Block:
    """An atomic whose old value the whole block wants: one lane does it, shared memory tells."""
    old = atomic.previous
    assert old is not None
    told = names.buffer(f"{old.name}_told", (1,), old.dtype, Scope.SHARED)
    seen = Var(names.fresh(f"{old.name}_seen"), old.dtype)
    once = Var(names.fresh("once"))
    body = (
        dataclasses.replace(atomic, previous=seen),
        Store(told, (const(0),), seen, atomic.loc),
    )
    return (
        Allocate(told, loc=atomic.loc),
        Parallel((once,), (const(1),), body, (), atomic.loc),
        Let(old, Load(told, (const(0),)), atomic.loc),
    )
