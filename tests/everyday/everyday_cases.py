"""Arguments of the everyday kernels, and what NumPy makes of them.

A case is a function without arguments; it gives the program, its arguments in order, and for some
of them what they hold afterwards, with the largest error that is allowed.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any

import everyday_lookups as lookups
import everyday_products as products
import everyday_rows as rows
import everyday_signals as signals
import ml_dtypes
import numpy as np

Case = tuple[Any, list[Any], dict[int, tuple[Any, float]]]
CASES: dict[str, Callable[[], Case]] = {}
RNG = np.random.default_rng(0)


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register a case under its name; it draws the same numbers whichever ran before."""

    def seeded() -> Case:
        seed = zlib.crc32(make.__name__.encode())
        RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        return make()

    CASES[make.__name__] = seeded
    return make


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Normally distributed numbers."""
    return RNG.standard_normal(shape).astype(dtype)


def whole(low: int, high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    """Integers of ``low <= x < high``."""
    return RNG.integers(low, high, shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """float64 of the same values."""
    return x.astype(np.float64)


def zeros(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """A result to be."""
    return np.zeros(shape, dtype)


def softmax(x: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    e = np.exp(wide(x) - wide(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# --- rows ----------------------------------------------------------------------------------------


@case
def dropout() -> Case:
    def mixed(x: np.ndarray) -> np.ndarray:
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = (x ^ x >> np.uint64(shift)) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
        return x ^ x >> np.uint64(16)

    x = normal(1000)
    seed = 42 * 0x9E3779B9 & 0xFFFFFFFF
    draws = mixed(np.arange(1000, dtype=np.uint64) ^ np.uint64(seed)) >> np.uint64(8)
    kept = draws.astype(np.float32) / (1 << 24) > np.float32(0.3)
    program = rows.dropout(1000, 0.3)
    return program, [x, zeros(1000), 42], {1: (np.where(kept, wide(x) / 0.7, 0), 1e-6)}


@case
def layer_norm_backward() -> Case:
    x, dy, w = normal(19, 96), normal(19, 96), normal(96)
    centred = wide(x) - wide(x).mean(1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    unit, wdy = centred * scale, wide(w) * dy
    own = unit * (unit * wdy).mean(1, keepdims=True) + wdy.mean(1, keepdims=True)
    dx = (wdy - own) * scale
    results = {3: (dx, 1e-4), 4: ((dy * unit).sum(0), 1e-4), 5: (wide(dy).sum(0), 1e-4)}
    arguments = [x, w, dy, zeros(19, 96), zeros(96), zeros(96)]
    return rows.layer_norm_backward(19, 96), arguments, results


@case
def group_norm() -> Case:
    x, w, b = normal(2, 12, 20, dtype="float16"), normal(12), normal(12)
    groups = wide(x).reshape(2, 3, -1)
    unit = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    expected = unit.reshape(2, 12, 20) * w[:, None] + b[:, None]
    program = rows.group_norm(2, 12, 20, 3)
    return program, [x, w, b, zeros(2, 12, 20, dtype="float16")], {3: (expected, 1e-2)}


@case
def cross_entropy() -> Case:
    x, labels = normal(5, 300), np.array([3, 299, -100, 0, 17], np.int64)
    shares = softmax(x)
    loss = -np.log(shares[np.arange(5), labels])
    gradient = shares.copy()
    gradient[np.arange(5), labels] -= 1
    loss[2] = gradient[2] = 0
    results = {2: (loss, 1e-4), 3: (gradient, 1e-5)}
    arguments = [x, labels, zeros(5), np.ones((5, 300), np.float32)]
    return rows.cross_entropy(5, 300), arguments, results


@case
def top_k() -> Case:
    x = whole(0, 30, 6, 70, dtype="float32")
    order = np.argsort(-x, axis=1, kind="stable")[:, :5]
    results = {1: (np.take_along_axis(x, order, 1), 0), 2: (order, 0)}
    return rows.top_k(6, 70, 5), [x, zeros(6, 5), zeros(6, 5, dtype="int32")], results


@case
def argmax() -> Case:
    x = np.round(3 * normal(7, 100))
    return rows.argmax(7, 100), [x, zeros(7, dtype="int64")], {1: (x.argmax(1), 0)}


@case
def masked_mean() -> Case:
    x, mask = normal(13, 50), whole(0, 2, 13, 50, dtype="bool")
    mean = np.where(mask, wide(x), 0).sum(1) / np.maximum(mask.sum(1), 1)
    return rows.masked_mean(13, 50), [x, mask, zeros(13)], {2: (mean, 1e-5)}


@case
def cumulative_sum() -> Case:
    x = normal(6, 150)
    return rows.cumulative_sum(6, 150), [x, zeros(6, 150)], {1: (wide(x).cumsum(1), 1e-4)}


@case
def quantise() -> Case:
    x = normal(11, 96, dtype="float16")
    parts = x.astype(np.float32).reshape(11, 3, 32)
    scales = np.abs(parts).max(-1) / np.float32(127)
    expected = np.round(parts / scales[..., None]).reshape(11, 96)
    arguments = [x, zeros(11, 96, dtype="int8"), zeros(11, 3)]
    return rows.quantise(11, 96, 32)[0], arguments, {1: (expected, 1), 2: (scales, 1e-6)}


@case
def dequantise() -> Case:
    q, scales = whole(-128, 128, 11, 96, dtype="int8"), np.abs(normal(11, 3)) / 100
    expected = (q.reshape(11, 3, 32) * wide(scales)[..., None]).reshape(11, 96)
    arguments = [q, scales, zeros(11, 96, dtype="float16")]
    return rows.quantise(11, 96, 32)[1], arguments, {2: (expected, 5e-3)}


@case
def fp8_rows() -> Case:
    x = normal(5, 70)
    scales = np.abs(x).max(1) / np.float32(448)
    expected = wide((x / scales[:, None]).astype(ml_dtypes.float8_e4m3fn))
    arguments = [x, zeros(5, 70, dtype=ml_dtypes.float8_e4m3fn), zeros(5)]
    return rows.fp8_rows(5, 70), arguments, {1: (expected, 32), 2: (scales, 1e-6)}


# --- products ------------------------------------------------------------------------------------


@case
def grouped_order() -> Case:
    a, b = normal(130, 70, dtype="float16"), normal(70, 100, dtype="float16")
    arguments = [a, b, zeros(130, 100, dtype="float16")]
    return products.grouped_order(130, 100, 70), arguments, {2: (wide(a) @ wide(b), 5e-2)}


@case
def block_scaled_matmul() -> Case:
    a, b = whole(-9, 9, 70, 96, dtype="int8"), whole(-9, 9, 65, 96, dtype="int8")
    sa, sb = normal(70, 3), normal(65, 3)
    left = (a.reshape(70, 3, 32) * wide(sa)[..., None]).reshape(70, 96)
    right = (b.reshape(65, 3, 32) * wide(sb)[..., None]).reshape(65, 96)
    program = products.block_scaled_matmul(70, 65, 96)
    return program, [a, sa, b, sb, zeros(70, 65)], {4: (left @ right.T, 1e-2)}


@case
def swiglu() -> Case:
    x, w1, w3 = (
        (0.3 * normal(*shape)).astype(np.float16) for shape in ((70, 72), (72, 80), (72, 80))
    )
    gate = wide(x) @ wide(w1)
    expected = gate / (1 + np.exp(-gate)) * (wide(x) @ wide(w3))
    arguments = [x, w1, w3, zeros(70, 80, dtype="float16")]
    return products.swiglu(70, 72, 80), arguments, {3: (expected, 1e-2)}


@case
def expert_gemm() -> Case:
    x, w = normal(90, 40, dtype="float16"), normal(4, 40, 50, dtype="float16")
    offsets = np.array([0, 5, 5, 60, 90], np.int32)
    pairs = enumerate(itertools.pairwise(offsets))
    expected = np.concatenate([wide(x[a:b]) @ wide(w[e]) for e, (a, b) in pairs])
    arguments = [x, w, offsets, zeros(90, 50, dtype="float16")]
    return products.expert_gemm(90, 40, 50, 4), arguments, {3: (expected, 5e-2)}


@case
def int4_gemm() -> Case:
    a, q = normal(33, 128, dtype="float16"), whole(0, 256, 40, 64, dtype="uint8")
    scales = (0.1 * normal(40)).astype(np.float16)
    weights = wide(np.stack([q & 15, q >> 4], -1).reshape(40, 128)) - 8
    arguments = [a, q, scales, zeros(33, 40, dtype="float16")]
    return products.int4_gemm(33, 40, 128), arguments, {3: (wide(a) @ weights.T * scales, 3e-2)}


# --- lookups -------------------------------------------------------------------------------------


@case
def histogram() -> Case:
    x = whole(0, 37, 1300)
    counts = np.bincount(x, minlength=37)
    return lookups.histogram(1300, 37), [x, zeros(37, dtype="int32")], {1: (counts, 0)}


@case
def embedding() -> Case:
    ids, table = whole(0, 20, 9, dtype="int64"), normal(20, 40, dtype="float16")
    arguments = [ids, table, zeros(9, 40, dtype="float16")]
    return lookups.embedding(9, 20, 40)[0], arguments, {2: (table[ids], 0)}


@case
def embedding_gradient() -> Case:
    ids, dy = whole(0, 20, 9, dtype="int64"), normal(9, 40)
    expected = np.zeros((20, 40))
    np.add.at(expected, ids, dy)
    return lookups.embedding(9, 20, 40)[1], [ids, dy, zeros(20, 40)], {2: (expected, 1e-5)}


def _sparse() -> tuple[list[Any], np.ndarray]:
    lengths = np.array([3, 0, 40, 7, 1] * 20)
    starts = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    columns, values, x = whole(0, 50, starts[-1]), normal(starts[-1]), normal(50)
    expected = np.zeros(100)
    np.add.at(expected, np.repeat(np.arange(100), lengths), wide(values) * x[columns])
    return [starts, columns, values, x, zeros(100)], expected


@case
def csr_matvec() -> Case:
    arguments, expected = _sparse()
    return lookups.csr_matvec(100, 50, len(arguments[1])), arguments, {4: (expected, 1e-4)}


@case
def csr_rows() -> Case:
    arguments, expected = _sparse()
    return lookups.csr_rows(100, 50, len(arguments[1])), arguments, {4: (expected, 1e-4)}


@case
def segment_sum() -> Case:
    x, starts = normal(60, 24), np.array([0, 3, 3, 20, 60], np.int32)
    pairs = itertools.pairwise(starts)
    expected = np.stack([wide(x[a:b]).sum(0) for a, b in pairs])
    return lookups.segment_sum(60, 24, 4), [x, starts, zeros(4, 24)], {2: (expected, 1e-4)}


@case
def paged_gather() -> Case:
    table = RNG.permutation(12).reshape(3, 4).astype(np.int32)
    lengths, pages = np.array([50, 16, 1], np.int32), normal(12, 16, 24, dtype="float16")
    expected = pages[table].reshape(3, 64, 24).copy()
    for one, length in zip(expected, lengths, strict=True):
        one[length:] = 0
    arguments = [table, lengths, pages, zeros(3, 64, 24, dtype="float16")]
    return lookups.paged_gather(3, 12, 16, 24, 4), arguments, {3: (expected, 0)}


@case
def compaction() -> Case:
    x = whole(-9, 9, 700)
    found = x[x > 0]
    expected = np.concatenate([found, np.zeros(700 - len(found))])
    arguments = [x, zeros(700, dtype="int32"), zeros(1, dtype="int32")]
    return lookups.compaction(700), arguments, {1: (expected, 0), 2: (len(found), 0)}


@case
def bitonic() -> Case:
    x = whole(-99, 99, 64)
    return lookups.bitonic(64), [x, zeros(64, dtype="int32")], {1: (np.sort(x), 0)}


@case
def moe_routing() -> Case:
    logits = normal(50, 9)
    order = np.argsort(-logits, 1, kind="stable")[:, :2]
    counts = np.bincount(order.ravel(), minlength=9)
    results = {1: (softmax(np.take_along_axis(logits, order, 1)), 1e-5), 2: (order, 0)}
    integers = [zeros(*shape, dtype="int32") for shape in ((50, 2), (9,), (50, 2))]
    arguments = [logits, zeros(50, 2), *integers]
    return lookups.moe_routing(50, 9), arguments, {**results, 3: (counts, 0)}


@case
def interp() -> Case:
    places, values = np.sort(normal(40)), normal(40)
    x = normal(200).clip(places[0], places[-1])
    expected = np.interp(x, places, values)
    return lookups.interp(40, 200), [places, values, x, zeros(200)], {3: (expected, 1e-4)}


# --- signals -------------------------------------------------------------------------------------


@case
def rope() -> Case:
    x, c, s = normal(7, 3, 20, dtype="float16"), normal(7, 10), normal(7, 10)
    a, b = wide(x[..., :10]), wide(x[..., 10:])
    cos, sin = wide(c)[:, None], wide(s)[:, None]
    expected = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    arguments = [x, c, s, zeros(7, 3, 20, dtype="float16")]
    return signals.rope(7, 3, 20), arguments, {3: (expected, 1e-2)}


@case
def rope_interleaved() -> Case:
    x = normal(20, 24)
    angle = np.arange(20)[:, None] * 10000.0 ** (-2 * np.arange(12) / 24)
    even, odd = wide(x[:, ::2]), wide(x[:, 1::2])
    expected = np.zeros((20, 24))
    expected[:, ::2] = even * np.cos(angle) - odd * np.sin(angle)
    expected[:, 1::2] = even * np.sin(angle) + odd * np.cos(angle)
    return signals.rope_interleaved(20, 24), [x, zeros(20, 24)], {1: (expected, 1e-4)}


@case
def selective_scan() -> Case:
    x, dt, d = normal(2, 9, 40), normal(2, 9, 40), normal(40)
    a, b, c = -np.abs(normal(40, 8)), normal(2, 9, 8), normal(2, 9, 8)
    state, expected = np.zeros((2, 40, 8)), np.zeros((2, 9, 40))
    for t in range(9):
        step = np.log1p(np.exp(wide(dt[:, t])))[..., None]
        state = np.exp(step * a) * state + step * b[:, t, None] * wide(x[:, t])[:, :, None]
        expected[:, t] = (state * c[:, t, None]).sum(-1) + d * x[:, t]
    arguments = [x, dt, a, b, c, d, zeros(2, 9, 40)]
    return signals.selective_scan(2, 9, 40, 8), arguments, {6: (expected, 1e-3)}


@case
def convolution_1d() -> Case:
    x, w = normal(300), normal(5)
    expected = np.convolve(np.pad(wide(x), (0, 4)), w[::-1], "valid")
    return signals.convolution_1d(300, 5), [x, w, zeros(300)], {2: (expected, 1e-4)}


@case
def stencil() -> Case:
    x = whole(0, 2, 40, 37, dtype="uint8")
    padded = np.pad(x.astype(int), 1)
    shifts = [padded[i : i + 40, j : j + 37] for i in range(3) for j in range(3)]
    around = sum(shifts) - x
    expected = (around == 3) | ((around == 2) & (x == 1))
    return signals.stencil(40, 37), [x, zeros(40, 37, dtype="uint8")], {1: (expected, 0)}


@case
def mandelbrot() -> Case:
    h, w, limit = 9, 50, 30
    y, x = np.mgrid[:h, :w]
    start = (-2 + 3 * x / w) + 1j * (-1 + 2 * y / h)
    z, counts = np.zeros((h, w), complex), np.zeros((h, w), int)
    for _ in range(limit):
        near = np.abs(z) <= 2
        counts += near
        z = np.where(near, z * z + start, z)
    program = signals.mandelbrot(h, w, limit)
    return program, [zeros(h, w, dtype="int32")], {0: (counts, 1)}
