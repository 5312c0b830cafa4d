"""Arguments and NumPy results of experts, recurrences and what else a server runs."""

from __future__ import annotations

from typing import Any

import everyday_experts as experts
import everyday_sequences as sequences
import everyday_serving as serving
import ml_dtypes
import numpy as np
from everyday_cases import RNG, Case, case, normal, softmax, whole, wide, zeros

FP8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16


def _expert_order(e: np.ndarray, count: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs by expert, padded with the number of pairs, and the expert of each block."""
    slots = -(-(e.size + count * (block - 1)) // block) * block
    order, of, at = np.full(slots, e.size, np.int32), np.full(slots // block, -1, np.int32), 0
    for expert in range(count):
        pairs = np.flatnonzero(e.ravel() == expert)
        order[at : at + len(pairs)] = pairs
        blocks = -(-len(pairs) // block)
        of[at // block : at // block + blocks] = expert
        at += blocks * block
    return order, of


def _choices(tokens: int, count: int) -> np.ndarray:
    return np.stack([RNG.permutation(count)[:2] for _ in range(tokens)]).astype(np.int32)


@case
def expert_slots() -> Case:
    e = _choices(20, 5)
    order, of = _expert_order(e, 5, 16)
    arguments = [e, *(zeros(n, dtype="int32") for n in (len(order), len(of), 1))]
    padded = (-(-np.bincount(e.ravel(), minlength=5) // 16) * 16).sum()
    return experts.expert_slots(20, 2, 5, 16), arguments, {2: (of, 0), 3: (padded, 0)}


@case
def expert_rows() -> Case:
    e = _choices(20, 5)
    order, of = _expert_order(e, 5, 16)
    x, p = normal(20, 48, dtype="float16"), np.abs(normal(20, 2))
    w = (0.2 * normal(5, 70, 48)).astype(np.float16)
    products = np.einsum("tw,tkhw->tkh", wide(x), wide(w)[e])
    expected = (products * p[..., None]).sum(1)
    program = experts.expert_rows(20, 2, 5, 48, 70, len(order), 16)
    return program, [x, w, p, order, of, zeros(20, 70)], {5: (expected, 2e-2)}


@case
def grouped_int4() -> Case:
    def packed(values: np.ndarray) -> np.ndarray:
        parts = [values[..., i::8].astype(np.uint32) << np.uint32(4 * i) for i in range(8)]
        return np.bitwise_or.reduce(parts).view(np.int32)

    q, z = whole(0, 16, 64, 128), whole(0, 16, 64, 4)
    s, a = (0.1 * normal(64, 4)).astype(np.float16), normal(20, 128, dtype="float16")
    weights = (q.reshape(64, 4, 32) - z[..., None]) * wide(s)[..., None]
    zero_points = np.ascontiguousarray(packed(z.T).T)
    arguments = [a, packed(q), s, zero_points, zeros(20, 64, dtype="float16")]
    expected = wide(a) @ weights.reshape(64, 128).T
    return experts.grouped_int4(20, 64, 128), arguments, {4: (expected, 5e-2)}


@case
def scaled_groups() -> Case:
    a, b = normal(96, 128).astype(FP8), normal(3, 100, 128).astype(FP8)
    sa, sb = np.abs(normal(96, 2)), np.abs(normal(3, 2, 2))
    of = np.array([0, 2, 2], np.int32)
    left = wide(a).reshape(3, 32, 2, 64) * sa.reshape(3, 32, 2)[..., None]
    scales = np.repeat(wide(sb), 64, 1)[:, :100]
    right = (wide(b).reshape(3, 100, 2, 64) * scales[..., None])[of]
    expected = np.einsum("gmkj,gnkj->gmn", left, right).reshape(96, 100)
    arguments = [a, sa, b, sb, of, zeros(96, 100, dtype=BF16)]
    return experts.scaled_groups(96, 100, 128, 3), arguments, {5: (expected, 0.5)}


@case
def state_space() -> Case:
    x, b, c = (normal(1, 70, *n, dtype="float16") for n in ((2, 32), (16,), (16,)))
    dt, a = np.abs(0.3 * normal(1, 70, 2)), -np.abs(normal(2))
    state, expected = np.zeros((1, 2, 16, 32)), np.zeros((1, 70, 2, 32))
    for t in range(70):
        added = np.einsum("bh,bs,bhd->bhsd", wide(dt[:, t]), wide(b[:, t]), wide(x[:, t]))
        state = state * np.exp(wide(dt[:, t]) * a)[..., None, None] + added
        expected[:, t] = np.einsum("bs,bhsd->bhd", wide(c[:, t]), state)
    arguments = [x, dt, a, b, c, zeros(1, 70, 2, 32)]
    return sequences.state_space(1, 70, 2, 32, 16), arguments, {5: (expected, 8e-2)}


@case
def gated_delta_rule() -> Case:
    q, k, v = normal(40, 2, 16), normal(40, 2, 16), normal(40, 2, 32)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g, beta = -np.abs(0.2 * normal(40, 2)), RNG.random((40, 2)).astype(np.float32)
    state, expected = np.zeros((2, 16, 32)), np.zeros((40, 2, 32))
    for t in range(40):
        state *= np.exp(wide(g[t]))[:, None, None]
        error = wide(v[t]) - np.einsum("hk,hkv->hv", wide(k[t]), state)
        state += np.einsum("h,hk,hv->hkv", wide(beta[t]), wide(k[t]), error)
        expected[t] = np.einsum("hk,hkv->hv", wide(q[t]), state)
    arguments = [q, k, v, g, beta, zeros(40, 2, 32)]
    return sequences.gated_delta_rule(40, 2, 16, 32), arguments, {5: (expected, 3e-2)}


@case
def segmented_scan() -> Case:
    x, flags, expected, total = normal(300), RNG.random(300) < 0.05, [], 0.0
    for value, flag in zip(x, flags, strict=True):
        total = float(value) if flag else total + float(value)
        expected.append(total)
    arguments = [x, flags, zeros(300)]
    return sequences.segmented_scan(300), arguments, {2: (np.array(expected), 1e-4)}


@case
def causal_convolution() -> Case:
    x, w, bias = (normal(*n, dtype="float16") for n in ((2, 21, 70), (70, 4), (70,)))
    padded = np.pad(wide(x), ((0, 0), (3, 0), (0, 0)))
    y = sum(padded[:, i : i + 21] * wide(w)[:, i] for i in range(4)) + wide(bias)
    arguments: list[Any] = [x, w, bias]
    arguments += [zeros(2, 21, 70, dtype="float16"), zeros(2, 3, 70, dtype="float16")]
    results = {3: (y / (1 + np.exp(-y)), 2e-2), 4: (x[:, -3:], 0)}
    return sequences.causal_convolution(2, 21, 70), arguments, results


@case
def append_to_pages() -> Case:
    k, v = normal(7, 2, 24, dtype=BF16), normal(7, 2, 24, dtype=BF16)
    slots, scales = RNG.permutation(40)[:7].astype(np.int64), np.array([0.5, 0.25], np.float32)
    slots[3] = -1
    keys, values = np.zeros((5, 8, 2, 24)), np.zeros((5, 2, 24, 8))
    for one, slot in enumerate(slots):
        if slot >= 0:
            keys[slot // 8, slot % 8] = (k[one].astype(np.float32) / scales[0]).astype(FP8)
            values[slot // 8, ..., slot % 8] = (v[one].astype(np.float32) / scales[1]).astype(FP8)
    pages = [zeros(5, 8, 2, 24, dtype=FP8), zeros(5, 2, 24, 8, dtype=FP8)]
    program = serving.append_to_pages(7, 2, 24, 5, 8)
    return program, [k, v, slots, scales, *pages], {4: (keys, 0), 5: (values, 0)}


@case
def norm_and_rope() -> Case:
    x, wq, wk = normal(9, 8, 32, dtype=BF16), normal(32, dtype=BF16), normal(32, dtype=BF16)
    places = whole(0, 64, 9, dtype="int64")
    angles = np.arange(64)[:, None] * 10000.0 ** (-2 * np.arange(16) / 32)
    table = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    heads = wide(x[:, :6])
    unit = heads / np.sqrt((heads * heads).mean(-1, keepdims=True) + 1e-6)
    unit[:, :4] *= wide(wq)
    unit[:, 4:] *= wide(wk)
    a, b = unit[..., :16], unit[..., 16:]
    cos, sin = wide(table)[places][:, None, :16], wide(table)[places][:, None, 16:]
    turned = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    expected = np.concatenate([turned, wide(x[:, 6:])], 1)
    return serving.norm_and_rope(9, 4, 2, 32), [x, wq, wk, places, table], {0: (expected, 5e-2)}


@case
def add_norm_quantise() -> Case:
    x, kept, w = (normal(*n, dtype="float16") for n in ((5, 200), (5, 200), (200,)))
    v = wide(x) + wide(kept)
    y = v / np.sqrt((v * v).mean(1, keepdims=True) + 1e-6) * wide(w)
    s = np.abs(y).max(1) / 127
    results = {1: (v, 1e-2), 3: (np.round(y / s[:, None]), 1), 4: (s, 1e-4)}
    arguments = [x, kept, w, zeros(5, 200, dtype="int8"), zeros(5)]
    return serving.add_norm_quantise(5, 200), arguments, results


@case
def sample() -> Case:
    logits, noise = 3 * normal(6, 200), RNG.random((6, 200)).astype(np.float32)
    best, heat = np.array([1, 2, 5, 50, 200, 7], np.int32), np.array([1, 0.5, 2, 1, 1, 1], "f4")
    limits = -np.sort(-logits, 1)[np.arange(6), best - 1]
    scores = logits / heat[:, None] - np.log(-np.log(wide(noise)))
    chosen = np.where(logits >= limits[:, None], scores, -np.inf).argmax(1)
    arguments = [logits, best, heat, noise, zeros(6, dtype="int32")]
    return serving.sample(6, 200), arguments, {4: (chosen, 0)}


@case
def nucleus() -> Case:
    logits, shares = 2 * normal(4, 150), np.array([0.1, 0.5, 0.9, 0.99], np.float32)
    p = softmax(logits)
    order = np.argsort(-p, 1)
    before = np.take_along_axis(p, order, 1).cumsum(1) - np.take_along_axis(p, order, 1)
    kept = np.zeros_like(p)
    np.put_along_axis(kept, order, np.where(before < shares[:, None], 1.0, 0.0), 1)
    expected = p * kept / (p * kept).sum(1, keepdims=True)
    return serving.nucleus(4, 150), [logits, shares, zeros(4, 150)], {2: (expected, 1e-3)}


@case
def listed_attention() -> Case:
    q, k, v = (normal(2, 128, 32, dtype="float16") for _ in range(3))
    lists, lengths = zeros(2, 4, 4, dtype="int32"), whole(1, 5, 2, 4)
    mask = np.full((2, 128, 128), -np.inf)
    for head in range(2):
        for block in range(4):
            length = lengths[head, block] = min(lengths[head, block], block + 1)
            chosen = [*RNG.permutation(block)[: length - 1], block]
            lists[head, block, :length] = chosen
            for one in chosen:
                seen = np.where(np.tri(32) > 0, 0, -np.inf) if one == block else 0
                mask[head, block * 32 : block * 32 + 32, one * 32 : one * 32 + 32] = seen
    scores = wide(q) @ wide(k).transpose(0, 2, 1) / 32**0.5
    arguments = [q, k, v, lists, lengths, zeros(2, 128, 32, dtype="float16")]
    expected = softmax(scores + mask) @ wide(v)
    return serving.listed_attention(2, 128, 32, 4), arguments, {5: (expected, 1e-2)}
