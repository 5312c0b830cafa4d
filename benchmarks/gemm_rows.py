"""Rows of the GPU benchmark for gemms of all kinds beside cuBLAS and cuDNN, as torch calls them.

Dense 16-bit, 8-bit with one factor or factors for blocks, few rows, odd sizes, batches, groups,
convolutions.
Each problem's first configurations and its peers are timed twice (`hopper_ceiling/device.py`):
sustained, each alone at its own steady power, and mixed, call by call in turns at equal clocks.
Matrix kernels run against the power limit, so the two differ.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilelang_gemm
import torch
from measuring import relative_error

import tilecore
from tilecore.targets import choose_target
from tilecore_kernels import FAMILIES
from tilecore_kernels.conv2d import CONV2D, Conv2dProblem
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.gemm_grouped import GroupedGemmProblem
from tilecore_kernels.gemm_scaled import BLOCK, ScaledGemmProblem
from tilecore_kernels.gemv import GemvProblem

sys.path.insert(0, str(Path(__file__).resolve().parent / "hopper_ceiling"))

BLOCK_SCALED = [(2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048)]
LIMITS = {torch.float16: 2e-3, torch.bfloat16: 6e-3}
"""Relative errors that rounding the result explains."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    Attributes:
        family: of our kernel.
        problem: its problem.
        arguments: inputs, in the program's order.
        want: the result.
        peers: name -> call.
    """

    family: str
    problem: Any
    arguments: tuple[torch.Tensor, ...]
    want: torch.Tensor
    peers: dict[str, Callable[[], Any]]


def dense(m: int, n: int, k: int, dtype: torch.dtype, trans_b: bool = False) -> Case:
    """C = A B; B is [K,N] or, transposed, [N,K]."""
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    b = torch.randn((n, k) if trans_b else (k, n), device="cuda", dtype=dtype)
    right = b.t() if trans_b else b
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    problem: Any = GemmProblem(m, n, k, name, transpose_b=trans_b)
    if m == 1:
        problem = GemvProblem(n, k, name, trans_b)
    call = lambda: torch.mm(a, right, out=out)  # noqa: E731
    return Case("gemv" if m == 1 else "gemm", problem, (a, b), torch.mm(a, right), {"cublas": call})


def scaled(m: int, n: int, k: int, scaling: str) -> Case:
    """e4m3 operands stored along k, bf16 result."""
    a, b = (torch.randn(r, k, device="cuda").to(torch.float8_e4m3fn) for r in (m, n))
    one = torch.ones(1, device="cuda")
    right = b.t()
    call = lambda **more: torch._scaled_mm(  # noqa: E731
        a, right, one, one, out_dtype=torch.bfloat16, **more
    )
    peers = {"cublas_fast": lambda: call(use_fast_accum=True), "cublas": call}
    if scaling == "tensor":
        want = a.float() @ b.float().t()
        problem = ScaledGemmProblem(m, n, k)
        return Case("scaled_gemm", problem, (a, b, one, one), want, peers)
    of_a = torch.rand(k // BLOCK, m, device="cuda") + 0.5
    of_b = torch.rand(-(-n // BLOCK), k // BLOCK, device="cuda") + 0.5
    left = a.float().view(m, -1, BLOCK) * of_a.t()[:, :, None]
    other = b.float().view(n, -1, BLOCK) * of_b.repeat_interleave(BLOCK, 0)[:n, :, None]
    want = left.view(m, k) @ other.view(n, k).t()
    blocks = lambda: torch._scaled_mm(  # noqa: E731
        a, right, of_a.t(), of_b.t(), out_dtype=torch.bfloat16
    )
    problem = ScaledGemmProblem(m, n, k, "block")
    return Case("scaled_gemm", problem, (a, b, of_a, of_b), want, {"cublas_block": blocks, **peers})


def with_tilelang(case: Case, path: str | None) -> Case:
    """The case with TileLang's example at `path` among its peers, where that can run it."""
    if path is None or getattr(case.problem, "scaling", "") != "block":
        return case
    try:
        call = tilelang_gemm.block_scaled(path, *case.arguments)
    except Exception as error:
        print(f"  no TileLang: {str(error)[:200]}", flush=True)
        return case
    return dataclasses.replace(case, peers={"tilelang": call, **case.peers})


