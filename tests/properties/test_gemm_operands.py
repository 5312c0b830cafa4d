"""A gemm's operands may lie anywhere, in any dtype and either way round: the product is the same.

Every place of both operands x both ways of storing each of them, for each pair of dtypes, on each
backend. Small integers make every product and sum exact, so results are compared bit by bit.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from compiling import kernel_on
from running import module_of

from tilecore.hooks.manager import installed_backends
from tilecore.ir.dtypes import dtype_of, numpy_dtype

E4M3, E5M2, E4M3Z, E5M2Z = "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"
TF32 = {"tf32": True}
TYPES: dict[str, tuple[str, str, str, dict[str, bool]]] = {
    "f16": ("float16", "float16", "float32", {}),
    "f16 in f16": ("float16", "float16", "float16", {}),
    "bf16": ("bfloat16", "bfloat16", "float32", {}),
    "fp32": ("float32", "float32", "float32", {}),
    "fp32 by tf32": ("float32", "float32", "float32", TF32),
    "fp64": ("float64", "float64", "float64", {}),
    **{f"{a} {b}": (a, b, "int32", {}) for a in ("int8", "uint8") for b in ("int8", "uint8")},
    **{f"{a} {b}": (a, b, "float32", {}) for a in (E4M3, E5M2) for b in (E4M3, E5M2)},
    **{f"{a} {b}": (a, b, "float32", {}) for a in (E4M3Z, E5M2Z) for b in (E4M3Z, E5M2Z)},
}  # fmt: skip
QUICK = ("f16", "fp32 by tf32", "fp64", f"{E4M3} {E5M2}", f"{E4M3Z} {E5M2Z}", "int8 uint8")
"""One pair of each family of instructions; the others are slow tests."""
PLACES = ("shared", "fragment")
FORMS = tuple(itertools.product(PLACES, PLACES, (False, True), (False, True)))
"""(place of A, place of B, A is stored turned, B is stored turned)."""
BACKENDS = ("cuda_ampere", "cuda_hopper", "rocm_cdna3")
SIZES = {
    "whole tiles": (64, 48, 64, 128), "ragged": (24, 40, 32, 64), "wide": (128, 32, 32, 256),
    "short": (64, 32, 20, 128), "shortest": (32, 16, 4, 64),
}  # fmt: skip
"""(m, n, k, threads); of the short ones some are too short for atoms on registers alone."""

HEAD = """
import tilecore.language as T

def make():
    @T.prim_func
    def products(A: T.Tensor(({m}, {k}), "{a}"), AT: T.Tensor(({k}, {m}), "{a}"),
                 B: T.Tensor(({k}, {n}), "{b}"), BT: T.Tensor(({n}, {k}), "{b}"),
                 C: T.Tensor(({forms}, {m}, {n}), "{c}")):
"""
OPEN = """
        with T.Kernel(1, threads={threads}) as _:"""
PRODUCT = """
            a{form} = T.alloc_{place_a}({shape_a}, "{a}")
            b{form} = T.alloc_{place_b}({shape_b}, "{b}")
            c{form} = T.alloc_fragment(({m}, {n}), "{c}")
            T.copy({from_a}, a{form})
            T.copy({from_b}, b{form})
            T.fill(c{form}, 2)
            T.gemm(a{form}, b{form}, c{form}, transpose_A={turn_a}, transpose_B={turn_b},
                   annotations={hints})
            T.copy(c{form}, C[{form}, 0:{m}, 0:{n}])
"""


def text_of(types: str, sizes: str, apart: bool) -> str:
    """One program with a product for each form, each in a kernel of its own or all in one.

    All in one is quicker to build; alone, a product may be planned differently.
    """
    a, b, c, hints = TYPES[types]
    m, n, k, threads = SIZES[sizes]
    known = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k, "hints": hints}
    text = HEAD.format(forms=len(FORMS), **known)
    for form, (place_a, place_b, turn_a, turn_b) in enumerate(FORMS):
        if apart or form == 0:
            text += OPEN.format(threads=threads)
        text += PRODUCT.format(
            form=form, place_a=place_a, place_b=place_b, turn_a=turn_a, turn_b=turn_b,
            from_a="AT" if turn_a else "A", from_b="BT" if turn_b else "B",
            shape_a=(k, m) if turn_a else (m, k), shape_b=(n, k) if turn_b else (k, n), **known,
        )  # fmt: skip
    return text + "    return products\n"


def run(types: str, sizes: str, backend: str, apart: bool) -> tuple[np.ndarray, np.ndarray]:
    """(results of all forms, what each of them should be)."""
    a_type, b_type, c_type, _ = TYPES[types]
    m, n, k, _ = SIZES[sizes]
    rng = np.random.default_rng(k)
    low = 0 if "uint8" in (a_type, b_type) else -3
    a, b = rng.integers(low, 4, (m, k)), rng.integers(low, 4, (k, n))
    c = np.zeros((len(FORMS), m, n), numpy_dtype(dtype_of(c_type)))
    tensors: list[Any] = []
    for values, dtype in ((a, a_type), (a.T, a_type), (b, b_type), (b.T, b_type)):
        tensors.append(np.ascontiguousarray(values).astype(numpy_dtype(dtype_of(dtype))))
    kernel_on(backend, module_of(text_of(types, sizes, apart)).make())(*tensors, c)
    return c, (a @ b + 2).astype(c.dtype)


def check(types: str, sizes: str, backend: str, apart: bool) -> None:
    if backend not in installed_backends():
        pytest.skip(f"needs {backend}")
    results, want = run(types, sizes, backend, apart)
    wrong = [FORMS[i] for i, result in enumerate(results) if not np.array_equal(result, want)]
    assert not wrong, f"(place of A, place of B, A turned, B turned): {wrong}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "types", [t if t in QUICK else pytest.param(t, marks=pytest.mark.slow) for t in TYPES]
)
def test_places_and_transposes(types: str, backend: str) -> None:
    check(types, "whole tiles", backend, apart=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_operands_too_short_for_registers(backend: str) -> None:
    """They go through shared memory, where a shorter atom may take them."""
    check("fp32", "short", backend, apart=False)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("types", TYPES)
def test_sizes_apart(types: str, sizes: str, backend: str) -> None:
    check(types, sizes, backend, apart=True)
