"""Error of attention against float64, ours beside FlashAttention 2 on the same inputs.

    python benchmarks/attention_accuracy.py [--backend cuda_hopper] [--dims 64,128]

One line a case: the largest and the mean absolute error of both, over all rows and heads, and the
ratio of the means, which `BOUNDS` limits.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measuring import attention_in_float64
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.flash_attention import FLASH_ATTENTION

BOUNDS = {8.0: 1.2, 0.0: 1.03}
"""By the lag of the anchor (`AttentionProblem.lag`): our mean error over the peer's, at most.

With a lag, the largest weight is rounded as any other; without one, what is left is the number of
tiles and splits, since each has one exact weight: the peer splits the keys of few heads."""
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


def with_kind(
    kind: Callable[..., Tensors], problem: AttentionProblem, kernel: Callable[..., object]
) -> bool:
    """Print one case, and say whether it is within bounds."""
    p, make = problem, {"device": "cuda", "dtype": torch.float16}
    causal = p.right == 0
    q, k, v = kind(
        *(torch.randn(1, 4, n, p.dim, **make) for n in (p.q_len, p.kv_len, p.kv_len))
    )  # fmt: skip
    out = torch.full_like(q, float("nan"))
    lse = torch.empty(1, 4, p.q_len, device="cuda")
    kernel(q, k, v, out, lse)
    want = attention_in_float64(q, k, v, causal)
    ours = (out.double() - want).abs()
    line = f"lag {p.lag:g} d{p.dim} {p.q_len}x{p.kv_len} causal={causal} {kind.__name__}: ours "
    line += f"{ours.max():.3g} / {ours.mean():.4g}"
    fine = bool(torch.isfinite(ours).all())
    if causal and p.kv_len < p.q_len:
        blind = slice(0, p.q_len - p.kv_len)
        empty = bool((out[:, :, blind] == 0).all() and torch.isneginf(lse[:, :, blind]).all())
        line += f", rows without keys zero and -inf: {empty}"
        fine = fine and empty
    if not causal or p.q_len == p.kv_len:  # its mask is aligned to the top left
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            peer = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        other = (peer.double() - want).abs()
        ratio = float(ours.mean() / other.mean())
        line += f", FlashAttention 2 {other.max():.3g} / {other.mean():.4g}, ratio {ratio:.3f}"
        fine = fine and ratio <= BOUNDS[p.lag]
    print(line if fine else f"{line} OUT OF BOUNDS", flush=True)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cuda_hopper")
    parser.add_argument("--dims", default=",".join(map(str, DIMS)))
    options = parser.parse_args()
    dims = [int(dim) for dim in options.dims.split(",")]
    target = choose_target(options.backend)
    torch.manual_seed(0)
    worse = 0
    for lag, dim, (rows, columns), causal in itertools.product(
        BOUNDS, dims, LENGTHS, (False, True)
    ):  # fmt: skip
        problem = AttentionProblem(
            1, 4, rows, dim, "float16", kv_len=columns, right=0 if causal else None, has_lse=True,
            lag=lag,
        )  # fmt: skip
        config = FLASH_ATTENTION.configs(problem, target)[0]
        program = FLASH_ATTENTION.program(problem, config)
        kernel = tilecore.compile(program, backend=options.backend)
        worse += sum(not with_kind(kind, problem, kernel) for kind in KINDS)
    print(f"{worse} cases out of bounds")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
