"""Layouts of on-chip buffers, fusion, and emission for CPUs that are not here."""

from __future__ import annotations

import dataclasses
import math

import pytest
from cpu_programs import without_avx512, without_tiles
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tile_programs import REDUCE, matmul

from tilecore.errors import ResourceError
from tilecore.hooks.records import CompileOptions
from tilecore.ir.dtypes import dtype_of
from tilecore.ir.layout import Layout
from tilecore.ir.parser import parse_program
from tilecore.ir.program import Level
from tilecore.ir.verifier import verify
from tilecore_backend_cpu.fusion import FusedNest, Fuser
from tilecore_backend_cpu.gemm_kernels import plan_gemm
from tilecore_backend_cpu.host import HostCpu, describe_cpu, detect_host
from tilecore_backend_cpu.jit import compile_assembly
from tilecore_backend_cpu.kernel_emitter import emit_program
from tilecore_backend_cpu.scheduling import Packing, plan_buffers, schedule_program

CPUS = (detect_host(), without_tiles(), without_avx512())
TYPES = (("float32", "float32"), ("bfloat16", "float32"), ("int8", "int32"), ("float64", "float64"))


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 70),
    n=st.integers(1, 70),
    types=st.sampled_from(TYPES),
    cpu=st.sampled_from(CPUS),
    is_transposed=st.booleans(),
)
def test_packed_layouts_are_injective(
    k: int, n: int, types: tuple[str, str], cpu: HostCpu, is_transposed: bool
) -> None:
    operand, accumulator = (dtype_of(name) for name in types)
    packing = Packing(plan_gemm(operand, operand, accumulator, cpu), k, n, is_transposed)
    layout = Layout(packing.axes())
    assert layout.is_injective()
    assert layout.span <= packing.elements == math.prod(layout.shape)
    covered = (n, k) if is_transposed else (k, n)
    assert all(have >= need for have, need in zip(layout.shape, covered, strict=True))


@pytest.mark.parametrize("types", ["float32-float32", "bfloat16-float32"])
def test_scheduled_programs_verify(types: str) -> None:
    program = parse_program(matmul((70, 90, 50), (32, 48, 20), types, "transpose_b"))
    scheduled = schedule_program(program, detect_host())
    assert scheduled.level is Level.SCHEDULED
    verify(scheduled)
    assert {name for name, _ in scheduled.kernels[0].layouts} == {"a", "b", "c"}


def test_b_is_packed_by_its_copy() -> None:
    kernel = parse_program(matmul((64, 64, 64), (32, 32, 32), "float32-float32", "")).kernels[0]
    plan = plan_buffers(kernel, detect_host())
    assert set(plan.packings) == {"b"}


def test_another_use_of_b_prevents_packing() -> None:
    text = matmul((64, 64, 64), (32, 32, 32), "float32-float32", "")
    text = text.replace("      gemm", "      b[0, 0] = 1.0\n      gemm")
    plan = plan_buffers(parse_program(text).kernels[0], detect_host())
    assert not plan.packings


def fused(text: str) -> list[object]:
    return Fuser({}, lambda copy: False).fuse(parse_program(text).kernels[0].body)


def test_row_statements_fuse() -> None:
    groups = [s for s in fused(REDUCE.format(m=4, n=40)) if isinstance(s, FusedNest)]
    assert [len(group.reduces) for group in groups] == [1, 1]
    assert [len(group.nest.body) for group in groups] == [1, 1]


NO_FUSION = """program f(x: float32[4, 32], y: float32[4, 32]) level tile {{
  kernel k(b in 1) threads 32 {{
    fragment t: float32[4, 32]
    copy x[:, :] -> t[:, :]
    parallel (i, j) in (4, 32) {{
      y[i, j] = {value}
    }}
  }}
}}
"""


@pytest.mark.parametrize("value", ["t[i, 31 - j]", "t[3 - i, j]", "t[i, j // 2]", "t[i, 0]"])
def test_reads_of_other_elements_prevent_fusion(value: str) -> None:
    assert not any(isinstance(s, FusedNest) for s in fused(NO_FUSION.format(value=value)))


def test_reads_of_the_same_element_fuse() -> None:
    assert any(isinstance(s, FusedNest) for s in fused(NO_FUSION.format(value="t[i, j]")))


OTHER_CPUS = {
    "znver4": ("x86_64", "avx512f avx512bw avx512dq avx512vl avx512bf16 avx2 fma f16c"),
    "haswell": ("x86_64", "avx2 fma f16c"),
    "neoverse-n1": ("aarch64", "neon"),
}


@pytest.mark.parametrize("name", OTHER_CPUS)
@pytest.mark.parametrize("types", ["float32-float32", "bfloat16-float32", "int8-int32"])
def test_whole_kernels_compile_for_other_cpus(name: str, types: str) -> None:
    arch, features = OTHER_CPUS[name]
    cpu = dataclasses.replace(describe_cpu(name, arch, frozenset(features.split()), False))
    program = parse_program(matmul((70, 90, 50), (32, 48, 20), types, "transpose_b"))
    source = emit_program(schedule_program(program, cpu), cpu, CompileOptions())
    text = compile_assembly(source.text, cpu, f"{arch}-unknown-linux-gnu")
    assert "main_worker" in text and "tdpb" not in text


def test_single_rows_named_by_zero_fuse() -> None:
    text = REDUCE.format(m=1, n=4096).replace("[i, j]", "[0, j]").replace("top[i]", "top[0]")
    groups = [s for s in fused(text) if isinstance(s, FusedNest)]
    assert [len(group.reduces) for group in groups] == [1, 1]


def test_tiles_beyond_all_memory_are_refused() -> None:
    text = REDUCE.format(m=4, n=1 << 27)
    program = schedule_program(parse_program(text), detect_host())
    with pytest.raises(ResourceError, match="t 2048 MiB"):
        emit_program(program, detect_host(), CompileOptions())
