"""Whole tile programs, written as IR text, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_programs import CPUS, call
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.ir.dtypes import dtype_of, numpy_dtype

ELEMENTWISE = """
program f[n: int32, m: int32](x: {dtype}[n, m], y: {dtype}[n, m], s: float32) level tile {{
  kernel k(bx in (m + {w} - 1) // {w}, by in (n + {h} - 1) // {h}) threads 128 {{
    parallel (i, j) in ({h}, {w}) {{
      let z = cast(x[by * {h} + i, bx * {w} + j], float32) * s + cast(j, float32)
      y[by * {h} + i, bx * {w} + j] = cast(z, {dtype})
    }}
  }}
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@settings(max_examples=12, deadline=None)
@given(n=st.integers(0, 40), m=st.integers(0, 70))
def test_ragged_elementwise(cpu: str, dtype: str, n: int, m: int) -> None:
    text = ELEMENTWISE.format(dtype=dtype, h=7, w=33)
    kind = numpy_dtype(dtype_of(dtype))
    x = np.random.default_rng(n * 100 + m).standard_normal((n, m)).astype(kind)
    guard = np.full((n + 2, m), 5, kind)
    call(text, x, guard[1:-1], 1.5, n, m, cpu=CPUS[cpu])
    column = (np.arange(m) % 33).astype(np.float32)
    want = (x.astype(np.float32) * np.float32(1.5) + column).astype(kind)
    steps = {"float32": 1e-6, "float64": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    got = guard[1:-1].astype(np.float64)
    np.testing.assert_allclose(got, want.astype(np.float64), rtol=steps, atol=steps)
    assert (guard[0] == 5).all() and (guard[-1] == 5).all()


def matmul(sizes: tuple[int, int, int], tiles: tuple[int, int, int], types: str, flags: str) -> str:
    (m, n, k), (bm, bn, bk) = sizes, tiles
    dtype, accum = types.split("-")
    zero = {"float32": "0.0", "int32": "0", "float64": "float64(0.0)"}[accum]
    a_shape, a_tile, a_at = f"{m}, {k}", f"{bm}, {bk}", f"by * {bm}:+{bm}, k * {bk}:+{bk}"
    b_shape, b_tile, b_at = f"{k}, {n}", f"{bk}, {bn}", f"k * {bk}:+{bk}, bx * {bn}:+{bn}"
    if "transpose_a" in flags:
        a_shape, a_tile, a_at = f"{k}, {m}", f"{bk}, {bm}", f"k * {bk}:+{bk}, by * {bm}:+{bm}"
    if "transpose_b" in flags:
        b_shape, b_tile, b_at = f"{n}, {k}", f"{bn}, {bk}", f"bx * {bn}:+{bn}, k * {bk}:+{bk}"
    tensors = f"A: {dtype}[{a_shape}], B: {dtype}[{b_shape}], C: {accum}[{m}, {n}]"
    return f"""program mm({tensors}) level tile {{
  kernel main(bx in {-(-n // bn)}, by in {-(-m // bm)}) threads 128 {{
    shared a: {dtype}[{a_tile}]
    shared b: {dtype}[{b_tile}]
    fragment c: {accum}[{bm}, {bn}]
    fill c[:, :] = {zero}
    for k in pipelined(0, {-(-k // bk)}, stages=2) {{
      copy A[{a_at}] -> a[:, :]
      copy B[{b_at}] -> b[:, :]
      gemm a[:, :], b[:, :] -> c[:, :] {flags}
    }}
    copy c[:, :] -> C[by * {bm}:+{bm}, bx * {bn}:+{bn}]
  }}
}}
"""


def operands(sizes: tuple[int, int, int], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    m, n, k = sizes
    generator = np.random.default_rng(m + n + k)
    kind = numpy_dtype(dtype_of(dtype))
    if dtype.startswith(("int", "uint")):
        low = 0 if dtype[0] == "u" else -9
        return (
            generator.integers(low, 9, (m, k)).astype(kind),
            generator.integers(low, 9, (k, n)).astype(kind),
        )
    return (
        generator.standard_normal((m, k)).astype(kind),
        generator.standard_normal((k, n)).astype(kind),
    )


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("flags", ["", "transpose_b", "transpose_a transpose_b"])
@pytest.mark.parametrize(
    "types",
    ["float32-float32", "bfloat16-float32", "float16-float32", "int8-int32", "float64-float64"],
)
@pytest.mark.parametrize(
    ("sizes", "tiles"), [((70, 90, 50), (32, 48, 20)), ((33, 64, 64), (16, 64, 32))]
)
def test_matmul(
    cpu: str, flags: str, types: str, sizes: tuple[int, int, int], tiles: tuple[int, int, int]
) -> None:
    dtype, accum = types.split("-")
    a, b = operands(sizes, dtype)
    want = a.astype(np.float64) @ b.astype(np.float64)
    c = np.full(want.shape, 7, accum)
    left = np.ascontiguousarray(a.T) if "transpose_a" in flags else a
    right = np.ascontiguousarray(b.T) if "transpose_b" in flags else b
    call(matmul(sizes, tiles, types, flags), left, right, c, cpu=CPUS[cpu])
    tolerance = {"float32": 1e-4, "int32": 0, "float64": 1e-12}[accum]
    np.testing.assert_allclose(c, want, rtol=tolerance, atol=tolerance)


def test_shared_tiles_serve_many_blocks() -> None:
    """20 rows of blocks want the same tiles of B: the first packs, the others reuse."""
    sizes, tiles = (320, 96, 100), (16, 32, 48)
    a, b = operands(sizes, "float32")
    c = np.zeros((320, 96), np.float32)
    text = matmul(sizes, tiles, "float32-float32", "")
    for _ in range(3):  # later calls find the workspace of the first one
        b = b * 2
        call(text, a, b, c)
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


REDUCE = """program r(x: float32[{m}, {n}], y: float32[{m}], z: float32[{m}]) level tile {{
  kernel k(b in 1) threads 32 {{
    fragment t: float32[{m}, {n}]
    fragment top: float32[{m}]
    fragment total: float32[{m}]
    copy x[:, :] -> t[:, :]
    reduce max t[:, :] -> top[:] axis 1
    parallel (i, j) in ({m}, {n}) {{
      t[i, j] = exp(t[i, j] - top[i])
    }}
    reduce sum t[:, :] -> total[:] axis 1
    copy top[:] -> y[:]
    copy total[:] -> z[:]
  }}
}}
"""


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 16), (4, 33), (2, 127), (9, 300), (3, 1025)])
def test_fused_softmax_rows(cpu: str, shape: tuple[int, int]) -> None:
    m, n = shape
    x = np.random.default_rng(n).standard_normal(shape).astype(np.float32)
    y, z = np.zeros(m, np.float32), np.zeros(m, np.float32)
    call(REDUCE.format(m=m, n=n), x, y, z, cpu=CPUS[cpu])
    np.testing.assert_array_equal(y, x.max(axis=1))
    want = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(z, want, rtol=1e-5)


