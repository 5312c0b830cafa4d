"""Attention over sequences of unequal lengths packed one after the other: problem and reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels import attention_problem
from tilecore_kernels.attention_problem import (
    LAG,
    WARP_ROLES,
    AttentionConfig,
    AttentionProblem,
    check_heads,
    check_lag,
    check_page_size,
    check_scale,
)
from tilecore_kernels.family import Arrays
from tilecore_kernels.tiles import ceildiv, dtype_bytes


@dataclass(frozen=True, slots=True)
class VarlenProblem:
    """One forward over packed (total, heads, dim) tensors.

    The starts of the sequences, and the end of the last, are two int32 (batch + 1,) tensors for
    queries and keys. How many sequences and rows there are is read off the arguments. Masks are
    aligned to the bottom right of each sequence, as for `AttentionProblem`.

    Attributes:
        heads: heads of queries.
        dim: length of a query and of a key.
        max_q: no sequence has more queries.
        dtype: element type of all tensors but the log-sum-exp.
        kv_heads: heads of keys, a divisor of `heads`; 0 means `heads`.
        dim_v: length of a value; 0 means `dim`.
        left: keys visible before the diagonal; None is no limit.
        right: keys visible after the diagonal; 0 is causal, None no limit.
        page_size: keys lie in (pages, page_size, kv_heads, dim) tensors, and row b of an int32
            table names the pages of sequence b; 0 means packed keys.
        max_pages: columns of the table.
        softmax_scale: factor of the scores, positive; None means ``dim ** -0.5``.
        lag: as of `AttentionProblem`.
        lengths: (queries, keys) of the sequences that `inputs` makes.
    """

    heads: int
    dim: int
    max_q: int
    dtype: str = "float16"
    kv_heads: int = 0
    dim_v: int = 0
    left: int | None = None
    right: int | None = None
    page_size: int = 0
    max_pages: int = 0
    softmax_scale: float | None = None
    lag: float = LAG
    lengths: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "dim_v", self.dim_v or self.dim)
        check_heads(self.heads, self.kv_heads)
        check_scale(self.softmax_scale)
        check_page_size(self.page_size)
        check_lag(self.lag)

    @property
    def padded(self) -> bool:
        """Key tiles may reach beyond a sequence's end, and no other mask hides what is there: the
        causal one does, from all rows that there are."""
        return self.right != 0

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return self.dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    def rows_of(
        self, cache: Any, page: Any, head: Any, first: Any, count: int, columns: int
    ) -> Any:
        """`count` keys (or values) of one head out of a page."""
        return cache[page, first : first + count, head, 0:columns]

    def one(self, queries: int, keys: int) -> AttentionProblem:
        """The problem of one sequence alone."""
        return AttentionProblem(
            1, self.heads, queries, self.dim, self.dtype, self.kv_heads, keys, self.dim_v,
            self.left, self.right, True, softmax_scale=self.scale, lag=self.lag,
        )  # fmt: skip


def inputs(problem: VarlenProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed packed tensors, starts, and a table of shuffled pages."""
    p, dtype = problem, numpy_dtype(dtype_of(problem.dtype))
    starts = np.zeros((2, len(p.lengths) + 1), np.int32)
    starts[:, 1:] = np.cumsum(np.array(p.lengths, np.int32).reshape(-1, 2), axis=0).T
    total_q, total_k = (int(end) for end in starts[:, -1])
    count = len(p.lengths) * p.max_pages
    where = (count, p.page_size) if p.page_size else (total_k,)
    shapes = (
        (total_q, p.heads, p.dim), (*where, p.kv_heads, p.dim), (*where, p.kv_heads, p.dim_v),
    )  # fmt: skip
    tensors = tuple(rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes)
    arrays = (*tensors, starts[0].copy(), starts[1].copy())
    if not p.page_size:
        return arrays
    return *arrays, rng.permutation(count).reshape(-1, p.max_pages).astype(np.int32)


def sequences_of(problem: VarlenProblem, *arrays: np.ndarray) -> list[tuple[slice, Arrays]]:
    """For each sequence: its rows, and Q, K, V as (1, heads, length, dim)."""
    q, k, v, starts_q, starts_k, *table = arrays
    found = []
    for b in range(len(starts_q) - 1):
        rows = slice(int(starts_q[b]), int(starts_q[b + 1]))
        keys, values = (k[starts_k[b] : starts_k[b + 1]], v[starts_k[b] : starts_k[b + 1]])
        if table:
            length = int(starts_k[b + 1] - starts_k[b])
            keys, values = (x[table[0][b]].reshape(-1, *x.shape[2:])[:length] for x in (k, v))
        found.append((rows, tuple(x.swapaxes(0, 1)[None] for x in (q[rows], keys, values))))
    return found


def reference(problem: VarlenProblem, *arrays: np.ndarray) -> Arrays:
    """O (total, heads, dim_v) and the natural log-sum-exp (heads, total) in float64."""
    p, total = problem, arrays[0].shape[0]
    out, sums = np.zeros((total, p.heads, p.dim_v)), np.zeros((p.heads, total))
    for rows, (q, k, v) in sequences_of(p, *arrays):
        one, lse = attention_problem.reference(p.one(q.shape[2], k.shape[2]), q, k, v)
        out[rows], sums[:, rows] = one[0].swapaxes(0, 1), lse[0]
    return out, sums


def outputs(problem: VarlenProblem) -> tuple[tuple[tuple[int, ...], str], ...]:
    """O, and the log-sum-exp by heads."""
    total = sum(queries for queries, _ in problem.lengths)
    rows = (total, problem.heads)
    return ((*rows, problem.dim_v), problem.dtype), ((problem.heads, total), "float32")


SHORT_SEQUENCES = AttentionConfig(64, 128, 2, 128)
"""Of up to 64 queries, where one group of 128 lanes issues whole products: 2048 of 64 in 0.68 ms
instead of 0.84 with the generic first choice (docs/performance-log.md)."""


def configs(problem: VarlenProblem, target: Target) -> Sequence[AttentionConfig]:
    """Those of one sequence of the largest size; with pages, key tiles that pages divide."""
    p = problem
    found = attention_problem.configs(p.one(p.max_q, max(p.max_q, 256)), target)
    if target.has(WARP_ROLES) and dtype_bytes(p.dtype) == 2 and 32 < p.max_q <= 64:
        found = [SHORT_SEQUENCES, *found] if max(p.dim, p.dim_v) <= 128 else found
    size = problem.page_size
    fitting = [c for c in found if not size or c.block_k % size == 0 or size % c.block_k == 0]
    # A tile out of one page is one copy.
    return sorted(fitting or found, key=lambda c: 32 <= size < c.block_k)


def flops(problem: VarlenProblem) -> float:
    """Multiply-adds of both products, counting visible pairs only, times two."""
    return sum(attention_problem.flops(problem.one(q, k)) for q, k in problem.lengths)


def bytes_moved(problem: VarlenProblem) -> float:
    """Each tensor once."""
    return sum(attention_problem.bytes_moved(problem.one(q, k)) for q, k in problem.lengths)


MIXED = tuple((n, n) for n in (3000, 17, 512, 1025, 64, 2048, 700, 1))
"""Lengths (queries, keys) from 1 to 3000."""
PROBLEMS = (
    VarlenProblem(8, 64, 4096, kv_heads=2, right=0, lengths=MIXED),
    VarlenProblem(
        8, 64, 512, kv_heads=2, right=0, page_size=64, max_pages=ceildiv(4096, 64),
        lengths=((300, 4000), (512, 512), (1, 2222)),
    ),
)  # fmt: skip
"""Sizes worth measuring."""
