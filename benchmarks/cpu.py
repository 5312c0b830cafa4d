"""Kernels of this repository on the CPU beside NumPy, torch and the machine's own peaks.

    python benchmarks/cpu.py [--threads 1 2] [--only gemm attention rows overhead] [--rounds 12]

One process per thread count, so that every library starts with that many threads. In a process
all candidates of a row are measured in turns, round after round, and the best round of each
counts; every result is checked against torch's in the same run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "backends" / "cpu_llvm")]
GROUPS = ("peaks", "gemm", "attention", "rows", "overhead")
GEMM_TILES = {
    "float32": (
        (256, 256, 256),
        (256, 256, 512),
        (512, 512, 256),
        (256, 512, 512),
        (128, 512, 512),
        (256, 1024, 512),
        (352, 1024, 256),
        (512, 512, 512),
        (512, 1024, 512),
    ),
    "bfloat16": ((256, 256, 256), (256, 512, 512), (1024, 512, 1024), (1024, 1024, 2048)),
}
ATTENTION_TILES = ((32, 64), (32, 128), (32, 256), (64, 64), (64, 128), (64, 256))


def main() -> None:
    """Start a child process for every thread count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options)
        return
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_CORETYPE"}
    for count in options.threads:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(count)
        command = [sys.executable, __file__, "--child", "--rounds", str(options.rounds)]
        command += ["--threads", str(count), "--only", *options.only]
        subprocess.run(command, env=environment, check=True)


def measure(options: argparse.Namespace) -> None:
    """All groups in this process."""
    import torch

    threads = options.threads[0]
    torch.set_num_threads(threads)
    print(f"== {threads} thread{'s' if threads > 1 else ''}", flush=True)
    for group in GROUPS:
        if group in options.only:
            globals()[f"run_{group}"](options.rounds)


