"""Check and time the hand-written Hopper kernels against cuBLAS and torch's attention.

python benchmarks/hopper_ceiling/run.py build            compile every variant (no GPU needed)
python benchmarks/hopper_ceiling/run.py gemm attention   check, then time; ratios against the peers
(heads: attention of other head dimensions; latent: latent decoding beside the generated kernel)
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import variants
from build import BuildError, Variant, compile_variant

ROWS: list[dict] = []


def build(chosen: list[Variant]) -> dict[str, bytes]:
    """Compile the chosen variants side by side; a refused one is reported and left out."""
    cubins = {}
    if len({variant.name for variant in chosen}) != len(chosen):
        raise ValueError("two variants of one name")

    def one(variant: Variant) -> None:
        try:
            cubins[variant.name] = compile_variant(variant)
        except BuildError as error:
            print(f"[refused] {error}", flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, chosen))
    return cubins


def measure(group: str, shape: list[int], flops: float, candidates: dict, peers: list[str]) -> None:
    """Time all candidates; print milliseconds, TFLOP/s and ratios to each peer of the same run."""
    import device

    times, clocks = device.time_sustained(candidates)
    mixed = device.time_mixed(candidates)
    print(
        f"--- {group} {shape}: sustained ms, TFLOP/s, ratios; clock, tensor share; mixed ms, ratios"
    )
    for name, ms in times.items():
        ratios = {peer: round(times[peer] / ms, 3) for peer in peers if peer in times}
        mixed_ratios = {
            peer: round(mixed[peer] / mixed[name], 3) for peer in peers if peer in mixed
        }
        row = {
            "group": group,
            "shape": shape,
            "name": name,
            "ms": round(ms, 4),
            "tflops": round(flops / ms * 1e-9, 1),
            "ratio": ratios,
            "mixed_ms": round(mixed[name], 4),
            "mixed_ratio": mixed_ratios,
        }
        clock = ""
        if name in clocks:
            row["mhz"] = round(clocks[name])
            # 4096 multiply-add FLOP per clock and multiprocessor, 16-bit operands
            row["tensor_share"] = round(row["tflops"] * 1e6 / (132 * 4096 * row["mhz"]), 3)
            clock = f"{row['mhz']} MHz {100 * row['tensor_share']:.0f} %"
        ROWS.append(row)
        print(
            f"{name:64s} {ms:8.4f} {row['tflops']:6.1f} {list(ratios.values())} {clock:14s} "
            f"{row['mixed_ms']:8.4f} {list(mixed_ratios.values())}",
            flush=True,
        )


# ---------------------------------------------------------------- GEMM
def gemm_launcher(variant: Variant, cubin: bytes, a, b, c) -> Callable[[], None]:
    """Bind one GEMM variant to operands: a [M,K], b [N,K] or [K,N] (B_MN_MAJOR), c [M,N]."""
    import device

    m, k = a.shape
    n = c.shape[1]
    tile_n, cluster = variant.define("TILE_N", 256), variant.define("CLUSTER", 2)
    groups = variant.define("WARPGROUPS", 2)
    stages, panels = variant.define("STAGES", 4), variant.define("STORE_PANELS", 2)
    tile_m = 64 * groups
    shared = stages * (tile_m + tile_n) * 128 + groups * panels * 8192 + 16 * stages
    kernel = device.Kernel(cubin, "gemm", 128 * (groups + 1), shared)
    a_map = device.tensor_map(a, [k, m], [a.stride(0)], [64, tile_m])
    if variant.define("B_MN_MAJOR", 0):
        sizes, strides = [64, k, (n + 63) // 64], [b.stride(0), 64]
        b_map = device.tensor_map(b, sizes, strides, [64, 64, tile_n // 64 // cluster])
    else:
        b_map = device.tensor_map(b, [k, n], [b.stride(0)], [64, tile_n // cluster])
    c_map = device.tensor_map(c, [n, m], [c.stride(0)], [64, 64])
    grid = variant.define("GRID", device.sm_count()) // cluster * cluster
    return kernel.bind(grid, [a_map, b_map, c_map, *(ctypes.c_int(x) for x in (m, n, k))])


def gemm_case(chosen: list[Variant], cubins, shape, dtype, mn_major: bool, timed: bool) -> None:
    """Check all variants on one shape, then time them with cuBLAS."""
    import torch
    from measuring import relative_error

    m, n, k = shape
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    b = torch.randn((k, n) if mn_major else (n, k), device="cuda", dtype=dtype)
    right = b if mn_major else b.T
    ref = (a[:512].float() @ right.float(), a[-512:].float() @ right.float())
    c_peer = torch.empty(m, n, device="cuda", dtype=dtype)
    candidates: dict[str, Callable[[], None]] = {
        "cublas": lambda: torch.matmul(a, right, out=c_peer)
    }
    for variant in chosen:
        if variant.name not in cubins:
            continue
        c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
        launch = gemm_launcher(variant, cubins[variant.name], a, b, c)
        launch()
        torch.cuda.synchronize()
        error = max(relative_error(c[:512], ref[0]), relative_error(c[-512:], ref[1]))
        whole = relative_error(c, torch.matmul(a, right))
        good = error < 4e-3 and whole < 4e-3
        verdict = "ok" if good else "WRONG"
        print(
            f"check {variant.name} {shape}: {error:.2e}, cuBLAS {whole:.2e} {verdict}", flush=True
        )
        if good:
            candidates[variant.name] = launch
    if timed:
        label = f"gemm {str(dtype)[6:]} {'B[K,N]' if mn_major else 'B[N,K]'}"
        measure(label, list(shape), 2.0 * m * n * k, candidates, ["cublas"])


def run_gemm() -> None:
    """All GEMM shapes of the goal, with a small odd shape first."""
    import torch

    cubins = build([*variants.GEMM, *variants.GEMM_MN, *variants.GEMM_BF16])
    gemm_case(variants.GEMM[:1], cubins, (1000, 1016, 520), torch.float16, False, False)
    for shape in ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096)):
        gemm_case(variants.GEMM, cubins, shape, torch.float16, False, True)
        gemm_case(variants.GEMM_MN, cubins, shape, torch.float16, True, True)
        gemm_case(variants.GEMM_BF16, cubins, shape, torch.bfloat16, False, True)


# ---------------------------------------------------------------- attention
class Problem(ctypes.Structure):
    """The kernel's problem record."""

    _fields_ = [
        (name, ctypes.c_int) for name in ("batch", "heads", "heads_kv", "seq_q", "seq_k", "section")
    ]
    _fields_ += [("scale_log2", ctypes.c_float)]


