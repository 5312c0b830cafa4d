from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tilecore.emulator import (
    LaunchReport,
    LaunchShape,
    RunOptions,
    build_kernel,
    header_directory,
    launch,
)
from tilecore_backend_cuda_ampere.emulation import HEADERS, SUPPORT

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def run_text() -> Callable[..., LaunchReport]:
    """Runs one kernel of a text in the emulator."""

    def run(
        text: str,
        name: str,
        arguments: Sequence[Any],
        grid: tuple[int, int, int],
        lanes: int,
        shared_bytes: int,
        seed: int = 0,
    ) -> LaunchReport:
        kernel = build_kernel(text, name, SUPPORT)
        shape = LaunchShape(grid, (lanes, 1, 1), shared_bytes)
        return launch(kernel, arguments, shape, RunOptions(seed=seed, time_limit_seconds=30))

    return run


@pytest.fixture(scope="session")
def matmul_text() -> str:
    return (KERNELS / "matmul_f16.cu").read_text()


@pytest.fixture(scope="session")
def compile_text() -> Callable[[str, str], tuple[bytes, str]]:
    """Compiles a text with NVRTC: (cubin, log with resource figures). Needs no GPU."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

    def compile(text: str, arch: str) -> tuple[bytes, str]:
        source = f'#include "ampere.cuh"\n#line 1 "kernel.cu"\n{text}'
        _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
        options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
        options += [f"-I{HEADERS}", f"-I{header_directory()}"]
        encoded = [option.encode() for option in options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin = b" " * size
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return cubin, log.decode()

    return compile


@pytest.fixture(scope="session")
def disassemble(tmp_path_factory) -> Callable[[bytes], str]:
    """Machine code of a cubin as text."""
    found = shutil.which("nvdisasm")
    if found is None:
        nvidia = pytest.importorskip("nvidia")
        places = [path for root in nvidia.__path__ for path in Path(root).glob("*/bin/nvdisasm")]
        if not places:
            pytest.skip("nvdisasm is not installed")
        found = str(places[0])

    def run(cubin: bytes) -> str:
        path = tmp_path_factory.mktemp("cubin") / "kernel.cubin"
        path.write_bytes(cubin)
        return subprocess.run([found, path], capture_output=True, check=True).stdout.decode(
            errors="replace"
        )

    return run
