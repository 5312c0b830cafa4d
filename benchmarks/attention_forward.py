"""Attention forward beside its peers: the rows, the configurations, and how they are timed.

A first round times every right configuration shortly; a last round times the fastest two and all
peers in shuffled order, each after `SETTLE_MS` of itself alone, because the clock of a card at its
power limit follows the work of the last tenth of a second (docs/performance-log.md).
"""

from __future__ import annotations

import dataclasses
import functools
import random
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from measuring import (
    attention_in_float64,
    example_at,
    fastest,
    milliseconds,
    relative_error,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.flash_attention_fp8 import FLASH_ATTENTION_FP8

SETTLE_MS = 120
MEASURE_MS = 150
FINALISTS = 2
LAST = slice(-256, None)  # queries that are compared with float64
LIMIT = 3e-3  # of the relative error against float32: both round weights to 16 bits

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One shape: batch, heads of queries and of keys, length, head dimension."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    dim: int

    def problem(self, causal: bool, dtype: str = "float16") -> AttentionProblem:
        """The problem of `kernels/`."""
        return AttentionProblem(
            self.batch, self.heads, self.length, self.dim, dtype, kv_heads=self.kv_heads,
            right=0 if causal else None,
        )  # fmt: skip

    def tera_flop(self, causal: bool) -> float:
        """1e12 operations of both products; half of them under a causal mask."""
        pairs = self.batch * self.heads * self.length * self.length * (0.5 if causal else 1.0)
        return 4e-12 * pairs * self.dim


ROWS = (
    Row(8, 32, 32, 4096, 128), Row(1, 16, 16, 16384, 128), Row(2, 16, 16, 8192, 128),
    Row(16, 16, 16, 1024, 128), Row(1, 32, 32, 16384, 64), Row(1, 8, 8, 16384, 256),
    Row(8, 32, 8, 4096, 128),
)  # fmt: skip
# Tried besides the family's own ranking: query tile, key tile, stages, threads.
CONFIGS: dict[str, dict[int, tuple[tuple[int, int, int, int], ...]]] = {
    "cuda_hopper": {
        64: ((192, 128, 2, 384), (192, 128, 3, 384), (192, 128, 4, 384), (128, 128, 3, 256)),
        128: (
            (192, 80, 2, 384), (192, 80, 3, 384), (192, 80, 4, 384), (128, 128, 2, 256),
            (128, 176, 2, 256), (128, 64, 2, 128),
        ),
        256: ((128, 80, 2, 256), (128, 64, 2, 256)),
    },
}  # fmt: skip
ANYWHERE = ((128, 64, 1, 128), (128, 64, 2, 128), (128, 128, 2, 256))


def configs(backend: str, problem: AttentionProblem, target: Any, count: int) -> list[Any]:
    """The configurations to try, without repetition."""
    own = CONFIGS.get(backend, {}).get(problem.dim, ANYWHERE)
    ranked = list(FLASH_ATTENTION.configs(problem, target))[:count]
    return list(dict.fromkeys([*(AttentionConfig(*one) for one in own), *ranked]))


def compiled(
    backend: str, arch: str | None, row: Row, causal: bool, count: int
) -> list[tuple[Any, Any]]:
    """(configuration, kernel) of all that compile; prints what they need, and what failed."""
    problem, found = row.problem(causal), []
    for config in configs(backend, problem, choose_target(backend, arch), count):
        try:
            program = FLASH_ATTENTION.program(problem, config)
            kernel = tilecore.compile(program, backend=backend, arch=arch)
        except Exception as error:
            print(f"  FAILED {config}: {error}", flush=True)
            continue
        (used,) = kernel.resources
        print(f"  {config}: {used.registers} registers, {used.spill_bytes} spill bytes, "
              f"{used.smem_bytes} shared bytes, remarks {used.notes}", flush=True)  # fmt: skip
        found.append((config, kernel))
    return found


def inputs(row: Row) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normal queries, keys and values, (batch, heads, length, dim), float16."""
    make = {"device": "cuda", "dtype": torch.float16}
    q = torch.randn(row.batch, row.heads, row.length, row.dim, **make)
    k, v = (torch.randn(row.batch, row.kv_heads, row.length, row.dim, **make) for _ in range(2))
    return q, k, v


# --- peers ---------------------------------------------------------------------------------------


def torch_peer(which: SDPBackend) -> Callable[..., Call]:
    """torch's attention, kept to one of its backends."""

    def make(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel([which]):
                shared = q.shape[1] != k.shape[1]
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

        return call

    return make


def cute_peer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Call:
    """flash_attn.cute, which wants (batch, length, heads, dim)."""
    from flash_attn.cute import flash_attn_func

    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))

    def call() -> torch.Tensor:
        out = flash_attn_func(q, k, v, causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return call


TILELANG_TILES = ((128, 128, 2, 256), (128, 176, 2, 256), (128, 64, 2, 128), (192, 128, 2, 384))
"""block_M, block_N, stages, threads: the best of these is TileLang's figure."""


def tilelang_peer(path: str) -> Callable[..., Call]:
    """The attention program of TileLang's examples at `path`: ``flashattn(batch, heads, seq_q,
    seq_kv, dim, is_causal, block_M=, block_N=, num_stages=, threads=)`` over (b, h, s, d)."""

    def make(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Call:
        module = example_at(path)
        batch, heads, length, dim = q.shape
        if k.shape[1] != heads:
            k, v = (x.repeat_interleave(heads // k.shape[1], 1) for x in (k, v))

        def with_tiles(m: int, n: int, stages: int, threads: int) -> Call:
            kernel = module.flashattn(
                batch, heads, length, length, dim, causal, block_M=m, block_N=n,
                num_stages=stages, threads=threads,
            )  # fmt: skip
            return functools.partial(kernel, q, k, v)

        candidates = (
            (f"tilelang {m}x{n}", functools.partial(with_tiles, m, n, stages, threads))
            for m, n, stages, threads in TILELANG_TILES
        )
        return fastest(candidates, settle=20, measure=40)

    return make


def peers(tilelang: str | None) -> dict[str, Callable[..., Call]]:
    """The peers that can be had here, by name."""
    found: dict[str, Callable[..., Call]] = {
        "fa2": torch_peer(SDPBackend.FLASH_ATTENTION),
        "cudnn": torch_peer(SDPBackend.CUDNN_ATTENTION),
    }
    try:
        import flash_attn.cute  # noqa: F401

        found["cute"] = cute_peer
    except Exception as error:
        print(f"flash_attn.cute is not here: {str(error)[:200]}", flush=True)
    if tilelang is not None:
        found["tilelang"] = tilelang_peer(tilelang)
    return found


# --- 8-bit floats --------------------------------------------------------------------------------

FP8_ROWS = (Row(1, 16, 16, 16384, 128), Row(1, 8, 8, 16384, 256))
FP8_CONFIGS = {
    128: ((192, 96, 3, 384), (128, 192, 2, 256), (128, 160, 2, 256)),
    256: ((128, 128, 2, 256), (128, 96, 2, 256)),
}


def in_8_bits(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(x in float8_e4m3fn, one float32 scale a head)."""
    scale = x.float().abs().amax(dim=(2, 3)) / 448.0
    return (x.float() / scale[:, :, None, None]).to(torch.float8_e4m3fn), scale


def fp8_result(backend: str, arch: str | None, row: Row, causal: bool) -> dict[str, Any]:
    """The fastest 8-bit configuration of a row, and its error beside that of float16."""
    q, k, v = inputs(row)
    eight = [in_8_bits(x) for x in (q, k, v)]
    arguments = (*(x for x, _ in eight), *(scale for _, scale in eight))
    out = torch.empty_like(q)
    want = None if causal else attention_in_float64(q[:, :, LAST], k, v, causal)
    sixteen = torch_peer(SDPBackend.CUDNN_ATTENTION)(q, k, v, causal)()
    best: dict[str, Any] = {}
    for tiles in FP8_CONFIGS[row.dim]:
        problem = row.problem(causal, "float8_e4m3fn")
        config = AttentionConfig(*tiles)
        try:
            program = FLASH_ATTENTION_FP8.program(problem, config)
            kernel = tilecore.compile(program, backend=backend, arch=arch)
            kernel(*arguments, out)
            error = relative_error(out, sixteen)
            ms = milliseconds(lambda kernel=kernel: kernel(*arguments, out), SETTLE_MS, MEASURE_MS)
        except Exception:
            traceback.print_exc(limit=-2)
            continue
        used = kernel.resources[-1]
        speed = row.tera_flop(causal) / ms * 1e3
        print(f"  fp8 {config}: {speed:.0f} TFLOP/s, error {error:.3g}, {used}", flush=True)
        if error <= 0.1 and speed > best.get("tflops", 0.0):
            best = {"tflops": speed, "config": str(config), "error_to_fp16": error}
            if want is not None:
                best["error_fp8"] = relative_error(out[:, :, LAST], want)
                best["error_fp16"] = relative_error(sixteen[:, :, LAST], want)
    shape = list(dataclasses.astuple(row))
    return {"group": "attention_fp8", "shape": shape, "causal": causal, **best}


# --- a row of the table -------------------------------------------------------------------------

FASTER_LAG = 8.0
"""The lag of the anchor that is timed beside the default: faster, with a larger error."""
ERROR_HEADS = 4  # whose last queries are compared with float64


def with_lag(
    backend: str, arch: str | None, row: Row, causal: bool, config: AttentionConfig, lag: float
) -> Any:
    """The kernel of one configuration whose anchor may lag."""
    problem = dataclasses.replace(row.problem(causal), lag=lag)
    program = FLASH_ATTENTION.program(problem, config)
    return tilecore.compile(program, backend=backend, arch=arch)


def mean_errors(
    calls: dict[str, Call], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    out: torch.Tensor, causal: bool,
) -> dict[str, float]:  # fmt: skip
    """Mean absolute error of the last queries of the first `ERROR_HEADS` heads against float64, of
    calls that return their result, or write it to `out`."""
    shared = k.shape[1] * ERROR_HEADS // q.shape[1] or 1
    k, v = (x[:1, :shared].repeat_interleave(ERROR_HEADS // shared, 1) for x in (k, v))
    want = attention_in_float64(q[:1, :ERROR_HEADS, LAST], k, v, causal)
    errors: dict[str, float] = {}
    for name, call in calls.items():
        result = call()
        got = out if result is None else result
        errors[name] = float((got[:1, :ERROR_HEADS, LAST].double() - want).abs().mean())
    return errors


def peer_calls(
    others: dict[str, Callable[..., Call]], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    causal: bool, want: torch.Tensor,
) -> dict[str, Call]:  # fmt: skip
    """Calls of the peers that run, by name; results that are not `want` are told."""
    calls: dict[str, Call] = {}
    for name, make in others.items():
        try:
            call = make(q, k, v, causal)
            error = relative_error(call(), want)
        except Exception as problem:
            print(f"  peer {name}: {str(problem)[:300]}", flush=True)
            continue
        if not error <= LIMIT:
            print(f"  peer {name}: relative error {error:.3g}", flush=True)
        calls[name] = call
    return calls


def row_result(
    backend: str, arch: str | None, row: Row, causal: bool, count: int, others: dict[str, Any]
) -> dict[str, Any]:
    """One row of the table: ours and the peers', in TFLOP/s, with ratios."""
    q, k, v = inputs(row)
    out = torch.empty_like(q)
    want = torch_peer(SDPBackend.FLASH_ATTENTION)(q, k, v, causal)()
    timed: list[tuple[float, Any, Any, float]] = []
    for config, kernel in compiled(backend, arch, row, causal, count):
        try:
            out.fill_(float("nan"))
            kernel(q, k, v, out)
            error = relative_error(out, want)
            if not error <= LIMIT:
                print(f"  WRONG {config}: relative error {error:.3g}", flush=True)
                continue
            ms = milliseconds(lambda kernel=kernel: kernel(q, k, v, out), 40, 60)
        except Exception:
            traceback.print_exc(limit=-2)
            continue
        print(f"  {config}: {row.tera_flop(causal) / ms * 1e3:.0f} TFLOP/s", flush=True)
        timed.append((ms, config, kernel, error))
    timed.sort(key=lambda one: one[0])
    calls: dict[str, Call] = {}
    for place, (_, config, kernel, _) in enumerate(timed[:FINALISTS]):
        calls[f"own{place}"] = lambda kernel=kernel: kernel(q, k, v, out)
        faster = with_lag(backend, arch, row, causal, config, FASTER_LAG)
        calls[f"lag{place}"] = lambda kernel=faster: kernel(q, k, v, out)
    calls |= peer_calls(others, q, k, v, causal, want)
    names = list(calls)
    random.Random(0).shuffle(names)
    settled = {name: milliseconds(calls[name], SETTLE_MS, MEASURE_MS) for name in names}
    best, lagging = (
        min((name for name in names if name.startswith(own)), key=lambda name: settled[name])
        for own in ("own", "lag")
    )
    _, config, kernel, error = timed[int(best.removeprefix("own"))]
    tera = row.tera_flop(causal) * 1e3
    speeds = {name: tera / settled[name] for name in names if not name.startswith(("own", "lag"))}
    compared = {name: calls[name] for name in (best, lagging, *speeds)}
    errors = mean_errors(compared, q, k, v, out, causal)
    return {
        "group": "attention", "shape": list(dataclasses.astuple(row)), "causal": causal,
        "tflops": tera / settled[best], "config": str(config), "error": error,
        "lag_tflops": tera / settled[lagging], "resources": str(kernel.resources[0]),
        **{f"{name}_tflops": speed for name, speed in speeds.items()},
        **{f"ratio_{name}": settled[name] / settled[best] for name in speeds},
        "ratio_best": min(settled[name] for name in speeds) / settled[best],
        "lag_ratio_best": min(settled[name] for name in speeds) / settled[lagging],
        **{
            f"{label}_error_to_fa2": errors[name] / errors["fa2"]
            for label, name in (("own", best), ("lag", lagging), *((n, n) for n in speeds))
            if "fa2" in errors
        },
    }  # fmt: skip
