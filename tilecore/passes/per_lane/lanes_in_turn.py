"""Programs written per lane, for targets without lanes: lanes run one after the other.

    let t = block.thread()                 parallel (lane) in (64) {
    s[t] = x[t]                              s[lane] = x[lane]
    sync_block()                  ->       }
    if t < 32 { y[t] = s[63 - t] }         parallel (lane) in (64) {
                                             if lane < 32 { y[lane] = s[63 - lane] }
                                           }

The body is cut at block-wide statements, barriers and exchanges between lanes (`lane_split`); what
lies between is a region, in which every lane runs as far as the next cut. That is one of the orders
that a program without races allows. A region is a nest over the lanes, so that a target may also
run several side by side. Variables and local buffers that live across a cut become arrays with an
element for each lane (`lane_regions`). Branches and loops around an exchange whose conditions
differ between lanes are run under masks: no barrier of the block may stand there.
"""

from __future__ import annotations

import dataclasses

from tilecore.errors import LanguageError, Loc
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType, boolean, int32
from tilecore.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Expr,
    Load,
    Unary,
    Var,
    binary,
    const,
    dtype_of_expr,
)
from tilecore.ir.lane_dependence import is_per_lane
from tilecore.ir.program import Kernel, Program
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.passes.per_lane.lane_branches import (
    lane_branches,
    scopes_are_advice,
    warp_condition,
)
from tilecore.passes.per_lane.lane_exchange import read_exchange
from tilecore.passes.per_lane.lane_regions import LANE, Region, finish_regions
from tilecore.passes.per_lane.lane_split import (
    Split,
    exchange_of,
    is_masked_loop,
    is_of_the_block,
    mentioned,
    split_body,
)
from tilecore.passes.per_lane.lane_tiles import lane_tiles
from tilecore.passes.resolve_aliases import resolve_aliases
from tilecore.passes.scopes import Names, per_kernel


def lanes_in_turn(program: Program) -> Program:
    """See the module's text; kernels that are not written per lane stay as they are.

    Raises:
        LanguageError: what the block does together depends on the lane.
    """
    if not any(_has_lanes(kernel.body) for kernel in program.kernels):
        return program
    program = lane_branches(_without_scopes(program))
    if any(_has_own_views(kernel.body) for kernel in program.kernels):
        program = resolve_aliases(program)
    program = lane_tiles(program)
    names = Names(program)

    def visit(kernel: Kernel) -> Kernel:
        if not is_per_lane(kernel.body):
            return kernel
        split = split_body(kernel.body)
        _check(kernel.body, split)
        cutter = _Cutter(kernel.threads, split, names)
        body = cutter.block(kernel.body, ())
        body = (*cutter.declared, *body)
        return dataclasses.replace(kernel, body=finish_regions(body, kernel.threads, names))

    return per_kernel(program, visit)


def _has_lanes(body: S.Block) -> bool:
    return is_per_lane(body) or any(isinstance(s, S.WarpScope) for s in walk_stmts(body))


def _has_own_views(body: S.Block) -> bool:
    """Views of a lane's own arrays: what a lane does with them is its own, too."""
    return is_per_lane(body) and any(
        isinstance(s, S.Alias) and s.buffer.scope is Scope.LOCAL for s in walk_stmts(body)
    )


def _without_scopes(program: Program) -> Program:
    """Warp scopes are conditions on the lane, where they are no advice (`lane_branches`)."""

    def visit(stmt: S.Stmt) -> S.Stmt | None:
        if not isinstance(stmt, S.WarpScope):
            return None
        return S.If(warp_condition(stmt), stmt.body, (), stmt.loc)

    def visit_kernel(kernel: Kernel) -> Kernel:
        if scopes_are_advice(kernel.body):
            return kernel
        return dataclasses.replace(kernel, body=map_stmts(kernel.body, visit))

    return per_kernel(program, visit_kernel)


def _check(body: S.Block, split: Split) -> None:
    wrong = sorted(split.once & split.varying)
    if not wrong:
        return
    loc = _use_of(wrong[0], body, split)
    raise LanguageError(
        f"what the block does together depends on {wrong[0]}, which differs between lanes",
        expected="the same in all lanes",
        loc=loc,
        hint="use the element's index in T.Parallel instead of the lane's",
    )


def _use_of(name: str, body: S.Block, split: Split) -> Loc | None:
    for stmt in walk_stmts(body):
        if split.is_apart(stmt) and is_of_the_block(stmt) and name in mentioned(stmt):
            return getattr(stmt, "loc", None)
    return next((s.loc for s in walk_stmts(body) if getattr(s, "loc", None)), None)  # type: ignore[attr-defined]


Masks = tuple[Buffer, ...]
"""Per-lane flags, all of which must hold for a lane to take part."""


