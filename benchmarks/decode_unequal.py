"""Decoding of batches of unequal lengths: even shares beside equal splits, on a GPU, in one run.

    python benchmarks/decode_unequal.py [--backend cuda_hopper] [--compile]

Bandwidth counts the keys and values that there are, not the capacity of the cache; its ratio is to
a copy of 4 GiB in the same run. Results are checked against torch's attention of each sequence by
itself. Variants take turns, with the second-level cache flushed between calls; medians. Where
flash_attn.cute is installed it takes part: torch itself has no call for such a batch.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import decode
import measuring
import numpy as np
import torch
import torch.nn.functional as F

from tilecore.targets import choose_target
from tilecore_kernels import compile_kernel
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem, split_counts
from tilecore_kernels.flash_decode import FLASH_DECODE
from tilecore_kernels.tiles import ceildiv

_DRAWN = np.random.default_rng(0)
_LOGNORMAL = np.clip(np.exp(_DRAWN.normal(8.0, 1.5, 64)), 100, 131072)
_UNIFORM = _DRAWN.integers(1, 8193, 64)
CASES: dict[str, tuple[int, int, Any]] = {  # capacity, page size, lengths
    "4 of 8192": (8192, 0, [8192] * 4),
    "16 of 8192": (8192, 0, [8192] * 16),
    "16 of 32768": (32768, 0, [32768] * 16),
    "64 of 8192": (8192, 0, [8192] * 64),
    "64 lognormal, 100 to 131072, paged": (131072, 64, _LOGNORMAL),
    "one of 131072, 63 of 512, paged": (131072, 64, [512] * 20 + [131072] + [512] * 43),
    "64 uniform to 8192": (8192, 0, _UNIFORM),
    "64 uniform to 8192, paged": (8192, 64, _UNIFORM),
    "64 uniform to 8192, every other 0": (8192, 0, _UNIFORM * (np.arange(64) % 2)),
    "8 uniform to 32768": (32768, 0, _DRAWN.integers(1, 32769, 8)),
    "64 uniform to 1024": (1024, 0, _DRAWN.integers(1, 1025, 64)),
}
HEADS, KV_HEADS, DIM = decode.HEADS, decode.KV_HEADS, decode.DIM
ROUNDS = 5


def problem_of(name: str) -> DecodeProblem:
    """The problem of a row; with pages, just enough of them."""
    capacity, page, lengths = CASES[name]
    pages = sum(ceildiv(int(n), page) for n in lengths) if page else 0
    return DecodeProblem(
        len(lengths), HEADS, capacity, DIM, kv_heads=KV_HEADS, page_size=page, pages=pages,
        heads_inside=page > 0,
    )  # fmt: skip


def configs_of(name: str, backend: str) -> dict[str, DecodeConfig]:
    """The first choice, and its tiles with equal splits."""
    problem = problem_of(name)
    first = FLASH_DECODE.default_config(problem, choose_target(backend))
    blocks = problem.batch * KV_HEADS * ceildiv(HEADS // KV_HEADS, first.block_h)
    tiles = ceildiv(problem.kv_len, first.block_k)
    splits = split_counts(blocks, tiles, choose_target(backend))[0]
    stages = 2 if splits > 1 else 3
    equal = dataclasses.replace(first, num_stages=stages, num_splits=splits, num_shares=0)
    return {"first choice": first, "equal splits": equal}


def compile_one(name: str, way: str, backend: str) -> Any:
    config = configs_of(name, backend)[way]
    return compile_kernel("flash_decode", problem_of(name), backend, config=config)


def table_of(lengths: list[int], columns: int, page: int) -> torch.Tensor:
    """Pages in any order, as many as each sequence needs."""
    table = np.zeros((len(lengths), columns), np.int32)
    counts = [ceildiv(n, page) for n in lengths]
    order = np.random.default_rng(1).permutation(sum(counts))
    for b, end in enumerate(np.cumsum(counts)):
        table[b, : counts[b]] = order[end - counts[b] : end]
    return torch.from_numpy(table).cuda()


def wanted(q: torch.Tensor, lengths: list[int], caches: Callable[[int], Any]) -> torch.Tensor:
    """Torch's attention, sequence by sequence; zeros without a key."""
    out = torch.zeros_like(q)
    for b, n in enumerate(lengths):
        if n:
            k, v = (x[None, :, :n] for x in caches(b))
            one = F.scaled_dot_product_attention(q[b].view(1, HEADS, 1, DIM), k, v, enable_gqa=True)
            out[b] = one.view_as(q[b])
    return out


