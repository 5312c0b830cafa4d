"""Variants of attention forward beside the peers that can do them: windows, soft caps, sinks, other
head dimensions, packed sequences, pages.

    python benchmarks/attention_variants.py [--backend cuda_hopper] [--only window,pages]

Every result is compared with torch's in float32 on the first two heads (of the first sequence);
times are medians at steady power, in one process. A peer that is not installed, or refuses a
variant, is named with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from attention_forward import MEASURE_MS, SETTLE_MS, torch_peer
from measuring import milliseconds, relative_error
from torch.nn.attention import SDPBackend

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.flash_varlen import FLASH_VARLEN
from tilecore_kernels.score_mods import Softcap
from tilecore_kernels.varlen_problem import VarlenProblem

LIMIT = 5e-3
CAP = 30.0
Call = Callable[[], Any]
Peers = dict[str, Call]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One variant: what is timed, on what the result is checked, and its work."""

    ours: Call
    check: Callable[[], float]
    peers: Peers
    tera_flop: float
    note: str


def dense(problem: AttentionProblem, backend: str) -> Case:
    """A variant over (batch, heads, length, dim) tensors, float16."""
    p = problem
    make = {"device": "cuda", "dtype": torch.float16}
    q = torch.randn(p.batch, p.heads, p.q_len, p.dim, **make)
    k = torch.randn(p.batch, p.kv_heads, p.kv_len, p.dim, **make)
    v = torch.randn(p.batch, p.kv_heads, p.kv_len, p.dim_v, **make)
    sinks = torch.randn(p.heads, device="cuda") if p.has_sinks else None
    out = torch.empty(p.batch, p.heads, p.q_len, p.dim_v, **make)
    config = FLASH_ATTENTION.configs(p, choose_target(backend))[0]
    kernel = tilecore.compile(FLASH_ATTENTION.program(p, config), backend=backend)
    arguments = (q, k, v, *(() if sinks is None else (sinks,)), out)

    def check() -> float:
        out.fill_(float("nan"))
        kernel(*arguments)
        return relative_error(out[:1, :2], wanted(p, q[:1, :2], k[:1, :2], v[:1, :2], sinks))

    peers = torch_peers(p, q, k, v) | cute_peers(p, q, k, v, sinks)
    note = f"{config}, {kernel.resources[0].spill_bytes} bytes spilled"
    return Case(lambda: kernel(*arguments), check, peers, FLASH_ATTENTION.flops(p) * 1e-12, note)


def wanted(
    p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """Attention in float32, score matrix and all; as many heads of keys as of queries."""
    scores = q.float() @ k.float().transpose(2, 3) * p.scale
    if isinstance(p.score_mod, Softcap):
        scores = CAP * torch.tanh(scores / CAP)
    rows = torch.arange(p.q_len, device=q.device)[:, None] + p.kv_len - p.q_len
    keys = torch.arange(p.kv_len, device=q.device)[None, :]
    if p.right is not None:
        scores = scores.masked_fill(keys > rows + p.right, float("-inf"))
    if p.left is not None:
        scores = scores.masked_fill(keys < rows - p.left, float("-inf"))
    if sinks is None:
        return torch.softmax(scores, -1) @ v.float()
    column = sinks[None, : q.shape[1], None, None].expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1] @ v.float()


