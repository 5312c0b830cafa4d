"""Arguments and NumPy results of numerics, and of kernels written for each lane."""

from __future__ import annotations

import everyday_numerics as numerics
import everyday_threads as threads
import numpy as np
from everyday_cases import RNG, Case, case, normal, softmax, whole, wide, zeros

MASK = 0xFFFFFFFF


@case
def chunked_cross_entropy() -> Case:
    x, labels = normal(5, 300, dtype="float16"), np.array([3, 299, -100, 0, 17], np.int64)
    gradient = softmax(x)
    loss = -np.log(gradient[np.arange(5), labels])
    gradient[np.arange(5), labels] -= 1
    loss[2] = gradient[2] = 0
    sums = np.log(np.exp(wide(x)).sum(1))
    results = {0: (gradient / 4, 2e-3), 2: (loss, 1e-3), 3: (sums, 1e-3)}
    arguments = [x, labels, zeros(5), zeros(5), 0.25]
    return numerics.chunked_cross_entropy(5, 300), arguments, results


@case
def hadamard() -> Case:
    def signs(n: int) -> np.ndarray:
        half = signs(n // 2) if n > 1 else None
        return np.ones((1, 1)) if half is None else np.block([[half, half], [half, -half]])

    x, h = normal(3, 256, dtype="float16"), (signs(16) / 4).astype(np.float16)
    arguments = [x, h, h, zeros(3, 256, dtype="float16")]
    return numerics.hadamard(3, 256), arguments, {3: (wide(x) @ signs(256) / 16, 2e-2)}


@case
def radix_sort() -> Case:
    keys = RNG.integers(0, 2**32, 96, dtype=np.uint32)
    order = np.argsort(keys, kind="stable")
    results = {0: (keys[order], 0), 1: (order, 0)}
    return numerics.radix_sort(96), [keys, np.arange(96, dtype=np.int32)], results


@case
def fft() -> Case:
    x = normal(3, 64, 2)
    y = np.fft.fft(wide(x[..., 0]) + 1j * x[..., 1])
    expected = np.stack([y.real, y.imag], -1)
    return numerics.fft(3, 64), [x, zeros(3, 64, 2)], {1: (expected, 1e-3)}


@case
def philox() -> Case:
    rows = []
    for i in range(70):
        c, keys = [i, 0, 0, 0], [7, 0]
        for _ in range(10):
            p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [q >> 32 ^ c[1] ^ keys[0], q & MASK, p >> 32 ^ c[3] ^ keys[1], p & MASK]
            keys = [(keys[0] + 0x9E3779B9) & MASK, (keys[1] + 0xBB67AE85) & MASK]
        rows.append(c)
    arguments = [zeros(70, 4, dtype="uint32"), 7]
    return numerics.philox(70), arguments, {0: (np.array(rows), 0)}


@case
def cholesky() -> Case:
    a = normal(2, 20, 20)
    a = a @ a.transpose(0, 2, 1) + 20 * np.eye(20, dtype=np.float32)
    arguments = [a, zeros(2, 20, 20)]
    return numerics.cholesky(2, 20), arguments, {1: (np.linalg.cholesky(wide(a)), 1e-3)}


@case
def edit_distance() -> Case:
    a, b = whole(0, 3, 30, dtype="uint8"), whole(0, 3, 25, dtype="uint8")
    table = np.zeros((31, 26), int)
    table[0], table[:, 0] = np.arange(26), np.arange(31)
    for i in range(30):
        for j in range(25):
            around = table[i, j + 1] + 1, table[i + 1, j] + 1, table[i, j] + int(a[i] != b[j])
            table[i + 1, j + 1] = min(around)
    arguments = [a, b, zeros(1, dtype="int32")]
    return numerics.edit_distance(30, 25), arguments, {2: (table[30, 25], 0)}


@case
def suppression() -> Case:
    corners = (4 * RNG.random((50, 2))).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.5 + RNG.random((50, 2))], 1).astype(np.float32)
    low, high = (
        np.maximum(boxes[:, None, :2], boxes[:, :2]),
        np.minimum(boxes[:, None, 2:], boxes[:, 2:]),
    )
    shared = np.clip(high - low, 0, None).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    covers = shared > 0.5 * (area[:, None] + area - shared)
    kept = np.ones(50, bool)
    for one in range(50):
        if kept[one]:
            kept[one + 1 :] &= ~covers[one, one + 1 :]
    return numerics.suppression(50), [boxes, np.zeros(50, bool), 0.5], {1: (kept, 0)}


@case
def lane_matmul() -> Case:
    a, b = normal(40, 50), normal(50, 35)
    return threads.lane_matmul(40, 35, 50), [a, b, zeros(40, 35)], {2: (wide(a) @ b, 1e-3)}


@case
def register_tiles() -> Case:
    a, b = normal(70, 10), normal(10, 70)
    return threads.register_tiles(70, 70, 10), [a, b, zeros(70, 70)], {2: (wide(a) @ b, 1e-3)}


@case
def strided_sum() -> Case:
    x = normal(3000)
    return threads.strided_sum(3000), [x, zeros(1)], {1: (wide(x).sum(), 1e-2)}


@case
def blelloch_scan() -> Case:
    x = whole(0, 99, 128)
    return threads.blelloch_scan(128), [x, zeros(128, dtype="int32")], {1: (x.cumsum() - x, 0)}


@case
def warp_softmax() -> Case:
    x = normal(7, 100)
    return threads.warp_softmax(7, 100), [x, zeros(7, 100)], {1: (softmax(x), 1e-5)}


@case
def bodies() -> Case:
    p = normal(100, 4)
    gaps = wide(p)[None, :, :3] - wide(p)[:, None, :3]
    pull = wide(p)[None, :, 3] / np.sqrt((gaps * gaps).sum(-1) + 0.01) ** 3
    expected = (gaps * pull[..., None]).sum(1)
    return threads.bodies(100), [p, zeros(100, 3)], {1: (expected, 1e-3 * np.abs(expected).max())}
