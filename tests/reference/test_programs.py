"""Whole programs, written in the text form, against plain NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilecore.errors import ArgumentError
from tilecore.ir.parser import parse_program
from tilecore.reference import run

RNG = np.random.default_rng(7)

GEMM = """
program gemm[m: int32, n: int32, k: int32](
    A: float16[m, k], B: float16[k, n], C: float16[m, n]) outputs (2) level tile {
  kernel main(bx in (n + 31) // 32, by in (m + 15) // 16) threads 128 {
    shared A_s: float16[16, 8]
    shared B_s: float16[8, 32]
    fragment acc: float32[16, 32]
    fill acc[:, :] = 0.0
    for ko in pipelined(0, (k + 7) // 8, stages=3) {
      copy A[by * 16:+16, ko * 8:+8] -> A_s[:, :]
      copy B[ko * 8:+8, bx * 32:+32] -> B_s[:, :]
      gemm A_s[:, :], B_s[:, :] -> acc[:, :]
    }
    copy acc[:, :] -> C[by * 16:+16, bx * 32:+32]
  }
}
"""


@pytest.mark.parametrize("shape", [(16, 32, 8), (33, 31, 7), (1, 1, 1), (5, 40, 0), (0, 8, 8)])
def test_ragged_gemm(shape):
    m, n, k = shape
    a = RNG.standard_normal((m, k)).astype(np.float16)
    b = RNG.standard_normal((k, n)).astype(np.float16)
    program = parse_program(GEMM)
    sizes = {"n": n, "k": k, "m": m}
    result = run(program, {"A": a, "B": b, **sizes})["C"]
    np.testing.assert_allclose(result, a.astype(float) @ b.astype(float), rtol=1e-14, atol=1e-14)
    c = np.full((m, n), 7, np.float16)
    exact = run(program, {"A": a, "B": b, "C": c}, exact_dtypes=True)["C"] if k else None
    if exact is not None:
        np.testing.assert_array_equal(c, exact.astype(np.float16))
        np.testing.assert_array_equal(exact, exact.astype(np.float16).astype(float))


def test_an_oracle_does_not_round_on_the_way():
    text = """
program p(x: float16[1], y: float32[1]) level tile {
  kernel main(b in 1) threads 1 {
    fragment t: float16[1]
    parallel (i) in (1) {
      t[i] = x[i] + cast(0.0001, float16)
      y[i] = cast(t[i], float32)
    }
  }
}
"""
    x = np.ones(1, np.float16)
    args = {"x": x, "y": np.zeros(1, np.float32)}
    assert run(parse_program(text), args)["y"][0] == 1.0 + 0.0001
    assert run(parse_program(text), args, exact_dtypes=True)["y"][0] == 1.0


SOFTMAX = """
program softmax(x: float32[5, 37], y: float32[5, 37]) level tile {
  kernel main(row in 5) threads 32 {
    fragment s: float32[64]
    fragment top: float32[1]
    fragment total: float32[1]
    parallel (j) in (64) {
      s[j] = select(j < 37, x[row, j], -inf)
    }
    reduce max s[:] -> top[:] axis 0
    parallel (j) in (64) {
      s[j] = exp(s[j] - top[0])
    }
    reduce sum s[:] -> total[:] axis 0
    parallel (j) in (64) {
      y[row, j] = s[j] / total[0]
    }
  }
}
"""


def test_softmax_with_guarded_accesses():
    x = RNG.standard_normal((5, 37)).astype(np.float32)
    y = np.zeros((5, 37), np.float32)
    result = run(parse_program(SOFTMAX), {"x": x, "y": y}, check_uninitialised=True)["y"]
    wide = np.exp(x - x.max(axis=1, keepdims=True).astype(float))
    np.testing.assert_allclose(result, wide / wide.sum(axis=1, keepdims=True), rtol=1e-14)
    np.testing.assert_array_equal(y, result.astype(np.float32))


def test_control_flow_inside_a_parallel():
    # Collatz steps: while, break, continue and per-iteration variables, all at once.
    text = """
program collatz(steps: int32[50]) level tile {
  kernel main(b in 1) threads 32 {
    parallel (i) in (50) {
      local n: int32[] = i + 1
      local count: int32[] = 0
      for t in serial(0, 1000) {
        if n[] == 1 {
          break
        }
        count[] = count[] + 1
        if n[] % 2 == 0 {
          n[] = n[] // 2
          continue
        }
        n[] = n[] * 3 + 1
      }
      steps[i] = count[]
    }
  }
}
"""

    def collatz(n):
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    steps = np.zeros(50, np.int32)
    run(parse_program(text), {"steps": steps})
    assert steps.tolist() == [collatz(i + 1) for i in range(50)]


def test_a_per_lane_program_reverses_through_shared_memory():
    text = """
