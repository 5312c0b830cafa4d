"""Transposition of a matrix through an on-chip tile, so that both sides move along rows."""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.tiles import dtype_bytes, fits_shared, fits_threads, has_lanes


@dataclass(frozen=True, slots=True)
class TransposeProblem:
    """``Y[c, r] = X[r, c]`` for X of (rows, cols)."""

    rows: int
    cols: int
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class TransposeConfig:
    """Side of the square tile, and threads of one block."""

    block: int
    threads: int


def transpose(problem: TransposeProblem, config: TransposeConfig) -> Any:
    """Tile program: one block transposes one square tile."""
    rows, cols, dtype, block = problem.rows, problem.cols, problem.dtype, config.block

    @T.prim_func
    def transpose(X: T.Tensor((rows, cols), dtype), Y: T.Tensor((cols, rows), dtype)):
        with T.Kernel(T.ceildiv(cols, block), T.ceildiv(rows, block), threads=config.threads) as (
            bx,
            by,
        ):
            source = T.alloc_shared((block, block), dtype)
            turned = T.alloc_fragment((block, block), dtype)
            T.copy(X[by * block, bx * block], source)
            for i, j in T.Parallel(block, block):
                turned[i, j] = source[j, i]
            T.copy(turned, Y[bx * block, by * block])

    return transpose


def reference(problem: TransposeProblem, x: np.ndarray) -> Arrays:
    """The transposed matrix."""
    return (x.T.astype(np.float64),)


def inputs(problem: TransposeProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values."""
    values = rng.standard_normal((problem.rows, problem.cols))
    return (values.astype(numpy_dtype(dtype_of(problem.dtype))),)


def configs(problem: TransposeProblem, target: Target) -> Sequence[TransposeConfig]:
    """Legal tiles, the first choice in front: what 64 bytes to a cache line ask for."""
    width = dtype_bytes(problem.dtype)
    if not has_lanes(target):
        return [TransposeConfig(block, 128) for block in (64, 32, 128)]
    return [
        TransposeConfig(block, threads)
        for block in (64, 32, 128)
        for threads in (256, 128, 512)
        if fits_threads(threads, target) and fits_shared(block * (block + 8) * width, target)
    ]


TRANSPOSE = Family(
    name="transpose",
    program=transpose,
    inputs=inputs,
    outputs=lambda p: (((p.cols, p.rows), p.dtype),),
    reference=reference,
    configs=configs,
    problems=(TransposeProblem(4096, 4096), TransposeProblem(1999, 1023, "float16")),
    flops=lambda p: 0.0,
    bytes_moved=lambda p: 2.0 * p.rows * p.cols * dtype_bytes(p.dtype),
)
