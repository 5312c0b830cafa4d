"""OCP 8-bit floats on a machine that computes FNUZ: the rule of the README, over all 256 codes.

Operands are widened to float16 when they are loaded, which is exact; nothing is reinterpreted: the
same code means another number in FNUZ.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore_backend_rocm.emulation import HEADERS

CODES = np.arange(256, dtype=np.uint8)
OCP = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
FNUZ = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2": ml_dtypes.float8_e5m2fnuz,
}


def product(a_dtype: str, b_dtype: str) -> object:
    """C = A B over A (256, 32), of which column 0 holds all codes, and B (32, 32)."""

    @T.prim_func
    def gemm(
        A: T.Tensor((256, 32), a_dtype),
        B: T.Tensor((32, 32), b_dtype),
        C: T.Tensor((256, 32), "float32"),
    ):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_shared((256, 32), a_dtype)
            b = T.alloc_shared((32, 32), b_dtype)
            c = T.alloc_fragment((256, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    return gemm


def run(a: np.ndarray, b: np.ndarray, a_dtype: str, b_dtype: str) -> np.ndarray:
    c = np.zeros((256, 32), np.float32)
    kernel = tilecore.compile(product(a_dtype, b_dtype), "rocm_cdna3", device="emulator")
    kernel(a, b, c)
    return c


@pytest.mark.parametrize("dtype", list(OCP))
@pytest.mark.parametrize("formats", [OCP, FNUZ], ids=["ocp", "fnuz"])
def test_every_code_keeps_its_value(dtype: str, formats: dict[str, type]) -> None:
    kind = formats[dtype]
    name = np.dtype(kind).name
    values = CODES.view(kind).astype(np.float64)
    a = np.zeros((256, 32), kind)
    a[:, 0] = CODES.view(kind)
    b = np.zeros((32, 32), kind)
    b[0, :] = np.asarray(1.0, kind)
    result = run(a, b, name, name)
    np.testing.assert_array_equal(result[:, 0], values.astype(np.float32))
    # The other columns of A are zeros: infinities and nans of one code stay in its row.
    np.testing.assert_array_equal(np.isnan(result).any(axis=1), np.isnan(values))


def test_widening_to_float16_is_exact() -> None:
    for kind in OCP.values():
        values = CODES.view(kind).astype(np.float64)
        np.testing.assert_array_equal(
            CODES.view(kind).astype(np.float16).astype(np.float64), values
        )


@pytest.fixture(scope="module")
def device_conversions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The device header's conversions, compiled for the CPU."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("narrow")
    each = "\n".join(
        f'extern "C" void {n}_all(const uint8_t* x, uint16_t* y) '
        f"{{ for (int i = 0; i < 256; ++i) y[i] = tc::narrow_bits::f16_of_{n}(x[i]); }}"
        for n in ("e4m3", "e5m2")
    )
    (folder / "narrow.cpp").write_text(
        "#include <stdint.h>\n#define TC_DEVICE inline\n"
        "#define TC_BIT_CAST(To, v) __builtin_bit_cast(To, v)\n"
        f'#include "{HEADERS / "tc_hip_narrow.h"}"\n{each}\n'
    )
    made = folder / "narrow.so"
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(folder / "narrow.cpp")]
    done = subprocess.run([*command, "-o", str(made)], check=False, capture_output=True, text=True)
    if "_Float16" in done.stderr:
        pytest.skip("this C++ compiler has no _Float16")
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(made))


@pytest.mark.parametrize(("name", "dtype"), [("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")])
def test_the_device_header_widens_every_code(
    device_conversions: ctypes.CDLL, name: str, dtype: str
) -> None:
    found = np.zeros(256, np.uint16)
    getattr(device_conversions, f"{name}_all")(
        ctypes.c_void_p(CODES.ctypes.data), ctypes.c_void_p(found.ctypes.data)
    )
    want = CODES.view(OCP[dtype]).astype(np.float16)
    got = found.view(np.float16)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(
        np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)])
    )


def test_reinterpreting_would_be_wrong() -> None:
    """Why the rule: at best half the value, and other numbers at the ends of the range."""
    for name, kind in OCP.items():
        ocp = CODES.view(kind).astype(np.float64)
        fnuz = CODES.view(FNUZ[name]).astype(np.float64)
        same = np.isfinite(ocp) & np.isfinite(fnuz) & (ocp != 0)
        np.testing.assert_array_equal(fnuz[same], ocp[same] / 2)
        assert np.isnan(fnuz[0x80]) and ocp[0x80] == 0.0
        assert np.isfinite(fnuz[0x7F]) and not np.isfinite(ocp[0x7F])


@pytest.mark.parametrize(("a", "b"), [("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2",) * 2])
def test_the_float16_instruction_is_used(a: str, b: str) -> None:
    text = tilecore.lower(product(a, b), "rocm_cdna3").source.text
    assert "cdna3::mfma_32x32x" in text and "_f16(" in text
    assert "_fp8(" not in text and "_bf8(" not in text
