"""Attention's backward kernels beside torch's flash and cuDNN backends, on one GPU, in one run.

    python benchmarks/attention_backward.py --backend cuda_hopper [--json FILE]

Random normal inputs; gradients are checked against a float32 computation on some heads before they
are timed; medians, the second-level cache flushed between calls. TFLOP/s count five products.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import measuring
import torch
import torch.nn.functional as F
from measuring import relative_error
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilecore
from tilecore_kernels.attention_backward import ATTENTION_BACKWARD
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.backward_problem import BackwardConfig

SHAPES = [(8, 32, 32, 4096, 128), (8, 32, 8, 4096, 128), (1, 16, 16, 16384, 128)]
CONFIGS = {  # keys owned, queries a step, queries owned, keys a step, stages, threads
    "cuda_hopper": [
        BackwardConfig(128, 48, 128, 64, 2, 256), BackwardConfig(128, 48, 128, 96, 2, 256),
        BackwardConfig(128, 32, 128, 128, 2, 256),
    ],
    "cuda_ampere": [
        BackwardConfig(64, 32, 64, 64, 2, 128), BackwardConfig(128, 32, 128, 64, 2, 256),
    ],
}  # fmt: skip
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


def row(backend: str, shape: Shape, causal: bool) -> dict[str, Any]:
    """Measure one row."""
    batch, heads, kv_heads, length, dim = shape
    q, grad = (
        torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.half) for _ in range(2)
    )
    k, v = (
        torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.half) for _ in range(2)
    )
    found: dict[str, Any] = {"shape": shape, "causal": causal}
    tera = 1e-9 * ATTENTION_BACKWARD.flops(problem_of(shape, causal))
    for name, one in (
        ("fa2", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION),
    ):  # fmt: skip
        try:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            with sdpa_kernel([one]):
                out = F.scaled_dot_product_attention(
                    *leaves, is_causal=causal, enable_gqa=heads != kv_heads
                )
            ms = milliseconds(
                lambda out=out, leaves=leaves: torch.autograd.grad(
                    out, leaves, grad, retain_graph=True
                )
            )
            found |= {f"{name}_ms": ms, f"{name}_tflops": tera / ms}
        except Exception as error:
            print(f"  {name}: {error}", flush=True)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention(
        q, *(x.repeat_interleave(heads // kv_heads, 1) for x in (k, v)), 0.0, causal
    )[:2]
    out = out.contiguous()
    want = exact(q, k, v, grad, causal)
    grads = [torch.empty_like(x) for x in (q, k, v)]
    best = float("inf")
    for config in CONFIGS[backend]:
        try:
            kernel = compile_one(shape, causal, config, backend)
            for x in grads:
                x.fill_(float("nan"))
            kernel(q, k, v, out, lse, grad, *grads)
            errors = [
                relative_error(x[:1, : w.shape[1]], w) for x, w in zip(grads, want, strict=True)
            ]
            notes = [(r.registers, r.spill_bytes, r.notes) for r in kernel.resources[1:]]
            if not max(errors) <= 5e-3:
                print(f"  WRONG {config}: relative errors {errors}", flush=True)
                continue
            ms = milliseconds(lambda kernel=kernel: kernel(q, k, v, out, lse, grad, *grads))
            print(
                f"  {config}: {ms:.3f} ms, {tera / ms:.0f} TFLOP/s, {errors}, {notes}", flush=True
            )
            if ms < best:
                best = ms
                found |= {"ms": ms, "tflops": tera / ms, "config": str(config), "errors": errors}
        except Exception as error:
            traceback.print_exc(limit=-2)
            print(f"  FAILED {config}: {error}", flush=True)
    for name in ("fa2", "cudnn"):
        if f"{name}_ms" in found:
            found[f"ratio_{name}"] = found[f"{name}_ms"] / best
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--compile", action="store_true", help="only fill the cache")
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--json")
    options = parser.parse_args()
    wanted = [(shape, causal) for shape in SHAPES for causal in (False, True)][: options.rows]
    if options.compile:
        with ProcessPoolExecutor() as pool:
            for shape, causal in wanted:
                for config in CONFIGS[options.backend]:
                    pool.submit(compile_one, shape, causal, config, options.backend)
        return
    torch.manual_seed(0)
    rows = []
    for shape, causal in wanted:
        try:
            rows.append(row(options.backend, shape, causal))
            print("ROW", json.dumps(rows[-1]), flush=True)
        except Exception:
            traceback.print_exc()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
