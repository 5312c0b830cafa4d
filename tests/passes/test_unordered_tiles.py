"""Tiles of a block that stays are blocks of the author's grid: global memory needs no barrier
between them, shared memory keeps its own, and within a tile nothing changes."""

import dataclasses

import pytest
from passes_support import context, kernel_of, run

import tilecore.language as T
from tilecore.ir.stmts import For, Intrinsic
from tilecore.ir.visit import map_stmts, walk_stmts
from tilecore.passes.insert_barriers import BARRIER, insert_barriers
from tilecore.passes.memory_effects import NEXT_BLOCK

MARK = Intrinsic(NEXT_BLOCK)


def tiles(uses_shared: bool, reads_back: bool):
    """A loop over tiles that are stored at places which only memory knows."""

    @T.prim_func
    def program(
        A: T.Tensor((64,), "float32"), Places: T.Tensor((9,), "int32"),
        B: T.Tensor((4096,), "float32"), C: T.Tensor((64,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=64) as _:
            s = T.alloc_shared((64,), "float32")
            for tile in T.serial(9):
                if uses_shared:
                    for i in T.Parallel(64):
                        s[i] = A[i]
                for i in T.Parallel(64):
                    B[Places[tile] + i] = s[63 - i] if uses_shared else A[i]
                if reads_back:
                    for i in T.Parallel(64):
                        C[i] = B[Places[tile] + (63 - i)]

    return program


def barriers(program, marked: bool) -> int:
    """Barriers of the program; `marked` says at the head of its loop that blocks change there."""
    before = run(program, until="plan_shared_memory")

    def mark(stmt):
        is_tile = isinstance(stmt, For) and stmt.var.name == "tile"
        return (dataclasses.replace(stmt, body=(MARK, *stmt.body)),) if is_tile else None

    kernel = kernel_of(before)
    if marked:
        kernel = dataclasses.replace(kernel, body=map_stmts(kernel.body, mark))
        assert MARK in walk_stmts(kernel.body)
    after = insert_barriers(dataclasses.replace(before, kernels=(kernel,)), context())
    stmts = list(walk_stmts(kernel_of(after).body))
    assert MARK not in stmts, "it says nothing to those that follow"
    return stmts.count(BARRIER)


@pytest.mark.parametrize(
    ("uses_shared", "reads_back", "ordered", "unordered"),
    [(False, False, 1, 0), (True, False, 2, 2), (False, True, 2, 1)],
    ids=["stores", "through shared memory", "read back within a tile"],
)
def test_only_order_between_tiles_is_given_up(
    uses_shared: bool, reads_back: bool, ordered: int, unordered: int
) -> None:
    program = tiles(uses_shared, reads_back)
    assert barriers(program, marked=False) == ordered
    assert barriers(program, marked=True) == unordered
