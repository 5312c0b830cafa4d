"""Nests of rows: unread values, rows reduced together, pairs rounded together, factors of one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_programs import CPUS, call

from tilecore.hooks.records import CompileOptions
from tilecore.ir.parser import parse_program
from tilecore_backend_cpu.host import detect_host
from tilecore_backend_cpu.kernel_emitter import emit_program
from tilecore_backend_cpu.scheduling import schedule_program

WEIGHTS = """
program f(A: bfloat16[2, {m}, 32], B: bfloat16[2, {n}, 32], V: bfloat16[{n}, 32],
    O: float32[{m}, 32], S: float32[{m}], W: bfloat16[{m}, {n}]) level tile {{
  kernel k(bx in 1) threads 128 {{
    shared a: bfloat16[{m}, 32]
    shared b: bfloat16[{n}, 32]
    shared v: bfloat16[{n}, 32]
    fragment s: float32[{m}, {n}]
    fragment w: bfloat16[{m}, {n}]
    fragment part: float32[{m}]
    fragment total: float32[{m}]
    fragment o: float32[{m}, 32]
    fill o[:, :] = 0.0
    fill total[:] = 0.0
    copy V[0:+{n}, 0:+32] -> v[:, :]
    for t in pipelined(0, 2, stages=1) {{
      copy A[t, 0:+{m}, 0:+32] -> a[:, :]
      copy B[t, 0:+{n}, 0:+32] -> b[:, :]
      gemm a[:, :], b[:, :] -> s[:, :] transpose_b clear true
      {view}
      parallel (i, j) in ({m}, {n}) {{
        s[i, j] = exp2(s[i, j])
      }}
      reduce sum s[:, :] -> part[:] axis 1
      copy s[:, :] -> w[:, :]
      parallel (i) in ({m}) {{
        total[i] = total[i] + part[i]
      }}
      gemm w[:, :], v[:, :] -> o[:, :]
      {reader}
    }}
    copy total[:] -> S[0:+{m}]
    copy o[:, :] -> O[0:+{m}, 0:+32]
  }}
}}
"""
READERS = {
    "nobody": "",
    "weights": "copy w[:, :] -> W[0:+{m}, 0:+{n}]",
    "scores": "copy s[:, :] -> W[0:+{m}, 0:+{n}]",
    "view": "copy view[:, :] -> W[0:+{m}, 0:+{n}]",
}


def program(m: int, n: int, reader: str) -> str:
    view = f"alias fragment view: float32[{m}, {n}] of s" if reader == "view" else ""
    return WEIGHTS.format(m=m, n=n, reader=READERS[reader].format(m=m, n=n), view=view)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("m", "n"), [(32, 64), (16, 16), (48, 80), (15, 37), (5, 130)])
def test_weights_and_their_sums(cpu: str, reader: str, m: int, n: int) -> None:
    """Who else reads scores and weights changes nothing; subnormal weights stay where they do."""
    random = np.random.default_rng(m * n)
    kind = ml_dtypes.bfloat16
    a = random.standard_normal((2, m, 32)).astype(kind)
    b = random.standard_normal((2, n, 32)).astype(kind)
    a[1, :, 1:], b[1, :, 1:] = 0, 0
    a[1, :, 0] = 1
    b[1, :, 0] = (-(np.arange(n) % 132)).astype(kind)  # 2**-131 is subnormal
    v = random.standard_normal((n, 32)).astype(kind)
    o, total = np.zeros((m, 32), np.float32), np.zeros(m, np.float32)
    weights = np.full((m, n), 7, kind)
    call(program(m, n, reader), a, b, v, o, total, weights, cpu=CPUS[cpu])
    scores = np.einsum("tik,tjk->tij", a.astype(np.float64), b.astype(np.float64))
    want = np.exp2(scores)
    np.testing.assert_allclose(total, want.sum((0, 2)), rtol=1e-5)
    rounded = want.astype(np.float32).astype(kind)
    np.testing.assert_allclose(
        o, (rounded.astype(np.float64).sum(0) @ v.astype(np.float64)), rtol=2e-2, atol=2e-2
    )
    expected = np.full((m, n), 7, kind) if reader == "nobody" else rounded[1]
    np.testing.assert_array_equal(weights.view(np.uint16), expected.view(np.uint16))


def text_of(source: str) -> str:
    host = detect_host()
    return emit_program(schedule_program(parse_program(source), host), host, CompileOptions()).text


@pytest.mark.skipif(not detect_host().has_amx_bf16, reason="the CPU multiplies no bfloat16 tiles")
def test_only_what_products_alone_read_is_flushed() -> None:
    assert "cvtne2ps2bf16" in text_of(program(32, 64, "nobody"))
    assert "cvtne2ps2bf16" in text_of(program(32, 64, "scores"))
    assert "cvtne2ps2bf16" not in text_of(program(32, 64, "weights"))


BRANCHES = """
program f(X: float32[32, 64], V: bfloat16[64, 32], O: float32[32, 32]) level tile {{
  kernel k(bx in 1) threads 128 {{
    fragment s: float32[32, 64]
    shared v: bfloat16[64, 32]
    fragment w: bfloat16[32, 64]
    fragment o: float32[32, 32]
    copy X[0:+32, 0:+64] -> s[:, :]
    copy V[0:+64, 0:+32] -> v[:, :]
    parallel (i, j) in ({rows}, 64) {{
      {body}
    }}
    gemm w[:, :], v[:, :] -> o[:, :] clear true
    copy o[:, :] -> O[0:+32, 0:+32]
  }}
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("rows", "body"),
    [
        (32, "if i < 32 {{ w[i, j] = cast({value}, bfloat16) }}"),
        (16, "for h in serial(0, 2) {{ w[i * 2 + h, j] = cast({value}, bfloat16) }}"),
    ],
)
def test_what_branches_and_loops_round_stays_in_them(cpu: str, rows: int, body: str) -> None:
    random = np.random.default_rng(rows)
    x = random.standard_normal((32, 64)).astype(np.float32)
    v = random.standard_normal((64, 32)).astype(ml_dtypes.bfloat16)
    o = np.zeros((32, 32), np.float32)
    value = "s[i, j] * 2.0" if rows == 32 else "s[i * 2 + h, j] * 2.0"
    call(BRANCHES.format(rows=rows, body=body.format(value=value)), x, v, o, cpu=CPUS[cpu])
    weights = (x * 2).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_allclose(o, weights @ v.astype(np.float64), rtol=1e-4, atol=1e-4)


ROWS = """
program f(x: float32[{m}, {n}], big: float32[{m}], small: float32[{m}],
    y: float32[{m}, {n}]) level tile {{
  kernel k(bx in 1) threads 128 {{
    fragment s: float32[{m}, {n}]
    fragment t: float32[{m}]
    fragment u: float32[{m}]
    copy x[0:+{m}, 0:+{n}] -> s[:, :]
    parallel (i, j) in ({m}, {n}) {{
      s[i, j] = s[i, j] + 1.0
    }}
    reduce max s[:, :] -> t[:] axis 1
    reduce min s[:, :] -> u[:] axis 1
    copy s[:, :] -> y[0:+{m}, 0:+{n}]
    copy t[:] -> big[0:+{m}]
    copy u[:] -> small[0:+{m}]
  }}
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("m", [1, 15, 16, 17, 32, 64])
@pytest.mark.parametrize("n", [1, 16, 33, 128])
def test_extremes_of_rows(cpu: str, m: int, n: int) -> None:
    """Every row gets its own result, special values included, however many rows there are."""
    x = np.random.default_rng(m + n).standard_normal((m, n)).astype(np.float32)
    x[::3, n // 2] = np.nan
    x[::4, 0] = np.inf
    x[1::5, -1] = -np.inf
    big, small, y = (np.zeros(shape, np.float32) for shape in ((m,), (m,), (m, n)))
    call(ROWS.format(m=m, n=n), x, big, small, y, cpu=CPUS[cpu])
    want = x + np.float32(1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(big, np.fmax.reduce(want, 1, initial=-np.inf))
        np.testing.assert_array_equal(small, np.fmin.reduce(want, 1, initial=np.inf))
    np.testing.assert_array_equal(y, want)


SCALE = """
program f(x: float32[{m}, 64], f: float32[{m}], y: float32[{m}, 64]) level tile {{
  kernel k(bx in 1) threads 128 {{
    fragment s: float32[{m}, 64]
    fragment t: float32[{m}]
    copy x[0:+{m}, 0:+64] -> s[:, :]
    copy f[0:+{m}] -> t[:]
    if {m} > 0 {{
      parallel (i, j) in ({m}, 64) {{
        s[i, j] = s[i, j] * t[i]
      }}
    }}
    copy s[:, :] -> y[0:+{m}, 0:+64]
  }}
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("m", [1, 7, 16, 41, 64])
@pytest.mark.parametrize("other", [1.0, 0.5, np.nan, np.inf, 0.0])
def test_factors_of_one(cpu: str, m: int, other: float) -> None:
    """One factor that is not 1, in any row, is seen; with all of them 1 no bit changes."""
    x = np.random.default_rng(m).standard_normal((m, 64)).astype(np.float32)
    x[0, :4] = -0.0, np.inf, np.nan, 1e-42
    for row in {0, m // 2, m - 1}:
        factors = np.ones(m, np.float32)
        factors[row] = other
        y = np.zeros_like(x)
        call(SCALE.format(m=m), x, factors, y, cpu=CPUS[cpu])
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(y, x * factors[:, None])


SHORT = """
program f(x: float32[16, 64], f: float32[8], one: float32[16],
    y: float32[16, 64]) level tile {{
  kernel k(bx in 1) threads 128 {{
    fragment s: float32[16, 64]
    copy x[0:+16, 0:+64] -> s[:, :]
    if bx == 0 {{
      fragment ones: float32[64]
      fill ones[:] = 1.0
      copy ones[0:+16] -> one[0:+16]
    }}
    if bx == 0 {{
      fragment t: float32[8]
      copy f[0:+8] -> t[:]
      parallel (i, j) in (16, 64) {{
        s[i, j] = s[i, j] * t[i]
      }}
    }}
    copy s[:, :] -> y[0:+16, 0:+64]
  }}
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
def test_factors_for_some_rows_only(cpu: str) -> None:
    """Factors outside their buffer are 0, whatever lies in memory behind it."""
    x = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    ones, y = np.zeros(16, np.float32), np.zeros_like(x)
    call(SHORT.format(), x, np.ones(8, np.float32), ones, y, cpu=CPUS[cpu])
    np.testing.assert_array_equal(y, np.where(np.arange(16)[:, None] < 8, x, x * 0))
