"""Expressions whose parts occur several times, twenty levels deep: graphs, never walked as trees.

As a tree each of them has more than 2 ** 20 nodes, most 3 ** 20: whatever walks them so does not
end in time, and the clock of a test says so.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from agreement import agree, each_backend
from compiling import BACKENDS

import tilecore
import tilecore.language as T
from tilecore.errors import LanguageError

LEVELS = 20
SECONDS = 300  # a test takes a few, on a machine that does nothing else
COUNT = 64


@contextmanager
def clock() -> Iterator[None]:
    """Fail what does not end."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def chosen(x: Any, levels: int = LEVELS) -> Any:
    for k in range(levels):
        x = T.if_then_else(x < k, x + k, x - 1)
    return x


def clamped(x: Any) -> Any:
    for k in range(LEVELS):
        x = T.max(T.min(x, 2 * k), x - k)
    return x


def squared(x: Any) -> Any:
    for _ in range(LEVELS):
        x = x * x - x  # wraps
    return x


def divided(x: Any) -> Any:
    for _ in range(LEVELS):
        x = x // 3 + x % 7 + x  # wraps
    return x


def either(x: Any, i: Any) -> Any:
    """Memory is read whichever side is taken, and no condition mentions it."""
    for k in range(LEVELS):
        x = T.if_then_else(i < k, x + 1, T.if_then_else(i < 2 * k, x - 2, x * 2))
    return x


def halved(x: Any) -> Any:
    for _ in range(LEVELS):
        x = (x * x + x) * 0.25
    return x


