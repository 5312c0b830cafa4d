"""What the measured kernels need of an Ampere: no register goes to memory."""

from __future__ import annotations

import pytest

import tilecore
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig
from tilecore_kernels.rms_norm import RMS_NORM, NormProblem
from tilecore_kernels.softmax import SOFTMAX, SoftmaxProblem


def resources(family, problem, config, arch):
    kernel = tilecore.compile(family.program(problem, config), backend="cuda_ampere", arch=arch)
    (one,) = kernel.resources
    return one


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("right", [None, 0], ids=["full", "causal"])
def test_attention_does_not_spill(arch, right):
    problem = AttentionProblem(8, 32, 4096, 128, "float16", right=right)
    used = resources(FLASH_ATTENTION, problem, AttentionConfig(128, 64, 2, 128), arch)
    assert (used.spill_bytes, used.stack_bytes, used.notes) == (0, 0, ())


@pytest.mark.parametrize("config", [(128, 256, 64, 3, 256, 8), (128, 128, 32, 4, 128, 8)], ids=str)
def test_gemm_does_not_spill(config):
    problem = GemmProblem(4096, 4096, 4096, "float16")
    used = resources(GEMM, problem, GemmConfig(*config), "sm_80")
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("family", "problem"),
    [
        (SOFTMAX, SoftmaxProblem(32768, 4096, "float16")),
        (RMS_NORM, NormProblem(32768, 4096, "float16")),
    ],
    ids=["softmax", "rms_norm"],
)
def test_row_kernels_do_not_spill(family, problem):
    from tilecore.targets import choose_target

    config = family.configs(problem, choose_target("cuda_ampere", "sm_80"))[0]
    used = resources(family, problem, config, "sm_80")
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)