def torch_peers(p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Peers:
    """torch's attention, where its masks suffice."""
    if p.left is not None or p.score_mod is not None or p.has_sinks:
        return {}

    backends = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return {name: torch_peer(one)(q, k, v, p.right == 0) for name, one in backends.items()}


def cute_peers(
    p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    sinks: torch.Tensor | None,
) -> Peers:  # fmt: skip
    """flash_attn.cute, on (batch, length, heads, dim)."""
    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    options: dict[str, Any] = {"causal": p.right == 0}
    if p.left is not None:
        options = {"window_size": (p.left, p.right)}
    if p.score_mod is not None:
        options["softcap"] = CAP
    if sinks is not None:
        options["learnable_sink"] = sinks.bfloat16()

    def call() -> Any:
        from flash_attn.cute import flash_attn_func

        return flash_attn_func(q, k, v, **options)

    return {"cute": call}


def packed(problem: VarlenProblem, backend: str) -> Case:
    """Sequences of unequal lengths, packed or with keys in pages."""
    p = problem
    make = {"device": "cuda", "dtype": torch.float16}
    starts = torch.zeros(2, len(p.lengths) + 1, device="cuda", dtype=torch.int32)
    starts[:, 1:] = torch.tensor(p.lengths, device="cuda").T.cumsum(1)
    total_q, total_k = (int(end) for end in starts[:, -1])
    pages = len(p.lengths) * p.max_pages
    where = (pages, p.page_size) if p.page_size else (total_k,)
    q = torch.randn(total_q, p.heads, p.dim, **make)
    k, v = (torch.randn(*where, p.kv_heads, p.dim, **make) for _ in range(2))
    table = torch.randperm(pages, device="cuda").int().view(len(p.lengths), -1)
    out, lse = torch.empty_like(q), torch.empty(p.heads, total_q, device="cuda")
    config = FLASH_VARLEN.configs(p, choose_target(backend))[0]
    kernel = tilecore.compile(FLASH_VARLEN.program(p, config), backend=backend)
    arguments = (q, k, v, starts[0].clone(), starts[1].clone())
    arguments += ((table,) if p.page_size else ()) + (out, lse)

    def check() -> float:
        out.fill_(float("nan"))
        kernel(*arguments)
        queries, keys = p.lengths[0]
        ours = (x[table[0]].flatten(0, 1) if p.page_size else x for x in (k, v))
        one = (x[:keys, :1].transpose(0, 1)[None] for x in ours)
        first = q[:queries, :1].transpose(0, 1)[None]
        want = wanted(p.one(queries, keys), first, *one, None)
        return relative_error(out[:queries, :1].transpose(0, 1)[None], want)

    longest = [max(pair[side] for pair in p.lengths) for side in (0, 1)]

    def cute() -> Any:
        from flash_attn.cute import flash_attn_varlen_func

        options: dict[str, Any] = {"cu_seqlens_k": starts[1]}
        if p.page_size:
            options = {"page_table": table, "seqused_k": starts[1].diff().int()}
        return flash_attn_varlen_func(q, k, v, starts[0], causal=p.right == 0, **options)

    def torch_varlen() -> Any:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(
            q, wide_k, wide_v, starts[0], starts[1], *longest, is_causal=p.right == 0
        )

    peers: Peers = {"cute": cute}
    if not p.page_size:
        wide_k, wide_v = (x.repeat_interleave(p.heads // p.kv_heads, 1) for x in (k, v))
        peers["fa2"] = torch_varlen
    note = f"{config}, {kernel.resources[0].spill_bytes} bytes spilled"
    return Case(lambda: kernel(*arguments), check, peers, FLASH_VARLEN.flops(p) * 1e-12, note)


LENGTHS = tuple((n, n) for n in (8192, 300, 4096, 1025, 2048, 700, 6000, 64))
FP16 = "float16"
CASES: dict[str, AttentionProblem | VarlenProblem] = {
    "window": AttentionProblem(2, 16, 8192, 128, FP16, left=1023, right=0),
    "softcap": AttentionProblem(2, 16, 8192, 128, FP16, right=0, score_mod=Softcap(CAP)),
    "sinks": AttentionProblem(2, 16, 8192, 128, FP16, right=0, has_sinks=True),
    "d80": AttentionProblem(4, 16, 8192, 80, FP16),
    "d96": AttentionProblem(4, 16, 8192, 96, FP16, right=0),
    "d192_128": AttentionProblem(2, 16, 8192, 192, FP16, dim_v=128, right=0),
    "varlen": VarlenProblem(16, 128, 8192, FP16, kv_heads=4, right=0, lengths=LENGTHS),
    "pages": VarlenProblem(
        16, 128, 8192, FP16, kv_heads=4, right=0, page_size=128, max_pages=64, lengths=LENGTHS
    ),
}


def measure(name: str, backend: str) -> None:
    """Print one line: TFLOP/s of ours and of each peer, and the ratio to the best."""
    problem = CASES[name]
    case = (dense if isinstance(problem, AttentionProblem) else packed)(problem, backend)
    error = case.check()
    if not error <= LIMIT:
        print(f"{name}: WRONG, relative error {error:.3g}", flush=True)
        return
    speeds: dict[str, float] = {}
    for peer, call in ({"ours": case.ours} | case.peers).items():
        try:
            call()
            speeds[peer] = case.tera_flop / milliseconds(call, SETTLE_MS, MEASURE_MS) * 1e3
        except Exception as reason:
            print(f"  {name}, {peer}: {str(reason).strip()[:200]}", flush=True)
    ours = speeds.pop("ours")
    ratio = f"{ours / max(speeds.values()):.3f} of the best peer" if speeds else "no peer"
    others = ", ".join(f"{peer} {speed:.0f}" for peer, speed in speeds.items())
    print(f"{name}: {ours:.0f} TFLOP/s ({case.note}), error {error:.2g}; {others}; {ratio}",
          flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    options = parser.parse_args()
    torch.manual_seed(0)
    failed = 0
    for name in options.only.split(",") if options.only else CASES:
        try:
            measure(name, options.backend)
        except Exception:
            traceback.print_exc(limit=-3)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