def race(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best seconds of each candidate, measured in turns."""
    best = dict.fromkeys(candidates, float("inf"))
    for call in candidates.values():
        call()
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def show(
    title: str, work: float, unit: str, times: dict[str, float], peers: tuple[str, ...]
) -> None:
    """One row: rates, and ours over the best peer's."""
    ours = {name: seconds for name, seconds in times.items() if name not in peers}
    winner = min(ours, key=lambda name: ours[name])
    peer = min(times[name] for name in peers)
    rates = "  ".join(f"{name} {work / times[name] * 1e-9:8.1f}" for name in peers)
    mine = f"tilecore {work / ours[winner] * 1e-9:8.1f} ({winner})"
    print(f"{title:38} {unit:8} {rates}  {mine}  ratio {peer / ours[winner]:.2f}", flush=True)


def ceildiv(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def target() -> Any:
    """The CPU as a target."""
    from tilecore.hooks.manager import targets_of

    return targets_of("cpu_llvm")[0]


def check(name: str, got: Any, want: Any, tolerance: float) -> None:
    """Stop when a result is wrong."""
    error = float((got.float() - want.float()).abs().max() / want.float().abs().max())
    if not error <= tolerance:
        raise SystemExit(f"{name}: relative error {error:.2e} above {tolerance:.0e}")


def run_peaks(rounds: int) -> None:
    """What one core multiplies at most, from registers."""
    import ctypes

    from tilecore_backend_cpu.builder import ModuleWriter, vector_type
    from tilecore_backend_cpu.host import detect_host
    from tilecore_backend_cpu.jit import compile_object, load_object

    cpu = detect_host()
    module = ModuleWriter()
    module.set_target(cpu.name, cpu.feature_string, cpu.vector_bits)
    lanes = cpu.lanes(32)
    w = module.function("peak", "void", [("ptr", "p"), ("i64", "n")])
    place, count = w.parameters
    value = w.load(place, vector_type("float", lanes))
    with w.loop(w.i64(0), count, carried=[w.const(0, value.type)] * 12) as loop:
        loop.carry([w.fma(value, value, total) for total in loop.carried])
    total = loop.results[0]
    for other in loop.results[1:]:
        total = w.add(total, other)
    w.store(total, place)
    w.ret()
    run = load_object(compile_object(str(module)), ["peak"]).function(
        "peak", None, ctypes.c_void_p, ctypes.c_int64
    )
    memory = (ctypes.c_float * 64)()
    steps = 1_000_000
    seconds = race({"peak": lambda: run(memory, steps)}, rounds)["peak"]
    rate = steps * 12 * lanes * 2 / seconds * 1e-9
    print(f"{'fp32 multiply-add, one core':38} GFLOP/s  {rate:.1f}", flush=True)


def run_gemm(rounds: int) -> None:
    """fp32 and bfloat16 products."""
    import torch

    import tilecore
    from tilecore_kernels.gemm import GEMM, GemmProblem
    from tilecore_kernels.gemm_configs import GemmConfig

    for dtype, sizes in (
        ("float32", (512, 1000, 1024, 1999, 2048)),
        ("bfloat16", (512, 1000, 1024, 2048)),
    ):
        for size in sizes:
            problem = GemmProblem(size, size, size, dtype)
            a, b = (torch.randn(size, size).to(getattr(torch, dtype)) for _ in range(2))
            want, candidates = a @ b, {}
            configs = [GEMM.default_config(problem, target())]
            for m, n, k in GEMM_TILES[dtype]:
                # The same number of tiles, each no larger than the matrix needs.
                rows = ceildiv(size, ceildiv(size, m))
                cols = ceildiv(ceildiv(size, ceildiv(size, n)), 32) * 32
                configs.append(GemmConfig(rows, cols, min(k, ceildiv(size, 32) * 32), 1, 128))
            for config in dict.fromkeys(configs):
                kernel = tilecore.compile(GEMM.program(problem, config), "cpu_llvm")
                c = torch.empty(size, size, dtype=a.dtype)
                kernel(a, b, c)
                check(
                    f"gemm {dtype} {size} {config}", c, want, 2e-2 if dtype == "bfloat16" else 1e-4
                )
                label = f"{config.block_m}x{config.block_n}x{config.block_k}"
                candidates[label] = lambda kernel=kernel, c=c: kernel(a, b, c)
            out = torch.empty_like(want)
            candidates["torch"] = lambda: torch.mm(a, b, out=out)
            peers = ("torch",)
            if dtype == "float32":
                candidates["numpy"] = lambda: a.numpy() @ b.numpy()
                peers = ("torch", "numpy")
            show(f"gemm {dtype} {size}", 2 * size**3, "GFLOP/s", race(candidates, rounds), peers)


def run_attention(rounds: int) -> None:
    """Flash attention forward, 1 x 8 x 2048 x 64."""
    import torch
    import torch.nn.functional as functional

    import tilecore
    from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
    from tilecore_kernels.flash_attention import FLASH_ATTENTION

    for dtype in ("float32", "bfloat16"):
        for is_causal in (False, True):
            problem = AttentionProblem(1, 8, 2048, 64, dtype)
            problem = replace(problem, right=0) if is_causal else problem
            q, k, v = (torch.randn(1, 8, 2048, 64).to(getattr(torch, dtype)) for _ in range(3))
            want = functional.scaled_dot_product_attention(
                q.double(), k.double(), v.double(), is_causal=is_causal
            )
            configs = [FLASH_ATTENTION.default_config(problem, target())]
            configs += [AttentionConfig(bq, bk, 1, 128) for bq, bk in ATTENTION_TILES]
            candidates = {}
            for config in dict.fromkeys(configs):
                kernel = tilecore.compile(FLASH_ATTENTION.program(problem, config), "cpu_llvm")
                out = torch.empty_like(q)
                kernel(q, k, v, out)
                check(
                    f"attention {dtype} {config}", out, want, 1e-5 if dtype == "float32" else 2e-2
                )
                label = f"{config.block_q}x{config.block_k}"
                candidates[label] = lambda kernel=kernel, out=out: kernel(q, k, v, out)
            candidates["torch"] = lambda c=is_causal: functional.scaled_dot_product_attention(
                q, k, v, is_causal=c
            )
            work = 4 * 8 * 2048**2 * 64 / (2 if is_causal else 1)
            name = f"attention {dtype} {'causal' if is_causal else 'full'}"
            show(name, work, "GFLOP/s", race(candidates, rounds), ("torch",))


def run_rows(rounds: int) -> None:
    """softmax and RMS norm, fp32 4096 x 4096, as shares of copy bandwidth."""
    import torch
    import torch.nn.functional as functional

    import tilecore
    from tilecore_kernels.rms_norm import RMS_NORM, NormProblem
    from tilecore_kernels.softmax import SOFTMAX, SoftmaxProblem

    x, out, weight = torch.randn(4096, 4096), torch.empty(4096, 4096), torch.rand(4096)
    cases = (
        ("softmax", SOFTMAX, SoftmaxProblem(4096, 4096), (x,), lambda: torch.softmax(x, 1)),
        (
            "rms_norm",
            RMS_NORM,
            NormProblem(4096, 4096),
            (x, weight),
            lambda: functional.rms_norm(x, (4096,), weight, 1e-5),
        ),
    )
    for name, family, problem, arguments, peer in cases:
        candidates: dict[str, Callable[[], Any]] = {}
        for config in family.configs(problem, target())[:3]:
            kernel = tilecore.compile(family.program(problem, config), "cpu_llvm")
            kernel(*arguments, out)
            check(name, out, peer(), 1e-3)
            label = f"{config.block_rows}x{config.block_cols}"
            candidates[label] = lambda kernel=kernel: kernel(*arguments, out)
        candidates["copy"] = lambda: out.copy_(x)
        candidates["torch"] = peer
        times = race(candidates, rounds)
        work = 2 * x.numel() * 4
        print(f"{name + ' torch':38} GB/s     {work / times.pop('torch') * 1e-9:.1f}", flush=True)
        show(name, work, "GB/s", times, ("copy",))


def run_overhead(rounds: int) -> None:
    """Time to compile anew, and to call a kernel that has little to do."""
    import numpy as np

    import tilecore
    from tilecore.compiler import lower
    from tilecore.hooks.manager import hooks_of
    from tilecore_kernels.gemm import GEMM, GemmProblem
    from tilecore_kernels.softmax import SOFTMAX, SoftmaxProblem

    hooks, samples = hooks_of("cpu_llvm"), []
    for extra in range(5):
        problem = GemmProblem(1024 + 64 * extra, 1024, 1024)
        start = time.perf_counter()
        lowered = lower(GEMM.build(problem, target()), "cpu_llvm")
        arguments = {"source": lowered.source, "target": lowered.target}
        hooks.call("tilecore_compile", options=lowered.options, **arguments)
        samples.append(time.perf_counter() - start)
    print(f"{'compile gemm, nothing cached':38} ms       {min(samples) * 1e3:.0f}", flush=True)
    problem = SoftmaxProblem(1, 16)
    kernel = tilecore.compile(SOFTMAX.build(problem, target()), "cpu_llvm")
    x, y = np.zeros((1, 16), np.float32), np.zeros((1, 16), np.float32)

    def calls() -> None:
        for _ in range(1000):
            kernel(x, y)

    seconds = race({"call": calls}, rounds)["call"] / 1000
    print(f"{'call, outputs given':38} us       {seconds * 1e6:.2f}", flush=True)


if __name__ == "__main__":
    main()
