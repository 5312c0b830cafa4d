"""The reference behind a launcher's call: addresses and numbers in, host memory changed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilecore.errors import LaunchError
from tilecore.ir.parser import parse_program
from tilecore.reference import ReferenceLauncher

TEXT = """
program p[n: int32, row: int32](
    x: bfloat16[n, 3] strides [row, 1], s: float32, y: float32[3, n]) outputs (2) level tile {
  workspace w: float32[n, 3]
  kernel first(b in n) threads 32 {
    parallel (i) in (3) {
      w[b, i] = cast(x[b, i], float32) * s
    }
  }
  kernel second(b in n) threads 32 {
    parallel (i) in (3) {
      y[i, b] = w[b, i]
    }
  }
}
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fnuz"])
def test_strides_scalars_and_sizes(dtype):
    program = parse_program(TEXT.replace("bfloat16", dtype))
    x = np.arange(40).reshape(5, 8).astype(getattr(ml_dtypes, dtype))
    y = np.zeros((3, 5), np.float32)
    work = np.zeros((5, 3), np.float32)
    launch = ReferenceLauncher(program, exact_dtypes=True)
    launch((x.ctypes.data, 0.5, y.ctypes.data, work.ctypes.data, 5, 8))
    np.testing.assert_array_equal(y, x[:, :3].T.astype(np.float32) * 0.5)


def test_no_elements_no_memory():
    ReferenceLauncher(parse_program(TEXT))((0, 0.5, 0, 0, 0, 8))


def test_wrong_number_of_arguments():
    with pytest.raises(LaunchError, match="expected 6, got 1"):
        ReferenceLauncher(parse_program(TEXT))((0,))
