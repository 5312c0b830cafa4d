"""Element type conversions, all codes of the narrow types."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_programs import CPUS, call

from tilecore.ir.dtypes import dtype_of, numpy_dtype

TEXT = """program f(x: {source}[{n}], y: {target}[{n}]) level tile {{
  kernel k(b in 1) threads 32 {{
    copy x[:] -> y[:]
  }}
}}
"""
NARROW = (
    "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
)  # fmt: skip


def convert(x: np.ndarray, source: str, target: str, cpu: str) -> np.ndarray:
    y = np.empty(x.shape, numpy_dtype(dtype_of(target)))
    call(TEXT.format(source=source, target=target, n=len(x)), x, y, cpu=CPUS[cpu])
    return y


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", NARROW)
def test_every_code_widens_exactly(name: str, cpu: str) -> None:
    kind = numpy_dtype(dtype_of(name))
    codes = np.arange(1 << (8 * kind.itemsize), dtype=np.uint32)
    x = codes.astype(f"u{kind.itemsize}").view(kind)
    np.testing.assert_array_equal(convert(x, name, "float32", cpu), x.astype(np.float32))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", NARROW)
def test_narrowing_rounds_to_nearest_even(name: str, cpu: str) -> None:
    dtype = dtype_of(name)
    kind = numpy_dtype(dtype)
    bits = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    wide = np.arange(1 << 8 if kind.itemsize == 1 else 1 << 16, dtype=np.uint32)
    grid = wide.astype(f"u{kind.itemsize}").view(kind).astype(np.float32)
    grid = np.sort(grid[np.isfinite(grid)])
    middle = (grid[1:].astype(np.float64) + grid[:-1]) / 2
    x = np.concatenate([x, middle.astype(np.float32), np.nextafter(middle.astype(np.float32), 0)])
    with np.errstate(all="ignore"):
        want = x.astype(kind).astype(np.float32)
    got = convert(x, "float32", name, cpu).astype(np.float32)
    saturates = name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz")
    inside = np.abs(x) <= grid[-1] if saturates else np.ones(x.shape, bool)
    inside |= np.isnan(x)
    np.testing.assert_array_equal(got[inside], want[inside])
    if saturates:
        over = np.abs(x) > grid[-1]
        np.testing.assert_array_equal(got[over], np.copysign(grid[-1], x[over]))


@pytest.mark.parametrize("target", ["int8", "int32", "uint8", "int64"])
def test_float_to_integer_saturates(target: str) -> None:
    x = np.array([0.0, 1.9, -1.9, 1e30, -1e30, np.nan, np.inf, -np.inf, 100.5], np.float32)
    info = np.iinfo(target)
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=1e300, neginf=-1e300)
    want = [min(max(int(v), info.min), info.max) for v in wide]
    assert convert(x, "float32", target, "host").tolist() == want
