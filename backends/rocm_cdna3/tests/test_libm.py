"""The maths functions of the device, compiled for the CPU, against the C library's."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilecore_backend_rocm.emulation import HEADERS

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt", "erf", "erfc",
)  # fmt: skip
BINARY = ("pow", "fmod", "atan2")
ULPS = 8.0
SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 5e-324, 1e308)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("libm")
    one = "\n".join(
        f'extern "C" void {n}_all(const double* x, double* y, long c) '
        f"{{ for (long i = 0; i < c; ++i) y[i] = tc::libm::{n}(x[i]); }}"
        for n in UNARY
    )
    two = "\n".join(
        f'extern "C" void {n}_all(const double* x, const double* z, double* y, long c) '
        f"{{ for (long i = 0; i < c; ++i) y[i] = tc::libm::{n}(x[i], z[i]); }}"
        for n in BINARY
    )
    text = (
        "#include <stdint.h>\n#define TC_DEVICE inline\n"
        "#define TC_BIT_CAST(To, v) __builtin_bit_cast(To, v)\n"
        f'#include "{HEADERS / "tc_libm.h"}"\n{one}\n{two}\n'
    )
    (folder / "libm.cpp").write_text(text)
    made = Path(folder / "libm.so")
    command = [compiler, "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*command, str(folder / "libm.cpp"), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def reference(name: str) -> Callable[..., float]:
    if name == "exp2":
        return lambda x: 2.0**x
    if name == "cbrt":
        return np.cbrt
    return getattr(math, name)


def exact(function: Callable[..., float], *arguments: float) -> float:
    try:
        return float(function(*arguments))
    except OverflowError:  # only sinh can be negative there
        return -math.inf if function is math.sinh and arguments[0] < 0 else math.inf
    except ValueError:
        return math.nan


def points(name: str) -> np.ndarray:
    random = np.random.default_rng(7)
    wide = 10.0 ** random.uniform(-300, 300, 400) * random.choice([-1, 1], 400)
    near = random.uniform(-1, 1, 400)
    middle = random.normal(size=400) * 20
    kept = np.concatenate([wide, near, middle])
    if name.startswith("log"):
        kept = np.concatenate([np.abs(kept), 1 + near * 1e-3])
    return kept


def check(got: float, want: float, what: object) -> None:
    if math.isnan(want) or math.isinf(want) or want == 0.0:
        assert got == want or (math.isnan(got) and math.isnan(want)), (what, got, want)
        return
    assert abs(got - want) <= ULPS * max(np.spacing(abs(want)), 5e-324), (what, got, want)


@pytest.mark.parametrize("name", UNARY)
def test_unary(library: ctypes.CDLL, name: str) -> None:
    x = np.ascontiguousarray(points(name))
    y = np.zeros_like(x)
    getattr(library, f"{name}_all")(address(x), address(y), ctypes.c_long(len(x)))
    function = reference(name)
    for at, got in zip(x, y, strict=True):
        want = exact(function, float(at))
        if name == "tan" and abs(at) > 1e15:
            continue  # the C library's own error is not bounded by ours
        check(float(got), want, (name, at))


@pytest.mark.parametrize("name", UNARY)
def test_special_values(library: ctypes.CDLL, name: str) -> None:
    x = np.array(SPECIAL)
    y = np.zeros_like(x)
    getattr(library, f"{name}_all")(address(x), address(y), ctypes.c_long(len(x)))
    with np.errstate(all="ignore"):
        numpy_name = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
                      "acosh": "arccosh", "atanh": "arctanh"}.get(name, name)  # fmt: skip
        function = getattr(np, numpy_name, None) or np.vectorize(getattr(math, name))
        for at, got in zip(x, y, strict=True):
            check(float(got), float(function(at)), (name, at))


@pytest.mark.parametrize("name", BINARY)
def test_binary(library: ctypes.CDLL, name: str) -> None:
    random = np.random.default_rng(3)
    x = 10.0 ** random.uniform(-5, 5, 1000) * (1 if name == "pow" else random.choice([-1, 1], 1000))
    z = random.uniform(-60, 60, 1000)
    special = [(a, b) for a in SPECIAL for b in (*SPECIAL, 2.0, 3.0, 0.25, -3.0)]
    x = np.concatenate([x, [a for a, _ in special]])
    z = np.concatenate([z, [b for _, b in special]])
    y = np.zeros_like(x)
    getattr(library, f"{name}_all")(address(x), address(z), address(y), ctypes.c_long(len(x)))
    function = {"pow": np.power, "fmod": np.fmod, "atan2": np.arctan2}[name]
    with np.errstate(all="ignore"):
        for a, b, got in zip(x, z, y, strict=True):
            check(float(got), float(function(a, b)), (name, a, b))
