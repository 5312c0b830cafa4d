"""Latent decoding by hand: its launches, and its checks against float32."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import device
import torch
from build import Variant
from measuring import relative_error

HEADS, DIM, WIDE, KEYS, SLOTS = 128, 576, 512, 48, 3
SCALE = 192**-0.5


def launcher(variant: Variant, cubin: bytes, q, cache, lengths, out, lse) -> Callable[[], None]:
    """Bind one variant to q [B,128,576], cache [B,S,576], lengths [B], out [B,128,512], lse."""
    batch, capacity, _ = cache.shape
    in_memory = DIM // 64 - variant.define("HELD", 4)
    shared = SLOTS * KEYS * DIM * 2 + (in_memory + 2) * 8192 + 1024 + 112
    kernel = device.Kernel(cubin, "latent_decode", 512, shared)
    q_map = device.tensor_map(q, [DIM, HEADS, batch], [DIM, HEADS * DIM], [64, 64, 1])
    sizes, strides = [DIM, capacity, batch], [DIM, capacity * DIM]
    cache_map = device.tensor_map(cache, sizes, strides, [64, KEYS // 2, 1])
    scale = ctypes.c_float(SCALE * math.log2(math.e))
    arguments = [q_map, cache_map, lengths, out, lse, ctypes.c_int(capacity), scale]
    return kernel.bind(2 * batch, arguments)


def tensors(batch: int, capacity: int):
    """Random queries and cache, full lengths, and both outputs full of nan."""
    q = torch.randn(batch, HEADS, DIM, device="cuda", dtype=torch.half)
    cache = torch.empty(batch, capacity, DIM, device="cuda", dtype=torch.half).normal_()
    lengths = torch.full((batch,), capacity, device="cuda", dtype=torch.int32)
    out = torch.full((batch, HEADS, WIDE), float("nan"), device="cuda", dtype=torch.half)
    lse = torch.full((batch, HEADS), float("nan"), device="cuda")
    return q, cache, lengths, out, lse


def error_of(q, cache, lengths, out, lse, rows: int) -> float:
    """The larger relative error of both outputs, of the first sequences."""
    worst = 0.0
    for b in range(rows):
        keys = cache[b, : int(lengths[b])].float()
        scores = q[b].float() @ keys.T * SCALE
        want, sums = torch.softmax(scores, -1) @ keys[:, :WIDE], torch.logsumexp(scores, -1)
        for got, right in ((out[b], want), (lse[b], sums)):
            worst = max(worst, relative_error(got, right))
    return worst


def check_ragged(chosen: list[Variant], cubins: dict[str, bytes]) -> None:
    """Lengths that fill no tile, one key, and a sequence without keys (zeros and -inf)."""
    for variant in chosen:
        if variant.name not in cubins:
            continue
        q, cache, lengths, out, lse = tensors(6, 500)
        lengths.copy_(torch.tensor([500, 48, 97, 1, 143, 0]))
        launcher(variant, cubins[variant.name], q, cache, lengths, out, lse)()
        torch.cuda.synchronize()
        error = error_of(q, cache, lengths, out, lse, 5)
        empty = bool((out[5] == 0).all()) and bool((lse[5] == -math.inf).all())
        verdict = "ok" if error < 1e-3 and empty else "WRONG"
        print(f"check {variant.name} ragged: {error:.2e}, empty {empty} {verdict}", flush=True)


def candidates(
    chosen: list[Variant], cubins: dict[str, bytes], batch: int, capacity: int
) -> tuple[dict[str, Callable[[], None]], float]:
    """The right variants and the generated kernel, and the FLOP of a call."""
    import tilecore
    from tilecore.language import GemmWarpPolicy
    from tilecore_kernels.decode_problem import DecodeConfig
    from tilecore_kernels.mla_decode import MLA_DECODE, latent_problem

    q, cache, lengths, out, lse = tensors(batch, capacity)
    problem = latent_problem(batch, capacity)
    config = DecodeConfig(64, 64, 2, 256, 1, GemmWarpPolicy.FullCol)
    kernel = tilecore.compile(MLA_DECODE.program(problem, config), backend="cuda_hopper")
    shaped = (q[:, None], cache[:, None], lengths, out[:, None], lse[:, None])
    found: dict[str, Callable[[], None]] = {"generated": lambda: kernel(*shaped)}
    for variant in chosen:
        if variant.name not in cubins:
            continue
        out.fill_(math.nan)
        launch = launcher(variant, cubins[variant.name], q, cache, lengths, out, lse)
        launch()
        torch.cuda.synchronize()
        error = error_of(q, cache, lengths, out, lse, 4)
        good = error < 1e-3 and bool(torch.isfinite(out).all())
        print(f"check {variant.name}: {error:.2e} {'ok' if good else 'WRONG'}", flush=True)
        if good:
            found[variant.name] = launch
    return found, MLA_DECODE.flops(problem)
