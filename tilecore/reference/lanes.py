"""Per-lane programs: what depends on the lane, and one lane's view of a frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilecore.ir import stmts as S
from tilecore.ir.expr import Call, Expr, Load, Var, walk
from tilecore.ir.lane_dependence import WARP, is_per_lane
from tilecore.ir.visit import exprs_of, regions_of, walk_stmts
from tilecore.reference.evaluate import LANE, Frame
from tilecore.reference.values import Array


def is_uniform(stmt: S.Stmt, frame: Frame, mask: Array) -> bool:
    """True when nothing that the statement mentions differs between the active lanes."""
    own = stmt.vars if isinstance(stmt, S.Parallel) else ()
    bound = {var.name for var in own} | declared_names(stmt)
    for name in mentioned_names(stmt) - bound:
        storage = frame.storages.get(name)
        if storage is not None and storage.prefix:
            return False
        value = np.asarray(frame.values.get(name, 0))
        if value.ndim and np.unique(value[mask]).size > 1:
            return False
    return True


def lane_frame(frame: Frame, lane: int) -> Frame:
    """What one lane sees: its own values and local buffers, and the block's other buffers."""
    values = {
        name: np.asarray(value)[lane] if np.ndim(value) else value
        for name, value in frame.values.items()
    }
    storages = {
        name: storage.lane(lane) if storage.prefix else storage
        for name, storage in frame.storages.items()
    }
    return replace(frame, domain=(), values=values, storages=storages)


def _nodes(block: S.Block) -> list[Expr]:
    return [node for s in walk_stmts(block) for top in exprs_of(s) for node in walk(top)]


def exchanged(call: Call, args: list[Array], lanes: int) -> Array:
    """What every lane of a block receives in an exchange between lanes (``ir/README.md``)."""
    lane = np.arange(lanes)
    given = np.broadcast_to(args[0], (lanes,))
    if call.op == "warp.ballot":
        bits = given.astype(bool).astype(np.uint32) << (lane % WARP).astype(np.uint32)
        words = np.zeros(-(-lanes // WARP), np.uint32)
        np.bitwise_or.at(words, lane // WARP, bits)
        return np.asarray(words[lane // WARP])
    operand, width = np.broadcast_to(args[1], (lanes,)).astype(np.int64), int(args[2])
    rank = lane % width
    match call.op:
        case "warp.shuffle":
            other = operand % width
        case "warp.shuffle_xor":
            other = rank ^ operand
        case "warp.shuffle_up":
            other = rank - operand
        case _:
            other = rank + operand
    source = np.where((other >= 0) & (other < width), lane - rank + other, lane)
    return np.asarray(given[np.where(source < lanes, source, lane)])


def uses_lanes(block: S.Block) -> bool:
    """True when the statements are written per lane, or ask for some warps only."""
    return is_per_lane(block)


def declared_names(stmt: S.Stmt) -> set[str]:
    """Names that the statement's nested blocks bind."""
    names: set[str] = set()
    for inner in walk_stmts((stmt,)):
        match inner:
            case S.Let(var=var) | S.For(var=var):
                names.add(var.name)
            case S.Allocate(buffer=buffer) | S.Alias(buffer=buffer):
                names.add(buffer.name)
            case S.Atomic(previous=previous) if previous is not None:
                names.add(previous.name)
            case _:
                pass
    return names


def mentioned_names(stmt: S.Stmt) -> set[str]:
    """Variables, buffers and the lane call in the statement and its nested blocks."""
    names: set[str] = set()
    for node in _nodes((stmt,)):
        if isinstance(node, Var):
            names.add(node.name)
        elif isinstance(node, Load):
            names.add(node.buffer.name)
        elif isinstance(node, Call) and node.op == LANE:
            names.add(LANE)
    for inner in walk_stmts((stmt,)):
        names |= {region.buffer.name for region in regions_of(inner)}
        if isinstance(inner, S.Store):
            names.add(inner.buffer.name)
    return names
