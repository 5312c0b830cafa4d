"""Gradients over packed sequences: float64 reference and tuning space, for a `VarlenProblem`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels import backward_problem, varlen_problem
from tilecore_kernels.attention_problem import normal_tensor
from tilecore_kernels.backward_problem import BackwardConfig
from tilecore_kernels.family import Arrays
from tilecore_kernels.varlen_problem import VarlenProblem, sequences_of


def inputs(problem: VarlenProblem, rng: np.random.Generator) -> Arrays:
    """The forward's inputs and (rounded) outputs, and a gradient."""
    dtype = np.dtype(numpy_dtype(dtype_of(problem.dtype)))
    arrays = varlen_problem.inputs(problem, rng)
    out, sums = varlen_problem.reference(problem, *arrays)
    grad = normal_tensor(rng, out.shape, dtype)
    return *arrays, out.astype(dtype), sums.astype(np.float32), grad


def reference(problem: VarlenProblem, *arrays: np.ndarray) -> Arrays:
    """Gradients in float64, from the given O and log-sum-exp; zeros outside of all sequences."""
    q, k, v, starts_q, starts_k, out, sums, grad = arrays
    found = tuple(np.zeros(x.shape) for x in (q, k, v))
    for b, (rows, one) in enumerate(sequences_of(problem, q, k, v, starts_q, starts_k)):
        keys = slice(int(starts_k[b]), int(starts_k[b + 1]))
        its_out, its_grad = (x[rows].swapaxes(0, 1)[None] for x in (out, grad))
        single = problem.one(one[0].shape[2], one[1].shape[2])
        grads = backward_problem.reference(single, *one, its_out, sums[None, :, rows], its_grad)
        for whole, where, part in zip(found, (rows, keys, keys), grads, strict=True):
            whole[where] = part[0].swapaxes(0, 1)
    return found


def outputs(problem: VarlenProblem) -> tuple[tuple[tuple[int, ...], str], ...]:
    """dQ, dK and dV."""
    p = problem
    total_q, total_k = (sum(pair[side] for pair in p.lengths) for side in (0, 1))
    keys = (total_k, p.kv_heads)
    shapes = (total_q, p.heads, p.dim), (*keys, p.dim), (*keys, p.dim_v)
    return tuple((shape, p.dtype) for shape in shapes)


def configs(problem: VarlenProblem, target: Target) -> Sequence[BackwardConfig]:
    """Those of one sequence of the largest size that add to dQ; the list orders the tiles. A storer
    is 2 to 3 % faster where a head is wider than 64, as far as measured: it is ahead there."""
    longest = max(problem.max_q, 16)
    found = backward_problem.configs(problem.one(longest, longest), target)
    adding = [c for c in found if c.adds]
    ranked = sorted(adding or found, key=lambda c: problem.dim > 64 and not c.staged)
    return list(dict.fromkeys(replace(c, adds=True) for c in ranked))


def flops(problem: VarlenProblem) -> float:
    """Five products, counting visible pairs only: what the gradients need at least."""
    return sum(backward_problem.flops(problem.one(q, k)) for q, k in problem.lengths)


def bytes_moved(problem: VarlenProblem) -> float:
    """Inputs and gradients once."""
    return 2.0 * varlen_problem.bytes_moved(problem)


PROBLEMS = (
    VarlenProblem(8, 64, 4096, kv_heads=2, right=0, lengths=varlen_problem.MIXED),
    VarlenProblem(16, 128, 4096, "float16", kv_heads=4, right=0, lengths=varlen_problem.MIXED),
)
"""Sizes worth measuring."""
