"""Loops of two products with rows between them: turned where they may be, and right either way."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_programs import CPUS, call

from tilecore.hooks.records import CompileOptions
from tilecore.ir.parser import parse_program
from tilecore_backend_cpu import chains, statements
from tilecore_backend_cpu.host import detect_host
from tilecore_backend_cpu.kernel_emitter import emit_program
from tilecore_backend_cpu.scheduling import schedule_program

TEXT = """
program f(Q: bfloat16[{blocks}, {m}, {d}], K: bfloat16[{steps}, {n}, {d}],
    V: bfloat16[{steps}, {n}, {e}], O: float32[{blocks}, {m}, {e}], T: float32[{blocks}, {m}],
    X: bfloat16[{m}, {n}], first: int32, count: int32) level tile {{
  kernel k(bx in {blocks}) threads 128 {{
    shared q: bfloat16[{m}, {d}]
    shared k: bfloat16[{n}, {d}]
    shared v: bfloat16[{n}, {e}]
    fragment s: float32[{m}, {n}]
    fragment w: bfloat16[{m}, {n}]
    fragment big: float32[{m}]
    fragment part: float32[{m}]
    fragment total: float32[{m}]
    fragment o: float32[{m}, {e}]
    {before}
    copy Q[bx, 0:+{m}, 0:+{d}] -> q[:, :]
    fill o[:, :] = 0.0
    fill total[:] = 0.0
    for t in pipelined(0, count, stages=1) {{
      let at = first + t
      copy K[at, 0:+{n}, 0:+{d}] -> k[:, :]
      copy V[at, 0:+{n}, 0:+{e}] -> v[:, :]
      gemm q[:, :], k[:, :] -> s[:, :] transpose_b clear true
      {early}
      if at == 1 {{
        parallel (i, j) in ({m}, {n}) {{
          s[i, j] = select(j > i, -1.0, s[i, j])
        }}
      }}
      reduce max s[:, :] -> big[:] axis 1
      parallel (i, j) in ({m}, {n}) {{
        s[i, j] = exp2(s[i, j] - big[i])
      }}
      reduce sum s[:, :] -> part[:] axis 1
      copy s[:, :] -> w[:, :]
      parallel (i) in ({m}) {{
        total[i] = total[i] * 0.5 + part[i]
      }}
      parallel (i, j) in ({m}, {e}) {{
        o[i, j] = o[i, j] * 0.5
      }}
      {late}
      gemm w[:, :], v[:, :] -> o[:, :]
      {last}
    }}
    copy total[:] -> T[bx, 0:+{m}]
    copy o[:, :] -> O[bx, 0:+{m}, 0:+{e}]
  }}
}}
"""
OTHERS = {
    "nobody": {},
    "scores after the weights": {"late": "copy s[:, :] -> X[0:+{m}, 0:+{n}]"},
    "weights after the weights": {"late": "copy w[:, :] -> X[0:+{m}, 0:+{n}]"},
    "weights after the product": {"last": "copy w[:, :] -> X[0:+{m}, 0:+{n}]"},
    "keys": {"early": "copy k[0:+1, 0:+1] -> X[0:+1, 0:+1]"},
    "the result": {"early": "parallel (i) in ({m}) {{ total[i] = total[i] + o[i, 0] * 0.0 }}"},
    "a view of the result": {
        "before": "alias fragment view: float32[{m}, {e}] of o",
        "early": "parallel (i) in ({m}) {{ total[i] = total[i] + view[i, 0] * 0.0 }}",
    },
    "a view of the keys' source": {
        "before": "alias global view: bfloat16[{steps}, {n}, {d}] of K",
        "last": "if at > 100 {{ view[0, 0, 0] = cast(0.0, bfloat16) }}",
    },
    "the end of the loop": {"early": "if at > 100 {{ break }}"},
}
# Copies of the weights join the nest that makes them, wherever in the step they stand.
SEES = {
    "keys", "the result", "a view of the result", "a view of the keys' source",
    "the end of the loop",
}  # fmt: skip


def source(sizes: tuple[int, int, int, int], steps: int, blocks: int, other: str) -> str:
    m, n, d, e = sizes
    numbers = {"m": m, "n": n, "d": d, "e": e, "steps": steps}
    parts = {"before": "", "early": "", "late": "", "last": ""} | OTHERS[other]
    parts = {name: part.format(**numbers) for name, part in parts.items()}
    return TEXT.format(**numbers, **parts, blocks=blocks)


def check(sizes: tuple[int, int, int, int], count: int, other: str, cpu: str) -> None:
    (m, n, d, e), blocks, steps, first = sizes, 3, 5, 1
    random = np.random.default_rng(m + n + d + e + count)
    kind = ml_dtypes.bfloat16
    q, k, v = (
        random.standard_normal(shape).astype(kind)
        for shape in ((blocks, m, d), (steps, n, d), (steps, n, e))
    )
    o = np.full((blocks, m, e), 9, np.float32)
    total, x = np.full((blocks, m), 9, np.float32), np.zeros((m, n), kind)
    text = source(sizes, steps, blocks, other)
    call(text, q, k, v, o, total, x, first, count, cpu=CPUS[cpu])
    want, sums = np.zeros((blocks, m, e)), np.zeros((blocks, m))
    hidden = np.arange(n)[None, :] > np.arange(m)[:, None]
    for at in range(first, first + count):
        scores = q.astype(np.float64) @ k[at].astype(np.float64).T
        scores = np.where(hidden & (at == 1), -1.0, scores)
        weights = np.exp2(scores - scores.max(2, keepdims=True))
        sums = sums * 0.5 + weights.sum(2)
        want = want * 0.5 + weights.astype(kind).astype(np.float64) @ v[at].astype(np.float64)
    np.testing.assert_allclose(total, sums, rtol=1e-4)
    np.testing.assert_allclose(o, want, rtol=2e-2, atol=3e-2)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("sizes", [(32, 64, 64, 64), (64, 32, 32, 96), (32, 31, 32, 64)])
def test_any_number_of_steps(sizes: tuple[int, int, int, int], count: int, cpu: str) -> None:
    check(sizes, count, "nobody", cpu)


@pytest.mark.parametrize("other", OTHERS)
def test_whoever_else_reads(other: str) -> None:
    check((32, 64, 32, 32), 3, other, "host")


@pytest.mark.skipif(not detect_host().has_amx_bf16, reason="the CPU multiplies no bfloat16 tiles")
@pytest.mark.parametrize("other", OTHERS)
def test_loops_are_turned_unless_somebody_would_see_it(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def find(*arguments: object) -> chains.Chain | None:
        chain = chains.find_chain(*arguments)  # type: ignore[arg-type]
        found.append(chain is not None)
        return chain

    monkeypatch.setattr(statements, "find_chain", find)
    host = detect_host()
    program = schedule_program(parse_program(source((32, 64, 32, 32), 5, 1, other)), host)
    emit_program(program, host, CompileOptions())
    assert found == [other not in SEES]
