"""Slots that lanes read are released in order with the copy engine, which fills them again.

A copy engine overtakes ordinary reads that it is not ordered with: a slot whose tile lanes take to
registers is published before one of them releases it. Here the schedule is looked at; that the
emulator reports what is missing is shown in `conformance/meta_tests/test_synchronisation.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilecore
import tilecore.language as T
from tilecore.ir.buffers import Scope
from tilecore.ir.stmts import For, Gemm, If, Intrinsic, Stmt
from tilecore.ir.visit import buffers_in, walk_stmts

TILE = 64


def product(in_registers: bool, stages: int) -> Any:
    """``C = A @ B``: A as it lies in shared memory, or by way of registers."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, TILE), "float16")
            b = T.alloc_shared((TILE, 64), "float16")
            own = T.alloc_fragment((64, TILE), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(512 // TILE, num_stages=stages):
                T.copy(A[0, k * TILE], a)
                if in_registers:
                    T.copy(a, own)
                T.copy(B[k * TILE, 0], b)
                T.gemm(own if in_registers else a, b, c)
            T.copy(c, C)

    return main


def releases(kernel: Any) -> list[tuple[bool, list[str]]]:
    """Of each release in a loop: whether lanes read before it, and the operations between."""
    found: list[tuple[bool, list[str]]] = []
    lowered = tilecore.lower(kernel, "cuda_hopper", device="emulator")
    (one,) = dict(lowered.stages)["scheduled"].kernels
    for loop in (stmt for stmt in walk_stmts(one.body) if isinstance(stmt, For)):
        read, since = False, []
        if any(isinstance(stmt, For) for stmt in loop.body):
            continue
        for stmt in loop.body:
            if isinstance(stmt, If) and _releases(stmt):
                found.append((read, since))
                read, since = False, []
            elif isinstance(stmt, Intrinsic):
                since.append(stmt.op)
            elif not isinstance(stmt, Gemm) and any(
                one.scope is Scope.SHARED for one in buffers_in((stmt,))
            ):
                read, since = True, []
    return found


def _releases(stmt: Stmt) -> bool:
    ops = [one.op for one in walk_stmts((stmt,)) if isinstance(one, Intrinsic)]
    return ops == ["barrier.arrive"]


@pytest.mark.parametrize("stages", [2, 3])
def test_what_lanes_read_is_published_before_its_slot_is_released(stages: int) -> None:
    found = releases(product(True, stages))
    assert any(read for read, _ in found)
    for read, since in found:
        if read:
            assert since[-2:] == ["memory.publish", "sync_warp"]


def test_slots_that_only_contractions_read_are_released_without() -> None:
    """They read through the engines' own path, and each warp waits for its part of them."""
    found = releases(product(False, 3))
    assert found and not any(read or "memory.publish" in since for read, since in found)
