"""What cannot work is refused with its reason, before anything runs."""

from __future__ import annotations

import sys

import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import LaunchError, ResourceError, TilecoreError, UnsupportedError
from tilecore_backend_rocm import compilers, hip_api, runtime_compiler, toolchain


def copying(elements: int, dtype: str = "float32", threads: int = 64) -> object:
    @T.prim_func
    def copying(A: T.Tensor((elements,), dtype), B: T.Tensor((elements,), dtype)):
        with T.Kernel(1, threads=threads) as _:
            tile = T.alloc_shared((elements,), dtype)
            T.copy(A, tile)
            T.copy(tile, B)

    return copying


def test_lds_over_64_kib_is_refused_with_a_table() -> None:
    with pytest.raises(ResourceError, match="65536 bytes, got 65540") as caught:
        tilecore.lower(copying(16385), "rocm_cdna3")
    assert "tile: 65540 bytes at 0 (16385 float32)" in str(caught.value)
    assert "test_bad_input.py:" in str(caught.value)
    assert tilecore.lower(copying(16384), "rocm_cdna3").source.kernels[0].smem_bytes == 65536


def test_padding_and_slots_count_as_lds_too() -> None:
    gemms = pytest.importorskip("tilecore_kernels.gemm")
    problem = gemms.GemmProblem(512, 512, 512, "bfloat16")
    with pytest.raises(ResourceError, match="at most 65536 bytes"):
        tilecore.lower(gemms.gemm(problem, gemms.GemmConfig(256, 256, 128, 2, 512)), "rocm_cdna3")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx950", "sm_90a", ""])
def test_other_architectures_are_refused(arch: str) -> None:
    with pytest.raises(TilecoreError, match="gfx942"):
        tilecore.lower(copying(64), "rocm_cdna3", arch=arch)


@pytest.mark.parametrize("threads", [2048, 1088])
def test_too_many_threads(threads: int) -> None:
    with pytest.raises(TilecoreError, match="1024"):
        tilecore.lower(copying(64, threads=threads), "rocm_cdna3")


def product(dtype: str) -> object:
    @T.prim_func
    def product(A: T.Tensor((64, 64), dtype), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_shared((64, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C)

    return product


@pytest.mark.parametrize("dtype", ["float6_e3m2fn", "float8_e8m0fnu"])
def test_dtypes_without_an_instruction_or_a_type(dtype: str) -> None:
    with pytest.raises(TilecoreError, match=dtype):
        tilecore.lower(product(dtype), "rocm_cdna3")


def test_named_barriers() -> None:
    @T.prim_func
    def meets(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128) as _:
            T.sync_threads(3, 32)
            T.clear(A)

    with pytest.raises(UnsupportedError, match="whole wavefronts"):
        tilecore.lower(meets, "rocm_cdna3")


def test_compiling_needs_no_rocm_but_launching_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hip", None)
    hip_api.get_api.cache_clear()
    kernel = tilecore.compile(copying(64), "rocm_cdna3")
    with pytest.raises(LaunchError, match="no device for rocm_cdna3/gfx942") as caught:
        kernel(*_arrays())
    assert "hip-python" in str(caught.value) and "emulator" in str(caught.value)


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_candidates", lambda: iter(()))
    monkeypatch.setattr(runtime_compiler, "_library", lambda: None)
    compilers.find_compiler.cache_clear()
    toolchain.toolchain_fingerprint.cache_clear()
    try:
        with pytest.raises(TilecoreError, match="pip install ziglang"):
            tilecore.compile(copying(80), "rocm_cdna3")
    finally:
        compilers.find_compiler.cache_clear()
        toolchain.toolchain_fingerprint.cache_clear()


def test_host_arrays_on_a_device_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.rocm_cdna3.tests.fake_hip import FakeHip
    from tilecore.hooks.manager import targets_of
    from tilecore.hooks.records import Artifact
    from tilecore.runtime.caller import KernelCaller
    from tilecore_backend_rocm.hip_api import HipApi
    from tilecore_backend_rocm.launch import HipLauncher

    (target,) = targets_of("rocm_cdna3")
    lowered = tilecore.lower(copying(64), target=target)
    hip = FakeHip()
    artifact = Artifact(b"code", "hsaco")
    launcher = HipLauncher(lowered.program, lowered.source, artifact, target, HipApi(hip))
    with pytest.raises(TilecoreError, match="rocm"):
        KernelCaller(lowered.program, launcher)(*_arrays())
    assert hip.launches == []


def _arrays() -> tuple[object, object]:
    import numpy as np

    return np.zeros(64, np.float32), np.zeros(64, np.float32)
