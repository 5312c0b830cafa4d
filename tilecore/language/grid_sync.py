"""T.sync_grid: all blocks of a kernel meet, as the end of a launch.

A kernel that meets is cut there into launches, one after the other: each sees everything that the
ones before it wrote, on every target, whatever number of blocks the device holds at a time. What
a block keeps on the chip across a meeting goes through a workspace, one part for each block; what
a name stands for is computed again. Meetings stand at the top of the kernel, or at the top of a
T.Parallel there, which is cut likewise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilecore.ir.attached import attachment
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Expr, Load, Var, const, free_vars, walk
from tilecore.ir.lane_dependence import is_per_lane
from tilecore.ir.stmts import Alias, Allocate, Block, Copy, Fill, Intrinsic, Let, Parallel, Stmt
from tilecore.ir.stmts import Store as StoreStmt
from tilecore.ir.visit import (
    buffers_in,
    exprs_of,
    map_names,
    map_stmts,
    substitute_block,
    walk_stmts,
)
from tilecore.language.builder import Builder, KernelState, current
from tilecore.language.locate import caller_loc, fail, refuse

OPERATION = "sync_grid"


def sync_grid() -> None:
    """All blocks of the kernel meet: later statements see what all of them wrote before."""
    builder = current()
    builder.require_kernel("T.sync_grid")
    builder.emit(Intrinsic(OPERATION, (), (), caller_loc()))


def is_meeting(stmt: Stmt) -> bool:
    """True for T.sync_grid."""
    return isinstance(stmt, Intrinsic) and stmt.op == OPERATION


def launches(body: Block, state: KernelState, builder: Builder) -> list[tuple[KernelState, Block]]:
    """The kernels that `body` is cut into: one, where nobody meets.

    Raises:
        LanguageError: a meeting in a loop or under a condition.
        UnsupportedError: a lane's own variables, or a value read from memory, are kept across one.
    """
    if not any(is_meeting(stmt) for stmt in walk_stmts(body)):
        return [(state, body)]
    parts = _parts(_cut_nests(body, builder))
    return _Launches(parts, state, builder).made()


def _cut_nests(body: Block, builder: Builder) -> Block:
    """Every T.Parallel with a meeting at its top, as one before and one behind it."""
    result: list[Stmt] = []
    for stmt in body:
        if not (isinstance(stmt, Parallel) and any(map(is_meeting, stmt.body))):
            result.append(stmt)
            continue
        for index, part in enumerate(_parts(stmt.body)):
            if index:
                result.append(Intrinsic(OPERATION, (), (), stmt.loc))
            own = {v: dataclasses.replace(v, name=builder.unique(v.name)) for v in stmt.vars}
            inner = substitute_block(part, dict(own))
            result.append(dataclasses.replace(stmt, vars=tuple(own.values()), body=inner))
    return tuple(result)


def _parts(body: Block) -> list[Block]:
    """The statements between meetings; a meeting further inside is the author's error."""
    parts: list[list[Stmt]] = [[]]
    for stmt in body:
        if is_meeting(stmt):
            parts.append([])
            continue
        inside = next((s for s in walk_stmts((stmt,)) if is_meeting(s)), None)
        if inside is not None:
            fail(
                "T.sync_grid in a loop or under a condition",
                expected="a place that every block reaches once: the top of the kernel",
                got=f"one inside {type(stmt).__name__.lower()}",
                hint="start a kernel for each round: `for` around `with T.Kernel(...)`",
                loc=getattr(inside, "loc", None),
            )
        parts[-1].append(stmt)
    return [tuple(part) for part in parts]


