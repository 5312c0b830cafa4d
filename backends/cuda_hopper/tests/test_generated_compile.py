"""Generated kernels assemble without spills, serialised wgmma or ignored register requests."""

from __future__ import annotations

from typing import Any

import pytest
from hopper_programs import Matmul, matmul

import tilecore
from tilecore.errors import ToolchainError
from tilecore.kernel import CompiledKernel
from tilecore.language import GemmWarpPolicy
from tilecore_kernels.decode_problem import DecodeConfig
from tilecore_kernels.mla_decode import MLA_DECODE, latent_problem

CASES = (
    Matmul(4096, 4096, 4096, tile_n=256, stages=4),
    Matmul(4096, 4096, 4096, tile_n=256, stages=4, trans_b=True),
    Matmul(4096, 4096, 4096, tile_m=256, stages=4, dtype="bfloat16"),
    Matmul(1000, 1000, 1000, threads=128, tile_m=64),
)


def _compiled(program: Any) -> CompiledKernel:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed: not run")
    try:
        return tilecore.compile(program, backend="cuda_hopper")
    except ToolchainError as error:
        if "libnvptxcompiler" in str(error) or "cannot be loaded" in str(error):
            pytest.skip(f"NVRTC is incomplete here: not run ({error.reason})")
        raise


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_remark_costs_speed(case: Matmul) -> None:
    (resources,) = _compiled(matmul(case)).resources
    assert resources.notes == ()
    assert resources.spill_bytes == 0
    assert resources.registers is not None
    assert resources.registers * (resources.threads or 0) <= 65536


@pytest.mark.parametrize(("page", "splits"), [(0, 1), (64, 1), (0, 4)])
def test_queries_in_registers_leave_enough_of_them(page: int, splits: int) -> None:
    """Latent decoding fills all registers but those that columns of the queries are held in."""
    problem = latent_problem(4, 8192, page_size=page)
    config = DecodeConfig(64, 64, 2, 256, splits, GemmWarpPolicy.FullCol)
    for resources in _compiled(MLA_DECODE.program(problem, config)).resources:
        assert resources.notes == ()
        assert resources.spill_bytes == 0
