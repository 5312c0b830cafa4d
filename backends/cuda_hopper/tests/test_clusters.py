"""Clusters that an author asks for: right, or refused with the sizes, at compile time or launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower
from tilecore.errors import LanguageError, LaunchError, UnsupportedError


def plus_one(blocks: Any, cluster: Any) -> Any:
    """B = A + 1, 32 elements a block; `blocks` None leaves their number to the call."""
    n = T.dynamic("n") if blocks is None else 32 * blocks

    @T.prim_func
    def plus_one(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.ClusterKernel(n // 32, cluster_dims=cluster, threads=128) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] + 1.0

    return plus_one


def run(program: Any, backend: str, size: int) -> None:
    a = np.arange(size, dtype=np.float32)
    b = np.zeros_like(a)
    tilecore.compile(program, backend, device="emulator")(a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize(("blocks", "cluster"), [(8, 2), (6, 3), (16, (8, 1)), (32, 16), (5, 1)])
def test_clusters_that_fit(blocks: int, cluster: Any) -> None:
    program = plus_one(blocks, cluster)
    wanted = cluster if isinstance(cluster, int) else cluster[0]
    (kernel,) = lower(program, backend="cuda_hopper").source.kernels
    assert kernel.cluster == (wanted, 1, 1)
    run(program, "cuda_hopper", 32 * blocks)


@pytest.mark.parametrize(
    ("blocks", "cluster", "reason"),
    [
        (8, 3, r"do not divide its grid; expected multiples of \(3, 1, 1\), got \(8, 1, 1\)"),
        (8, (2, 2), r"do not divide its grid; expected multiples of \(2, 2, 1\), got \(8, 1, 1\)"),
        (32, 32, r"too many blocks; expected at most 16 on .*, got 32, cluster \(32, 1, 1\)"),
        (64, (4, 8), "too many blocks; expected at most 16"),
    ],
)
def test_clusters_that_do_not_fit_are_refused(blocks: int, cluster: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"test_clusters\.py:\d+: .*{reason}"):
        lower(plus_one(blocks, cluster), backend="cuda_hopper")


def test_a_grid_of_the_call_is_checked_at_the_launch() -> None:
    program = plus_one(None, 4)
    run(program, "cuda_hopper", 32 * 12)
    with pytest.raises(LaunchError, match=r"do not divide its grid; .* \(4, 1, 1\), got \(6, 1"):
        run(program, "cuda_hopper", 32 * 6)


def test_targets_without_clusters_run_the_blocks_alone() -> None:
    """Also those that no cluster of another target would fit."""
    for blocks, cluster in ((8, 2), (8, 3), (32, 32)):
        program = plus_one(blocks, cluster)
        (kernel,) = lower(program, backend="cuda_ampere").source.kernels
        assert kernel.cluster == (1, 1, 1)
        run(program, "cuda_ampere", 32 * blocks)


def test_a_fourth_axis_is_no_cluster() -> None:
    with pytest.raises(LanguageError, match="cluster_dims has too many axes; expected 1 to 3"):
        plus_one(8, (2, 1, 1, 1))
