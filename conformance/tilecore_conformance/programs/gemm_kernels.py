"""Kernels around matrix products: scaled, grouped, split among blocks, batched, of windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilecore_conformance import bounds
from tilecore_conformance.experiment import Experiment
from tilecore_conformance.programs.families import experiment_of
from tilecore_kernels import FAMILIES
from tilecore_kernels.conv2d import Conv2dProblem
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig
from tilecore_kernels.gemm_grouped import GroupedGemmProblem
from tilecore_kernels.gemm_scaled import ScaledGemmProblem
from tilecore_kernels.gemm_scaled import reference as reference_scaled
from tilecore_kernels.gemm_split import SplitConfig
from tilecore_kernels.gemv import GemvConfig, GemvProblem


def scaled_gemm(
    rng: np.random.Generator,
    m: int,
    n: int,
    k: int,
    scaling: str = "tensor",
    dtype: str = "float8_e4m3fn",
    out_dtype: str = "bfloat16",
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
) -> Experiment:
    """8-bit floats with factors for tensors or for blocks."""
    problem = ScaledGemmProblem(m, n, k, scaling, dtype, out_dtype)
    config = GemmConfig(*(tile or [64, 64, 128]), num_stages, threads)
    arrays = FAMILIES["scaled_gemm"].inputs(problem, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        a, b, *scales = arrays
        sizes = reference_scaled(problem, np.abs(a), np.abs(b), *scales)
        terms = k + 2  # the factors are rounded products, too
        return [bounds.contraction(values[0], sizes[0], terms, dtype, "float32", out_dtype)]

    return experiment_of("scaled_gemm", problem, config, arrays, allowed)


def _products(name: str, problem: Any, config: Any, rng: np.random.Generator) -> Experiment:
    """A family whose results are sums of k products of its first two inputs."""
    arrays = FAMILIES[name].inputs(problem, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        a, b, *rest = arrays
        (size,) = FAMILIES[name].reference(problem, np.abs(a), np.abs(b), *rest)
        dtype = problem.dtype
        out_dtype = getattr(problem, "result_dtype", dtype)
        return [bounds.contraction(values[0], size, problem.k, dtype, "float32", out_dtype)]

    return experiment_of(name, problem, config, arrays, allowed)


def grouped_gemm(
    rng: np.random.Generator,
    rows: int,
    n: int,
    k: int,
    groups: int,
    dtype: str = "float16",
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
) -> Experiment:
    """Ragged groups of rows, each with a matrix of its own; some are empty."""
    problem = GroupedGemmProblem(rows, n, k, groups, dtype)
    config = GemmConfig(*(tile or [64, 64, 64]), num_stages, threads)
    return _products("grouped_gemm", problem, config, rng)


def split_gemm(
    rng: np.random.Generator,
    m: int,
    n: int,
    k: int,
    splits: int,
    dtype: str = "float16",
    trans_b: bool = False,
    threads: int = 128,
) -> Experiment:
    """Sums split among blocks, also into more parts than there are."""
    problem = GemmProblem(m, n, k, dtype, transpose_b=trans_b)
    return _products("split_gemm", problem, SplitConfig(64, 64, 64, 2, threads, 0, splits), rng)


def batched_gemm(
    rng: np.random.Generator,
    batch: int,
    m: int,
    n: int,
    k: int,
    dtype: str = "float16",
    trans: str = "NN",
    tile: list[int] | None = None,
    threads: int = 128,
) -> Experiment:
    """Independent products along a leading axis."""
    trans_a, trans_b = trans[0] == "T", trans[1] == "T"
    problem = GemmProblem(m, n, k, dtype, transpose_a=trans_a, transpose_b=trans_b, batch=batch)
    config = GemmConfig(*(tile or [64, 64, 64]), 2, threads)
    return _products("gemm", problem, config, rng)


def gemv(
    rng: np.random.Generator,
    n: int,
    k: int,
    dtype: str = "float16",
    trans_b: bool = False,
    tile: list[int] | None = None,
    threads: int = 128,
) -> Experiment:
    """One row times a matrix."""
    problem = GemvProblem(n, k, dtype, trans_b)
    config = GemvConfig(*(tile or ([8, 256] if trans_b else [32, 64])), threads)
    return _products("gemv", problem, config, rng)


def conv2d(
    rng: np.random.Generator,
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    windows: list[int] | None = None,
    dtype: str = "float16",
    has_bias: bool = False,
    tile: list[int] | None = None,
    threads: int = 128,
    num_stages: int = 2,
) -> Experiment:
    """Convolution of images; `windows` are kernel, stride, dilation and border."""
    problem = Conv2dProblem(n, h, w, c, f, *(windows or [3, 1, 1, 1]), dtype, has_bias=has_bias)
    config = GemmConfig(*(tile or [64, 64, 64]), num_stages, threads)
    arrays = FAMILIES["conv2d"].inputs(problem, rng)

    def allowed(arrays: Any, values: Any) -> list[Any]:
        (size,) = FAMILIES["conv2d"].reference(problem, *map(np.abs, arrays))
        terms = problem.product[2] + has_bias
        return [bounds.contraction(values[0], size, terms, dtype, "float32", dtype)]

    return experiment_of("conv2d", problem, config, arrays, allowed)


BUILDERS: tuple[Any, ...] = (scaled_gemm, grouped_gemm, split_gemm, batched_gemm, gemv, conv2d)
