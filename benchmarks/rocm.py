"""Gemm and attention beside torch on an MI300X, each with the prediction of the static model.

    python benchmarks/rocm.py [gemm fp8 attention] [--configs N] [--json FILE]
    python benchmarks/rocm.py --compile-only        # no device, no torch: what would be run

Needs torch for ROCm, whose products are hipBLASLt's and whose attention is AOTriton's; AITER is a
peer where it is installed. Every result is checked against float32 in the same run before it is
timed. Times are medians of events, with the caches flushed between calls. Above 1 a ratio means
that this project is faster. Exit status 1 when a configuration was wrong or could not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tilecore
from tilecore.compiler import lower
from tilecore.hooks.manager import hooks_of, targets_of
from tilecore.hooks.records import CompileOptions
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.family import Family
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.gemm import GEMM, GemmProblem

BACKEND = "rocm_cdna3"
FLUSH_BYTES = 512 << 20  # twice the Infinity Cache
LIMIT = 1e-2  # relative error of bfloat16 results against float32; FNUZ operands are exact
GROUPS = ("gemm", "fp8", "attention")


@dataclass(frozen=True, slots=True)
class Row:
    """One problem of a group."""

    group: str
    family: Family
    problem: Any

    @property
    def label(self) -> str:
        """What is multiplied, in a few words."""
        p = self.problem
        if isinstance(p, GemmProblem):
            return f"{p.dtype} {p.m}x{p.n}x{p.k} {'NT' if p.transpose_b else 'NN'}"
        mask = "causal" if p.right is not None else "full"
        return f"{p.dtype} b{p.batch} h{p.heads}/{p.kv_heads} s{p.q_len} d{p.dim} {mask}"


def rows(groups: list[str]) -> Iterator[Row]:
    """All problems, the two of the static model first in their groups."""
    for size in (8192, 4096, 16384):
        for transpose_b in (True, False):
            problem = GemmProblem(size, size, size, "bfloat16", transpose_b=transpose_b)
            if "gemm" in groups:
                yield Row("gemm", GEMM, problem)
    for size in (8192, 4096):
        fnuz = GemmProblem(size, size, size, "float8_e4m3fnuz", "bfloat16", transpose_b=True)
        if "fp8" in groups:
            yield Row("fp8", GEMM, fnuz)
    for batch, heads, kv_heads, length, dim in (
        (1, 16, 16, 16384, 128), (4, 48, 48, 4096, 128), (2, 64, 8, 8192, 128),
        (1, 32, 32, 16384, 64),
    ):  # fmt: skip
        for right in (None, 0):
            attention = AttentionProblem(
                batch, heads, length, dim, "bfloat16", kv_heads=kv_heads, right=right
            )
            if "attention" in groups:
                yield Row("attention", FLASH_ATTENTION, attention)


def predicted(row: Row, config: Any) -> float | None:
    """TFLOP/s of useful work by the static model; None without one."""
    (target,) = targets_of(BACKEND)
    lowered = lower(row.family.program(row.problem, config), BACKEND)
    found = hooks_of(BACKEND).call(
        "tilecore_model", program=lowered.stages[-1][1], target=target, options=CompileOptions()
    )
    seconds = sum(kernel.seconds for kernel in found.kernels) if found else 0.0
    return row.family.flops(row.problem) / seconds / 1e12 if seconds else None


def compile_only(row: Row, count: int) -> bool:
    """Compile what would be run and print its resources; True when nothing failed or spilled."""
    (target,) = targets_of(BACKEND)
    good = True
    for config in list(row.family.configs(row.problem, target))[:count]:
        kernel = tilecore.compile(row.family.program(row.problem, config), BACKEND)
        spilled = sum(r.spill_bytes or 0 for r in kernel.resources)
        good = good and not spilled
        tera = predicted(row, config)
        print(f"{row.label}: {config}: {kernel.resources[-1].registers} registers, {spilled} bytes "
              f"spilled, {tera or 0:.0f} TFLOP/s predicted", flush=True)  # fmt: skip
    return good


def torch_with_device() -> Any | None:
    """torch, if it is built for ROCm and sees a device."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.version.hip is not None and torch.cuda.is_available() else None


