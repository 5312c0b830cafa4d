"""Variants of attention forward beside the peers that can do them: windows, soft caps, other score
functions, sinks, other head dimensions, log-sum-exps, (batch, length, heads, dim), packed
sequences, pages.

    python benchmarks/attention_variants.py [--backend cuda_hopper] [--only window,pages] [--flex]

Every result is compared with torch's in float32 on the first two heads (of the first sequence);
times are medians at steady power, in one process. A peer that is not installed, or refuses a
variant, is named with the reason. With ``--compile`` the kernels are only compiled into the cache,
by many processes; with ``--flex`` torch's flex attention, which takes some seconds to compile a
variant, is a peer where no other part of torch can do it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from attention_forward import torch_peer
from measuring import milliseconds, relative_error
from torch.nn.attention import SDPBackend

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.attention_problem import AttentionProblem, with_heads_inside
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.flash_varlen import FLASH_VARLEN
from tilecore_kernels.score_mods import Alibi, Softcap
from tilecore_kernels.varlen_problem import VarlenProblem

SETTLE_MS, MEASURE_MS = 80, 80
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


def compiled(problem: AttentionProblem | VarlenProblem, backend: str) -> tuple[Any, str]:
    """The kernel of a problem's first configuration, and what it is."""
    family = FLASH_ATTENTION if isinstance(problem, AttentionProblem) else FLASH_VARLEN
    config = family.configs(problem, choose_target(backend))[0]
    kernel = tilecore.compile(family.program(problem, config), backend=backend)
    return kernel, f"{config}, {kernel.resources[0].spill_bytes} bytes spilled"


def compiled_note(problem: AttentionProblem | VarlenProblem, backend: str) -> str:
    """`compiled`, without the kernel, which stays in its process."""
    return compiled(problem, backend)[1]


def tensor(p: AttentionProblem, name: str) -> torch.Tensor:
    """Normal elements, stored as the problem says; (batch, heads, length, dim)."""
    shape = p.shapes()[name]
    if p.strides is None:
        return torch.randn(shape, device="cuda", dtype=torch.float16)
    batch, heads, length, dim = shape  # the only other order here is (batch, length, heads, dim)
    inside = torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.float16)
    return inside.transpose(1, 2)


def dense(problem: AttentionProblem, backend: str, flex: bool) -> Case:
    """A variant over (batch, heads, length, dim) tensors, float16."""
    p = problem
    q, k, v, out = (tensor(p, name) for name in ("Q", "K", "V", "Out"))
    sinks = torch.randn(p.heads, device="cuda") if p.has_sinks else None
    lse = torch.empty(p.batch, p.heads, p.q_len, device="cuda") if p.has_lse else None
    kernel, note = compiled(p, backend)
    rest = (sinks, out, lse)
    arguments = (q, k, v, *(one for one in rest if one is not None))

    def check() -> float:
        out.fill_(float("nan"))
        kernel(*arguments)
        return relative_error(out[:1, :2], wanted(p, q[:1, :2], k[:1, :2], v[:1, :2], sinks))

    peers = torch_peers(p, q, k, v) | cute_peers(p, q, k, v, sinks)
    if flex and sinks is None and (p.score_mod is not None or p.left is not None):
        peers["flex"] = flex_peer(p, q, k, v)
    return Case(lambda: kernel(*arguments), check, peers, FLASH_ATTENTION.flops(p) * 1e-12, note)


