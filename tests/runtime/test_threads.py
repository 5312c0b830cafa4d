"""Sixteen threads at once: one kernel, one program, a program each, a function that makes them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.driver import clear_memory_cache

THREADS = 16
HOST, LANES = ("cpu_llvm", "native"), ("cuda_ampere", "emulator")


def program(factor: float) -> Any:
    @T.prim_func
    def scale(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            tile = T.alloc_shared((32,), "float32")
            for i in T.Parallel(32):
                tile[i] = T.if_then_else(bx * 32 + i < 100, A[bx * 32 + i], 0.0)
            for i in T.Parallel(32):
                if bx * 32 + i < 100:
                    B[bx * 32 + i] = tile[i] * factor

    return scale


@tilecore.jit(backend="cpu_llvm")
def scaled_by(factor: float):
    return program(factor)


def fresh_factor() -> float:
    """One that no kernel was compiled with before."""
    return float(uuid.uuid4().int % 2**20) / 8


def check(kernel: Any, factor: float, seed: int) -> None:
    a, b = np.full(100, seed, np.float32), np.zeros(100, np.float32)
    kernel(a, b)
    np.testing.assert_array_equal(b, a * np.float32(factor))


def at_once(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """What `count` threads return that start `work` together; their first error is raised."""
    start = threading.Barrier(count)
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(index: int) -> None:
        start.wait()
        try:
            results[index] = work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize(("backend", "device"), [HOST, LANES], ids=["host", "lanes"])
def test_first_calls_of_one_kernel(backend: str, device: str) -> None:
    factor = fresh_factor()
    kernel = tilecore.compile(program(factor), backend, device=device)

    def work(index: int) -> None:
        for turn in range(20 if device == "native" else 2):
            check(kernel, factor, index + turn)

    at_once(work)


@pytest.mark.parametrize(("backend", "device"), [HOST, LANES], ids=["host", "lanes"])
def test_one_program(backend: str, device: str) -> None:
    """Compiled by all of them, it is one kernel."""
    factor = fresh_factor()

    def work(index: int) -> Any:
        kernel = tilecore.compile(program(factor), backend, device=device)
        check(kernel, factor, index)
        return kernel

    assert len({id(kernel) for kernel in at_once(work)}) == 1


@pytest.mark.parametrize(("backend", "device"), [HOST, LANES], ids=["host", "lanes"])
def test_a_program_each(backend: str, device: str) -> None:
    """Texts are those that one thread alone makes."""
    factors = [fresh_factor() for _ in range(THREADS if device == "native" else 4)]

    def work(index: int) -> str:
        kernel = tilecore.compile(program(factors[index]), backend, device=device)
        check(kernel, factors[index], index)
        return kernel.source

    sources = at_once(work, len(factors))
    clear_memory_cache()
    for factor, source in zip(factors, sources, strict=True):
        assert tilecore.lower(program(factor), backend, device=device).source.text == source


def test_a_function_that_makes_kernels() -> None:
    factors = [fresh_factor() for _ in range(4)]

    def work(index: int) -> Any:
        factor = factors[index % 4]
        kernel = scaled_by(factor)
        check(kernel, factor, index)
        return kernel

    kernels = at_once(work)
    assert len({id(kernel) for kernel in kernels}) == 4