L2_SECTION_BYTES = 32 << 20
"""K and V of the heads worked on together stay under this, so that they live in L2 (50 MB)."""


def attention_launcher(variant: Variant, cubin: bytes, q, k, v, o, lse) -> Callable[[], None]:
    """Bind one attention variant to q, o [B,H,S,D] and k, v [B,H',S,D] with dense rows."""
    import device
    import torch

    batch, heads, seq_q, d = q.shape
    heads_kv, seq_k = k.shape[1], k.shape[2]
    tile_n, groups = variant.define("TILE_N", 128), variant.define("WARPGROUPS", 2)
    q_stages, kv_stages = variant.define("Q_STAGES", 2), variant.define("KV_STAGES", 2)
    shared = q_stages * groups * 64 * d * 2 + 2 * kv_stages * tile_n * d * 2
    shared += 16 * q_stages + 32 * kv_stages + 40
    kernel = device.Kernel(cubin, "attention", 128 * (groups + 1), shared)

    def encode(x, rows: int, panels: int = d // 64):
        b, h, s, _ = x.shape
        sizes = [64, s, d // 64, h, b]
        strides = [x.stride(2), 64, x.stride(1), x.stride(0)]
        return device.tensor_map(x, sizes, strides, [64, rows, panels, 1, 1])

    section = 1
    if variant.define("SECTIONED", variant.define("CAUSAL", 0)):
        section = max(1, min(batch * heads, L2_SECTION_BYTES // (seq_k * d * 4)))
    problem = Problem(
        batch, heads, heads_kv, seq_q, seq_k, section, math.log2(math.e) / math.sqrt(d)
    )
    counter = torch.zeros(2, dtype=torch.int32, device="cuda")
    cluster = variant.define("CLUSTER", 1)
    share = d // 64 // cluster
    maps = [encode(q, 64), encode(k, tile_n, share), encode(v, tile_n, share), encode(o, 64)]
    return kernel.bind(device.sm_count() // cluster * cluster, [*maps, lse, counter, problem])


def attention_reference(q, k, v, causal: bool):
    """Float32 attention and log-sum-exp of a few heads."""
    import torch

    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        rows, columns = scores.shape[-2:]
        keep = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril(columns - rows)
        scores = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(scores, -1) @ v.float(), torch.logsumexp(scores, -1)


def attention_case(
    chosen: list[Variant], cubins, shape, causal: bool, timed: bool, dtype=None
) -> None:
    """Check all variants on one shape [B,H,S,D], then time them with torch's attention."""
    import torch
    import torch.nn.functional as functional
    from measuring import relative_error
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b, h, s, d = shape
    dtype = dtype or torch.float16
    q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=dtype) for _ in range(3))
    candidates: dict[str, Callable[[], None]] = {}
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        whole = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def peer(backend):
        def call():
            with sdpa_kernel([backend]):
                functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    if timed:
        for name, backend in (
            ("fa2", SDPBackend.FLASH_ATTENTION),
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ):
            try:
                peer(backend)()
                candidates[name] = peer(backend)
            except RuntimeError as error:
                print(f"peer {name} unavailable: {str(error)[:100]}")
    last = (slice(b - 1, b), slice(max(0, h - 2), h))
    ref, ref_lse = attention_reference(q[last], k[last], v[last], causal)
    for variant in chosen:
        if variant.name not in cubins:
            continue
        o = torch.full_like(q, float("nan"))
        lse = torch.full((b, h, s), float("nan"), device="cuda", dtype=torch.float32)
        launch = attention_launcher(variant, cubins[variant.name], q, k, v, o, lse)
        launch()
        torch.cuda.synchronize()
        error, lse_error = relative_error(o[last], ref), relative_error(lse[last], ref_lse)
        against = relative_error(o, whole)
        # P is rounded to the operand type: 2^-9 of bfloat16, 2^-12 of float16, relative
        bound = 6e-3 if dtype == torch.bfloat16 else 1e-3
        good = error < bound and against < bound and lse_error < 1e-4
        verdict = f"lse {lse_error:.1e}, fa2 {against:.2e} {'ok' if good else 'WRONG'}"
        print(f"check {variant.name} {shape}: {error:.2e}, {verdict}", flush=True)
        if good:
            candidates[variant.name] = launch
    if timed:
        flops = 4.0 * b * h * s * s * d * (0.5 if causal else 1.0)
        measure(
            f"attention {str(dtype)[6:]} d{d} {'causal' if causal else 'full'}",
            list(shape),
            flops,
            candidates,
            ["cudnn", "fa2"],
        )


def edge_checks(chosen: list[Variant], cubins, causal: bool) -> None:
    """Grouped heads and unequal ragged lengths, [B,H,S,D] seen through strides of [B,S,H,D]."""
    import torch
    from measuring import relative_error

    for batch, heads, heads_kv, seq_q, seq_k in (
        (2, 6, 2, 300, 1000),
        (1, 4, 4, 64, 77),
        (3, 2, 1, 1, 200),
    ):
        d = chosen[0].define("HEAD_DIM", 128)
        q = torch.randn(batch, seq_q, heads, d, device="cuda", dtype=torch.float16).transpose(1, 2)
        k, v = (
            torch.randn(batch, seq_k, heads_kv, d, device="cuda", dtype=torch.float16).transpose(
                1, 2
            )
            for _ in range(2)
        )
        group = heads // heads_kv
        wide = (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        ref, ref_lse = attention_reference(q, *wide, causal)
        for variant in chosen:
            if variant.name not in cubins:
                continue
            o = torch.full_like(q, float("nan"))
            lse = torch.full((batch, heads, seq_q), float("nan"), device="cuda")
            attention_launcher(variant, cubins[variant.name], q, k, v, o, lse)()
            torch.cuda.synchronize()
            error, lse_error = relative_error(o, ref), relative_error(lse, ref_lse)
            good = error < 1e-3 and lse_error < 1e-4
            sizes = (batch, heads, heads_kv, seq_q, seq_k)
            verdict = f"lse {lse_error:.1e} {'ok' if good else 'WRONG'}"
            print(f"check {variant.name} {sizes}: {error:.2e}, {verdict}", flush=True)


def run_attention() -> None:
    """Head dimension 128, the shapes of the goal, with an odd length first."""
    import torch

    cubins = build([*variants.FULL_128, *variants.CAUSAL_128, *variants.BF16_128])
    attention_case(variants.FULL_128, cubins, (1, 3, 1000, 128), False, False)
    attention_case(variants.CAUSAL_128, cubins, (2, 3, 1000, 128), True, False)
    edge_checks(variants.FULL_128, cubins, False)
    edge_checks(variants.CAUSAL_128, cubins, True)
    for shape in ((8, 32, 4096, 128), (1, 16, 16384, 128)):
        attention_case(variants.FULL_128, cubins, shape, False, True)
        attention_case(variants.CAUSAL_128, cubins, shape, True, True)
    attention_case(variants.BF16_128, cubins, (1, 16, 16384, 128), False, True, torch.bfloat16)


def run_heads() -> None:
    """Head dimensions 64 and 256."""
    groups = (
        (variants.FULL_64, 64, False, 32),
        (variants.CAUSAL_64, 64, True, 32),
        (variants.FULL_256, 256, False, 8),
        (variants.CAUSAL_256, 256, True, 8),
    )
    for chosen, d, causal, heads in groups:
        cubins = build(chosen)
        attention_case(chosen, cubins, (2, 3, 1000, d), causal, False)
        attention_case(chosen, cubins, (1, heads, 16384, d), causal, True)


def run_latent() -> None:
    """Latent decoding, batch 132, context 8192, and ragged lengths first."""
    import latent

    cubins = build(variants.LATENT)
    latent.check_ragged(variants.LATENT, cubins)
    candidates, flops = latent.candidates(variants.LATENT, cubins, 132, 8192)
    measure("latent decoding", [132, 8192], flops, candidates, ["generated"])


def main() -> None:
    """Run the groups named on the command line."""
    names = sys.argv[1:] or ["gemm", "attention"]
    if "build" in names:
        build(variants.ALL)
        return
    import torch

    print(torch.cuda.get_device_name(0), "torch", torch.__version__, "cuda", torch.version.cuda)
    torch.manual_seed(0)
    groups = {
        "gemm": run_gemm, "attention": run_attention, "heads": run_heads, "latent": run_latent,
    }  # fmt: skip
    for name in names:
        try:
            groups[name]()
        except Exception:
            import traceback

            traceback.print_exc()
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "rows.json").write_text(json.dumps(ROWS, indent=1))


if __name__ == "__main__":
    main()