def wanted(
    p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    sinks: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """Attention in float32, score matrix and all; as many heads of keys as of queries."""
    scores = q.float() @ k.float().transpose(2, 3) * p.scale
    if p.score_mod is not None:
        at = torch.meshgrid(
            *(torch.arange(n, device=q.device) for n in scores.shape[1:]), indexing="ij"
        )
        scores = torch_score(p)(scores, *at)
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


def torch_score(p: AttentionProblem) -> Callable[..., torch.Tensor]:
    """The score function of a problem on torch's tensors: (score, head, query, key)."""
    if isinstance(p.score_mod, Softcap):
        return lambda score, head, query, key: CAP * torch.tanh(score / CAP)
    heads = p.heads
    return lambda score, head, query, key: (
        score - torch.exp2((head + 1) * (-8.0 / heads)) * (query - key).abs()
    )


def torch_peers(p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Peers:
    """torch's attention, where its masks suffice."""
    if p.left is not None or p.score_mod is not None or p.has_sinks:
        return {}

    backends = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return {name: torch_peer(one)(q, k, v, p.right == 0) for name, one in backends.items()}


def flex_peer(p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call:
    """torch's flex attention with the mask and the score function of a causal problem."""

    @functools.cache
    def ready() -> Call:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        shift, left = p.kv_len - p.q_len, p.kv_len if p.left is None else p.left

        def visible(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return (key <= query + shift) & (key >= query + shift - left)

        def score(value: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
            return torch_score(p)(value, head, query, key)

        blocks = create_block_mask(visible, None, None, p.q_len, p.kv_len, device="cuda")
        options = {"block_mask": blocks, "score_mod": score if p.score_mod else None}
        return functools.partial(torch.compile(flex_attention), q, k, v, **options)

    return lambda: ready()()


def cute_peers(
    p: AttentionProblem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    sinks: torch.Tensor | None,
) -> Peers:  # fmt: skip
    """flash_attn.cute, on (batch, length, heads, dim)."""
    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    options: dict[str, Any] = {"causal": p.right == 0}
    if p.left is not None:
        options = {"window_size": (p.left, p.right)}
    if isinstance(p.score_mod, Softcap):
        options["softcap"] = CAP
    elif p.score_mod is not None:
        return {}
    if sinks is not None:
        options["learnable_sink"] = sinks.bfloat16()
    if p.has_lse:
        options["return_lse"] = True

    def call() -> Any:
        from flash_attn.cute import flash_attn_func

        return flash_attn_func(q, k, v, **options)

    return {"cute": call}


def packed(problem: VarlenProblem, backend: str, flex: bool) -> Case:
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
    kernel, note = compiled(p, backend)
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

        options: dict[str, Any] = {"cu_seqlens_k": starts[1], "max_seqlen_k": longest[1]}
        if p.page_size:
            options = {"page_table": table, "seqused_k": starts[1].diff().int()}
        return flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=starts[0], max_seqlen_q=longest[0], causal=p.right == 0, **options
        )

    def torch_varlen() -> Any:
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, 0 if p.right == 0 else -1)
        return varlen_attn(q, wide_k, wide_v, starts[0], starts[1], *longest, window_size=window)

    peers: Peers = {"cute": cute}
    if not p.page_size:
        wide_k, wide_v = (x.repeat_interleave(p.heads // p.kv_heads, 1) for x in (k, v))
        peers["fa2"] = torch_varlen
    return Case(lambda: kernel(*arguments), check, peers, FLASH_VARLEN.flops(p) * 1e-12, note)


LENGTHS = tuple((n, n) for n in (8192, 300, 4096, 1025, 2048, 700, 6000, 64))
FP16 = "float16"
CASES: dict[str, AttentionProblem | VarlenProblem] = {
    "window": AttentionProblem(2, 16, 8192, 128, FP16, left=1023, right=0),
    "softcap": AttentionProblem(2, 16, 8192, 128, FP16, right=0, score_mod=Softcap(CAP)),
    "alibi": AttentionProblem(2, 16, 8192, 128, FP16, right=0, score_mod=Alibi(16)),
    "lse": AttentionProblem(2, 16, 8192, 128, FP16, right=0, has_lse=True),
    "bshd": with_heads_inside(AttentionProblem(2, 16, 8192, 128, FP16, right=0)),
    "sinks": AttentionProblem(2, 16, 8192, 128, FP16, right=0, has_sinks=True),
    "d80": AttentionProblem(4, 16, 8192, 80, FP16),
    "d96": AttentionProblem(4, 16, 8192, 96, FP16, right=0),
    "d192_128": AttentionProblem(2, 16, 8192, 192, FP16, dim_v=128, right=0),
    "d192": AttentionProblem(2, 16, 8192, 192, FP16),
    "varlen": VarlenProblem(16, 128, 8192, FP16, kv_heads=4, right=0, lengths=LENGTHS),
    "pages": VarlenProblem(
        16, 128, 8192, FP16, kv_heads=4, right=0, page_size=128, max_pages=64, lengths=LENGTHS
    ),
}


def measure(name: str, backend: str, flex: bool) -> None:
    """Print one line: TFLOP/s of ours and of each peer, and the ratio to the best."""
    problem = CASES[name]
    case = (dense if isinstance(problem, AttentionProblem) else packed)(problem, backend, flex)
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
    parser.add_argument("--compile", action="store_true", help="only fill the cache")
    parser.add_argument("--flex", action="store_true", help="torch's flex attention as a peer")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else list(CASES)
    if options.compile:
        with ProcessPoolExecutor() as pool:
            notes = [pool.submit(compiled_note, CASES[name], options.backend) for name in chosen]
            for name, note in zip(chosen, notes, strict=True):
                print(f"{name}: {note.result()}", flush=True)
        return 0
    torch.manual_seed(0)
    failed = 0
    for name in chosen:
        try:
            measure(name, options.backend, options.flex)
        except Exception:
            traceback.print_exc(limit=-3)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