def milliseconds(torch: Any, call: Callable[[], Any], repeat: int = 30) -> float:
    """Median device time of a call, caches flushed before each."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    times = []
    for _ in range(repeat + 5):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[5:])


def tensors(torch: Any, row: Row) -> tuple[tuple[Any, ...], Any, Callable[[], float]]:
    """(inputs, output, relative error of the output against float32)."""
    p, dtype = row.problem, getattr(torch, row.problem.dtype)

    def made(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    if isinstance(p, GemmProblem):
        a, b = made(p.m, p.k), made(*((p.n, p.k) if p.transpose_b else (p.k, p.n)))
        out = torch.empty(p.m, p.n, device="cuda", dtype=getattr(torch, p.result_dtype))
        right = (b.T if p.transpose_b else b).float()
        return (a, b), out, lambda: _error(out[:512], a[:512].float() @ right)
    q = made(p.batch, p.heads, p.q_len, p.dim)
    k, v = (made(p.batch, p.kv_heads, p.kv_len, d) for d in (p.dim, p.dim_v))
    out = torch.empty(p.batch, p.heads, p.q_len, p.dim_v, device="cuda", dtype=dtype)
    head = slice(0, 1)
    want = _attend(torch, q[:, head].float(), k[:, head].float(), v[:, head].float(), p)
    return (q, k, v), out, lambda: _error(out[:, head], want)


def _attend(torch: Any, q: Any, k: Any, v: Any, p: AttentionProblem) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=p.right is not None)


def _error(got: Any, want: Any) -> float:
    return float((got.float() - want).norm() / want.norm())


def peers(torch: Any, row: Row, inputs: tuple[Any, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and calls of what others offer for the same problem."""
    p = row.problem
    if isinstance(p, GemmProblem):
        a, b = inputs
        right = b.T if p.transpose_b else b
        if row.group == "fp8":
            one = torch.ones((), device="cuda")
            yield (
                "torch (hipBLASLt)",
                lambda: torch._scaled_mm(
                    a, right, scale_a=one, scale_b=one, out_dtype=getattr(torch, p.result_dtype)
                ),
            )
            return
        yield "torch (hipBLASLt)", lambda: torch.mm(a, right)
        return
    q, k, v = inputs
    group, causal = p.heads // p.kv_heads, p.right is not None
    wide_k, wide_v = (t.repeat_interleave(group, 1) if group > 1 else t for t in (k, v))
    yield "torch (AOTriton)", lambda: _attend(torch, q, wide_k, wide_v, p)
    if importlib.util.find_spec("aiter") is not None:
        import aiter

        swapped = [t.transpose(1, 2).contiguous() for t in inputs]
        yield "AITER", lambda: aiter.flash_attn_func(*swapped, causal=causal)


def measure(torch: Any, row: Row, count: int, out_rows: list[dict[str, Any]]) -> bool:
    """Time the first configurations and the peers of one row; True when all were right."""
    (target,) = targets_of(BACKEND)
    inputs, out, error_of = tensors(torch, row)
    tera, good = row.family.flops(row.problem) / 1e12, True
    found: dict[str, Any] = {"group": row.group, "problem": row.label, "tflops": 0.0}
    for config in list(row.family.configs(row.problem, target))[:count]:
        try:
            kernel = tilecore.compile(row.family.program(row.problem, config), BACKEND)
            out.fill_(float("nan"))
            kernel(*inputs, out)
            error = error_of()
            if not error <= LIMIT:
                raise ValueError(f"wrong result: relative error {error:.3g}")
            ms = milliseconds(torch, lambda kernel=kernel: kernel(*inputs, out))
            print(f"  {config}: {tera / ms * 1e3:.0f} TFLOP/s, error {error:.2g}", flush=True)
            if tera / ms * 1e3 > found["tflops"]:
                found |= {"tflops": tera / ms * 1e3, "config": str(config), "error": error,
                          "predicted": predicted(row, config)}  # fmt: skip
        except Exception as failure:  # the other configurations and rows still count
            traceback.print_exc(limit=-2)
            print(f"  FAILED {config}: {failure}", flush=True)
            good = False
    for name, call in peers(torch, row, inputs):
        try:
            found[f"{name} tflops"] = tera / milliseconds(torch, call) * 1e3
            found[f"ratio to {name}"] = found["tflops"] / found[f"{name} tflops"]
        except Exception as failure:
            print(f"  peer {name} failed: {failure}", flush=True)
    out_rows.append(found)
    print("ROW", json.dumps(found), flush=True)
    return good


def main() -> int:
    """The command; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all by default")
    parser.add_argument("--configs", type=int, default=3, help="configurations of each row")
    parser.add_argument("--json", help="file for the rows")
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    chosen = list(rows(options.groups or list(GROUPS)))
    if options.compile_only:
        results = [compile_only(row, options.configs) for row in chosen]
        return 0 if all(results) else 1
    torch = torch_with_device()
    if torch is None:
        print("torch for ROCm with a device is needed: nothing was measured", file=sys.stderr)
        return 2
    measured: list[dict[str, Any]] = []
    good = True
    for row in chosen:
        print(f"== {row.group}: {row.label}", flush=True)
        good = measure(torch, row, options.configs, measured) and good
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(measured, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
