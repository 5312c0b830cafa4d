"""Attention's backward kernels beside torch's flash and cuDNN backends and, where it is installed,
flash_attn.cute, on one GPU, in one run.

    python benchmarks/attention_backward.py --backend cuda_hopper [--json FILE]

Random normal inputs; gradients are checked against a float32 computation on some heads before they
are timed; medians, the second-level cache flushed between calls, zeroing and rounding of dQ's sums
included. TFLOP/s count five products.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import random
import statistics
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import measuring
import torch
import torch.nn.functional as F
from measuring import relative_error
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.attention_backward import ATTENTION_BACKWARD
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.backward_problem import BackwardConfig

SHAPES = [
    (8, 32, 32, 4096, 128), (8, 32, 8, 4096, 128), (8, 32, 32, 4096, 64), (1, 16, 16, 16384, 128),
]  # fmt: skip
AMPERE_CONFIGS = [  # keys owned, queries a step, queries owned, keys a step, stages, threads
    BackwardConfig(64, 32, 64, 64, 2, 128), BackwardConfig(128, 32, 128, 64, 2, 256),
]  # fmt: skip
Shape = tuple[int, int, int, int, int]


def problem_of(shape: Shape, causal: bool) -> AttentionProblem:
    """The problem of one row."""
    batch, heads, kv_heads, length, dim = shape
    return AttentionProblem(
        batch, heads, length, dim, "float16", kv_heads=kv_heads, right=0 if causal else None,
        has_lse=True,
    )  # fmt: skip


def compile_one(shape: Shape, causal: bool, config: BackwardConfig, backend: str) -> Any:
    """The kernel of one row in one configuration."""
    program = ATTENTION_BACKWARD.program(problem_of(shape, causal), config)
    return tilecore.compile(program, backend=backend)


def configs_of(problem: AttentionProblem, backend: str) -> list[BackwardConfig]:
    """What is measured: on Hopper the first choice, and the same with the additions to dQ made the
    other way."""
    if backend == "cuda_ampere":
        return AMPERE_CONFIGS
    first = ATTENTION_BACKWARD.default_config(problem, choose_target(backend))
    return [first, dataclasses.replace(first, staged=not first.staged)]


milliseconds = functools.partial(measuring.milliseconds, settle=20, measure=80)


def exact(q: Any, k: Any, v: Any, grad: Any, causal: bool) -> tuple[torch.Tensor, ...]:
    """Gradients of the first sequence's first group of heads in float32."""
    group = q.shape[1] // k.shape[1]
    a, b, c = (
        x.float().requires_grad_() for x in (q[:1, :group], k[:1, :1], v[:1, :1])
    )  # fmt: skip
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        out = F.scaled_dot_product_attention(
            a, b.expand(-1, group, -1, -1), c.expand(-1, group, -1, -1), is_causal=causal
        )
    return torch.autograd.grad(out, (a, b, c), grad[:1, :group].float())


Call = Callable[[], Any]


def sdpa_peer(one: SDPBackend, tensors: tuple[torch.Tensor, ...], causal: bool) -> Call:
    """Gradients by one of torch's backends."""
    *inputs, grad = tensors
    leaves = [x.detach().requires_grad_() for x in inputs]
    with sdpa_kernel([one]):
        out = F.scaled_dot_product_attention(
            *leaves, is_causal=causal, enable_gqa=leaves[0].shape[1] != leaves[1].shape[1]
        )
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def cute_peer(tensors: tuple[torch.Tensor, ...], causal: bool) -> Call:
    """Gradients by flash_attn.cute, which wants (batch, length, heads, dim)."""
    from flash_attn.cute import flash_attn_func

    *inputs, grad = (x.transpose(1, 2).contiguous() for x in tensors)
    leaves = [x.requires_grad_() for x in inputs]
    out = flash_attn_func(*leaves, causal=causal)
    out = out[0] if isinstance(out, tuple) else out
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


