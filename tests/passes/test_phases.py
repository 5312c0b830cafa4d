"""Halves of the warps one phase apart: what one phase between two accesses does not separate."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
from passes_support import context, kernel_of, run

import tilecore.language as T
from tilecore.errors import VerifyError
from tilecore.ir.stmts import For, Parallel
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.passes.scopes import kernel_ranges
from tilecore.passes.stagger import BEGIN, END, PHASE

barriers = importlib.import_module("tilecore.passes.insert_barriers")


def ring(slots: int):
    """Every step writes the next slot and reads its own."""

    @T.prim_func
    def program(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((slots, 32), "float32")
            for step in T.serial(8):
                for i in T.Parallel(32):
                    s[(step + 1) % slots, i] = A[step, i]
                for i in T.Parallel(32):
                    B[step, i] = s[step % slots, 31 - i]

    return program


def with_phases(slots: int, after_write: int, after_read: int):
    """The program with so many phases after each of the two nests."""
    scheduled = run(ring(slots), until="plan_shared_memory")
    kernel = kernel_of(scheduled)
    (loop,) = [s for s in walk_stmts(kernel.body) if isinstance(s, For)]
    nests = [s for s in loop.body if isinstance(s, Parallel)]
    assert len(nests) == 2
    body = (nests[0], *[PHASE] * after_write, nests[1], *[PHASE] * after_read)
    new = dataclasses.replace(loop, body=body)
    block = map_stmts(kernel.body, lambda s: (BEGIN, new, END) if s == loop else None)
    kernel = dataclasses.replace(kernel, body=block)
    return dataclasses.replace(scheduled, kernels=(kernel,))


@pytest.mark.parametrize(
    ("slots", "after_write", "after_read", "right"),
    [
        (2, 1, 2, True),  # two phases from the read of a slot to its next write, three to its read
        (2, 1, 1, False),  # one half may still read what the other writes
        (2, 2, 1, False),
        (3, 1, 1, True),  # one slot more is two phases more
        (3, 1, 0, False),  # from the write to the read of a slot there is one phase only
        (1, 2, 2, True),
        (1, 1, 2, False),
        (1, 2, 1, False),
    ],
)
def test_two_phases_must_lie_between(
    slots: int, after_write: int, after_read: int, right: bool
) -> None:
    program = with_phases(slots, after_write, after_read)
    kernel = kernel_of(program)
    found = barriers.find_conflicts(kernel, kernel_ranges(kernel, program.symbols))
    assert (not found) == right
    if right:
        assert barriers.insert_barriers(program, context()) == program
    else:
        with pytest.raises(VerifyError, match="a phase apart"):
            barriers.insert_barriers(program, context())
