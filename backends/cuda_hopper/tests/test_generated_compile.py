"""Generated kernels assemble without spills, serialised wgmma or ignored register requests."""

from __future__ import annotations

import pytest
from hopper_programs import Matmul, matmul

import tilecore
from tilecore.errors import ToolchainError

CASES = (
    Matmul(4096, 4096, 4096, tile_n=256, stages=4),
    Matmul(4096, 4096, 4096, tile_n=256, stages=4, trans_b=True),
    Matmul(4096, 4096, 4096, tile_m=256, stages=4, dtype="bfloat16"),
    Matmul(1000, 1000, 1000, threads=128, tile_m=64),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_remark_costs_speed(case: Matmul) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed: not run")
    try:
        kernel = tilecore.compile(matmul(case), backend="cuda_hopper")
    except ToolchainError as error:
        if "libnvptxcompiler" in str(error) or "cannot be loaded" in str(error):
            pytest.skip(f"NVRTC is incomplete here: not run ({error.reason})")
        raise
    (resources,) = kernel.resources
    assert resources.notes == ()
    assert resources.spill_bytes == 0
    assert resources.registers is not None
    assert resources.registers * (resources.threads or 0) <= 65536
