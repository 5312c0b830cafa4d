"""Fragments on their way to shared memory: by stmatrix where it exists and the layouts fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.ir.dtypes import numpy_dtype

WITHOUT = "sm_80"
WITH_STMATRIX = "sm_90"


def product(
    m: int,
    n: int,
    dtype: str = "float16",
    accum: str = "float32",
    turned: bool = False,
    threads: int = 128,
    scale: float = 1.0,
) -> Any:
    """A @ B in a fragment, to a shared tile as it is or turned, and from there to C."""
    k, shape = 32, (n, m) if turned else (m, n)

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), accum)
            out = T.alloc_shared(shape, dtype)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(m, n):
                if turned:
                    out[j, i] = T.cast(c[i, j] * scale, dtype)
                else:
                    out[i, j] = T.cast(c[i, j] * scale, dtype)
            T.copy(out, C)

    return main


def twice(m: int, n: int, threads: int) -> Any:
    """(A @ B) @ B: the first product is an operand in a swizzled shared tile."""

    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float16"), B: T.Tensor((n, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):  # fmt: skip
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((m, n), "float16")
            b = T.alloc_shared((n, n), "float16")
            first = T.alloc_fragment((m, n), "float32")
            second = T.alloc_fragment((m, n), "float32")
            held = T.alloc_shared((m, n), "float16")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, first, clear_accum=True)
            T.copy(first, held)
            T.gemm(held, b, second, clear_accum=True)
            T.copy(second, C)

    return main


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({"m": 64, "n": 64}, "stmatrix<4>"),
    "turned": ({"m": 64, "n": 64, "turned": True}, "stmatrix_trans<4>"),
    "bfloat16": ({"m": 64, "n": 96, "dtype": "bfloat16"}, "stmatrix<4>"),
    "sums in float16": ({"m": 64, "n": 64, "accum": "float16"}, "stmatrix<4>"),
    "sums in float16, turned": (
        {"m": 64, "n": 64, "accum": "float16", "turned": True}, "stmatrix_trans<4>"),
    "scaled": ({"m": 64, "n": 64, "scale": 0.5}, "stmatrix<4>"),
    "groups over the end of a row": ({"m": 32, "n": 88, "threads": 32}, "stmatrix<4>"),
    "a group of two at the end": ({"m": 16, "n": 88, "threads": 32}, "stmatrix<2>"),
    "one warp": ({"m": 16, "n": 8, "threads": 32}, "stmatrix<2>"),
    "many warps": ({"m": 128, "n": 128, "threads": 256}, "stmatrix<4>"),
}  # fmt: skip


def operands(program: Any, seed: int = 0) -> list[np.ndarray]:
    """Small integers, so that every sum is exact."""
    rng = np.random.default_rng(seed)
    arrays = []
    for parameter in program.params:
        shape = tuple(int(extent.value) for extent in parameter.shape)
        arrays.append(rng.integers(-3, 4, shape).astype(numpy_dtype(parameter.dtype)))
    return arrays


def run(function: Any, arch: str, seed: int) -> tuple[Any, np.ndarray]:
    kernel = tilecore.compile(function, "cuda_ampere", arch=arch, device="emulator")
    *inputs, out = operands(kernel.program)
    kernel.caller.launcher.options = type(kernel.caller.launcher.options)(seed=seed)
    kernel(*inputs, out)
    return kernel, out


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_as_by_the_lanes_own_stores(name: str) -> None:
    parameters, wanted = CASES[name]
    function = product(**parameters)
    narrow, expected = run(function, WITHOUT, 0)
    assert "stmatrix" not in narrow.source
    for seed in range(3):
        kernel, out = run(function, WITH_STMATRIX, seed)
        assert f"ampere::{wanted}(" in kernel.source
        assert "store_shared" not in kernel.source
        np.testing.assert_array_equal(out, expected)
    a, b, _ = operands(kernel.program)
    exact = a.astype(np.float64) @ b.astype(np.float64) * parameters.get("scale", 1.0)
    np.testing.assert_array_equal(
        out.astype(np.float64), exact.T if parameters.get("turned") else exact
    )


@pytest.mark.parametrize("threads", [64, 128, 256])
def test_swizzled_tiles_take_whole_rows_without_bank_conflicts(threads: int) -> None:
    function = twice(64, 64, threads)
    _, expected = run(function, WITHOUT, 0)
    kernel, out = run(function, WITH_STMATRIX, 1)
    np.testing.assert_array_equal(out, expected)
    lines = kernel.source.splitlines()
    (report,) = kernel.caller.launcher.reports
    stored = [
        access for access in report.shared_accesses
        if access.is_write and "stmatrix" in lines[access.text_line - 1]
    ]  # fmt: skip
    assert stored
    for access in stored:
        assert access.bytes_per_lane == 16
        assert access.wavefronts == access.ideal_wavefronts


@pytest.mark.parametrize("turned", [False, True])
def test_the_machine_code_has_it(turned: bool, disassemble: Any) -> None:
    function = product(64, 64, turned=turned)
    for arch in (WITHOUT, WITH_STMATRIX):
        text = disassemble(tilecore.compile(function, "cuda_ampere", arch=arch).artifact.data)
        kind = "MT88" if turned else "M88"
        found = re.findall(rf"STSM\.16\.{kind}\.4", text)
        assert len(found) == (4 if arch == WITH_STMATRIX else 0)


def partly(rows: int) -> Any:
    """The first `rows` rows of the tile, a number known at the launch."""

    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"),
             C: T.Tensor((64, 64), "float16")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            out = T.alloc_shared((64, 64), "float16")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(out)
            T.gemm(a, b, c, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                if i < rows:
                    out[i, j] = c[i, j]
            T.copy(out, C)

    return main


def test_conditions_are_the_lanes_own() -> None:
    kernel, out = run(partly(37), WITH_STMATRIX, 0)
    assert "stmatrix" not in kernel.source
    a, b, _ = operands(kernel.program)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    exact[37:] = 0
    np.testing.assert_array_equal(out.astype(np.float64), exact)