class _Cutter:
    """Cuts a body into regions and what stands between them."""

    def __init__(self, threads: int, split: Split, names: Names) -> None:
        self.threads = threads
        self.split = split
        self.names = names
        self.declared: list[S.Stmt] = []
        self.loops: list[tuple[Buffer, Buffer] | None] = []  # flags of masked loops

    def flags(self, base: str, dtype: DType = boolean) -> Buffer:
        """A new array with an element for each lane."""
        buffer = self.names.buffer(base, (self.threads,), dtype, Scope.SHARED)
        self.declared.append(S.Allocate(buffer))
        return buffer

    def block(self, block: S.Block, masks: Masks) -> S.Block:
        """The statements of a block, those of a lane's own gathered into regions."""
        result: list[S.Stmt] = []
        own: list[S.Stmt] = []

        def close() -> None:
            if own:
                result.append(Region(tuple(own), masks))
                own.clear()

        for stmt in block:
            call = exchange_of(stmt)
            if not self.split.is_apart(stmt):
                own.append(stmt)
            elif isinstance(stmt, S.Allocate) and stmt.buffer.scope is not Scope.LOCAL:
                self.declared.append(stmt)
            elif call is not None:
                assert isinstance(stmt, S.Let)
                box = self.flags("given", dtype_of_expr(call.args[0]))
                if call.op == "warp.ballot":  # lanes that are not here vote against
                    close()
                    result.append(Region((S.Store(box, (LANE,), FALSE),), ()))
                own.append(S.Store(box, (LANE,), call.args[0], stmt.loc))
                close()
                own += read_exchange(stmt, call, box, self.threads, self.names)
            else:
                close()
                result += self.apart(stmt, masks)
        close()
        return tuple(result)

    def apart(self, stmt: S.Stmt, masks: Masks) -> S.Block:
        """A statement that stands between regions."""
        match stmt:
            case S.If():
                return self.branch(stmt, masks)
            case S.For() | S.While() if is_masked_loop(stmt, self.split):
                return self.masked_loop(stmt, masks)
            case S.For(body=body) | S.While(body=body):
                self.loops.append(None)
                inner = self.block(body, masks)
                self.loops.pop()
                return (dataclasses.replace(stmt, body=inner),)
            case S.Break() | S.Continue() if self.loops[-1] is not None:
                stays, here = self.loops[-1]
                leave = [S.Store(here, (LANE,), FALSE)]
                if isinstance(stmt, S.Break):
                    leave.append(S.Store(stays, (LANE,), FALSE))
                return (Region(tuple(leave), masks),)
            case S.Intrinsic(op="sync_block" | "sync_warp"):
                return ()
            case _:
                return (stmt,)

    def branch(self, stmt: S.If, masks: Masks) -> S.Block:
        """A branch around a cut: taken by the block, or by lanes under a mask."""
        condition = stmt.condition
        if not self.split.varies((condition,)):
            then, otherwise = self.block(stmt.then, masks), self.block(stmt.otherwise, masks)
            return (dataclasses.replace(stmt, then=then, otherwise=otherwise),)
        chosen = self.flags("chosen")
        set_one = S.Store(chosen, (LANE,), condition, stmt.loc)
        result: list[S.Stmt] = [Region((set_one,), masks)]
        result += self.block(stmt.then, (*masks, chosen))
        if stmt.otherwise:
            other = self.flags("other")
            no = Unary("not", Load(chosen, (LANE,)), boolean)
            result.append(Region((S.Store(other, (LANE,), no, stmt.loc),), masks))
            result += self.block(stmt.otherwise, (*masks, other))
        return tuple(result)

    def masked_loop(self, stmt: S.For | S.While, masks: Masks) -> S.Block:
        """A loop that some lanes leave before others: it runs while any lane is in it."""
        stays, here = self.flags("stays"), self.flags("here")
        more = self.names.buffer("more", (), boolean, Scope.LOCAL)
        off = S.Store(stays, (LANE,), FALSE)
        before: list[S.Stmt] = [Region((off,), ())]
        if isinstance(stmt, S.While):
            before.append(Region((S.Store(stays, (LANE,), TRUE),), masks))
            body, condition = stmt.body, stmt.condition
        else:
            first, body, condition = self.counted(stmt, stays)
            before.append(Region(first, masks))
        again = (
            S.Store(here, (LANE,), FALSE),
            S.If(
                Load(stays, (LANE,)),
                (
                    S.Store(here, (LANE,), condition),
                    S.If(
                        Unary("not", Load(here, (LANE,)), boolean),
                        (S.Store(stays, (LANE,), FALSE),),
                    ),
                ),
            ),
        )
        self.loops.append((stays, here))
        inner = self.block(body, (*masks, here))
        self.loops.pop()
        rounds = S.While(
            Load(more, ()),
            (
                Region(again, ()),
                S.Store(more, (), FALSE),
                *self.any_lane(here, more),
                S.If(Load(more, ()), inner),
            ),
            stmt.loc,
        )
        return (*before, S.Allocate(more, TRUE), rounds)

    def counted(self, stmt: S.For, stays: Buffer) -> tuple[S.Block, S.Block, Expr]:
        """A `For` as: what comes before it, the body of a round, and its condition."""
        kind = stmt.var.dtype
        count, start, step = (self.flags(n, kind) for n in ("round", "start", "step"))
        extent = self.flags("extent", dtype_of_expr(stmt.extent))
        first = (
            S.Store(stays, (LANE,), TRUE),
            S.Store(count, (LANE,), const(-1, kind)),
            S.Store(start, (LANE,), stmt.start),
            S.Store(extent, (LANE,), stmt.extent),
            S.Store(step, (LANE,), stmt.step),
        )
        # The round is counted before the body, so that T.continue skips only the body.
        moved = Binary("mul", Load(count, (LANE,)), Load(step, (LANE,)), kind)
        value = Binary("add", Load(start, (LANE,)), moved, kind)
        counted = S.Store(count, (LANE,), binary("add", Load(count, (LANE,)), const(1, kind)))
        let = S.Let(stmt.var, value)
        following = binary("add", Load(count, (LANE,)), const(1, kind))
        return first, (counted, let, *stmt.body), binary("lt", following, Load(extent, (LANE,)))

    def any_lane(self, here: Buffer, more: Buffer) -> S.Block:
        """Set `more` when a lane is in the loop."""
        lane = Var(self.names.fresh("one_lane"), int32)
        found = S.If(Load(here, (lane,)), (S.Store(more, (), TRUE),))
        zero, one = const(0), const(1)
        return (S.For(lane, zero, const(self.threads), one, (found,)),)
