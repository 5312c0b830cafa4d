"""Printing: a value of every dtype, on every target with lanes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilecore
import tilecore.language as T

KINDS = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2, "int64": np.int64, "int32": np.int32,
    "uint8": np.uint8, "bool": np.bool_,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_every_dtype_is_printed(kind: str, backend: str) -> None:
    @T.prim_func
    def main(x: T.Tensor((2,), kind)):
        with T.Kernel(1, threads=32) as _:
            T.print(x[1], msg="seen")

    kernel = tilecore.compile(main, backend=backend, device="emulator")
    kernel(np.array([0, 1], KINDS[kind]))
    (report,) = kernel.caller.launcher.reports
    assert set(report.prints.split()) == {"seen1"}
