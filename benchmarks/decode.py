"""Decoding kernels beside the bandwidth of a copy and torch's attention, on one GPU, in one run.

    python benchmarks/decode.py --backend cuda_hopper [flash mla] [--json FILE]
        [--tilelang EXAMPLE.py] [--batch N]...

Random normal caches; every result is checked against a float32 computation before it is timed;
times are medians with the second-level cache flushed between calls. Bandwidth counts each element
of the cache once; its ratio is to a copy of some gigabytes in the same run, and to a copy that
moves as many bytes as the row, which shows what a launch and a cold start cost anybody; small rows
are also measured after a flush that only reads, and beside a maximum over as many bytes. With
``--tilelang`` latent decoding is measured by turns with TileLang's program of that file, cool
(after a rest, as a short benchmark sees it) and sustained (at the power limit). With ``--compile``
the kernels are only compiled into the cache, by many processes.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import measuring
import torch
import torch.nn.functional as F
from measuring import (
    by_turns,
    example_at,
    milliseconds_after_reads,
    milliseconds_in_graph,
    relative_error,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilecore
from tilecore.language import GemmWarpPolicy
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem
from tilecore_kernels.flash_decode import FLASH_DECODE
from tilecore_kernels.mla_decode import MLA_DECODE, latent_problem
from tilecore_kernels.tiles import ceildiv

FLASH_SHAPES = [  # batch, length of the caches, page size
    (batch, length, page)
    for batch in (1, 4, 16, 64)
    for length in (8192, 32768, 131072)
    for page in (0, 64)
    if batch * length < 4 << 20 or not page  # copies of 64 GB in pages do not fit beside them
]
MLA_SHAPES = [(132, 8192, 0), (132, 8192, 64), (64, 8192, 0), (1, 32768, 0)]
HEADS, KV_HEADS, DIM = 32, 8, 128
COLUMNS = GemmWarpPolicy.FullCol
FLASH_TILES: dict[str, list[Any]] = {  # heads, keys, stages, threads, policy
    "cuda_hopper": [(16, 64, 3, 128, COLUMNS), (16, 64, 2, 128, COLUMNS)],
    "cuda_ampere": [(16, 64, 3, 128, COLUMNS), (16, 64, 2, 128, COLUMNS), (16, 32, 3, 32)],
}
MLA_TILES: dict[str, list[Any]] = {
    "cuda_hopper": [(64, 48, 3, 256, COLUMNS), (64, 64, 2, 256, COLUMNS)],
    "cuda_ampere": [(64, 32, 2, 256, COLUMNS), (32, 32, 2, 256, COLUMNS)],
}
Work = tuple[Any, DecodeProblem, list[DecodeConfig]]
rows: list[dict[str, Any]] = []

milliseconds = functools.partial(measuring.milliseconds, settle=20, measure=60)

COPIED = float(1 << 32)
"""Bytes read and written by the copy that bandwidths are compared with."""

SMALL = 256e6
"""Bytes below which launches, latencies and the flush count; such rows get more peers."""

IN_GRAPH = 600e6
"""Bytes, at least, that the calls of a graph move together: many times the second-level cache."""


def copy_bandwidth(moved: float = COPIED, timer: Callable[..., float] = milliseconds) -> float:
    """Bytes read and written a second by a copy that moves that many."""
    source = torch.empty(int(moved) // 4, dtype=torch.float16, device="cuda").normal_()
    target = torch.empty_like(source)
    seconds = timer(lambda: target.copy_(source)) * 1e-3
    return 2.0 * source.numel() * source.element_size() / seconds


def read_bandwidth(moved: float) -> float:
    """Bytes read a second by the maximum of that many."""
    source = torch.zeros(int(moved) // 4, device="cuda")
    return 4.0 * source.numel() / (milliseconds(source.max) * 1e-3)


def tilelang_call(
    path: str, q: torch.Tensor, cache: torch.Tensor, want: torch.Tensor
) -> Callable[[], Any]:
    """A call of TileLang's latent decoding: ``flashattn(batch, heads, kv_head_num, seqlen_kv, dim,
    pe_dim, block_N, block_H, num_split, softmax_scale)`` at `path`, which takes queries (b, h, d)
    and keys (b, s, 1, d), each in two parts.

    Raises:
        RuntimeError: its result is wrong.
    """
    batch, _, length, _ = cache.shape
    keys = cache.view(batch, length, 1, 576)
    parts = [x.contiguous() for x in (q[:, 0, :, :512], q[:, 0, :, 512:])]
    parts += [x.contiguous() for x in (keys[..., :512], keys[..., 512:])]
    splits = splits_for(2 * batch, length // 64)[0]
    make = example_at(path).flashattn
    kernel = make(batch, 128, 1, length, 512, 64, 64, 64, splits, 192**-0.5)
    error = relative_error(kernel(*parts).view_as(want), want)
    print(f"  tilelang, {splits} splits: relative error {error:.3g}", flush=True)
    if error > 3e-3:
        raise RuntimeError(f"relative error {error:.3g}")
    return lambda: kernel(*parts)


def beside(ours: Callable[[], Any], peer: Callable[[], Any], flops: float) -> dict[str, float]:
    """TFLOP/s of both by turns, cool and sustained, and the median ratio of pairs."""
    row: dict[str, float] = {}
    for name, timing in (("cool", (7, 20, 60, 0.15)), ("sustained", (5, 150, 120, 0.0))):
        turns = by_turns(ours, peer, *timing)
        print(f"  {name}: ratios {[round(ratio, 3) for ratio in turns.ratios]}", flush=True)
        row[f"{name}_tflops"] = flops / turns.first * 1e-9
        row[f"{name}_tilelang_tflops"] = flops / turns.second * 1e-9
        row[f"{name}_ratio_tilelang"] = turns.ratio
    return row


def splits_for(blocks: int, tiles: int) -> list[int]:
    """Splits that give one or two blocks a multiprocessor, in whole waves."""
    count = 132
    if torch.cuda.is_available():
        count = torch.cuda.get_device_properties(0).multi_processor_count
    wanted = {max(1, w * count // blocks) for w in (1, 2)}
    return sorted(min(w, tiles) for w in wanted)


def work(group: str, backend: str, shape: tuple[int, int, int]) -> Work:
    """The family, the problem and the configurations of one row."""
    batch, length, page = shape
    if group == "flash":
        family, tiles = FLASH_DECODE, FLASH_TILES[backend]
        problem = DecodeProblem(
            batch, HEADS, length, DIM, kv_heads=KV_HEADS, page_size=page, heads_inside=page > 0
        )
    else:
        family, tiles = MLA_DECODE, MLA_TILES[backend]
        problem = latent_problem(batch, length, page_size=page)
    configs = []
    for block_h, block_k, stages, threads, *policy in tiles:
        if page % block_k and block_k % max(page, 1):
            continue  # tiles that straddle pages are loaded in more pieces
        blocks = problem.batch * problem.kv_heads * ceildiv(problem.group, block_h)
        for splits in splits_for(blocks, ceildiv(length, block_k)):
            configs.append(DecodeConfig(block_h, block_k, stages, threads, splits, *policy))
    return family, problem, configs


def all_rows(
    groups: list[str], batches: list[int] | None
) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """The rows of the named groups, of some batches or all."""
    for group in groups:
        for shape in FLASH_SHAPES if group == "flash" else MLA_SHAPES:
            if batches is None or shape[0] in batches:
                yield group, shape


def compile_one(group: str, backend: str, shape: tuple[int, int, int], number: int) -> None:
    """Compile one configuration of one row into the cache."""
    family, problem, configs = work(group, backend, shape)
    tilecore.compile(family.program(problem, configs[number]), backend=backend)


def paged(cache: torch.Tensor, page: int, order: torch.Tensor) -> torch.Tensor:
    """A (batch, heads, length, dim) cache as pages at the places of `order`, heads inside."""
    batch, heads, length, dim = cache.shape
    pages = torch.empty(len(order), page, heads, dim, dtype=cache.dtype, device="cuda")
    per = cache.view(batch, heads, length // page, page, dim).permute(0, 2, 3, 1, 4)
    pages[order] = per.reshape(len(order), page, heads, dim)
    return pages


def best_of(
    backend: str, row: Work, arguments: tuple[Any, ...], out: torch.Tensor, want: torch.Tensor
) -> tuple[float, Any, dict[str, Any]]:
    """(ms, kernel, configuration and so on) of the fastest right configuration."""
    family, problem, configs = row
    best: tuple[float, Any, dict[str, Any]] = (float("inf"), None, {})
    for config in configs:
        try:
            kernel = tilecore.compile(family.program(problem, config), backend=backend)
            out.fill_(float("nan"))
            kernel(*arguments)
            error = relative_error(out, want)
            if not error <= 3e-3:
                print(f"  WRONG {config}: relative error {error:.3g}", flush=True)
                continue
            ms = milliseconds(lambda kernel=kernel: kernel(*arguments))
            used = kernel.resources[0]
            print(f"  {config}: {ms:.4f} ms, {used.registers} registers, "
                  f"{used.spill_bytes} spill bytes {used.notes}", flush=True)  # fmt: skip
            if ms < best[0]:
                found = {"config": str(config), "error": error, "resources": str(used)}
                best = (ms, kernel, found)
        except Exception as error:
            traceback.print_exc(limit=-2)
            print(f"  FAILED {config}: {error}", flush=True)
    return best


def show(**row: Any) -> None:
    rows.append(row)
    print("ROW", json.dumps(row), flush=True)


def normal(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="cuda", dtype=torch.half).normal_()


def flash(backend: str, shape: tuple[int, int, int], copied: float, tilelang: str | None) -> None:
    batch, length, page = shape
    row = work("flash", backend, shape)
    q = normal(batch, KV_HEADS, HEADS // KV_HEADS, DIM)
    k, v = (normal(batch, KV_HEADS, length, DIM) for _ in range(2))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):

        def peer() -> torch.Tensor:
            flat = q.view(batch, HEADS, 1, DIM)
            return F.scaled_dot_product_attention(flat, k, v, enable_gqa=True)

        want = peer().view_as(q)
        peer_ms = milliseconds(peer)
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    out, sums = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
    arguments: tuple[Any, ...] = (q, k, v, lengths, out, sums)
    if page:
        order = torch.randperm(batch * length // page, device="cuda")
        table = order.to(torch.int32).view(batch, -1)
        pages = (paged(k, page, order), paged(v, page, order))
        arguments = (q, *pages, lengths, table, out, sums)
    ms, kernel, best = best_of(backend, row, arguments, out, want)
    moved = FLASH_DECODE.bytes_moved(row[1])
    speed = moved / ms * 1e3
    same = copy_bandwidth(min(moved, COPIED))
    small: dict[str, float] = {}
    if moved < SMALL:
        clean = milliseconds_after_reads(lambda: kernel(*arguments))
        graph, copies = in_graph(kernel, arguments, moved)
        small = {"graph_gbs": moved / graph * 1e-6, "graph_copy_gbs": moved / copies * 1e-6,
                 "after_reads_gbs": moved / clean * 1e-6,
                 "after_reads_copy_gbs": copy_bandwidth(moved, milliseconds_after_reads) * 1e-9,
                 "read_gbs": read_bandwidth(moved) * 1e-9}  # fmt: skip
    show(group="flash", shape=shape, ms=ms, gbs=speed * 1e-9, ratio_copy=speed / copied,
         same_copy_gbs=same * 1e-9, ratio_same_copy=speed / same, ratio_fa2=peer_ms / ms,
         **small, **best)  # fmt: skip


def in_graph(kernel: Any, arguments: tuple[Any, ...], moved: float) -> tuple[float, float]:
    """Milliseconds of one call in a graph of calls that have a cache each, and of one copy that
    moves as many bytes in a graph of copies."""
    q, k, v, *rest = arguments
    count = max(3, ceildiv(int(IN_GRAPH), int(moved)))
    caches = [(k, v), *((normal(*k.shape), normal(*v.shape)) for _ in range(count - 1))]
    calls = [functools.partial(kernel, q, *cache, *rest) for cache in caches]
    targets = [torch.empty_like(k) for _ in caches]
    copies = [
        functools.partial(to.copy_, cache[0]) for to, cache in zip(targets, caches, strict=True)
    ]
    return milliseconds_in_graph(calls), milliseconds_in_graph(copies)


def mla(backend: str, shape: tuple[int, int, int], copied: float, tilelang: str | None) -> None:
    batch, length, page = shape
    row = work("mla", backend, shape)
    q, cache = normal(batch, 1, 128, 576), normal(batch, 1, length, 576)
    scores = torch.matmul(q.float(), cache.float().transpose(2, 3)) * row[1].scale
    want = torch.matmul(torch.softmax(scores, -1), cache[..., :512].float())
    del scores
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    out = torch.empty(batch, 1, 128, 512, device="cuda", dtype=torch.half)
    sums = torch.empty(batch, 1, 128, device="cuda")
    arguments: tuple[Any, ...] = (q, cache, lengths, out, sums)
    if page:
        order = torch.randperm(batch * length // page, device="cuda")
        table = order.to(torch.int32).view(batch, -1)
        pages = paged(cache, page, order).view(-1, 1, page, 576)
        arguments = (q, pages, lengths, table, out, sums)
    ms, kernel, best = best_of(backend, row, arguments, out, want)
    speed = MLA_DECODE.bytes_moved(row[1]) / ms * 1e3
    peer: dict[str, float] = {}
    if tilelang is not None and not page:
        try:
            call = tilelang_call(tilelang, q, cache, want)
            peer = beside(lambda: kernel(*arguments), call, MLA_DECODE.flops(row[1]))
        except Exception:
            traceback.print_exc(limit=-3)
    show(group="mla", shape=shape, ms=ms, gbs=speed * 1e-9, ratio_copy=speed / copied,
         tflops=MLA_DECODE.flops(row[1]) / ms * 1e-9, **peer, **best)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", default=["flash", "mla"])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tilelang", metavar="EXAMPLE.py")
    parser.add_argument("--json")
    parser.add_argument(
        "--batch", type=int, action="append", help="only rows of this batch; repeatable"
    )
    options = parser.parse_args()
    if options.compile:
        with ProcessPoolExecutor() as pool:
            for group, shape in all_rows(options.groups, options.batch):
                for number in range(len(work(group, options.backend, shape)[2])):
                    pool.submit(compile_one, group, options.backend, shape, number)
        return
    torch.manual_seed(0)
    copied = copy_bandwidth()
    print(f"copy: {copied * 1e-9:.0f} GB/s", flush=True)
    for group, shape in all_rows(options.groups, options.batch):
        try:
            {"flash": flash, "mla": mla}[group](options.backend, shape, copied, options.tilelang)
        except Exception:
            traceback.print_exc()
        torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    for row in rows:
        numbers = {k: round(v, 3) for k, v in row.items() if isinstance(v, float)}
        print(row["group"], row["shape"], numbers)


if __name__ == "__main__":
    sys.exit(main())
