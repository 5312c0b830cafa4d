"""Vector math against the exact value, in units in the last place."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import mpmath
import numpy as np
import pytest

from tilecore_backend_cpu.builder import ModuleWriter, vector_type
from tilecore_backend_cpu.host import HostCpu, describe_cpu, detect_host
from tilecore_backend_cpu.jit import LoadedCode, compile_object, load_object
from tilecore_backend_cpu.vector_math import VectorMath

FUNCTIONS = ("exp2", "exp", "log", "log2", "tanh", "erf", "sin", "cos", "sigmoid")
# (fp32 bound, fp64 bound): what the docstrings state.
MAX_ULP = {
    "exp2": (2.5, 1.5),
    "exp": (1.5, 1.0),
    "log": (1.5, 1.5),
    "log2": (2.5, 2.5),
    "tanh": (3.0, 3.0),
    "erf": (3.0, 3.0),
    "sin": (1.5, 1.5),
    "cos": (2.0, 1.5),
    "sigmoid": (3.0, 3.0),
}


def plain_vectors() -> HostCpu:
    """This CPU without AVX-512: the generic path runs here too."""
    host = detect_host()
    features = frozenset(name for name in host.features if not name.startswith(("avx512", "amx")))
    return describe_cpu(
        "haswell" if host.arch == "x86_64" else host.name, host.arch, features, False
    )


@lru_cache(maxsize=64)
def build(element: str, lanes: int, is_generic: bool) -> LoadedCode:
    cpu = plain_vectors() if is_generic else detect_host()
    module = ModuleWriter()
    module.set_target(cpu.name, cpu.feature_string, cpu.vector_bits)
    kind = vector_type(element, lanes)
    for name in FUNCTIONS:
        function = module.function(
            f"run_{name}", "void", [("ptr", "x"), ("ptr", "y"), ("i64", "n")]
        )
        x, y, n = function.parameters
        with function.loop(function.i64(0), n, lanes) as loop:
            value = function.load(function.offset(x, element, loop.index), kind)
            result = getattr(VectorMath(function, cpu), name)(value)
            function.store(result, function.offset(y, element, loop.index))
        function.ret()
    return load_object(compile_object(str(module), cpu), [f"run_{name}" for name in FUNCTIONS])


def run(name: str, x: np.ndarray, lanes: int, is_generic: bool = False) -> np.ndarray:
    element = "float" if x.dtype == np.float32 else "double"
    code = build(element, lanes, is_generic)
    padded = np.concatenate([x, np.ones(-len(x) % lanes, x.dtype)])
    y = np.empty_like(padded)
    call = code.function(f"run_{name}", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    call(padded.ctypes.data, y.ctypes.data, len(padded))
    return y[: len(x)]


def exact(name: str, x: float) -> mpmath.mpf:
    value = mpmath.mpf(float(x))
    if name == "exp2":
        return mpmath.mpf(2) ** value
    if name == "log2":
        return mpmath.log(value, 2)
    if name == "sigmoid":
        return 1 / (1 + mpmath.exp(-value))
    return getattr(mpmath, name)(value)


def reference32(name: str, x: np.ndarray) -> np.ndarray:
    """fp64 NumPy is exact enough for fp32 results."""
    wide = x.astype(np.float64)
    if name == "erf":
        torch = pytest.importorskip("torch")
        return torch.erf(torch.from_numpy(wide)).numpy()
    if name == "sigmoid":
        return 1 / (1 + np.exp(-wide))
    return getattr(np, name)(wide)


def ulp_errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        limit = np.abs(want) > np.finfo(got.dtype).max
        rounded = want.astype(got.dtype)
        spacing = np.spacing(np.abs(rounded)).astype(np.float64)
        errors = np.abs(got.astype(np.float64) - want) / spacing
    is_same = (got == rounded) | (np.isnan(got) & np.isnan(rounded)) | (limit & np.isinf(got))
    return np.where(is_same, np.minimum(np.nan_to_num(errors, nan=0.0, posinf=0.0), 0.5), errors)


def dense32(name: str) -> np.ndarray:
    """Every 4093rd bit pattern, so all exponents, both signs, subnormals, NaN and infinities."""
    bits = np.arange(0, 2**32, 4093, dtype=np.uint64).astype(np.uint32)
    near = np.linspace(-12, 12, 400_001, dtype=np.float32)
    return np.concatenate([bits.view(np.float32), near, near * 12])


@pytest.mark.parametrize("is_generic", [False, True], ids=["native", "generic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fp32_error_bound(name: str, is_generic: bool) -> None:
    x = dense32(name)
    with np.errstate(all="ignore"):
        want = reference32(name, x)
        # Where NumPy's own fp64 result would be rounded twice the bound carries that half ULP.
        errors = ulp_errors(run(name, x, 8 if is_generic else 16, is_generic), want)
    worst = int(np.nanargmax(errors))
    assert not np.isnan(errors).any(), x[np.isnan(errors)][:5]
    assert errors[worst] <= MAX_ULP[name][0], (x[worst], errors[worst])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fp64_error_bound(name: str) -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate(
        [
            generator.uniform(-8, 8, 1500),
            generator.uniform(0.5, 2, 500),
            generator.uniform(-700, 700, 500),
            10.0 ** generator.uniform(-300, 5, 500),
            [5e-324, 1e-310, 1e-8, 1.0, 2.0**40, 1e300],
        ]
    )
    if name in ("log", "log2"):
        x = np.abs(x)
    got = run(name, x, 8)
    with mpmath.workdps(350 if name in ("sin", "cos", "tanh") else 60):
        for value, result in zip(x, got, strict=True):
            want = exact(name, value)
            if abs(want) > np.finfo(np.float64).max:
                assert np.isinf(result)
                continue
            unit = mpmath.mpf(float(np.spacing(abs(float(want)))))
            error = abs(mpmath.mpf(float(result)) - want) / unit
            assert error <= MAX_ULP[name][1], (value, result, float(error))


SPECIAL = {
    "exp2": [
        (-np.inf, 0.0),
        (np.inf, np.inf),
        (0.0, 1.0),
        (-0.0, 1.0),
        (3.0, 8.0),
        (-1074.0, None),
    ],
    "exp": [(-np.inf, 0.0), (np.inf, np.inf), (0.0, 1.0), (-0.0, 1.0)],
    "log": [(0.0, -np.inf), (-0.0, -np.inf), (np.inf, np.inf), (1.0, 0.0), (-1.0, np.nan)],
    "log2": [(0.0, -np.inf), (8.0, 3.0), (0.25, -2.0), (np.inf, np.inf), (-1.0, np.nan)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (np.inf, 1.0), (-np.inf, -1.0)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (np.inf, 1.0), (-np.inf, -1.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (np.inf, np.nan)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (np.inf, np.nan)],
    "sigmoid": [(0.0, 0.5), (np.inf, 1.0), (-np.inf, 0.0)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_generic", [False, True], ids=["native", "generic"])
@pytest.mark.parametrize("lanes", [1, 4, 5, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, lanes: int, is_generic: bool, dtype: type) -> None:
    cases = [(x, y) for x, y in SPECIAL[name] if y is not None] + [(np.nan, np.nan)]
    x = np.array([case[0] for case in cases], dtype)
    want = np.array([case[1] for case in cases], dtype)
    got = run(name, x, lanes, is_generic)
    np.testing.assert_array_equal(got, want)
    is_number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[is_number], np.signbit(want)[is_number])
