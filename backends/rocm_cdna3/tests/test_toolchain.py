"""Compiling: what comes out, what is read from it, and what is said when it cannot be done."""

from __future__ import annotations

import dataclasses

import pytest

from tilecore.errors import ToolchainError
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore.ir.expr import const
from tilecore_backend_rocm import compilers, runtime_compiler, toolchain
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.resources import Figures, read_figures, waves_per_simd

(TARGET,) = targets_of("rocm_cdna3")
TEXT = """
TC_KERNEL(256, 0) twice(const float* A, float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 256);
  const int i = tc::lane_in_block();
  tc::store_shared(S + i, tc::load_global(A + i));
  tc::barrier();
  tc::store_global(B + i, 2.0f * tc::load_shared(S + (255 - i)));
}
TC_KERNEL(64, 0) again(float* B) { tc::store_global(B, 1.0f); }
"""
SOURCE = Source(
    TEXT, "c++",
    (KernelSource("twice", (), (const(1),), 256, 1024), KernelSource("again", (), (const(1),), 64)),
)  # fmt: skip


def test_a_code_object_and_its_figures(compiler: Compiler) -> None:
    artifact = toolchain.compile_code_object(SOURCE, TARGET, CompileOptions())
    assert artifact.format == "hsaco" and artifact.data.startswith(b"\x7fELF")
    assert b"twice.kd" in artifact.data and b"again.kd" in artifact.data
    first, second = artifact.resources
    assert (first.name, first.threads, first.smem_bytes, first.spill_bytes) == (
        "twice",
        256,
        1024,
        0,
    )
    assert first.registers is not None and 0 < first.registers < 32
    assert second.smem_bytes == 0 and first.notes == ()
    assert "twice: " in artifact.log and "occupancy 8 waves a SIMD" in artifact.log


def test_equal_sources_give_equal_code(compiler: Compiler) -> None:
    one, two = (toolchain.compile_code_object(SOURCE, TARGET, CompileOptions()) for _ in range(2))
    assert one.data == two.data


def test_spills_are_remarks(compiler: Compiler) -> None:
    text = """
TC_KERNEL(1024, 0) many(const float* A, float* B, int n) {
  TC_FRAGMENT(float, v, 160);
  TC_UNROLL for (int i = 0; i < 160; ++i) v[i] = A[tc::lane_in_block() * 160 + i];
  TC_NO_UNROLL for (int k = 0; k < n; ++k)
    TC_UNROLL for (int i = 0; i < 160; ++i) v[i] = v[i] * v[(i + 7) % 160];
  TC_UNROLL for (int i = 0; i < 160; ++i) B[tc::lane_in_block() * 160 + i] = v[i];
}
"""
    source = Source(text, "c++", (KernelSource("many", (), (const(1),), 1024),))
    (record,) = toolchain.compile_code_object(source, TARGET, CompileOptions()).resources
    assert record.spill_bytes and record.notes[0].startswith("spills ")
    assert record.registers is not None and record.registers <= 128


def test_refused_text_is_kept_and_shown(compiler: Compiler) -> None:
    source = dataclasses.replace(SOURCE, text="TC_KERNEL(64, 0) twice() { not_there(); }")
    with pytest.raises(ToolchainError, match="not_there") as caught:
        toolchain.compile_code_object(source, TARGET, CompileOptions())
    assert "twice.hip:1" in str(caught.value) and "source kept in" in str(caught.value)


def test_without_any_compiler_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain, "find_compiler", lambda: None)
    monkeypatch.setattr(runtime_compiler, "_library", lambda: None)
    with pytest.raises(ToolchainError, match="pip install ziglang"):
        toolchain.compile_code_object(SOURCE, TARGET, CompileOptions())
    assert toolchain.probe_toolchain().missing == compilers.MISSING


def test_the_named_compiler_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, compiler: Compiler
) -> None:
    monkeypatch.setenv(compilers.ENVIRONMENT, "/nowhere/clang")
    assert all(clang[0] != "/nowhere/clang" for _, clang, _ in compilers._candidates())


@pytest.mark.parametrize(
    ("vector", "threads", "lds", "waves"),
    [
        (512, 256, 0, 1), (256, 256, 0, 2), (128, 256, 0, 4), (32, 256, 0, 8), (128, 256, 65536, 1),
        (128, 256, 32768, 2), (129, 256, 0, 3), (100, 512, 65536, 2),
    ],
)  # fmt: skip
def test_occupancy(vector: int, threads: int, lds: int, waves: int) -> None:
    figures = Figures(vector, 0, 16, 0, 0, 0)
    assert waves_per_simd(figures, threads, lds) == waves


def test_figures_of_a_listing() -> None:
    listing = """
amdhsa.kernels:
  - .agpr_count:     64
    .args:
      - .offset:         0
        .name:           A
    .group_segment_fixed_size: 128
    .name:           k
    .private_segment_fixed_size: 16
    .sgpr_count:     24
    .sgpr_spill_count: 1
    .vgpr_count:     200
    .vgpr_spill_count: 2
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
"""
    assert read_figures(listing) == {"k": Figures(200, 64, 24, 128, 16, 3)}