def test_guarded_accesses_never_touch_other_memory() -> None:
    """A tile that hangs over all four edges of its tensor reads safe values and writes inside."""
    text = """program f(x: float32[5, 6], y: float32[5, 6]) level tile {
      kernel k(b in 1) threads 32 {
        parallel (i, j) in (9, 20) {
          y[i - 2, j - 3] = x[i - 1, j - 3] + 1.0
        }
      }
    }
    """
    frame = np.full((7, 6), -1, np.float32)
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    call(text, x, frame[1:-1])
    want = np.concatenate([x[1:], np.zeros((1, 6), np.float32)]) + 1
    np.testing.assert_array_equal(frame[1:-1], want)
    assert (frame[[0, -1]] == -1).all()


def test_integer_division_is_pythons() -> None:
    text = """program f(a: int32[64], b: int32[64], q: int32[64], r: int32[64]) level tile {
      kernel k(z in 1) threads 32 {
        parallel (i) in (64) {
          q[i] = a[i] // b[i]
          r[i] = a[i] % b[i]
        }
      }
    }
    """
    generator = np.random.default_rng(0)
    a = generator.integers(-50, 50, 64).astype(np.int32)
    b = generator.integers(1, 9, 64).astype(np.int32) * generator.choice([-1, 1], 64).astype(
        np.int32
    )
    q, r = np.zeros_like(a), np.zeros_like(a)
    call(text, a, b, q, r)
    np.testing.assert_array_equal(q, a // b)
    np.testing.assert_array_equal(r, a % b)


def test_atomic_sum_over_the_grid() -> None:
    text = """program f(x: float32[4096], y: float32[1]) level tile {
      kernel k(b in 256) threads 32 {
        for i in serial(0, 16) {
          atomic add x[b * 16 + i] -> y[0]
        }
      }
    }
    """
    x = np.ones(4096, np.float32)
    y = np.zeros(1, np.float32)
    call(text, x, y)
    assert y[0] == 4096
