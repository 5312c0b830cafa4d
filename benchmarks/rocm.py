"""Gemm, attention and decoding beside torch on an MI300X, with the static model's predictions.

    python benchmarks/rocm.py [gemm fp8 scaled attention decode mla] [--configs N] [--json FILE]
    python benchmarks/rocm.py --compile-only        # no device, no torch: what would be run

Needs torch for ROCm, whose products are hipBLASLt's and whose attention is AOTriton's; AITER is a
peer where it is installed. Every result is checked in the same run before it is timed, against
float32 on the device or float64 on the host. Every configuration is measured in every schedule that
changes its code (`rocm_rows.VARIANTS`). Times are medians of events, with the caches flushed
between calls. Above 1 a ratio means that this project is faster. Exit status 1 when a configuration
was wrong or could not run. With ``--compile-only`` a table of registers, LDS, spills, planned and
reached occupancy; exit status 1 when something spills or misses its plan.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rocm_rows import (
    BACKEND,
    GROUPS,
    VARIANTS,
    Row,
    predicted,
    print_table,
    rate,
    rows,
    short,
    variants_of,
)

import tilecore
from tilecore.compiler import Lowered
from tilecore.hooks.manager import targets_of
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.gemm import GemmProblem

FLUSH_BYTES = 512 << 20  # twice the Infinity Cache
LIMIT = 1e-2  # relative error of bfloat16 results; FNUZ operands are exact


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


def tensors(torch: Any, row: Row) -> tuple[tuple[Any, ...], tuple[Any, ...], Callable[[], float]]:
    """(inputs, outputs, relative error of the first output)."""
    p = row.problem
    if not isinstance(p, GemmProblem | AttentionProblem):
        return _from_host(torch, row)
    dtype = getattr(torch, p.dtype)

    def made(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    if isinstance(p, GemmProblem):
        a, b = made(p.m, p.k), made(*((p.n, p.k) if p.transpose_b else (p.k, p.n)))
        out = torch.empty(p.m, p.n, device="cuda", dtype=getattr(torch, p.result_dtype))
        right = (b.T if p.transpose_b else b).float()
        return (a, b), (out,), lambda: _error(out[:512], a[:512].float() @ right)
    q = made(p.batch, p.heads, p.q_len, p.dim)
    k, v = (made(p.batch, p.kv_heads, p.kv_len, d) for d in (p.dim, p.dim_v))
    out = torch.empty(p.batch, p.heads, p.q_len, p.dim_v, device="cuda", dtype=dtype)
    head = slice(0, 1)
    want = _attend(torch, q[:, head].float(), k[:, head].float(), v[:, head].float(), p)
    return (q, k, v), (out,), lambda: _error(out[:, head], want)


def _from_host(torch: Any, row: Row) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """Inputs and the float64 reference of the kernel's own family."""
    arrays = row.family.inputs(row.problem, np.random.default_rng(0))
    (want, *_) = row.family.reference(row.problem, *arrays)
    expected = torch.from_numpy(np.ascontiguousarray(want, np.float32)).cuda()
    inputs = tuple(
        torch.from_numpy(np.ascontiguousarray(a).view(np.uint8)).cuda()
        .view(getattr(torch, a.dtype.name)).reshape(a.shape)
        for a in arrays
    )  # fmt: skip
    outputs = tuple(
        torch.empty(shape, device="cuda", dtype=getattr(torch, dtype))
        for shape, dtype in row.family.outputs(row.problem)
    )
    return inputs, outputs, lambda: _error(outputs[0], expected)


def _attend(torch: Any, q: Any, k: Any, v: Any, p: AttentionProblem) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=p.right is not None)


def _error(got: Any, want: Any) -> float:
    return float((got.float() - want).norm() / want.norm())


