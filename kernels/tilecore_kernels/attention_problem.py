"""What an attention kernel is asked for, its float64 reference, and its tuning space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilecore.errors import LanguageError
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.target import Target
from tilecore_kernels.family import Arrays
from tilecore_kernels.gemm_configs import TILE_INSTRUCTIONS, WAITING
from tilecore_kernels.score_mods import ScoreMod, on_arrays
from tilecore_kernels.tiles import (
    dtype_bytes,
    fits_registers,
    fits_shared,
    fits_threads,
    has_lanes,
    pow2_at_least,
)

LAG, MOST_LAG = 0.0, 15
"""What problems have if nothing is said, the smallest error, and the most: weights reach two to the
lag, and float16 ends below 2**16."""


def check_heads(heads: int, kv_heads: int) -> None:
    """Refuse heads of queries that cannot share the heads of keys evenly.

    Raises:
        LanguageError: `heads` is no multiple of `kv_heads`.
    """
    if heads % kv_heads:
        raise LanguageError(
            "heads of queries must be a multiple of heads of keys",
            expected=f"a multiple of {kv_heads}",
            got=heads,
        )


def check_page_size(page_size: int) -> None:
    """Refuse pages that are not made of whole tiles of keys; 0 is no pages.

    Raises:
        LanguageError: it is no power of two.
    """
    if page_size and page_size != pow2_at_least(page_size):
        raise LanguageError("page_size must be a power of two", got=page_size)


def check_scale(softmax_scale: float | None) -> None:
    """Refuse a factor of the scores that would turn their order.

    Raises:
        LanguageError: it is not positive.
    """
    if softmax_scale is not None and not softmax_scale > 0:
        raise LanguageError("softmax_scale must be positive", got=softmax_scale)


def check_lag(lag: float) -> None:
    """Refuse an anchor that weights could leave behind.

    Raises:
        LanguageError: `lag` is not in 0 to `MOST_LAG`.
    """
    if not 0 <= lag <= MOST_LAG:
        raise LanguageError("lag out of range", expected=f"0 to {MOST_LAG}", got=lag)


@dataclass(frozen=True, slots=True)
class Strides:
    """Element strides of four (batch, heads, length, dim) tensors."""

    q: tuple[int, int, int, int]
    k: tuple[int, int, int, int]
    v: tuple[int, int, int, int]
    out: tuple[int, int, int, int]

    def of(self, name: str) -> tuple[int, int, int, int]:
        """By the program's name of the tensor: Q, K, V or Out."""
        strides: tuple[int, int, int, int] = getattr(self, name.lower())
        return strides


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """One attention forward over (batch, heads, length, dim) tensors.

    Query i sees key j where ``i + shift - left <= j <= i + shift + right`` with
    ``shift = kv_len - q_len``, so that masks are aligned to the bottom right.

    Attributes:
        batch: independent sequences.
        heads: heads of queries.
        q_len: queries.
        dim: length of a query and of a key.
        dtype: element type of all tensors but the log-sum-exp.
        kv_heads: heads of keys, a divisor of `heads`; 0 means `heads` (1 is MQA).
        kv_len: keys; -1 means `q_len`.
        dim_v: length of a value; 0 means `dim`.
        left: keys visible before the diagonal; None is no limit.
        right: keys visible after the diagonal; 0 is causal, None no limit.
        has_lse: write the natural log-sum-exp of each row, float32 (batch, heads, q_len).
        padded: an int32 (batch,) tensor says how many keys of each sequence exist.
        softmax_scale: factor of the scores, positive; None means ``dim ** -0.5``.
        score_mod: (score, head, query, key) -> score, applied to scaled scores; see `score_mods`.
        has_sinks: a float32 (heads,) tensor holds the score of one more key, whose value is 0.
        strides: element strides of Q, K, V and O; None is compact.
        deterministic: of gradients: the same bits each time.
        lag: powers of two, 0 to 15, by which the number that weights are taken against may lie
            below the largest score. With 0 the largest weight is exactly 1, and the error that of
            implementations which rescale at every new maximum. Accumulators are rescaled less
            often the larger it is: at 8 Hopper kernels are 1 to 3 % faster, and the error is 2 to
            5 %, for a few dominating keys up to 18 % larger (docs/performance-log.md).
    """

    batch: int
    heads: int
    q_len: int
    dim: int
    dtype: str = "float32"
    kv_heads: int = 0
    kv_len: int = -1
    dim_v: int = 0
    left: int | None = None
    right: int | None = None
    has_lse: bool = False
    padded: bool = False
    softmax_scale: float | None = None
    score_mod: ScoreMod | None = None
    has_sinks: bool = False
    strides: Strides | None = None
    deterministic: bool = False
    lag: float = LAG

    def __post_init__(self) -> None:
        for name, value in (
            ("kv_heads", self.kv_heads or self.heads),
            (
                "kv_len",
                self.q_len if isinstance(self.kv_len, int) and self.kv_len < 0 else self.kv_len,
            ),
            ("dim_v", self.dim_v or self.dim),
            ("has_lse", self.has_lse or self.padded),
        ):
            object.__setattr__(self, name, value)
        check_heads(self.heads, self.kv_heads)
        check_scale(self.softmax_scale)
        check_lag(self.lag)

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        return self.dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    def shapes(self) -> dict[str, tuple[int, int, int, int]]:
        """Shapes of Q, K, V and Out."""
        keys = (self.batch, self.kv_heads, self.kv_len)
        queries = (self.batch, self.heads, self.q_len)
        return {
            "Q": (*queries, self.dim), "K": (*keys, self.dim), "V": (*keys, self.dim_v),
            "Out": (*queries, self.dim_v),
        }  # fmt: skip

    @property
    def is_causal(self) -> bool:
        """True for the plain causal mask."""
        return self.right == 0 and self.left is None


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Tiles of queries and keys, key tiles in flight, and threads of one block."""

    block_q: int
    block_k: int
    num_stages: int
    threads: int


def with_heads_inside(problem: AttentionProblem) -> AttentionProblem:
    """The problem on tensors that are stored as (batch, length, heads, dim)."""
    strides = {
        name.lower(): (length * heads * dim, dim, heads * dim, 1)
        for name, (_, heads, length, dim) in problem.shapes().items()
    }
    return replace(problem, strides=Strides(**strides))


def visible_pairs(problem: AttentionProblem) -> np.ndarray:
    """Which (query, key) pairs the mask lets through, as a (q_len, kv_len) array of bools."""
    diagonal = np.arange(problem.q_len)[:, None] + problem.kv_len - problem.q_len
    key = np.arange(problem.kv_len)[None, :]
    visible = np.ones((problem.q_len, problem.kv_len), bool)
    if problem.left is not None:
        visible &= key >= diagonal - problem.left
    if problem.right is not None:
        visible &= key <= diagonal + problem.right
    return visible


def reference(
    problem: AttentionProblem, q: np.ndarray, k: np.ndarray, v: np.ndarray, *rest: np.ndarray
) -> Arrays:
    """Attention in float64, with the score matrix; `rest` holds lengths and sinks, as asked for."""
    p = problem
    group = p.heads // p.kv_heads
    others = iter(rest)
    keys = np.repeat(k.astype(np.float64), group, axis=1)
    values = np.repeat(v.astype(np.float64), group, axis=1)
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), keys, optimize=True) * p.scale
    if p.score_mod is not None:
        head, query, key = np.ogrid[: p.heads, : p.q_len, : p.kv_len]
        scores = on_arrays(p.score_mod)(scores, head, query, key)
    visible = np.broadcast_to(visible_pairs(p), scores.shape)
    if p.padded:
        lengths = next(others)
        visible = visible & (np.arange(p.kv_len) < lengths[:, None, None, None])
    scores = np.where(visible, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if p.has_sinks:
        sinks = next(others).astype(np.float64)[:, None, None]
        peak = np.maximum(peak, sinks)
    anchor = np.where(np.isneginf(peak), 0.0, peak)
    weights = np.exp(scores - anchor)
    total = weights.sum(axis=-1, keepdims=True)
    if p.has_sinks:
        total = total + np.exp(sinks - anchor)
    out = np.einsum("bhqk,bhkd->bhqd", weights, values, optimize=True)
    out = np.divide(out, total, out=np.zeros_like(out), where=total != 0)
    if not p.has_lse:
        return (out,)
    with np.errstate(divide="ignore"):
        return out, (np.log(total) + anchor)[..., 0]


def normal_tensor(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype,
    strides: tuple[int, ...] | None = None,
) -> np.ndarray:
    """Normally distributed elements, in memory with the given element strides."""
    if strides is None or 0 in shape:
        return rng.standard_normal(shape, np.float32).astype(dtype)
    span = 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    flat = rng.standard_normal(span, np.float32).astype(dtype)
    return np.ndarray(shape, dtype, flat, strides=[step * dtype.itemsize for step in strides])


def inputs(problem: AttentionProblem, rng: np.random.Generator) -> Arrays:
    """Normally distributed queries, keys and values; lengths, sinks where they are asked for."""
    dtype = np.dtype(numpy_dtype(dtype_of(problem.dtype)))
    p, shapes = problem, problem.shapes()
    arrays = [
        normal_tensor(rng, shapes[name], dtype, p.strides and p.strides.of(name)) for name in "QKV"
    ]
    if p.padded:
        arrays.append(rng.integers(0, p.kv_len + 1, p.batch).astype(np.int32))
    if p.has_sinks:
        arrays.append(rng.standard_normal(p.heads, np.float32))
    return tuple(arrays)


def outputs(problem: AttentionProblem) -> tuple[tuple[tuple[int, ...], str], ...]:
    """O, and the log-sum-exp where it is asked for."""
    p = problem
    out = (p.shapes()["Out"], p.dtype)
    return (out, ((p.batch, p.heads, p.q_len), "float32")) if p.has_lse else (out,)


def configs(problem: AttentionProblem, target: Target) -> Sequence[AttentionConfig]:
    """Legal tiles, the first choice in front: large tiles reuse keys, small lengths need few."""
    longest_q = max(16, pow2_at_least(problem.q_len))
    longest_k = max(16, pow2_at_least(problem.kv_len))
    if not has_lanes(target):
        # 32 KiB of scores stay in a first-level cache; a mask makes long key tiles wasteful.
        first = ((64, 128), (128, 128)) if problem.right is not None else ((64, 256), (32, 256))
        if target.has(TILE_INSTRUCTIONS.get(problem.dtype, "")):
            first = ((32, 64), (64, 64))  # products under the softmax: all of a step in that cache
        found = [
            AttentionConfig(min(block_q, longest_q), min(block_k, longest_k), 1, 128)
            for block_q, block_k in (*first, (64, 128), (64, 64), (128, 64), (128, 256))
        ]
        return list(dict.fromkeys(found))
    waits = target.has(WAITING)  # then eight warps of a block fill what shared memory leaves
    space = [
        AttentionConfig(min(block_q, longest_q), min(block_k, longest_k), stages, threads)
        for block_q in (*((256,) if waits else ()), 128, 64, 32, 16)
        for block_k in (128, 64, 32, 16)
        for stages in ((2,) if waits else (2, 3, 1))
        for threads in (*((512,) if waits else ()), 256, 128, 64, target.lanes_per_warp)
    ]
    legal = [c for c in dict.fromkeys(space) if _is_legal(c, problem, target)]
    ranked = sorted(legal, key=lambda c: _cost(c, target))
    return list(dict.fromkeys([*_with_warp_roles(problem, target), *ranked]))


WARP_ROLES = "warp_specialization"
"""Feature of targets where warps have roles: some load, the others compute."""
_BY_WARP_ROLES: dict[int, tuple[tuple[int, int, int, int], ...]] = {
    64: ((192, 128, 4, 384), (192, 128, 3, 384), (128, 128, 3, 256)),
    96: ((192, 112, 2, 384), (192, 96, 2, 384), (128, 128, 2, 256)),
    128: ((192, 80, 3, 384), (128, 128, 2, 256), (192, 80, 2, 384), (128, 176, 2, 256)),
    192: ((128, 112, 2, 256), (128, 96, 2, 256)),
    256: ((128, 80, 2, 256),),
}
"""By head dimension: tiles that were measured, or that leave no register to spare, with groups of
128 lanes that own 64 rows each and copies by warps of their own (docs/performance-log.md)."""
SHORT = 2048
"""Keys up to which tiles of 128 queries are ahead of those of 192."""


def _with_warp_roles(problem: AttentionProblem, target: Target) -> list[AttentionConfig]:
    """The first choices where warps have roles: 16-bit types, more than a tile of queries."""
    if not target.has(WARP_ROLES) or dtype_bytes(problem.dtype) != 2 or problem.q_len <= 128:
        return []
    wide = max(problem.dim, problem.dim_v)
    known = next((dim for dim in _BY_WARP_ROLES if wide <= dim), None)
    if known is None:
        return []
    found = [AttentionConfig(*one) for one in _BY_WARP_ROLES[known]]
    if problem.kv_len <= SHORT:
        found.sort(key=lambda config: config.block_q)
    return found


_MOST_BYTES_HELD = 256
"""Of one thread: queries that stay in registers, and keys and values on their way through them."""


def _is_legal(config: AttentionConfig, problem: AttentionProblem, target: Target) -> bool:
    width = dtype_bytes(problem.dtype)
    slots = 1 if target.has(WAITING) else config.num_stages
    keys = slots * config.block_k * (problem.dim + problem.dim_v)
    smem_bytes = (config.block_q * problem.dim + keys) * width
    if target.has(WAITING) and width <= 2:  # columns of values are padded
        queries, keys = config.block_q * problem.dim, keys + keys // 8
        held = queries * width <= _MOST_BYTES_HELD * config.threads
        # Queries that fit into registers move there before keys arrive.
        smem_bytes = (max(queries, keys) if held else queries + keys) * width
    if target.has(WAITING) and keys * width > _MOST_BYTES_HELD * config.threads:
        return False  # they would not fit into registers on their way
    if width > 2:  # only 16-bit weights go from accumulator to operand without leaving registers
        smem_bytes += config.block_q * config.block_k * width
    fragment_bytes = config.block_q * (config.block_k * (4 + width) + problem.dim_v * 4)
    # Each warp owns whole rows of an atom, which is 16 rows high on every known target.
    rows_for_warps = config.threads // target.lanes_per_warp * 16 <= config.block_q
    return (
        rows_for_warps
        and fits_threads(config.threads, target)
        and fits_shared(smem_bytes, target)
        and fits_registers(fragment_bytes, config.threads, target, share=0.9)
    )


def _cost(config: AttentionConfig, target: Target) -> tuple[float, ...]:
    """Reads per score: keys by a query tile, queries by a key tile, keys again by each warp.

    More than 32 rows of a warp save nothing, matrix atoms are no higher. Two stages hide the
    latency of keys; of equal configurations the one with more threads hides more of the rest.
    """
    rows_of_warp = min(32.0, config.block_q * target.lanes_per_warp / config.threads)
    traffic = 1.0 / config.block_q + 0.25 / config.block_k + 0.5 / rows_of_warp
    stage_penalty = {1: 1.3, 2: 1.0, 3: 1.02}[config.num_stages]
    return (traffic * stage_penalty, -config.threads)


def flops(problem: AttentionProblem) -> float:
    """Multiply-adds of both products, counting visible pairs only, times two."""
    p = problem
    pairs = p.q_len * p.kv_len
    if p.left is not None or p.right is not None:
        pairs = int(visible_pairs(p).sum())
    return 2.0 * p.batch * p.heads * pairs * (p.dim + p.dim_v)


def bytes_moved(problem: AttentionProblem) -> float:
    """Each tensor once."""
    p = problem
    queries = p.batch * p.heads * p.q_len * (p.dim + p.dim_v)
    keys = p.batch * p.kv_heads * p.kv_len * (p.dim + p.dim_v)
    return float((queries + keys) * dtype_bytes(p.dtype))


PROBLEMS = (
    AttentionProblem(1, 8, 2048, 64),
    AttentionProblem(1, 8, 2048, 64, right=0),
    AttentionProblem(1, 8, 2048, 64, "bfloat16"),
    AttentionProblem(1, 8, 2048, 64, "bfloat16", right=0),
    AttentionProblem(8, 32, 4096, 128, "float16"),
    AttentionProblem(8, 32, 4096, 128, "float16", right=0),
    AttentionProblem(1, 8, 1999, 64, kv_heads=2, right=0),
    AttentionProblem(1, 8, 1500, 64, kv_heads=1, left=255, right=0),
)
"""Sizes worth measuring."""
