"""Votes over all lanes of a block, for programs written per lane.

Each is a meeting of all lanes, as T.sync_threads is, and may stand where that may. Votes are added
up in shared memory by atomics, so that any number of lanes may take part on every target.
"""

from __future__ import annotations

from typing import Any

from tilecore.ir.dtypes import boolean, int32
from tilecore.ir.expr import Cast, Load, Unary, binary, const
from tilecore.language import operators as ops
from tilecore.language.allocate import alloc_shared
from tilecore.language.atomic_ops import atomic_add
from tilecore.language.builder import current
from tilecore.language.sync_ops import sync_threads
from tilecore.language.values import Scalar


def _votes(what: str, predicate: Any, negate: bool = False) -> Scalar:
    """How many lanes' predicates hold (or do not hold), in all lanes."""
    builder = current()
    builder.require_kernel(what)
    holds = ops.truth(predicate)
    holds = Unary("not", holds, boolean) if negate else holds
    own = builder.bind("vote", Cast(holds, int32))
    box = alloc_shared((1,), "int32")
    sync_threads()
    box[0] = 0
    sync_threads()
    atomic_add(box[0], own)
    sync_threads()
    return builder.bind("votes", Load(box.buffer, (const(0),)))


def syncthreads_count(predicate: Any) -> Scalar:
    """The number of lanes of the block whose predicate holds (int32); all lanes meet."""
    return _votes("T.syncthreads_count", predicate)


def syncthreads_or(predicate: Any) -> Scalar:
    """Whether the predicate holds in a lane of the block (bool); all lanes meet."""
    return Scalar(binary("ne", _votes("T.syncthreads_or", predicate).expr, const(0)))


def syncthreads_and(predicate: Any) -> Scalar:
    """Whether the predicate holds in all lanes of the block (bool); all lanes meet."""
    against = _votes("T.syncthreads_and", predicate, negate=True)
    return Scalar(binary("eq", against.expr, const(0)))