def peers(torch: Any, row: Row, inputs: tuple[Any, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and calls of what others offer for the same problem."""
    p = row.problem
    if row.group in ("fp8", "scaled"):
        yield from _scaled_peers(torch, row, inputs)
    elif isinstance(p, GemmProblem):
        a, b = inputs
        right = b.T if p.transpose_b else b
        yield "torch (hipBLASLt)", lambda: torch.mm(a, right)
    elif isinstance(p, AttentionProblem):
        q, k, v = inputs
        group, causal = p.heads // p.kv_heads, p.right is not None
        wide_k, wide_v = (t.repeat_interleave(group, 1) if group > 1 else t for t in (k, v))
        yield "torch (AOTriton)", lambda: _attend(torch, q, wide_k, wide_v, p)
        if importlib.util.find_spec("aiter") is not None:
            import aiter

            swapped = [t.transpose(1, 2).contiguous() for t in inputs]
            yield "AITER", lambda: aiter.flash_attn_func(*swapped, causal=causal)
    elif row.group == "decode" and not p.page_size:
        q, k, v = inputs[0].unsqueeze(2), inputs[1], inputs[2]
        attend = torch.nn.functional.scaled_dot_product_attention
        yield "torch (attention)", lambda: attend(q, k, v, enable_gqa=True)


def _scaled_peers(
    torch: Any, row: Row, inputs: tuple[Any, ...]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """torch's product of 8-bit floats, where it has one: one factor a tensor."""
    p = row.problem
    if getattr(p, "scaling", "tensor") != "tensor" or not p.dtype.endswith("fnuz"):
        return
    one = torch.ones((), device="cuda")
    a, b, *scales = inputs
    of_a, of_b = (s.reshape(()) for s in scales) if scales else (one, one)
    out = getattr(torch, getattr(p, "result_dtype", None) or p.out_dtype)
    yield (
        "torch (hipBLASLt)",
        lambda: torch._scaled_mm(a, b.T, scale_a=of_a, scale_b=of_b, out_dtype=out),
    )


def measure_one(
    torch: Any, row: Row, config: Any, variant: str, made: Lowered, data: tuple[Any, ...]
) -> dict[str, Any]:
    """One configuration in one schedule, which makes `made` of it, checked and timed.

    Raises:
        ValueError: the result is wrong.
    """
    inputs, outputs, error_of = data
    program = row.family.program(row.problem, config)
    kernel = tilecore.compile(program, BACKEND, options=VARIANTS[variant])
    for out in outputs:
        out.fill_(float("nan"))
    kernel(*inputs, *outputs)
    error = error_of()
    if not error <= LIMIT:
        raise ValueError(f"wrong result: relative error {error:.3g}")
    ms = milliseconds(torch, lambda: kernel(*inputs, *outputs))
    model = predicted(row, made)
    return {"ms": ms, "config": short(config), "schedule": variant or "default", "error": error,
            "rate": rate(row, ms * 1e-3), "predicted": rate(row, model)}  # fmt: skip


def measure(torch: Any, row: Row, count: int, out_rows: list[dict[str, Any]]) -> bool:
    """Time the first configurations and the peers of one row; True when all were right."""
    (target,) = targets_of(BACKEND)
    data, good = tensors(torch, row), True
    tried: list[dict[str, Any]] = []
    for config in list(row.family.configs(row.problem, target))[:count]:
        for variant, made in variants_of(row, config).items():
            try:
                found = measure_one(torch, row, config, variant, made, data)
                print(f"  {json.dumps(found)}", flush=True)
                tried.append(found)
            except Exception as failure:  # the other configurations and rows still count
                traceback.print_exc(limit=-2)
                print(f"  FAILED {short(config)} {variant}: {failure}", flush=True)
                good = False
    best = min(tried, key=lambda found: found["ms"], default={})
    result: dict[str, Any] = {"group": row.group, "problem": row.label, "best": best,
                              "all": tried, "peers": {}}  # fmt: skip
    for name, call in peers(torch, row, data[0]):
        try:
            ms = milliseconds(torch, call)
            ratio = ms / best["ms"] if best else 0.0
            result["peers"][name] = {"ms": ms, "rate": rate(row, ms * 1e-3), "ratio": ratio}
        except Exception as failure:
            print(f"  peer {name} failed: {failure}", flush=True)
    out_rows.append(result)
    print("ROW", json.dumps(result), flush=True)
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
        return 0 if print_table(chosen, options.configs) else 1
    torch = torch_with_device()
    if torch is None:
        print("torch for ROCm with a device is needed: nothing was measured", file=sys.stderr)
        return 2
    measured: list[dict[str, Any]] = []
    good = True
    for row in chosen:
        print(f"== {row.label}", flush=True)
        try:
            good = measure(torch, row, options.configs, measured) and good
        except Exception:  # out of memory, say: the other rows still count
            traceback.print_exc()
            print(f"  FAILED {row.label}", flush=True)
            good = False
        torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(measured, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
