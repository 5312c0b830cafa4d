"""Generated text of gemms: which atom, how operands are loaded, where results of a gemm go next."""

from __future__ import annotations

import re

import pytest

import tilecore
import tilecore.language as T


def product(
    m: int, n: int, k: int, dtype: str, threads: int = 256, transpose_b: bool = True
) -> str:
    accumulator = "int32" if dtype == "int8" else "float64" if dtype == "float64" else "float32"
    stored_b = (n, k) if transpose_b else (k, n)

    @T.prim_func
    def gemm(
        A: T.Tensor((m, k), dtype), B: T.Tensor(stored_b, dtype), C: T.Tensor((m, n), accumulator)
    ):
        with T.Kernel(1, threads=threads) as _:
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared(stored_b, dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=transpose_b)
            T.copy(c, C)

    return tilecore.lower(gemm, "rocm_cdna3").source.text


@pytest.mark.parametrize(
    ("dtype", "atom", "width"),
    [
        ("float16", "mfma_32x32x16_f16", 8), ("bfloat16", "mfma_32x32x16_bf16", 8),
        ("float8_e4m3fnuz", "mfma_32x32x32_fp8_fp8", 16), ("int8", "mfma_32x32x32_i8", 16),
        ("float32", "mfma_32x32x8_f32", 4), ("float64", "mfma_16x16x8_f64", 2),
    ],
)  # fmt: skip
def test_operands_are_read_16_bytes_at_once(dtype: str, atom: str, width: int) -> None:
    text = product(64, 64, 32, dtype)
    assert f"cdna3::{atom}(" in text
    loads = re.findall(r"tc::load_shared<(\d+)>\((\w)_regs", text)
    assert {which for _, which in loads} == {"a", "b"} and {n for n, _ in loads} == {str(width)}


def test_operands_across_rows_are_read_one_by_one() -> None:
    text = product(64, 64, 32, "float16", transpose_b=False)
    assert re.search(r"tc::load_shared<8>\(a_regs", text)
    assert re.search(r"b_regs(_1)?\[.*\] = tc::load_shared\(", text)


def test_ocp_floats_are_widened() -> None:
    text = product(64, 64, 32, "float8_e4m3fn")
    assert "cdna3::mfma_32x32x16_f16(" in text and "tc::convert<tc::half>(" in text


@pytest.mark.parametrize(("m", "side"), [(128, 32), (64, 32), (16, 16), (48, 16)])
def test_the_smaller_instruction_where_it_pads_less(m: int, side: int) -> None:
    assert f"cdna3::mfma_{side}x{side}x" in product(m, 64, 32, "float16", threads=64)


def test_no_matrix_instruction_for_half_a_wavefront() -> None:
    assert "cdna3::" not in product(32, 32, 32, "float16", threads=32)
