"""Warp scopes in kernels of the block: what they hold is done once, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import agree, each_backend

import tilecore.language as T

COUNTS = {
    "an atomic": [3, 0, 0, 0], "an atomic of later warps": [3, 0, 0, 0],
    "atomics around tiles": [3, 6, 0, 0], "a loop": [0, 9, 24, 0], "a branch": [0, 0, 0, 14],
    "scopes beside each other": [15, 0, 0, 0], "a variable's loop": [0, 27, 0, 0],
    "a taken number": [10, 21, 0, 0],
}  # fmt: skip
"""What three blocks leave in the counters."""


@T.macro
def work(kind, block, count, s, f, v: T.Ref):
    """What a block does, some of it by some of its warps."""
    if kind == "an atomic":
        with T.ws(0):
            T.atomic_add(count[0], 1)
    elif kind == "an atomic of later warps":
        with T.warps(3, 4):
            T.atomic_add(count[0], 1)
    elif kind == "atomics around tiles":
        with T.ws(1):
            T.atomic_add(count[0], 1)
            for i in T.Parallel(64):
                s[i] = s[i] + 1
            T.atomic_add(count[1], 2)
    elif kind == "a loop":
        with T.ws(0):
            for k in T.serial(3):
                for i in T.Parallel(64):
                    s[i] = s[i] + k
                T.atomic_add(count[1], k)
                v = v + 1
        T.atomic_add(count[2], v)
    elif kind == "a branch":
        with T.ws(1):
            if block > 0:
                T.copy(s, f)
                v = 7
                T.atomic_add(count[3], v)
            else:
                T.fill(s, 9)
    elif kind == "scopes beside each other":
        with T.ws(0):
            for i in T.Parallel(64):
                s[i] = i * 2
        with T.ws(1):
            for i in T.Parallel(64):
                f[i] = s[63 - i]
        T.atomic_add(count[0], v)
    elif kind == "a variable's loop":
        with T.ws(0):
            while v > 2:
                v -= 1
                for i in T.Parallel(64):
                    s[i] = s[i] + v
                T.atomic_add(count[1], v)
    else:
        v = T.atomic_add(count[0], 1, return_prev=True)
        while v < 7:
            with T.ws(0):
                for i in T.Parallel(64):
                    f[i] = f[i] + 1
            T.atomic_add(count[1], v)
            v = T.atomic_add(count[0], 1, return_prev=True)
        T.clear(f)
        v = 0


def scoped(kind: str, threads: int) -> Any:
    """Counters, and a tile that scopes work on."""

    @T.prim_func
    def main(count: T.Tensor((4,), "int32"), y: T.Tensor((3, 64), "int32")):
        with T.Kernel(3, threads=threads) as block:
            s = T.alloc_shared((64,), "int32")
            f = T.alloc_fragment((64,), "int32")
            v = T.alloc_var("int32", init=5)
            T.fill(s, block)
            T.fill(f, block)
            work(kind, block, count, s, f, v)
            for i in T.Parallel(64):
                y[block, i] = s[i] + f[i] + v

    return main


@each_backend
@pytest.mark.parametrize("kind", COUNTS)
def test_what_a_scope_holds_is_done_once(kind: str, backend: str) -> None:
    for threads in (256, 160):
        zeros = np.zeros(4, np.int32), np.zeros((3, 64), np.int32)
        count, _ = agree(backend, scoped(kind, threads), *zeros)
        assert count.tolist() == COUNTS[kind]