class _Launches:
    """Makes a kernel of each part, with names of its own."""

    def __init__(self, parts: list[Block], state: KernelState, builder: Builder) -> None:
        self.parts, self.state, self.builder = parts, state, builder
        self.lets: dict[str, Let] = {}
        self.buffers: dict[str, Allocate | Alias] = {}
        self.used: set[str] = set()  # buffers on the chip that earlier parts touched
        self.held: dict[str, Buffer] = {}  # their workspaces
        self.attachments: dict[str, Intrinsic] = {}  # of tensors at addresses, by earlier parts
        self.attached: dict[str, Intrinsic] = {}  # tensors at addresses that this part may want

    def made(self) -> list[tuple[KernelState, Block]]:
        """(state, body) of each launch."""
        restored = [self.kept(part) for part in self.parts]
        kept = {buffer.name: buffer for part in restored for buffer in part}
        if kept and is_per_lane(tuple(stmt for part in self.parts for stmt in part)):
            own = next((b for b in kept.values() if b.scope is Scope.LOCAL), None)
            if own is not None:
                refuse(f"T.sync_grid while {own.name} is kept", "it is each lane's own",
                       hint="keep it in a tensor of your own")  # fmt: skip
        return [self.launch(i, part, restored, kept) for i, part in enumerate(self.parts)]

    def kept(self, part: Block) -> list[Buffer]:
        """Buffers whose contents this part takes over from earlier ones."""
        found = [b for b in buffers_in(part) if b.name in self.used and not _is_set_first(part, b)]
        touching = map_stmts(part, lambda stmt: () if _only_declares(stmt) else None)
        self.used |= {b.name for b in buffers_in(touching) if b.scope is not Scope.GLOBAL}
        return found

    def launch(
        self, index: int, part: Block, restored: list[list[Buffer]], kept: Mapping[str, Buffer]
    ) -> tuple[KernelState, Block]:
        state = self.state
        names: dict[str, Any] = {}
        head: list[Stmt] = []
        if index:
            fresh = {v: dataclasses.replace(v, name=self.builder.unique(v.name))
                     for v in state.grid_vars}  # fmt: skip
            names |= {old.name: new for old, new in fresh.items()}
            state = dataclasses.replace(
                state, name=self.builder.unique(state.name), grid_vars=tuple(fresh.values())
            )
            self.attached = dict(self.attachments)
            self.declare(part, names, head)
        for buffer in restored[index]:
            new = names[buffer.name]
            head.append(_copied(self.workspace(buffer), new, state.grid_vars, store=False))
        later = {b.name for other in restored[index + 1 :] for b in other}
        for stmt in part:
            if isinstance(stmt, Let):
                self.lets[stmt.var.name] = stmt
            elif isinstance(stmt, Allocate | Alias):
                self.buffers[stmt.buffer.name] = stmt
            elif isinstance(stmt, Intrinsic) and (attached := attachment(stmt)):
                self.attachments[attached[0].name] = stmt
        tail = [
            _copied(self.workspace(buffer), names.get(name, buffer), state.grid_vars, store=True)
            for name, buffer in kept.items()
            if name in later and any(b.name == name for b in buffers_in(part))
        ]
        layouts = {
            names[name].name if name in names else name: layout
            for name, layout in state.layouts.items()
            if name in names or name in {b.name for b in buffers_in(part)}
        }
        body = tuple(_renamed(stmt, names) for stmt in part)
        return dataclasses.replace(state, layouts=layouts), (*head, *body, *tail)

    def declare(self, part: Block, names: dict[str, Any], head: list[Stmt]) -> None:
        """Names of earlier parts that this one uses, under new names, in the order of their use."""

        def need_var(var: Var) -> None:
            let = self.lets.get(var.name)
            if let is None or var.name in names:
                return
            if any(isinstance(node, Load) for node in walk(let.value)):
                refuse(
                    f"T.sync_grid while {var.name} is kept",
                    "it was read from memory, which other blocks may write",
                    hint="read it again after the meeting",
                )
            for inner in sorted(free_vars(let.value), key=lambda v: v.name):
                need_var(inner)
            new = dataclasses.replace(var, name=self.builder.unique(var.name))
            head.append(Let(new, _renamed(let.value, names), let.loc))
            names[var.name] = new

        def need_buffer(buffer: Buffer) -> None:
            if (attach := self.attached.pop(buffer.name, None)) is not None:
                if attach.args[1] not in self.builder.params:
                    refuse(
                        f"T.sync_grid while {buffer.name} is kept",
                        "its address was read from memory, which other blocks may write",
                        hint="call T.make_tensor again after the meeting",
                    )
                head.append(attach)
            made = self.buffers.get(buffer.name)
            if made is None or buffer.name in names:
                return
            new = dataclasses.replace(buffer, name=self.builder.unique(buffer.name))
            if isinstance(made, Alias):
                need_buffer(made.source)
                head.append(Alias(new, names.get(made.source.name, made.source), made.loc))
            else:
                init = None if made.init is None else const(0, new.dtype)
                head.append(Allocate(new, init, made.loc))
            names[buffer.name] = new

        own = {s.var.name for s in walk_stmts(part) if isinstance(s, Let)}
        for stmt in walk_stmts(part):
            for top in exprs_of(stmt):
                for var in sorted(free_vars(top), key=lambda v: v.name):
                    if var.name not in own:
                        need_var(var)
        for buffer in buffers_in(part):
            need_buffer(buffer)

    def workspace(self, buffer: Buffer) -> Buffer:
        """Where all blocks keep a buffer."""
        if buffer.name not in self.held:
            name = self.builder.unique(f"{buffer.name}_kept")
            shape = (*self.state.grid, *buffer.shape)
            self.held[buffer.name] = Buffer(name, shape, buffer.dtype, Scope.GLOBAL)
            self.builder.workspaces.append(self.held[buffer.name])
        return self.held[buffer.name]


def _only_declares(stmt: Stmt) -> bool:
    return isinstance(stmt, Allocate) and stmt.init is None


def _is_set_first(part: Block, buffer: Buffer) -> bool:
    """True where a part sets all of a buffer before it looks at it."""
    for stmt in part:
        if not any(found.name == buffer.name for found in buffers_in((stmt,))):
            continue
        if not isinstance(stmt, Copy | Fill) or stmt.dst.buffer.name != buffer.name:
            return isinstance(stmt, Allocate | Alias)
        reads = isinstance(stmt, Copy) and stmt.src.buffer.name == buffer.name
        is_whole = stmt.dst.extents == buffer.shape
        return is_whole and not reads
    return True


def _copied(held: Buffer, buffer: Buffer, place: tuple[Var, ...], *, store: bool) -> Stmt:
    """A buffer to, or from, this block's part of its workspace, which stands at `place`."""
    if not buffer.shape:
        if store:
            return StoreStmt(held, place, Load(buffer, ()))
        return StoreStmt(buffer, (), Load(held, place))
    zeros: tuple[Expr, ...] = tuple(const(0) for _ in buffer.shape)
    outside = Region(held, (*place, *zeros), (*(None for _ in place), *buffer.shape))
    inside = Region(buffer, zeros, buffer.shape)
    return Copy(inside, outside) if store else Copy(outside, inside)


def _renamed(value: Any, names: Mapping[str, Any]) -> Any:
    """Anything with other variables and buffers in it."""
    return map_names(value, lambda name: names.get(name.name, name)) if names else value