@T.macro
def found(Starts, slot, low, step):
    """The last of ascending starts that is not beyond `slot`."""
    middle = low + step
    begins = T.Select(middle < COUNT, Starts[T.min(middle, COUNT - 1)], slot + 1)
    low = T.if_then_else(begins <= slot, middle, low)
    if step > 1:
        low = found(Starts, slot, low, step // 2)
    return low


@T.macro
def named(x, n):
    x = T.if_then_else(x < n, x * 3, x - n)
    if n > 0:
        x = named(x, n - 1)
    return x


@T.prim_func
def in_nests(A: T.Tensor((COUNT,), "int32"), F: T.Tensor((COUNT,), "float32"),
             B: T.Tensor((12, COUNT), "int32"), G: T.Tensor((COUNT,), "float32")):  # fmt: skip
    with T.Kernel(1, threads=COUNT):
        for i in T.Parallel(COUNT):
            B[0, i], B[1, i] = chosen(A[i]), chosen(i)
            B[2, i], B[3, i] = clamped(A[i]), clamped(i)
            B[4, i], B[5, i] = squared(A[i]), divided(A[i])
            own = A[i]
            square = own * own  # wraps
            B[6, i], B[7, i] = divided(own), square * square // 3 + square % 5
            B[8, i] = either(A[i], i)
            B[9, i] = found(A, 3 * i, 0, 1 << 20)
            B[10, i] = A[chosen(i) % COUNT]
            B[11, i] = named(A[i], LEVELS)
            G[i] = halved(F[i])


@T.prim_func
def in_blocks(A: T.Tensor((COUNT,), "int32"), B: T.Tensor((8, COUNT), "int32")):
    with T.Kernel(COUNT, threads=32) as bx:
        total = T.alloc_var("int32", init=0)
        place = found(A, 2 * bx, 0, 1 << 20)
        if chosen(A[bx]) > 10:
            total += 1
        for j in T.serial(chosen(bx) % 4):
            total += j
        while total < clamped(bx) % 50:
            total += 7
        B[0, bx], B[1, bx] = total, place
        own = A[bx]
        B[2, bx], B[3, bx] = squared(own), divided(own)
        B[4, bx], B[5, bx] = named(bx, LEVELS), clamped(total)
        B[6, chosen(bx) % COUNT] = 1
        power = own * own * own * own * own * own  # wraps
        B[7, bx] = power // 3 + power % 5


@T.prim_func
def in_lanes(A: T.Tensor((COUNT,), "int32"), B: T.Tensor((4, COUNT), "int32")):
    with T.Kernel(1, threads=COUNT):
        shared = T.alloc_shared((COUNT,), "int32")
        t = T.get_thread_binding()
        own = named(t, LEVELS)
        shared[t] = chosen(A[t])
        T.sync_threads()
        if chosen(t) > 3:
            B[0, t] = 1
        B[1, t], B[2, t] = shared[COUNT - 1 - t], own
        B[3, t] = squared(A[t])


@T.prim_func
def in_copies(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_shared((32,), "float32")
        for k in T.Pipelined(4, num_stages=2):
            T.copy(A[chosen(bx + k) % 8 * 32], tile)
            T.copy(tile, B[bx * 128 + k * 32])


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-100, 100, shape).astype(np.int32)


@each_backend
@pytest.mark.parametrize("program", [in_blocks, in_lanes])
def test_integers(backend, program):
    rows = 8 if program is in_blocks else 4
    with clock():
        agree(backend, program, np.sort(numbers(COUNT)), np.zeros((rows, COUNT), np.int32))


@each_backend
def test_nests(backend):
    floats = np.linspace(-1, 2, COUNT, dtype=np.float32)
    outputs = np.zeros((12, COUNT), np.int32), np.zeros(COUNT, np.float32)
    with clock():
        agree(backend, in_nests, np.sort(numbers(COUNT)), np.zeros_like(floats), *outputs)
        made = tilecore.compile(in_nests, "cpu_llvm") if backend == "cpu_llvm" else None
    if made is not None:
        made(np.sort(numbers(COUNT)), floats, *outputs)
        expected = floats.astype(np.float64)
        for _ in range(LEVELS):
            expected = (expected * expected + expected) * 0.25
        np.testing.assert_allclose(outputs[1], expected, rtol=1e-4, atol=1e-30)


@each_backend
def test_copies_in_pipelines(backend):
    rows = np.arange(256, dtype=np.float32)
    with clock():
        agree(backend, in_copies, rows, np.zeros(256, np.float32))


def guarded(A, B, i):
    """Parts that are read on one side of a condition only, and never elsewhere."""
    B[i] = T.if_then_else(i < 60, squared(A[i]), 0)


def counted(A, B, i):
    c = T.alloc_var("int32", init=0)
    while chosen(c) < 100:
        c += 1
    B[i] = c


@pytest.mark.parametrize("write", [guarded, counted])
def test_what_cannot_be_named_is_refused(write):
    write = T.macro(write)

    @T.prim_func
    def program(A: T.Tensor((COUNT,), "int32"), B: T.Tensor((COUNT,), "int32")):
        with T.Kernel(COUNT) as i:
            write(A, B, i)

    with clock():
        for backend in ("reference", *BACKENDS):
            device = "reference" if backend == "reference" else "native"
            name = None if backend == "reference" else backend
            with pytest.raises(LanguageError, match="too large.*at most 20000.*got") as refused:
                tilecore.compile(program, name, device=device)
            assert refused.value.loc is not None


def test_sizes_of_tensors_and_grids_are_refused_when_too_large():
    n = T.dynamic("n")

    @T.prim_func
    def wide(A: T.Tensor((n,), "int32"), B: T.Tensor((chosen(n),), "int32")):
        with T.Kernel(1):
            B[0] = A[0]

    @T.prim_func
    def many(A: T.Tensor((n,), "int32")):
        with T.Kernel(chosen(n)):
            A[0] = 0

    for program in (wide, many):
        with clock(), pytest.raises(LanguageError, match="too large"):
            tilecore.lower(program, "cuda_ampere")


@each_backend
def test_indices_that_wrap_end_too(backend):
    """Indices that wrap mean nothing, but their bounds may not grow for ever."""

    @T.prim_func
    def program(B: T.Tensor((COUNT, COUNT), "int32")):
        with T.Kernel(COUNT, threads=COUNT) as bx:
            for i in T.Parallel(COUNT):
                B[bx, i] = squared(i) + divided(bx) + divided(squared(bx))

    with clock():
        assert tilecore.lower(program, backend).source.text


@pytest.mark.slow
def test_long_sums_are_cut():
    @T.prim_func
    def program(A: T.Tensor((COUNT, 1000), "float32"), B: T.Tensor((COUNT,), "float32")):
        with T.Kernel(1, threads=COUNT):
            for i in T.Parallel(COUNT):
                B[i] = sum([A[i, k] for k in range(1000)])

    with clock():
        rows = np.random.default_rng(0).integers(-4, 5, (COUNT, 1000)).astype(np.float32)
        agree(BACKENDS[0], program, rows, np.zeros(COUNT, np.float32))


def test_few_parts_get_names():
    """Small expressions stay as they are written, and no large one grows."""

    @T.prim_func
    def program(A: T.Tensor((COUNT,), "int32"), B: T.Tensor((2, COUNT), "int32")):
        with T.Kernel(1, threads=COUNT):
            for i in T.Parallel(COUNT):
                B[0, i] = chosen(i, 3)
                B[1, i] = chosen(i, 30)

    text = tilecore.lower(program, "cuda_ampere").ir("tile")
    small, *others = text.split("B[0, i] = ")[1].splitlines()
    assert small.count("select") == 1 + 3 + 9 and "part" not in small
    assert 10 < sum(" let " in line for line in others) < 30
    assert all(len(line) < 100 for line in others)
