"""Counting the work of lane-level kernels: loops, branches, barriers, bytes."""

from __future__ import annotations

import pytest

from tilecore.codegen.simt.count_work import Segment, count_work
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float16, float32
from tilecore.ir.expr import Call, Cast, Load, Var, binary, const
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Block, For, If, Intrinsic, LoopKind, Store

A = Buffer("A", (const(4096),), float32, Scope.GLOBAL)
S = Buffer("S", (const(4096),), float32, Scope.SHARED)
R = Buffer("R", (const(64),), float32, Scope.LOCAL)
H = Buffer("H", (const(64),), float16, Scope.LOCAL)
BX, STEP, J = Var("bx"), Var("i"), Var("j")
BARRIER = Intrinsic("sync_block")


def move(source: Buffer, target: Buffer, width: int) -> Intrinsic:
    return Intrinsic("lane.move", tuple(Region(b, (const(0),), (const(width),))
                                        for b in (source, target)))  # fmt: skip


def loop(var: Var, extent: object, *body: object) -> For:
    count = const(extent) if isinstance(extent, int) else extent
    return For(var, const(0), count, const(1), tuple(body), LoopKind.SERIAL)  # type: ignore[arg-type]


def segments(*body: object, grid: tuple[int, ...] = (8,)) -> list[Segment]:
    block: Block = tuple(body)  # type: ignore[assignment]
    kernel = Kernel("k", (BX,), tuple(const(e) for e in grid), 64, block)
    return count_work(kernel, grid)


def total(*body: object, grid: tuple[int, ...] = (8,)) -> Segment:
    found = Segment()
    for segment in segments(*body, grid=grid):
        found.add(segment)
    return found


def test_bytes_of_moves_in_nested_loops() -> None:
    found = total(loop(STEP, 3, loop(J, 5, move(A, R, 4), move(R, S, 2))))
    assert found == {"global_load": 15 * 16.0, "shared_store": 15 * 8.0}


def test_elements_and_arithmetic() -> None:
    value = binary("add", binary("mul", Load(R, (STEP,)), Load(S, (STEP,))), const(1.0, float32))
    found = total(loop(STEP, 10, Store(R, (STEP,), value)))
    assert found == {"shared_load": 40.0, "arithmetic": 10.0}, "a multiply-add is one operation"


def test_special_functions_and_conversions() -> None:
    power = Call("exp2", (Load(R, (STEP,)),), float32)
    found = total(loop(STEP, 4, Store(R, (STEP,), power), Store(H, (STEP,), Cast(power, float16))))
    assert found == {"special": 8.0, "convert": 4.0}


def test_bounds_that_depend_on_the_block_are_averaged() -> None:
    found = total(loop(STEP, binary("mul", BX, const(2)), move(A, R, 1)), grid=(101,))
    assert found["global_load"] == pytest.approx(4 * 100, rel=0.2)


def test_branches_count_as_often_as_they_are_taken() -> None:
    rare = If(binary("lt", STEP, const(25)), (move(A, R, 1),), (move(S, R, 1),))
    found = total(loop(STEP, 100, rare))
    assert found["global_load"] + found["shared_load"] == pytest.approx(400)
    assert found["global_load"] == pytest.approx(100, rel=0.4)


def test_a_condition_on_memory_counts_as_taken() -> None:
    found = total(If(binary("lt", Load(R, (const(0),)), const(1.0, float32)), (move(A, R, 1),)))
    assert found["global_load"] == 4.0


def test_barriers_part_the_work_and_a_loop_is_closed_to_a_ring() -> None:
    parts = segments(
        move(A, R, 1),
        loop(STEP, 7, move(R, S, 1), BARRIER, move(S, R, 2), Intrinsic("mma.x", ())),
        move(R, A, 1),
    )
    assert parts == [
        {"global_load": 4.0},
        # what follows the barrier meets what comes before it in the next iteration
        {"shared_store": 28.0, "barrier": 7.0, "shared_load": 56.0, "mma.x": 7.0},
        {"global_store": 4.0},
    ]


def test_two_barriers_an_iteration_make_two_segments() -> None:
    parts = segments(loop(STEP, 2, move(R, S, 1), BARRIER, Intrinsic("mma.x", ()), BARRIER))
    assert parts == [{"shared_store": 8.0, "barrier": 2.0}, {"mma.x": 2.0, "barrier": 2.0}]
