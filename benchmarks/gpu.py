"""Kernels of this project beside their peers on one GPU, in one process.

    python benchmarks/gpu.py --backend cuda_ampere [gemm attention rows gemm_fp8 ...] [--json FILE]
        [--rows 0,3] [--tilelang PATH] [--tilelang-gemm PATH]

Groups gemm_KIND, with the kinds of gemm_rows.py, are gemms of all kinds at their steady power.

Random normal inputs; every result is checked in the same run against a float32 computation before
it is timed; times are medians with the second-level cache flushed between calls. The ratio is
peer's time over ours: above 1 we are faster. Each of our kernels is tried in the first
configurations that its family ranks, and the best is shown with its configuration.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import attention_forward
import gemm_rows
import measuring
import numpy as np
import torch
import torch.nn.functional as F
from measuring import relative_error

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_configs import GemmConfig
from tilecore_kernels.rms_norm import RMS_NORM, NormProblem
from tilecore_kernels.softmax import SOFTMAX, SoftmaxProblem

GEMM_SHAPES = [(4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096)]
# Tried besides each family's own ranking; what a target cannot hold is reported and passed over.
GEMM_CONFIGS = [
    GemmConfig(128, 256, 64, 4, 256, 8), GemmConfig(256, 128, 64, 4, 256, 8),
    GemmConfig(128, 128, 64, 4, 256, 8), GemmConfig(128, 256, 64, 3, 256, 8),
    GemmConfig(128, 128, 32, 4, 128, 8), GemmConfig(128, 256, 32, 3, 256, 8),
]  # fmt: skip
rows: list[dict[str, Any]] = []


milliseconds = functools.partial(measuring.milliseconds, settle=50, measure=150)


def show(**row: Any) -> None:
    rows.append(row)
    print("ROW", json.dumps(row), flush=True)


def best_of(
    family: Any, problem: Any, configs: list[Any], arguments: tuple[Any, ...],
    outputs: tuple[torch.Tensor, ...], check: Callable[[], float], limit: float,
    backend: str, arch: str | None,
) -> tuple[float, Any, float, Any]:  # fmt: skip
    """(ms, configuration, error, resources) of the fastest right configuration."""
    best: tuple[float, Any, float, Any] = (float("inf"), None, float("inf"), None)
    for config in configs:
        try:
            kernel = tilecore.compile(family.program(problem, config), backend=backend, arch=arch)
            for output in outputs:
                output.fill_(float("nan"))
            kernel(*arguments)
            error = check()
            if not error <= limit:
                print(f"  WRONG {config}: relative error {error:.3g}", flush=True)
                continue
            ms = milliseconds(lambda: kernel(*arguments))
            used = kernel.resources[0]
            print(f"  {config}: {ms:.4f} ms, {used.registers} registers, "
                  f"{used.spill_bytes} spill bytes, notes {used.notes}", flush=True)  # fmt: skip
            if ms < best[0]:
                best = (ms, config, error, used)
        except Exception as error:
            traceback.print_exc(limit=-2)
            print(f"  FAILED {config}: {error}", flush=True)
    return best


def gemm(backend: str, arch: str | None, count: int) -> None:
    target = choose_target(backend, arch)
    for m, n, k in GEMM_SHAPES:
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        b = torch.randn(k, n, device="cuda", dtype=torch.float16)
        c = torch.empty(m, n, device="cuda", dtype=torch.float16)
        want = a @ b
        problem = GemmProblem(m, n, k, "float16")
        configs = [*GEMM_CONFIGS, *list(GEMM.configs(problem, target))[:count]]
        ms, config, error, used = best_of(
            GEMM, problem, configs, (a, b, c), (c,), lambda: relative_error(c, want), 2e-3,
            backend, arch,
        )  # fmt: skip
        tera = 2e-9 * m * n * k
        peer = milliseconds(lambda: torch.mm(a, b, out=c))
        row = {"group": "gemm", "shape": [m, n, k], "tflops": tera / ms, "config": str(config),
               "error": error, "cublas_tflops": tera / peer, "ratio_cublas": peer / ms}  # fmt: skip
        triton_ms = triton_gemm(a, b, c, want)
        row |= {"triton_tflops": tera / triton_ms, "ratio_triton": triton_ms / ms}
        show(**row, resources=str(used))


def gemms(
    backend: str, arch: str | None, count: int, kind: str, tilelang: str | None = None
) -> None:
    """Gemms of one kind (`gemm_rows.KINDS`)."""
    for row in gemm_rows.run(backend, arch, count, [kind], tilelang):
        show(**row)


def triton_gemm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, want: torch.Tensor) -> float:
    """Milliseconds of the fastest of Triton's usual configurations, kept to mma.sync.

    Newer cards have matrix instructions that Triton would prefer; DISABLE_MMA_V3 keeps it to those
    that are compared here, and what it really used is printed.
    """
    os.environ["DISABLE_MMA_V3"] = "1"
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
               GM: tl.constexpr):  # fmt: skip
        pid = tl.program_id(0)
        num_m, num_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        group = pid // (GM * num_n)
        first = group * GM
        size = min(num_m - first, GM)
        pm = first + (pid % (GM * num_n)) % size
        pn = (pid % (GM * num_n)) // size
        rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
        pa = A + rm[:, None] * K + rk[None, :]
        pb = B + rk[:, None] * N + rn[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for _ in range(0, K, BK):
            acc = tl.dot(tl.load(pa), tl.load(pb), acc)
            pa += BK
            pb += BK * N
        tl.store(C + rm[:, None] * N + rn[None, :], acc.to(tl.float16))

    (m, k), n = a.shape, b.shape[1]
    best = float("inf")
    for bm, bn, bk, warps, stages in (
        (128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (128, 128, 32, 4, 4), (128, 256, 32, 8, 4),
    ):  # fmt: skip
        grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)

        def call(
            bm: int = bm, bn: int = bn, bk: int = bk, warps: int = warps, stages: int = stages,
            grid: tuple[int] = grid,
        ) -> Any:  # fmt: skip
            return kernel[grid](a, b, c, m, n, k, bm, bn, bk, 8, num_warps=warps, num_stages=stages)

        try:
            made = call()
            print(f"  triton {bm}x{bn}x{bk}: wgmma {'wgmma' in made.asm['ptx']}", flush=True)
            if relative_error(c, want) < 2e-3:
                best = min(best, milliseconds(call))
        except Exception as error:
            print(f"  triton {bm}x{bn}x{bk}: {error}", flush=True)
    return best


def attention(backend: str, arch: str | None, count: int, tilelang: str | None, only: str) -> None:
    """All rows of `attention_forward`, or those whose numbers `only` lists."""
    every = attention_forward.ROWS
    chosen = [every[int(number)] for number in only.split(",")] if only else list(every)
    others = attention_forward.peers(tilelang)
    ratios: dict[str, list[float]] = {"ratio_best": [], "lag_ratio_best": []}
    for row in chosen:
        for causal in (False, True):
            try:
                result = attention_forward.row_result(backend, arch, row, causal, count, others)
            except Exception:
                traceback.print_exc()
                continue
            for name, values in ratios.items():
                values.append(result[name])
            show(**result)
    for name, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"attention: {name} {mean:.3f}, least {min(values):.3f}", flush=True)


def attention_fp8(backend: str, arch: str | None, count: int) -> None:
    """8-bit attention of long sequences."""
    for row in attention_forward.FP8_ROWS:
        for causal in (False, True):
            show(**attention_forward.fp8_result(backend, arch, row, causal))


def rows_of(backend: str, arch: str | None, count: int) -> None:
    """Softmax and rms_norm against the bandwidth of a plain copy of as many bytes."""
    target = choose_target(backend, arch)
    x = torch.randn(32768, 4096, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)
    weight = torch.randn(4096, device="cuda", dtype=torch.float16)
    gigabytes = 2e-9 * x.numel() * x.element_size()
    copied = milliseconds(lambda: y.copy_(x))
    cases = (
        (SOFTMAX, SoftmaxProblem(32768, 4096, "float16"), (x, y), torch.softmax(x, -1)),
        (RMS_NORM, NormProblem(32768, 4096, "float16"), (x, weight, y),
         F.rms_norm(x.float(), (4096,), weight.float(), eps=1e-5)),
    )  # fmt: skip
    for family, problem, arguments, want in cases:
        configs = list(family.configs(problem, target))[: max(4, count)]
        ms, config, error, used = best_of(
            family, problem, configs, arguments, (y,), lambda want=want: relative_error(y, want),
            3e-3, backend, arch,
        )  # fmt: skip
        show(group="rows", kernel=family.name, gbs=gigabytes / ms * 1e3, config=str(config),
             error=error, copy_gbs=gigabytes / copied * 1e3, ratio_copy=copied / ms,
             resources=str(used))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", default=["gemm", "attention", "rows"])
    parser.add_argument("--backend", default="cuda_ampere")
    parser.add_argument("--arch")
    parser.add_argument("--configs", type=int, default=3, help="of each family's ranking")
    parser.add_argument("--tilelang", help="path of TileLang's attention example, as a peer")
    parser.add_argument("--tilelang-gemm", help="path of its block-scaled example, as a peer")
    parser.add_argument("--rows", default="", help="numbers of attention rows, from 0: 0,3")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)
    asked = {"tilelang": options.tilelang, "only": options.rows}
    known = {
        "gemm": gemm,
        "attention": functools.partial(attention, **asked),
        "rows": rows_of,
        "attention_fp8": attention_fp8,
    }
    known |= {
        f"gemm_{kind}": functools.partial(gemms, kind=kind, tilelang=options.tilelang_gemm)
        for kind in gemm_rows.KINDS
    }
    for group in options.groups:
        try:
            known[group](options.backend, options.arch, options.configs)
        except Exception:
            traceback.print_exc()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    for row in rows:
        ratios = {name: round(value, 3) for name, value in row.items() if "ratio" in name}
        print(
            row["group"],
            row.get("kernel", row.get("shape", row.get("problem"))),
            row.get("causal", ""),
            ratios,
        )


if __name__ == "__main__":
    sys.exit(main())