def cute_call(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, capacity: int,
    table: torch.Tensor | None,
) -> Callable[[], Any]:  # fmt: skip
    """flash_attn.cute's call for such a batch, whose caches have their heads inside."""
    from flash_attn.cute import flash_attn_varlen_func

    rows = q.view(-1, 1, HEADS, DIM)
    keys, values = (k, v) if table is not None else (x.transpose(1, 2).contiguous() for x in (k, v))
    extra = {} if table is None else {"page_table": table}
    return lambda: flash_attn_varlen_func(
        rows, keys, values, seqused_k=lengths, max_seqlen_q=1, max_seqlen_k=capacity, **extra
    )


def measure(name: str, backend: str, copied: float) -> None:
    capacity, page, drawn = CASES[name]
    problem, lengths = problem_of(name), [int(n) for n in drawn]
    q = decode.normal(problem.batch, KV_HEADS, HEADS // KV_HEADS, DIM)
    k, v = (decode.normal(*problem.cache_shape(DIM)) for _ in range(2))
    used = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    table = table_of(lengths, problem.pages_per_sequence, page) if page else None

    def caches(b: int) -> Any:
        if table is None:
            return k[b], v[b]
        pages = table[b].long()[: ceildiv(lengths[b], page)]
        return tuple(x[pages].reshape(-1, KV_HEADS, DIM).transpose(0, 1) for x in (k, v))

    want = wanted(q, lengths, caches)
    rest = (used,) if table is None else (used, table)
    out, sums = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
    calls: dict[str, Callable[[], Any]] = {}
    for way in configs_of(name, backend):
        out.fill_(float("nan"))
        call = functools.partial(compile_one(name, way, backend), q, k, v, *rest, out, sums)
        call()
        error = measuring.relative_error(out, want)
        if error > 3e-3:
            raise RuntimeError(f"{name}, {way}: relative error {error:.3g}")
        calls[way] = call
    try:
        calls["flash_attn.cute"] = cute_call(q, k, v, used, capacity, table)
        calls["flash_attn.cute"]()
    except Exception as error:
        calls.pop("flash_attn.cute", None)
        print(f"  no flash_attn.cute: {str(error)[:120]}", flush=True)
    times: dict[str, list[float]] = {way: [] for way in calls}
    order = list(calls)
    for turn in range(ROUNDS):
        random.Random(turn).shuffle(order)
        for way in order:
            times[way].append(measuring.milliseconds(calls[way], 60 if turn == 0 else 20, 30))
    moved = 2.0 * 2 * DIM * KV_HEADS * sum(lengths)
    speeds = {way: moved / statistics.median(found) * 1e3 for way, found in times.items()}
    columns = (f"{way} {s * 1e-9:.0f} GB/s, {s / copied:.3f}" for way, s in speeds.items())
    print(f"{name} ({moved * 1e-6:.0f} MB): {'; '.join(columns)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.compile:
        with ProcessPoolExecutor() as pool:
            for name in CASES:
                for way in configs_of(name, options.backend):
                    pool.submit(compile_one, name, way, options.backend)
        return
    torch.manual_seed(0)
    copied = decode.copy_bandwidth()
    print(f"copy: {copied * 1e-9:.0f} GB/s", flush=True)
    for name in CASES:
        measure(name, options.backend, copied)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
