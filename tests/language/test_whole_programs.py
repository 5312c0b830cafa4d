"""Real programs: the text they become, and their results against NumPy."""

from pathlib import Path

import language_programs as programs
import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.ir import stmts

RNG = np.random.default_rng(3)

MATMUL = """\
shared A_shared: float16[32, 16]
shared B_shared: float16[16, 32]
fragment C_local: float32[32, 32]
fill C_local[:, :] = 0.0
for k in pipelined(0, 4, stages=3) {
  copy A[by * 32:+32, k * 16:+16] -> A_shared[:, :]
  copy B[k * 16:+16, bx * 32:+32] -> B_shared[:, :]
  gemm A_shared[:, :], B_shared[:, :] -> C_local[:, :]
}
copy C_local[:, :] -> C[by * 32:+32, bx * 32:+32]
"""


def test_matmul_text():
    function = programs.matmul(100, 70, 50)
    assert support.body_text(function).strip() == MATMUL.strip()
    (kernel,) = function.program.kernels
    assert [var.name for var in kernel.grid_vars] == ["bx", "by"]
    assert [extent.value for extent in kernel.grid] == [3, 4]
    assert kernel.threads == 128
    assert kernel.block_order.panel == 10


def test_every_statement_knows_its_line():
    function = programs.matmul(64, 64, 64)
    source = Path(programs.__file__).read_text()
    for kind, marker in (
        ("Copy", "T.copy(A[by"),
        ("Gemm", "T.gemm(A_shared, B"),
        ("For", "for k in T.Pipelined(T.ceildiv(K"),
        ("Fill", "T.clear(C_local)"),
        ("Allocate", "A_shared = T.alloc_shared((block_M"),
    ):
        first = support.statements(function, getattr(stmts, kind))[0]
        assert first.loc.file == programs.__file__
        assert first.loc.line == support.line_of(source, marker), kind


@pytest.mark.parametrize("m", [1, 31, 32, 33, 100])
def test_one_dynamic_matmul_serves_all_sizes(m):
    rows = T.dynamic("m", multiple_of=1)
    function = programs.matmul(rows, 40, 24)
    (symbol,) = function.program.symbols
    assert (symbol.name, symbol.lower) == ("m", 0)
    a = RNG.standard_normal((m, 24)).astype(np.float16)
    b = RNG.standard_normal((24, 40)).astype(np.float16)
    c = np.zeros((m, 40), np.float16)
    out = support.result(function, "C", A=a, B=b, C=c)
    np.testing.assert_allclose(out, a.astype(float) @ b.astype(float), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 33, 64])
def test_attention(length, causal):
    shape = (1, length, 2, 16)
    function = programs.attention(1, 2, length, 16, causal)
    q, k, v = (RNG.standard_normal(shape).astype(np.float16) for _ in range(3))
    out = support.result(function, "Output", Q=q, K=k, V=v, Output=np.zeros(shape, np.float16))
    s = np.einsum("blhd,bmhd->bhlm", q.astype(float), k.astype(float)) / 4.0
    if causal:
        s = np.where(np.tril(np.ones((length, length), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    expected = np.einsum("bhlm,bmhd->blhd", p, v.astype(float))
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def test_kernels_of_one_program_see_each_others_writes():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        middle = T.alloc_global((8,), "float32")
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(8):
                middle[i] = A[i] * 2.0 + T.cast(bx, "float32")
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(4):
                B[bx * 4 + i] = middle[bx * 4 + i] + 1.0

    first, second = main.program.kernels
    assert (first.name, second.name) == ("main_kernel", "main_2")
    assert (first.threads, second.threads) == (32, 64)
    assert [buffer.name for buffer in main.program.workspaces] == ["middle"]
    a = RNG.standard_normal(8).astype(np.float32)
    out = support.result(main, "B", A=a, B=np.zeros(8, np.float32))
    np.testing.assert_allclose(out, a.astype(float) * 2 + 1)


def test_persistent_loop_visits_every_tile_once():
    @T.prim_func
    def main(C: T.Tensor((5, 13), "int32")):
        with T.Kernel(4) as block:
            for by, bx in T.Persistent([5, 13], 4, block, group_size=4):
                C[by, bx] += 1 + by * 0 + bx * 0

    out = support.result(main, "C", C=np.zeros((5, 13), np.int32))
    np.testing.assert_array_equal(out, 1)
