"""The reference's fused multiply-add rounds once."""

import math

import numpy as np

from tilecore.reference.operations import CALLS


def test_fma_rounds_once():
    fma = CALLS["fma"]
    a = 1.0 + 2.0**-30
    assert float(fma(np.float64(a), np.float64(a), np.float64(-(a * a)))) == 2.0**-60
    values = fma(np.array([math.inf, 1e308, 0.0]), np.array([2.0, 10.0, -1.0]), np.zeros(3))
    assert values[0] == math.inf and values[1] == math.inf and values[2] == 0.0
    assert np.isnan(fma(np.array([math.nan]), np.array([1.0]), np.array([1.0])))[0]
