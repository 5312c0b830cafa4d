from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilecore.emulator import (
    EmulatorSupport,
    KernelFaults,
    LaunchReport,
    LaunchShape,
    RunOptions,
    build_kernel,
    launch,
)

HERE = Path(__file__).parent


def support(lanes_per_warp: int, *defines: str) -> EmulatorSupport:
    return EmulatorSupport(f"lanes{lanes_per_warp}.h", (HERE,), (), lanes_per_warp, defines)


@pytest.fixture(scope="session")
def make_support() -> Callable[..., EmulatorSupport]:
    return support


@pytest.fixture(scope="session")
def run_text() -> Callable[..., LaunchReport]:
    """Runs the kernel `k` of a text: grid and block as given, options by keyword."""

    def run(
        text: str,
        arguments: Sequence[Any],
        lanes: int | tuple[int, int, int],
        *,
        grid: tuple[int, int, int] = (1, 1, 1),
        shared_bytes: int = 0,
        lanes_per_warp: int = 32,
        cluster: tuple[int, int, int] = (1, 1, 1),
        resident: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> LaunchReport:
        kernel = build_kernel(text, "k", support(lanes_per_warp))
        block = lanes if isinstance(lanes, tuple) else (lanes, 1, 1)
        shape = LaunchShape(grid, block, shared_bytes, cluster, resident)
        return launch(kernel, arguments, shape, RunOptions(seed=seed, **options))

    return run


@pytest.fixture(scope="session")
def faults_of(run_text: Callable[..., LaunchReport]) -> Callable[..., KernelFaults]:
    """The faults of a kernel that must have some."""

    def run(*arguments: Any, **options: Any) -> KernelFaults:
        with pytest.raises(KernelFaults) as caught:
            run_text(*arguments, **options)
        return caught.value

    return run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