PEERS: dict[str, Callable[[tuple[torch.Tensor, ...], bool], Call]] = {
    "fa2": functools.partial(sdpa_peer, SDPBackend.FLASH_ATTENTION),
    "cudnn": functools.partial(sdpa_peer, SDPBackend.CUDNN_ATTENTION),
    "cute": cute_peer,
}


def own_calls(
    backend: str, shape: Shape, causal: bool, tensors: tuple[torch.Tensor, ...]
) -> dict[str, Call]:
    """Our kernels whose gradients are right, by configuration."""
    q, k, v, grad = tensors
    heads, kv_heads = shape[1:3]
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention(
        q, *(x.repeat_interleave(heads // kv_heads, 1) for x in (k, v)), 0.0, causal
    )[:2]
    out = out.contiguous()
    want = exact(q, k, v, grad, causal)
    grads = [torch.empty_like(x) for x in (q, k, v)]
    calls: dict[str, Call] = {}
    for config in configs_of(problem_of(shape, causal), backend):
        try:
            kernel = compile_one(shape, causal, config, backend)
            for x in grads:
                x.fill_(float("nan"))
            kernel(q, k, v, out, lse, grad, *grads)
            errors = [
                relative_error(x[:1, : w.shape[1]], w) for x, w in zip(grads, want, strict=True)
            ]
            notes = [(r.registers, r.spill_bytes, r.notes) for r in kernel.resources[1:]]
            print(f"  {config}: relative errors {errors}, {notes}", flush=True)
            if not max(errors) <= 5e-3:
                print(f"  WRONG {config}", flush=True)
                continue
            calls[str(config)] = functools.partial(kernel, q, k, v, out, lse, grad, *grads)
        except Exception as error:
            traceback.print_exc(limit=-2)
            print(f"  FAILED {config}: {error}", flush=True)
    return calls


def row(backend: str, shape: Shape, causal: bool, rounds: int) -> dict[str, Any]:
    """Measure one row: all take turns in shuffled order, medians of rounds."""
    batch, heads, kv_heads, length, dim = shape
    q, grad = (
        torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.half) for _ in range(2)
    )
    k, v = (
        torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.half) for _ in range(2)
    )
    tensors = (q, k, v, grad)
    calls = own_calls(backend, shape, causal, tensors)
    own = list(calls)
    for name, make in PEERS.items():
        try:
            calls[name] = make(tensors, causal)
        except Exception as error:
            print(f"  {name}: {str(error)[:200]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            try:
                times[name].append(milliseconds(calls[name]))
            except Exception as error:
                print(f"  {name}: {str(error)[:200]}", flush=True)
    ms = {name: statistics.median(found) for name, found in times.items() if found}
    tera = 1e-9 * ATTENTION_BACKWARD.flops(problem_of(shape, causal))
    best = min((name for name in own if name in ms), key=ms.__getitem__)
    found: dict[str, Any] = {"shape": shape, "causal": causal, "config": best}
    found |= {"tflops": {name: round(tera / one, 1) for name, one in ms.items()}}
    found |= {f"ratio_{name}": round(ms[name] / ms[best], 3) for name in PEERS if name in ms}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--compile", action="store_true", help="only fill the cache")
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, in shuffled order")
    parser.add_argument("--json")
    options = parser.parse_args()
    wanted = [(shape, causal) for shape in SHAPES for causal in (False, True)][: options.rows]
    if options.compile:
        with ProcessPoolExecutor() as pool:
            for shape, causal in wanted:
                for config in configs_of(problem_of(shape, causal), options.backend):
                    pool.submit(compile_one, shape, causal, config, options.backend)
        return
    torch.manual_seed(0)
    rows = []
    for shape, causal in wanted:
        try:
            rows.append(row(options.backend, shape, causal, options.rounds))
            print("ROW", json.dumps(rows[-1]), flush=True)
        except Exception:
            traceback.print_exc()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
