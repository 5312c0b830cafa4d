"""Matrix product with an epilogue: ``C = activation(op(A) @ op(B) + bias)``.

op is the identity or a transposition of how the operand is stored. Products are accumulated in
float32 (float64 and int32 for their own kinds) and rounded once, after the epilogue.
"""

# Annotations are values of the tile language here, so they are not postponed.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilecore.language as T
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.activations import ACTIVATIONS, add_bias_and_activate
from tilecore_kernels.family import Arrays, Family
from tilecore_kernels.gemm_configs import GemmConfig, gemm_configs
from tilecore_kernels.tiles import ceildiv, dtype_bytes


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """One matrix product.

    Attributes:
        m: rows of C.
        n: columns of C.
        k: length of the sums.
        dtype: element type of A and B (and of bias).
        out_dtype: element type of C; empty means as A and B, or int32 for integers.
        transpose_a: A is stored (k, m), else (m, k).
        transpose_b: B is stored (n, k), else (k, n).
        has_bias: a vector of (n,) is added.
        activation: name in `ACTIVATIONS`, applied last.
        batch: so many products, of A, B and C with a leading axis; 0 is one without that axis.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False
    has_bias: bool = False
    activation: str = "identity"
    batch: int = 0

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading axis of A, B and C, if there is one."""
        return (self.batch,) if self.batch else ()

    @property
    def result_dtype(self) -> str:
        """Element type of C."""
        return self.out_dtype or (self.dtype if dtype_of(self.dtype).is_float else "int32")

    @property
    def accumulator(self) -> str:
        """Element type of the sums."""
        if self.dtype == "float64":
            return "float64"
        return "float32" if dtype_of(self.dtype).is_float else "int32"


def gemm(problem: GemmProblem, config: GemmConfig) -> Any:
    """Tile program: one block computes one tile of C."""
    m, n, k, dtype, out_dtype = problem.m, problem.n, problem.k, problem.dtype, problem.result_dtype
    accum, trans_a, trans_b = problem.accumulator, problem.transpose_a, problem.transpose_b
    tile_m, tile_n, tile_k = config.block_m, config.block_n, config.block_k
    panel = max(1, config.panel)
    shape_a, tile_a = ((k, m), (tile_k, tile_m)) if trans_a else ((m, k), (tile_m, tile_k))
    shape_b, tile_b = ((n, k), (tile_n, tile_k)) if trans_b else ((k, n), (tile_k, tile_n))

    lead = problem.lead
    A_type, B_type = T.Tensor((*lead, *shape_a), dtype), T.Tensor((*lead, *shape_b), dtype)
    Bias_type = T.Tensor((n,), dtype) if problem.has_bias else None
    C_type = T.Tensor((*lead, m, n), out_dtype)

    @T.prim_func
    def gemm(A: A_type, B: B_type, Bias: Bias_type, C: C_type):
        with T.Kernel(
            T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), *lead, threads=config.threads
        ) as place:
            bx, by, *at = place
            a = T.alloc_shared(tile_a, dtype)
            b = T.alloc_shared(tile_b, dtype)
            c = T.alloc_fragment((tile_m, tile_n), accum)
            T.use_swizzle(panel, enable=config.panel > 0)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=config.num_stages):
                if trans_a:
                    T.copy(A[*at, step * tile_k, by * tile_m], a)
                else:
                    T.copy(A[*at, by * tile_m, step * tile_k], a)
                if trans_b:
                    T.copy(B[*at, bx * tile_n, step * tile_k], b)
                else:
                    T.copy(B[*at, step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            add_bias_and_activate(c, Bias, bx * tile_n, problem.activation)
            T.copy(c, C[*at, by * tile_m, bx * tile_n])

    return gemm


def reference(
    problem: GemmProblem, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None
) -> Arrays:
    """The product in float64."""
    left = (a.swapaxes(-1, -2) if problem.transpose_a else a).astype(np.float64)
    right = (b.swapaxes(-1, -2) if problem.transpose_b else b).astype(np.float64)
    total = left @ right
    if bias is not None:
        total = total + bias.astype(np.float64)
    return (ACTIVATIONS[problem.activation].reference(total),)


def inputs(problem: GemmProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed values; small integers for integer dtypes."""
    dtype = dtype_of(problem.dtype)
    shape_a = (problem.k, problem.m) if problem.transpose_a else (problem.m, problem.k)
    shape_b = (problem.n, problem.k) if problem.transpose_b else (problem.k, problem.n)
    matrices = ((*problem.lead, *shape_a), (*problem.lead, *shape_b))
    shapes = (*matrices, (problem.n,))[: 3 if problem.has_bias else 2]
    if dtype.is_int:
        low = -8 if dtype.is_signed else 0
        return tuple(rng.integers(low, 8, shape).astype(numpy_dtype(dtype)) for shape in shapes)
    return tuple(rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in shapes)


def configs(problem: GemmProblem, target: Target) -> Sequence[GemmConfig]:
    """Legal tiles, the first choice in front."""
    accum_bytes = dtype_bytes(problem.accumulator)
    element_bytes = dtype_bytes(problem.dtype)
    # A batch has as many tiles as one product of so many times the rows.
    rows = problem.m * max(1, problem.batch)
    sizes = (rows, problem.n, problem.k, element_bytes, accum_bytes)
    # Tile instructions take a transposed A only after a copy.
    dtype = "" if problem.transpose_a else problem.dtype
    along_k = problem.transpose_b and not problem.transpose_a
    found = gemm_configs(*sizes, target, dtype, along_k=along_k)
    if problem.batch:
        found.sort(key=lambda c: ceildiv(problem.m, c.block_m) * c.block_m)
    return found


def _bytes_moved(problem: GemmProblem) -> float:
    read = (problem.m + problem.n) * problem.k * dtype_bytes(problem.dtype)
    matrix = read + problem.m * problem.n * dtype_bytes(problem.result_dtype)
    return float(max(1, problem.batch) * matrix)


GEMM = Family(
    name="gemm",
    program=gemm,
    inputs=inputs,
    outputs=lambda p: (((*p.lead, p.m, p.n), p.result_dtype),),
    reference=reference,
    configs=configs,
    problems=(
        *(GemmProblem(size, size, size) for size in (512, 1000, 1024, 1999, 2048)),
        *(GemmProblem(size, size, size, "bfloat16") for size in (1024, 2048)),
        *(GemmProblem(size, size, size, "float16") for size in (4096, 8192)),
        GemmProblem(
            2048, 2048, 2048, "float32", transpose_b=True, has_bias=True, activation="gelu"
        ),
        GemmProblem(1024, 1024, 1024, "int8", transpose_b=True),
        GemmProblem(512, 512, 512, "float16", batch=16),
    ),
    flops=lambda p: 2.0 * max(1, p.batch) * p.m * p.n * p.k,
    bytes_moved=_bytes_moved,
)
