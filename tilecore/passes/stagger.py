"""Two halves of a block's warps, one phase apart: one half multiplies while the other loads.

For targets whose warps share a matrix unit in pairs, one of each half. A phase ends where all warps
of the block meet (`stagger.phase`); the upper half meets once before it starts (`stagger.begin`)
and the lower half once after it is done (`stagger.end`), so that the halves are in different
phases all along. Copies wait in registers (`register_ahead`), in two slots of shared memory:

    one contraction                          | two: the first fills what the second uses
    ahead <- A[0]; slot 0 <- ahead           | slots 0 and 1 of K, slot 0 of V
    ahead <- A[1]                            | S <- first contraction, of iteration 0
    begin                                    | begin
    for k:                                   | for k:
      slot (k + 1) % 2 <- ahead              |   work on S
      ahead <- A[k + 2]                      |   phase
      operands <- slot k % 2                 |   slot (k + 1) % 2 of V <- V[k + 1]
      phase                                  |   slot k % 2 of K <- K[k + 2]
      contraction of operands                |   second contraction; the first of k + 1
      phase                                  |   phase
    end                                      | end

What one half does in a phase meets what the other does one phase earlier or later, so that two
phases, not one, must lie between a write and a read of one place. `insert_barriers` checks it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import TRUE, Expr, Var, binary, const, dtype_of_expr, free_vars
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.stmts import Allocate, Block, Copy, For, Gemm, Intrinsic, Let, LoopKind, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes.hold_operands import HELD, layout_in_registers
from tilecore.passes.lowering.alternate_operands import CALM, IN_ORDER, URGENT
from tilecore.passes.plan_shared_memory import aligned, size_of
from tilecore.passes.producers import Producer, any_writes, mentions
from tilecore.passes.register_ahead import Ahead, RegisterAhead
from tilecore.passes.scopes import loads_in, static, whole, with_hint

if TYPE_CHECKING:
    from tilecore.passes.pipeline_loops import Pipeliner

BEGIN, PHASE, END = (Intrinsic(f"stagger.{name}") for name in ("begin", "phase", "end"))
SLOTS = 2
MOST_OPERAND_REGISTERS = 64
"""32-bit registers of a lane for the operands of one iteration."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a loop is made of.

    Attributes:
        producers: the copies that run ahead, with two slots each.
        first: of two contractions the one that an iteration begins with.
        last: the contraction that it ends with.
        between: places of all other statements, in order.
        operands: of a single contraction, what its operands in registers are read from.
    """

    producers: tuple[Producer, ...]
    first: Gemm | None
    last: Gemm
    between: tuple[int, ...]
    operands: tuple[tuple[Region, Region], ...] = ()


def form_of(owner: Pipeliner, loop: For, producers: list[Producer]) -> Form | None:
    """The form of a loop that can be staggered; None of another one, or where memory is short."""
    own = tuple(dataclasses.replace(p, slots=SLOTS) for p in producers)
    ahead = {p.index for p in own}
    staying = [k for k in range(len(loop.body)) if k not in ahead]
    gemms = [k for k in staying if isinstance(loop.body[k], Gemm)]
    between = tuple(k for k in staying if k not in gemms)
    if len(gemms) not in (1, 2) or staying[-1] != gemms[-1] or not _has_room(owner, loop, own):
        return None
    if any(_meets_others(loop.body[k]) for k in between):
        return None
    last = loop.body[gemms[-1]]
    assert isinstance(last, Gemm)
    if len(gemms) == 1:
        return _on_registers(owner, Form(own, None, last, between))
    first = loop.body[gemms[0]]
    assert isinstance(first, Gemm)
    before = [loop.body[k] for k in between if k < gemms[0]]
    may_turn = all(isinstance(s, Let | Allocate) for s in before) and _may_start_early(first, loop)
    apart = all(
        mentions(first, p.copy.dst.buffer) != mentions(last, p.copy.dst.buffer) for p in own
    )
    return Form(own, first, last, between) if may_turn and apart else None


def _has_room(owner: Pipeliner, loop: For, producers: tuple[Producer, ...]) -> bool:
    """True when all that the loop needs of shared memory fits, with two slots of the copies."""
    slotted = {p.copy.dst.buffer.name for p in producers}
    total = 0
    for buffer in buffers_in(loop.body):
        if buffer.scope is Scope.SHARED:
            layout = owner.layouts[buffer.name]
            size = aligned(size_of(buffer, layout))  # type: ignore[arg-type]
            total += size * (SLOTS if buffer.name in slotted else 1)
    return total <= owner.context.target.smem_bytes


def _meets_others(stmt: Stmt) -> bool:
    """True for statements through which lanes see one another: they need barriers of their own."""
    return any(buffer.scope is Scope.SHARED for buffer in buffers_in((stmt,))) or any(
        isinstance(inner, Gemm)
        or (isinstance(inner, Intrinsic) and not inner.op.startswith(("fragment.", "lane.")))
        for inner in walk_stmts((stmt,))
    )


def _may_start_early(gemm: Gemm, loop: For) -> bool:
    """True when the contraction of the next iteration may run in this one."""
    inside: set[Var] = {loop.var} | {s.var for s in loop.body if isinstance(s, Let)}
    if gemm.clear_accum != TRUE:
        return False
    for region in (gemm.a, gemm.b, gemm.c):
        if any(free_vars(start) & inside or loads_in(start) for start in region.starts):
            return False
    held = [r.buffer for r in (gemm.a, gemm.b) if r.buffer.scope is not Scope.SHARED]
    return not any(any_writes(loop.body, buffer) for buffer in held)


def _on_registers(owner: Pipeliner, form: Form) -> Form | None:
    """A single contraction on operands in registers; None where these are too many."""
    gemm = form.last
    new = dataclasses.replace(gemm, hints=with_hint(gemm.hints, HELD, True))
    pairs: dict[str, tuple[Region, Region]] = {}
    for field in ("a", "b"):
        region: Region = getattr(gemm, field)
        if region.buffer.scope is not Scope.SHARED:
            return None
        name = f"{region.buffer.name}_held"
        held = owner.names.buffer(name, static(region), region.dtype, Scope.FRAGMENT)
        new = dataclasses.replace(new, **{field: whole(held)})
        pairs[field] = (region, whole(held))
    layouts: dict[str, FragmentLayout] = {}
    registers = 0
    for field, (region, inside) in pairs.items():
        layout = layout_in_registers(gemm, new, field, owner.kernel, owner.context)
        if layout is None:
            return None
        registers += layout.registers * region.dtype.bits // 32
        layouts[inside.buffer.name] = layout
    if registers > MOST_OPERAND_REGISTERS:
        return None
    owner.layouts.update(layouts)
    return dataclasses.replace(form, last=new, operands=tuple(pairs.values()))


class Staggered(RegisterAhead):
    """Rewrites one loop of a known form."""

    def __init__(self, owner: Pipeliner, loop: For, form: Form) -> None:
        super().__init__(owner, loop, list(form.producers))
        self.form = form

    def expand(self, held: Block) -> Block:
        """The prologue and the new loop, between the meetings that set the halves apart."""
        loop, dtype = self.loop, self.loop.var.dtype
        simple = loop.start == const(0, dtype) and loop.step == const(1, dtype)
        fresh = self.owner.names.fresh(f"{loop.var.name}_step")
        counter = loop.var if simple else Var(fresh, dtype)
        head = () if simple else (Let(loop.var, self._at(counter), loop.loc),)
        steady = self._one(counter) if self.form.first is None else self._two(counter)
        new = For(counter, const(0, dtype), loop.extent, const(1, dtype), (*head, *steady),
                  LoopKind.SERIAL, None, loop.hints, loop.loc)  # fmt: skip
        return (*self._prologue(held), BEGIN, new, END)

    def _prologue(self, held: Block) -> list[Stmt]:
        """What the first iteration finds: its slots filled, later loads under way."""
        zero, one, two = (const(n, self.loop.var.dtype) for n in range(3))
        result: list[Stmt] = [Allocate(each.loaded) for each in self.waiting]
        result += [stmt for stmt in held if isinstance(stmt, Allocate)]
        result += [Allocate(inside.buffer) for _, inside in self.form.operands]
        once = tuple(stmt for stmt in held if not isinstance(stmt, Allocate))
        loads = tuple(s for each in self.waiting for s in self._load(each, zero))
        result += self._if_exists(zero, (*loads, *once))
        for each in self.waiting:
            ready = (*self._store(each, zero), *self._if_exists(one, self._load(each, one)))
            result += self._if_exists(zero, ready)
        first = self.form.first
        if first is None:
            return result
        for each in self._of(first):
            ready = (*self._store(each, one), *self._if_exists(two, self._load(each, two)))
            result += self._if_exists(one, ready)
        return [*result, *self._if_exists(zero, (self._in_slot(first, zero),))]

    def _one(self, counter: Var) -> list[Stmt]:
        """An iteration with one contraction."""
        body, form = self.loop.body, self.form
        moves = self._fill(self.waiting, counter, 1)
        reads = [Copy(region, inside, (), form.last.loc) for region, inside in form.operands]
        work = [self._in_slot(body[k], counter) for k in form.between]
        reading = [self._in_slot(stmt, counter) for stmt in reads]
        return [*moves, *work, *reading, PHASE, IN_ORDER, URGENT, form.last, CALM, IN_ORDER, PHASE]

    def _two(self, counter: Var) -> list[Stmt]:
        """An iteration that ends with the first contraction of the next one."""
        body, form = self.loop.body, self.form
        assert form.first is not None
        one = binary("add", counter, const(1, counter.dtype))
        ahead = (*self._fill(self._of(form.last), counter, 1),
                 *self._fill(self._of(form.first), counter, 2))  # fmt: skip
        work = [self._in_slot(body[k], counter) for k in form.between]
        following = self._if_exists(one, (self._in_slot(form.first, one),))
        # Without this, compilers move work on registers down to where its results are used.
        operands = [r for r in (form.last.a, form.last.b) if r.buffer.scope is Scope.FRAGMENT]
        done = (Intrinsic("contraction.settle", tuple(operands)),) if operands else ()
        last = self._in_slot(form.last, counter)
        return [*work, *done, PHASE, *ahead, last, *following, PHASE]

    def _of(self, gemm: Gemm) -> list[Ahead]:
        return [each for each in self.waiting if mentions(gemm, each.producer.copy.dst.buffer)]

    def _fill(self, group: list[Ahead], step: Expr, distance: int) -> Block:
        """Slots of ``step + distance`` from registers, which then load one iteration more."""
        dtype = dtype_of_expr(step)
        at, after = (binary("add", step, const(distance + n, dtype)) for n in (0, 1))
        stores = tuple(s for each in group for s in self._store(each, at))
        loads = tuple(s for each in group for s in self._load(each, after))
        return self._if_exists(at, (*stores, *self._if_exists(after, loads)))

    def _in_slot(self, stmt: Stmt, step: Expr) -> Stmt:
        return self.owner.rebuffer(stmt, list(self.form.producers), step, self.slotted)