def batched(batch: int, m: int, n: int, k: int) -> Case:
    """Independent fp16 products."""
    a = torch.randn(batch, m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(batch, k, n, device="cuda", dtype=torch.float16)
    problem = GemmProblem(m, n, k, "float16", batch=batch)
    return Case("gemm", problem, (a, b), torch.bmm(a, b), {"cublas": lambda: torch.bmm(a, b)})


def grouped(rows: int, n: int, k: int, groups: int) -> Case:
    """bf16 products of ragged groups of rows."""
    a = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(groups, n, k, device="cuda", dtype=torch.bfloat16)
    cuts = sorted(torch.randint(0, rows + 1, (groups - 1,)).tolist())
    bounds = [0, *cuts, rows]
    offsets = torch.tensor(bounds, dtype=torch.int32, device="cuda")
    parts = [a[bounds[g] : bounds[g + 1]] @ b[g].t() for g in range(groups)]
    ends, right = offsets[1:].contiguous(), b.transpose(-2, -1)
    peers = {"torch_grouped": lambda: torch._grouped_mm(a, right, offs=ends)}
    problem = GroupedGemmProblem(rows, n, k, groups, "bfloat16")
    return Case("grouped_gemm", problem, (a, b, offsets), torch.cat(parts), peers)


def convolution(problem: Conv2dProblem) -> Case:
    """fp16 images stored pixel by pixel, as torch's channels_last format has them."""
    rows, filters, length = problem.product
    size = (problem.batch, problem.height, problem.width, problem.channels)
    images = torch.randn(size, device="cuda", dtype=torch.float16)
    weights = torch.randn(filters, length, device="cuda", dtype=torch.float16)
    x = images.permute(0, 3, 1, 2)
    w = weights.view(filters, problem.kernel, problem.kernel, -1).permute(0, 3, 1, 2)
    facts = (problem.stride, problem.pad, problem.dilation)
    call = lambda: torch.nn.functional.conv2d(x, w, None, *facts)  # noqa: E731
    want = call().permute(0, 2, 3, 1).reshape(rows, filters)
    return Case("conv2d", problem, (images, weights), want, {"cudnn": call})


def cases(kinds: list[str]) -> Iterator[Case]:
    """The rows of the chosen kinds; made one after the other, for the memory's sake."""
    half, brain = torch.float16, torch.bfloat16
    if "dense" in kinds:
        for shape in ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096)):
            for dtype in (half, brain):
                yield dense(*shape, dtype)
    if "odd" in kinds:
        yield dense(4000, 4104, 4072, half)
        yield dense(4096, 4352, 4096, half)  # the same in whole tiles
    if "few" in kinds:
        for m in (64, 1):
            for trans_b in (False, True):
                yield dense(m, 8192, 8192, half, trans_b)
    if "fp8" in kinds:
        for shape in ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 2048)):
            yield scaled(*shape, "tensor")
    if "block" in kinds:
        for m in (64, 128, 4096):
            for n, k in BLOCK_SCALED:
                yield scaled(m, n, k, "block")
    if "batched" in kinds:
        yield batched(16, 512, 512, 512)
        yield batched(32, 1024, 1024, 1024)
    if "grouped" in kinds:
        yield grouped(8192, 4096, 7168, 8)
        yield grouped(4096, 7168, 2048, 32)
    if "conv" in kinds:
        torch.backends.cudnn.benchmark = True
        for problem in CONV2D.problems:
            if problem.dtype == "float16":
                yield convolution(problem)


KINDS = ["dense", "odd", "few", "fp8", "block", "batched", "grouped", "conv"]


def measure(case: Case, backend: str, arch: str | None, count: int) -> dict[str, Any]:
    """Check and time the first `count` configurations of a case beside its peers."""
    import device

    family = FAMILIES[case.family]
    target = choose_target(backend, arch)
    calls: dict[str, Callable[[], Any]] = {}
    for name, peer in case.peers.items():
        try:
            peer()
            calls[name] = peer
        except Exception as error:
            print(f"  no {name}: {str(error)[:200]}", flush=True)
    ours: dict[str, Any] = {}
    dtype = torch.float16 if case.want.dtype is torch.float16 else torch.bfloat16
    for config in list(family.configs(case.problem, target))[:count]:
        try:
            program = family.program(case.problem, config)
            kernel = tilecore.compile(program, backend=backend, arch=arch)
            out = torch.full(case.want.shape, float("nan"), device="cuda", dtype=dtype)
            kernel(*case.arguments, out)
            error = relative_error(out, case.want)
            if not error <= LIMITS[dtype]:
                print(f"  WRONG {config}: relative error {error:.3g}", flush=True)
                continue
            for used in kernel.resources:
                if used.spill_bytes or used.notes:
                    raise RuntimeError(f"{used.spill_bytes} bytes spilled, notes {used.notes}")
            ours[str(config)] = {"error": error, "resources": str(kernel.resources)}
            calls[str(config)] = lambda kernel=kernel, out=out: kernel(*case.arguments, out)
        except Exception as error:
            traceback.print_exc(limit=-2)
            print(f"  FAILED {config}: {error}", flush=True)
    if not ours:
        return {"group": "gemm_rows", "problem": str(case.problem), "failed": True}
    sustained, _ = device.time_sustained(calls, rounds=1, warm_ms=80, timed_ms=80)
    mixed = device.time_mixed(calls, repeats=10)
    for name, ms in sustained.items():
        print(f"  {name}: {ms:.4f} ms sustained, {mixed[name]:.4f} mixed", flush=True)
    best = min(ours, key=lambda name: sustained[name])
    first = next(iter(ours))
    flops = family.flops(case.problem)
    row: dict[str, Any] = {
        "group": "gemm_rows", "problem": str(case.problem), "config": best, **ours[best],
        "tflops": flops / sustained[best] * 1e-9,
        "first_over_best": sustained[first] / sustained[best],
        "gbs": family.bytes_moved(case.problem) / sustained[best] * 1e-6,
    }  # fmt: skip
    for name in case.peers:
        if name in sustained:
            row[f"{name}_tflops"] = flops / sustained[name] * 1e-9
            row[f"ratio_{name}"] = sustained[name] / sustained[best]
            row[f"mixed_ratio_{name}"] = mixed[name] / mixed[best]
    return row


def run(
    backend: str, arch: str | None, count: int, kinds: list[str], tilelang: str | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of all cases of the chosen kinds; `tilelang` is the path of its example, a peer."""
    for case in cases(kinds):
        try:
            yield measure(with_tilelang(case, tilelang), backend, arch, count)
        except Exception:
            traceback.print_exc()
