"""Error of attention against float64, ours beside FlashAttention 2 on the same inputs.

    python benchmarks/attention_accuracy.py [--backend cuda_hopper]

One line a case: the largest and the mean absolute error of both, over all rows and heads, and
whether ours is no larger (within the last digit, as both round outputs to 16 bits).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION

SLACK = 1.05  # of the mean error: two roundings of equal width are never equal
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def normal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    """As they are."""
    return q, k, v


def large(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    """Logits of some hundreds."""
    return q * 8, k * 8, v


def outliers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    """One element in a thousand is 50 times larger."""

    def with_some(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.rand_like(x.float()) < 1e-3, x * 50, x)

    return with_some(q), with_some(k), with_some(v)


def negative(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
    """All logits are negative."""
    return q.abs(), -k.abs(), v


KINDS: tuple[Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Tensors], ...] = (
    normal, large, outliers, negative,
)  # fmt: skip
LENGTHS = ((1024, 1024), (777, 777), (1000, 1300), (130, 64))
"""Queries and keys; the last one has rows without a key where the mask is causal."""
DIMS = (64, 96, 128, 256)


def wanted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention in float64, causal masks aligned to the bottom right; zeros without keys."""
    scores = q.double() @ k.double().transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        rows, columns = q.shape[2], k.shape[2]
        diagonal = torch.arange(rows, device=q.device)[:, None] + columns - rows
        hidden = torch.arange(columns, device=q.device)[None, :] > diagonal
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0) @ v.double()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    options = parser.parse_args()
    target = choose_target(options.backend)
    torch.manual_seed(0)
    worse = 0
    for dim in DIMS:
        for rows, columns in LENGTHS:
            for causal in (False, True):
                problem = AttentionProblem(
                    1, 4, rows, dim, "float16", kv_len=columns, right=0 if causal else None,
                    has_lse=True,
                )  # fmt: skip
                config = FLASH_ATTENTION.configs(problem, target)[0]
                program = FLASH_ATTENTION.program(problem, config)
                kernel = tilecore.compile(program, backend=options.backend)
                for kind in KINDS:
                    make = {"device": "cuda", "dtype": torch.float16}
                    q, k, v = kind(
                        torch.randn(1, 4, rows, dim, **make),
                        torch.randn(1, 4, columns, dim, **make),
                        torch.randn(1, 4, columns, dim, **make),
                    )
                    out = torch.full_like(q, float("nan"))
                    lse = torch.empty(1, 4, rows, device="cuda")
                    kernel(q, k, v, out, lse)
                    want = wanted(q, k, v, causal)
                    ours = (out.double() - want).abs()
                    line = f"d{dim} {rows}x{columns} causal={causal} {kind.__name__}: ours "
                    line += f"{ours.max():.3g} / {ours.mean():.3g}"
                    if causal and columns < rows:
                        blind = slice(0, rows - columns)
                        empty = bool((out[:, :, blind] == 0).all())
                        empty = empty and bool(torch.isneginf(lse[:, :, blind]).all())
                        line += f", rows without keys zero and -inf: {empty}"
                        worse += not empty
                    if not causal or rows == columns:  # its mask is aligned to the top left
                        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
                            peer = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                        other = (peer.double() - want).abs()
                        fine = bool(ours.mean() <= SLACK * other.mean())
                        line += f", FlashAttention 2 {other.max():.3g} / {other.mean():.3g}, "
                        line += "no larger" if fine else "LARGER"
                        worse += not fine
                    worse += not bool(torch.isfinite(ours).all())
                    print(line, flush=True)
    print(f"{worse} cases worse")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
