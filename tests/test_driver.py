"""The driver's caches: a key is neither too small nor too big."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, BackendError, LanguageError, LoweringError


def doubled(symbol: object) -> object:
    @T.prim_func
    def double(X: T.Tensor((symbol,), "float32"), Y: T.Tensor((symbol,), "float32")):
        with T.Kernel(T.ceildiv(symbol, 64), threads=64) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i] * 2.0

    return double


def test_equal_programs_share_a_kernel() -> None:
    first = tilecore.compile(doubled(T.dynamic("m")), backend="cpu_llvm")
    assert tilecore.compile(doubled(T.dynamic("m")), backend="cpu_llvm") is first


def test_promises_about_sizes_are_part_of_the_key() -> None:
    promised = tilecore.compile(doubled(T.dynamic("m", multiple_of=64)), backend="cpu_llvm")
    plain = tilecore.compile(doubled(T.dynamic("m")), backend="cpu_llvm")
    assert promised is not plain
    x = np.arange(70, dtype=np.float32)
    y = np.zeros_like(x)
    plain(x, y)
    assert np.array_equal(y, 2 * x)
    with pytest.raises(ArgumentError, match="multiple"):
        promised(x, y)


@pytest.mark.parametrize("device", ["native", "reference"])
def test_out_idx_allocates_and_returns(device: str) -> None:
    kernel = tilecore.compile(
        doubled(T.dynamic("m")), backend="cpu_llvm", device=device, out_idx=-1
    )
    x = np.arange(129, dtype=np.float32)
    assert np.array_equal(kernel(x), 2 * x)


@pytest.mark.parametrize("out_idx", [2, -3, [0, 0]])
def test_wrong_out_idx_is_refused(out_idx: object) -> None:
    with pytest.raises(LanguageError, match="out_idx"):
        tilecore.compile(doubled(T.dynamic("m")), backend="cpu_llvm", out_idx=out_idx)


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(LanguageError, match="decorated with T.prim_func, got int"):
        tilecore.compile(3, backend="cpu_llvm")
    with pytest.raises(BackendError, match="no backend named"):
        tilecore.compile(doubled(T.dynamic("m")), backend="abacus")


def test_stages_and_dumps(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TILECORE_DUMP", str(tmp_path))
    lowered = tilecore.lower(doubled(T.dynamic("m")), backend="cuda_ampere")
    names = [name for name, _ in lowered.stages]
    assert names == ["tile", "canonical", "scheduled", "lane"]
    assert "parallel" in lowered.ir("tile")
    with pytest.raises(LanguageError, match="no such stage"):
        lowered.ir("nothing")
    written = {path.suffix for path in tmp_path.iterdir()}
    assert {".tile", ".canonical", ".scheduled", ".lane"} <= written


@pytest.mark.parametrize("device", ["native", "emulator", "reference"])
def test_what_is_nested_too_deeply_is_refused(device: str) -> None:
    @T.prim_func
    def deep(X: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4) as _:
            while sum([X[1]] * 3000) < 1:  # read anew in every round: no part can have a name
                X[0] = 1

    backend = {"native": "cpu_llvm", "emulator": "cuda_ampere", "reference": None}[device]
    with pytest.raises(LanguageError, match=r"test_driver\.py.*nested too deep.*at most 400"):
        tilecore.compile(deep, backend, device=device)
    if backend is not None:
        with pytest.raises(LanguageError, match="nested too deep"):
            tilecore.lower(deep, backend, device=device)


def test_recursion_without_end_in_a_pass_is_told_as_what_it_is(monkeypatch) -> None:
    def endless(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("tilecore.compiler.canonicalize", endless)
    with pytest.raises(LoweringError, match="nests its expressions"):
        tilecore.lower(doubled(T.dynamic("m")), "cuda_ampere")
