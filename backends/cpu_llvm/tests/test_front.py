"""What a user of this backend sees first: both styles of `jit`, and the program at every stage."""

# Annotations are values of the tile language here, so they are not postponed.

from pathlib import Path

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import LanguageError

STAGES = ("tile", "canonical", "scheduled")


@tilecore.jit(backend="cpu_llvm")
def eager(A, B, factor: T.float32, block: int = 8, dtype: str = "float32"):
    M, N = T.const("M N")
    A: T.Tensor[[M, N], dtype]  # type: ignore[valid-type]
    B: T.Tensor[[M, N], dtype]  # type: ignore[valid-type]
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, block), threads=64) as bx:
        for i, j in T.Parallel(block, N):
            C[bx * block + i, j] = A[bx * block + i, j] * factor + B[bx * block + i, j]
    return C


@tilecore.jit(out_idx=-1, backend="cpu_llvm")
def factory(M, N, block=8):
    @T.prim_func
    def product(A: T.Tensor((M, N), "float32"), C: T.Tensor((M, M), "float32")):
        with T.Kernel(T.ceildiv(M, block), T.ceildiv(M, block), threads=64) as (bx, by):
            a = T.alloc_shared((block, N), "float32")
            b = T.alloc_shared((block, N), "float32")
            c = T.alloc_fragment((block, block), "float32")
            T.copy(A[by * block, 0], a)
            T.copy(A[bx * block, 0], b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C[by * block, bx * block])

    return product


@pytest.mark.parametrize("size", [(1, 1), (7, 31), (33, 65)], ids=str)
def test_both_styles(size: tuple[int, int]) -> None:
    a, b = np.random.default_rng(1).standard_normal((2, *size)).astype(np.float32)
    np.testing.assert_allclose(eager(a, b, 2.0), a * 2 + b, rtol=1e-6)
    assert eager.compile(a, b, 2.0) is eager.compile(a, b, 3.0)
    kernel = factory(*size)
    np.testing.assert_allclose(kernel(a), a @ a.T, rtol=1e-4, atol=1e-5)
    assert factory(*size) is kernel


def test_the_program_at_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_DUMP", str(tmp_path))
    monkeypatch.setenv("TILECORE_CACHE_DIR", str(tmp_path / "cache"))
    kernel = factory(40, 24, 16)
    texts = {stage: kernel.ir(stage) for stage in STAGES}
    assert "level tile" in texts["tile"] and "level scheduled" in texts["scheduled"]
    assert "layout c = " in texts["scheduled"] and "layout c" not in texts["canonical"]
    assert "void @tilecore_run(" in kernel.source
    with pytest.raises(LanguageError, match="no such stage"):
        kernel.ir("lane")
    written = {path.suffix[1:]: path.read_text() for path in tmp_path.glob("*.*")}
    for stage in STAGES:
        assert texts[stage].strip() in written[stage]
