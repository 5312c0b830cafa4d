"""Prints `math_tables.py`: near-minimax polynomials for the vector math, fitted in 60 digits.

Run: python tools/fit_polynomials.py > tilecore_backend_cpu/math_tables.py   (needs mpmath)

Each function is written so that its leading terms are exact and only a smooth remainder is
fitted (Chebyshev interpolation): relative accuracy near zero then comes for free.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def fit(function: Callable[[mp.mpf], mp.mpf], low: float, high: float, terms: int) -> list[mp.mpf]:
    """Coefficients, constant first, of a polynomial of `terms` terms over [low, high]."""
    return mp.chebyfit(function, [mp.mpf(low), mp.mpf(high)], terms)[::-1]


def fit_exp2_single() -> list[float]:
    """2^x on [0, 1] with constant 1 and five more terms, least maximal error (all ULP are equal).

    Lawson's method: least squares, weights multiplied by the error of the round before. The
    terms are rounded to fp32 one by one, lowest power first, the others fitted again each time.
    """
    x = np.linspace(0, 1, 4001)
    fixed: list[float] = []
    while len(fixed) < 5:
        known = 1 + sum(value * x ** (n + 1) for n, value in enumerate(fixed))
        powers = np.stack([x**n for n in range(len(fixed) + 1, 6)], 1)
        weights = np.ones_like(x)
        terms = np.zeros(powers.shape[1])
        for _ in range(200):
            root = np.sqrt(weights)
            terms = np.linalg.lstsq(powers * root[:, None], (2**x - known) * root, rcond=None)[0]
            weights *= np.abs(known + powers @ terms - 2**x) + 1e-12
            weights /= weights.sum()
        fixed.append(float(np.float32(terms[0])))
    return fixed


def exp2_rest(x: mp.mpf) -> mp.mpf:
    """(2^x - 1) / x."""
    return mp.log(2) if x == 0 else mp.expm1(x * mp.log(2)) / x


def expm1_rest(x: mp.mpf) -> mp.mpf:
    """(e^x - 1 - x) / x^2."""
    return mp.mpf(1) / 2 if abs(x) < mp.mpf(10) ** -20 else (mp.expm1(x) - x) / x**2


def log_rest(z: mp.mpf) -> mp.mpf:
    """(2 atanh(s) - 2 s) / (s z) with z = s^2: log((1+s)/(1-s)) past its first term."""
    if z < mp.mpf(10) ** -20:
        return mp.mpf(2) / 3
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / (s * z)


def erf_rest(z: mp.mpf) -> mp.mpf:
    """erf(x) / x with z = x^2."""
    if z < mp.mpf(10) ** -20:
        return 2 / mp.sqrt(mp.pi)
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z)


def sin_rest(z: mp.mpf) -> mp.mpf:
    """(sin(x) - x) / x^3 with z = x^2."""
    if z < mp.mpf(10) ** -20:
        return -mp.mpf(1) / 6
    x = mp.sqrt(z)
    return (mp.sin(x) - x) / (x * z)


def cos_rest(z: mp.mpf) -> mp.mpf:
    """(cos(x) - 1 + x^2/2) / x^4 with z = x^2."""
    if z < mp.mpf(10) ** -15:
        return mp.mpf(1) / 24
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def tail_rest(high: float) -> Callable[[mp.mpf], mp.mpf]:
    """-ln(erfc(x)) over [1, high], in u = the position in that interval scaled to [-1, 1]."""
    return lambda u: -mp.log(mp.erfc((mp.mpf(high) - 1) / 2 * u + (mp.mpf(high) + 1) / 2))


HALF_LN2 = 0.3466
SMALL_LOG = 0.02944  # ((sqrt(2) - 1) / (sqrt(2) + 1))^2
QUARTER_PI_SQUARED = 0.617

TABLES = {
    "EXP2": lambda n: fit_exp2_single() if n == 32 else fit(exp2_rest, -0.5, 0.5, 11),
    "EXPM1": lambda n: fit(expm1_rest, -HALF_LN2, HALF_LN2, {32: 5, 64: 11}[n]),
    "LOG": lambda n: fit(log_rest, 0, SMALL_LOG, {32: 3, 64: 7}[n]),
    "ERF_SMALL": lambda n: fit(erf_rest, 0, 1, {32: 7, 64: 13}[n]),
    "ERF_TAIL": lambda n: fit(tail_rest({32: 4.0, 64: 6.0}[n]), -1, 1, {32: 11, 64: 26}[n]),
    "SIN": lambda n: fit(sin_rest, 0, QUARTER_PI_SQUARED, {32: 4, 64: 7}[n]),
    "COS": lambda n: fit(cos_rest, 0, QUARTER_PI_SQUARED, {32: 4, 64: 7}[n]),
}


def main() -> None:
    """Write the table module to standard output."""
    print(
        '"""Polynomial coefficients, constant term first. Written by tools/fit_polynomials.py."""\n'
    )
    print("from __future__ import annotations\n")
    print("# {table: {element bits: coefficients}}")
    print("COEFFICIENTS: dict[str, dict[int, tuple[float, ...]]] = {")
    for name, make in TABLES.items():
        print(f'    "{name}": {{')
        for bits in (32, 64):
            print(f"        {bits}: (")
            for value in make(bits):
                print(f"            {float(value)!r},")
            print("        ),")
        print("    },")
    print("}")


if __name__ == "__main__":
    main()