program reverse(x: float32[256], y: float32[256]) level tile {
  kernel main(b in 4) threads 64 {
    shared s: float32[64]
    local mine: float32[2]
    let lane = block.thread()
    mine[0] = x[b * 64 + lane]
    if lane % 2 == 1 {
      mine[0] = -mine[0]
    }
    s[lane] = mine[0]
    sync_block()
    y[b * 64 + lane] = s[63 - lane]
    copy x[b * 64 + lane // 2 * 2:+2] -> mine[:]
    y[b * 64 + lane] = y[b * 64 + lane] + mine[1]
  }
}
"""
    x = RNG.standard_normal(256).astype(np.float32)
    y = np.zeros(256, np.float32)
    run(parse_program(text), {"x": x, "y": y})
    sign = np.where(np.arange(256) % 2 == 1, -1, 1)
    pairs = x.reshape(-1, 2)[:, 1].repeat(2).astype(float)
    expected = (x * sign).reshape(4, 64)[:, ::-1].ravel() + pairs
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_kernels_workspaces_and_atomics():
    text = """
program histogram[n: int32](x: int32[n], bins: int32[8], order: int32[n]) level tile {
  workspace total: int32[1]
  kernel clear(b in 1) threads 32 {
    fill bins[:] = 0
    total[0] = 0
  }
  kernel count(b in (n + 15) // 16) threads 16 {
    parallel (i) in (16) {
      if b * 16 + i < n {
        let place = atomic add 1 -> bins[x[b * 16 + i]]
        order[b * 16 + i] = place
        atomic max x[b * 16 + i] -> total[0]
      }
    }
  }
  kernel finish(b in 1) threads 32 {
    bins[0] = total[0]
  }
}
"""
    x = RNG.integers(1, 8, 77).astype(np.int32)
    bins, order = np.zeros(8, np.int32), np.full(77, -1, np.int32)
    run(parse_program(text), {"x": x, "bins": bins, "order": order})
    expected = np.bincount(x, minlength=8)
    assert bins[1:].tolist() == expected[1:].tolist()
    assert bins[0] == x.max()
    for value in range(1, 8):
        assert sorted(order[x == value]) == list(range(expected[value]))


def test_tile_atomics_drop_what_is_outside():
    text = """
program p(x: float32[4, 4], y: float32[3, 5]) level tile {
  kernel main(b in 2) threads 32 {
    fragment t: float32[4, 4]
    copy x[:, :] -> t[:, :]
    atomic add &t[:, :] -> y[1:+4, 2:+4]
    atomic add 1.0 -> y[0, 0:+9]
  }
}
"""
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    y = np.zeros((3, 5), np.float32)
    run(parse_program(text), {"x": x, "y": y})
    expected = np.zeros((3, 5))
    expected[1:, 2:] += 2 * x[:2, :3]
    expected[0] += 2
    np.testing.assert_array_equal(y, expected)


def test_views_share_memory_across_shapes_and_dtypes():
    text = """
program p(x: uint32[4], y: uint8[16], z: float32[2, 2]) level tile {
  kernel main(b in 1) threads 32 {
    shared a: uint32[4]
    alias shared bytes: uint8[16] of a
    alias shared floats: float32[2, 2] of a
    copy x[:] -> a[:]
    copy bytes[:] -> y[:]
    copy floats[:, :] -> z[:, :]
  }
}
"""
    values = np.array([[1.5, -0.0], [3e38, 1e-45]], np.float32)
    x = values.view(np.uint32).ravel()
    y, z = np.zeros(16, np.uint8), np.zeros((2, 2), np.float32)
    run(parse_program(text), {"x": x, "y": y, "z": z}, check_uninitialised=True)
    np.testing.assert_array_equal(y, x.view(np.uint8))
    np.testing.assert_array_equal(z.view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_integers_wrap(dtype):
    text = f"""
program p(x: {dtype}[8], y: {dtype}[8]) level tile {{
  kernel main(b in 1) threads 32 {{
    parallel (i) in (8) {{
      y[i] = x[i] * x[i] + x[i]
    }}
    reduce sum y[:] -> y[0:+1] axis 0
  }}
}}
"""
    info = np.iinfo(dtype)
    x = np.array([info.max, info.min, 1, 0, 100, 77, 13, 5], dtype)
    y = np.zeros(8, dtype)
    run(parse_program(text), {"x": x, "y": y})
    with np.errstate(all="ignore"):
        expected = x * x + x
        total = np.add.reduce(expected, dtype=dtype)
    assert y[1:].tolist() == expected[1:].tolist()
    assert y[0] == total


@pytest.mark.parametrize("op", ["max", "min", "absmax", "abssum", "sum", "any", "all"])
@pytest.mark.parametrize("clear", [True, False])
def test_reductions(op, clear):
    text = f"""
program p(x: float32[6, 9], y: float32[6, 1]) level tile {{
  kernel main(b in 1) threads 32 {{
    reduce {op} x[:, :] -> y[:, :] axis 1{"" if clear else " accumulate"}
  }}
}}
"""
    x = RNG.standard_normal((6, 9)).astype(np.float32)
    x[0] = 0
    y = np.full((6, 1), 0.25, np.float32)
    old = 0.25
    expected = {
        "max": x.max(1), "min": x.min(1), "absmax": abs(x).max(1),
        "abssum": abs(x.astype(float)).sum(1), "sum": x.astype(float).sum(1), "any": x.any(1),
        "all": x.all(1),
    }[op].astype(float)  # fmt: skip
    if not clear:
        expected = {
            "max": np.maximum, "min": np.minimum, "absmax": np.maximum, "abssum": np.add,
            "sum": np.add, "any": np.logical_or, "all": np.logical_and,
        }[op](expected, old)  # fmt: skip
    result = run(parse_program(text), {"x": x, "y": y})["y"]
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-15)


def test_reductions_of_nans_and_of_nothing():
    text = """
program p(x: float32[2, 3], y: float32[2], z: float32[2], e: float32[2, 0], f: float32[2],
          g: int32[2]) level tile {
  kernel main(b in 1) threads 32 {
    reduce max x[:, :] -> y[:] axis 1
    reduce max x[:, :] -> z[:] axis 1 nan_propagate
    reduce max e[:, :] -> f[:] axis 1
    reduce bitand e[:, :] -> g[:] axis 1
  }
}
"""
    x = np.array([[1, np.nan, 3], [1, 2, 3]], np.float32)
    out = {name: np.zeros(2, np.float32) for name in "yzf"}
    g = np.zeros(2, np.int32)
    run(parse_program(text), {"x": x, "e": np.zeros((2, 0), np.float32), "g": g, **out})
    np.testing.assert_array_equal(out["y"], [3, 3])
    np.testing.assert_array_equal(out["z"], [np.nan, 3])
    np.testing.assert_array_equal(out["f"], [-np.inf, -np.inf])
    assert g.tolist() == [-1, -1]


@pytest.mark.parametrize("reverse", ["", " reverse"])
def test_scans(reverse):
    text = f"""
program p(x: int32[4, 5], s: int32[4, 5], m: int32[4, 5]) level tile {{
  kernel main(b in 1) threads 32 {{
    scan sum x[:, :] -> s[:, :] axis 1{reverse}
    scan max x[:, :] -> m[:, :] axis 0{reverse}
  }}
}}
"""
    x = RNG.integers(-9, 9, (4, 5)).astype(np.int32)
    s, m = np.zeros_like(x), np.zeros_like(x)
    run(parse_program(text), {"x": x, "s": s, "m": m})
    flip = (lambda a, axis: np.flip(a, axis)) if reverse else (lambda a, axis: a)
    np.testing.assert_array_equal(s, flip(np.cumsum(flip(x, 1), 1), 1))
    np.testing.assert_array_equal(m, flip(np.maximum.accumulate(flip(x, 0), 0), 0))


def test_narrow_floats_round_and_saturate_on_the_way_out():
    text = """
program p(x: float32[4], y: float8_e4m3fn[4], z: bfloat16[4]) level tile {
  kernel main(b in 1) threads 32 {
    copy x[:] -> y[:]
    copy x[:] -> z[:]
  }
}
"""
    x = np.array([1000.0, -0.3, np.nan, 3e38], np.float32)
    y, z = np.zeros(4, ml_dtypes.float8_e4m3fn), np.zeros(4, ml_dtypes.bfloat16)
    run(parse_program(text), {"x": x, "y": y, "z": z})
    np.testing.assert_array_equal(y.astype(float), [448, -0.3125, np.nan, 448])
    np.testing.assert_array_equal(z.astype(float), x.astype(ml_dtypes.bfloat16).astype(float))


@pytest.mark.parametrize(("count", "size"), [(1, 2), (3, 6), (6, 12)])
def test_sizes_inside_extents_are_solved(count, size):
    """An extent ``b + 1`` tells b, and ``b * n`` then tells n."""
    program = parse_program("""
program sizes[b: int32, n: int32](
    Y: int32[2], X: float32[b * n], S: int32[b + 1]) level tile {
  kernel main(i in 1) threads 32 {
    Y[0] = b
    Y[1] = n
  }
}
""")
    x, s = np.zeros(size, np.float32), np.zeros(count + 1, np.int32)
    result = run(program, {"Y": np.zeros(2, np.int32), "X": x, "S": s})["Y"]
    assert result.tolist() == [count, 2]


def test_a_size_that_no_extent_fits_is_refused():
    program = parse_program("""
program sizes[n: int32](X: float32[n * 2]) level tile {
  kernel main(i in 1) threads 32 {
    X[0] = 1.0
  }
}
""")
    with pytest.raises(ArgumentError, match="no argument's shape tells"):
        run(program, {"X": np.zeros(5, np.float32)})
