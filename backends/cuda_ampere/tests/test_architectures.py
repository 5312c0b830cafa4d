"""Generated kernels for every architecture of the backend: they compile, fit, and say what doesn't.

No device is needed: NVRTC makes the machine code of all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilecore
from tilecore.errors import ResourceError
from tilecore.target import Target
from tilecore_backend_cuda_ampere.target import describe_targets
from tilecore_backend_cuda_ampere.toolchain import supports_arch
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig
from tilecore_kernels.rms_norm import RMS_NORM, NormProblem
from tilecore_kernels.softmax import SOFTMAX, SoftmaxProblem

TARGETS = describe_targets()
SMALL = [target for target in TARGETS if target.smem_bytes == 99 * 1024]
"""Consumer GPUs: 100 KiB of shared memory a multiprocessor, 1 KiB of it the system's."""

TUNED = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90")
"""Later ones run these instructions for compatibility only; kernels may spill there."""

PROBLEMS: dict[str, tuple[Any, Any]] = {
    "gemm-float16": (GEMM, GemmProblem(4096, 4096, 4096, "float16")),
    "gemm-bfloat16": (GEMM, GemmProblem(512, 1000, 264, "bfloat16")),
    "attention": (FLASH_ATTENTION, AttentionProblem(8, 32, 4096, 128, "float16", right=0)),
    "softmax": (SOFTMAX, SoftmaxProblem(4096, 4096, "float16")),
    "rms_norm": (RMS_NORM, NormProblem(4096, 4096, "float16")),
}
"""Each kernel in the configuration that it takes first on the target."""


def needs(target: Target) -> None:
    if not supports_arch(target.arch):
        pytest.skip(f"this NVRTC has no {target.arch}")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.arch)
@pytest.mark.parametrize("name", PROBLEMS)
def test_kernels_compile_within_the_architectures_limits(name: str, target: Target) -> None:
    needs(target)
    family, problem = PROBLEMS[name]
    kernel = tilecore.compile(family.build(problem, target), "cuda_ampere", arch=target.arch)
    for used in kernel.resources:
        assert used.smem_bytes <= target.smem_bytes
        assert used.registers <= target.registers_per_thread
        assert used.registers * used.threads <= 65536
        assert used.spill_bytes == 0 or target.arch not in TUNED


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.arch)
def test_tiles_that_do_not_fit_are_refused_with_the_limit(target: Target) -> None:
    program = GEMM.program(
        GemmProblem(4096, 4096, 4096, "float16"), GemmConfig(128, 256, 64, 3, 256, 8)
    )
    if target in SMALL:
        with pytest.raises(ResourceError) as refused:
            tilecore.compile(program, "cuda_ampere", arch=target.arch)
        text = str(refused.value)
        for part in (
            "gemm.py:",
            "at most 101376 bytes",
            "got 147456",
            "b: 98304 bytes",
            "a: 49152",
        ):
            assert part in text
    else:
        needs(target)
        kernel = tilecore.compile(program, "cuda_ampere", arch=target.arch)
        assert kernel.resources[0].smem_bytes == 147456


def test_limits_are_the_manuals() -> None:
    """CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""
    kibibytes = {target.arch: target.smem_bytes // 1024 for target in TARGETS}
    assert {a: kibibytes[a] for a in ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90")} == {
        "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_89": 99, "sm_90": 227,
    }  # fmt: skip


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
def test_8_bit_floats_have_their_own_products_where_they_exist(
    arch, dtype, transpose_b, disassemble
) -> None:
    """From sm_89 on; sm_90's assembler makes float16 products of it, after matrix loads."""
    needs(next(target for target in TARGETS if target.arch == arch))
    program = GEMM.program(
        GemmProblem(256, 256, 256, dtype, transpose_b=transpose_b),
        GemmConfig(64, 64, 32, 2, 128, 8),
    )
    text = disassemble(tilecore.compile(program, "cuda_ampere", arch=arch).artifact.data)
    kind = "E4M3" if dtype == "float8_e4m3fn" else "E5M2"
    if arch in ("sm_89", "sm_120"):
        assert f"QMMA.16832.F32.{kind}.{kind}" in text
        assert "HMMA" not in text and "UNPACK" not in text
    else:
        assert "HMMA.16816.F32" in text and "QMMA" not in text
        assert (f"F16.{kind}.UNPACK" in text) == (arch == "sm_90")
    own = arch in ("sm_89", "sm_120") or (arch == "sm_90" and transpose_b)
    assert ("LDSM" in text) == own
