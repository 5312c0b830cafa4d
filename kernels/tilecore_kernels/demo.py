"""The demonstration: real kernels on real input, checked against somebody else's, and timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilecore.target import Target
from tilecore_kernels import FAMILIES, compile_kernel
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.measure import copy_bandwidth, time_call
from tilecore_kernels.rms_norm import NormProblem
from tilecore_kernels.softmax import SoftmaxProblem
from tilecore_kernels.tensors import runs_on_device, synchronizer, to_host, to_target


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One line of the demonstration's table.

    Attributes:
        what: the kernel.
        shape: sizes and element type.
        checked_against: the independent implementation.
        error: largest difference to it, relative to the largest value.
        passed: the error is within what rounding explains.
        milliseconds: time of our kernel, the median.
        peer_milliseconds: time of the independent implementation, None when it is not timed.
        rate: GFLOP/s, or GB/s for kernels that move data.
        unit: of `rate`.
        share: of the machine's peak that this run measured, 0 to 1; None where none was measured.
    """

    what: str
    shape: str
    checked_against: str
    error: float
    passed: bool
    milliseconds: float
    peer_milliseconds: float | None
    rate: float
    unit: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A problem to show, its label, and whether arithmetic or memory bounds it."""

    family: str
    problem: Any
    shape: str
    is_memory_bound: bool = False


def exhibits(on_device: bool) -> list[Exhibit]:
    """What to show: larger sizes, and 16-bit floats, where the hardware is made for them."""
    size, dtype = (8192, "float16") if on_device else (2048, "float32")
    attention = AttentionProblem(1, 8, 2048, 64, dtype)
    if on_device:
        attention = AttentionProblem(8, 32, 4096, 128, dtype)
    label = f"{attention.batch}x{attention.heads}x{attention.q_len}x{attention.dim}"
    found = [
        Exhibit("gemm", GemmProblem(size, size, size, dtype), f"{size}^3 {dtype}"),
        Exhibit("flash_attention", attention, f"{label} {dtype}"),
        Exhibit("flash_attention", replace(attention, right=0), f"{label} {dtype} causal"),
        Exhibit("softmax", SoftmaxProblem(4096, 4096), "4096x4096 float32", True),
        Exhibit("rms_norm", NormProblem(4096, 4096), "4096x4096 float32", True),
    ]
    bf16 = GemmProblem(size, size, size, "bfloat16")
    found.insert(1, Exhibit("gemm", bf16, f"{size}^3 bfloat16"))
    return found


def run(backend: str | None = None, report: Callable[[str], None] | None = None) -> list[DemoRow]:
    """Compile, run, check and time the exhibits on the best device of `backend`.

    Args:
        backend: which backend; None takes the best one present.
        report: called with a line of progress before each step.

    Raises:
        TilecoreError: the backend cannot compile or run a kernel.
    """
    from tilecore.targets import choose_target

    target = choose_target(backend)
    say = report or (lambda _: None)
    rows: list[DemoRow] = []
    peaks: dict[str, float] = {}
    say("measuring copy bandwidth")
    bandwidth = copy_bandwidth(_maker(target), synchronizer(target))
    for exhibit in exhibits(runs_on_device(target)):
        say(f"{exhibit.family} {exhibit.shape}")
        rows.append(_show(exhibit, target, bandwidth, peaks))
    rows = [_with_share(row, peaks) for row in rows]
    from tilecore_kernels import minilm

    if minilm.is_available():
        say("sentence embeddings")
        rows.append(_show_embeddings(target))
    return rows


def _maker(target: Target) -> Callable[[tuple[int, ...], str], Any]:
    if not runs_on_device(target):
        return lambda shape, dtype: np.ones(shape, dtype)
    import torch

    return lambda shape, dtype: torch.ones(shape, dtype=getattr(torch, dtype), device="cuda")


def _show(exhibit: Exhibit, target: Target, bandwidth: float, peaks: dict[str, float]) -> DemoRow:
    """One row; raises the peak of its element type where ours or theirs is the fastest so far."""
    family, problem = FAMILIES[exhibit.family], exhibit.problem
    kernel = compile_kernel(exhibit.family, problem, target.backend, arch=target.arch)
    arrays = family.inputs(problem, np.random.default_rng(0))
    tensors = [to_target(array, target) for array in arrays]
    from tilecore.ir.dtypes import dtype_of, numpy_dtype

    outputs = [
        to_target(np.zeros(shape, numpy_dtype(dtype_of(dtype))), target)
        for shape, dtype in family.outputs(problem)
    ]
    timing = time_call(lambda: kernel(*tensors, *outputs), synchronizer(target))
    peer = _peer(exhibit, arrays, target)
    wanted, result = peer.result, to_host(outputs[0]).astype(np.float64)
    error = float(np.abs(result - wanted).max() / np.abs(wanted).max())
    if exhibit.is_memory_bound:
        rate = family.bytes_moved(problem) / timing.median / 1e9
        unit, share = "GB/s", rate * 1e9 / bandwidth
    else:
        rate = family.flops(problem) / timing.median / 1e9
        unit, share = "GFLOP/s", None
        best = min(timing.best, peer.best_seconds or timing.best)
        reached = family.flops(problem) / best / 1e9
        peaks[problem.dtype] = max(peaks.get(problem.dtype, 0.0), reached)
    return DemoRow(
        exhibit.family,
        exhibit.shape,
        peer.name,
        error,
        error <= _tolerance(problem),
        timing.median * 1e3,
        None if peer.seconds is None else peer.seconds * 1e3,
        rate,
        unit,
        share,
    )


def _tolerance(problem: Any) -> float:
    """Relative to the largest value: both sides may err by a sum's and a rounding's share."""
    from tilecore.testing.tolerances import function, reduction

    terms = getattr(problem, "k", None) or getattr(problem, "kv_len", None) or problem.cols
    one_side = reduction(problem.dtype, terms) + function(problem.dtype)
    return 2.0 * (one_side.relative + one_side.of_magnitude)


def _with_share(row: DemoRow, peaks: dict[str, float]) -> DemoRow:
    """Arithmetic as a share of the best rate that anything reached in this run, ours or theirs."""
    if row.unit != "GFLOP/s":
        return row
    return replace(row, share=row.rate / peaks[row.shape.split()[1]])


@dataclass(frozen=True, slots=True)
class Peer:
    """What an independent implementation gave, and its median and best seconds if timed."""

    name: str
    result: np.ndarray
    seconds: float | None = None
    best_seconds: float | None = None


def _peer(exhibit: Exhibit, arrays: tuple[np.ndarray, ...], target: Target) -> Peer:
    """torch's own operation where torch is installed, else the NumPy reference (not timed)."""
    try:
        import torch
    except ImportError:
        return Peer("NumPy", FAMILIES[exhibit.family].reference(exhibit.problem, *arrays)[0])
    device = "cuda" if runs_on_device(target) else "cpu"
    tensors = [
        torch.from_numpy(array.view(np.uint8)).view(getattr(torch, array.dtype.name)).to(device)
        for array in arrays
    ]
    function = _torch_function(exhibit, torch)
    with torch.inference_mode():
        result = function(*tensors)
        timing = time_call(lambda: function(*tensors), synchronizer(target), budget_s=0.5)
    name = f"torch {torch.__version__}"
    return Peer(name, result.double().cpu().numpy(), timing.median, timing.best)


def _torch_function(exhibit: Exhibit, torch: Any) -> Callable[..., Any]:
    functional, problem = torch.nn.functional, exhibit.problem
    if exhibit.family == "gemm":
        return torch.matmul
    if exhibit.family == "flash_attention":
        return lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, is_causal=problem.is_causal
        )
    if exhibit.family == "softmax":
        return lambda x: functional.softmax(x, dim=-1)
    return lambda x, weight: functional.rms_norm(x, (problem.cols,), weight, problem.eps)


def _show_embeddings(target: Target) -> DemoRow:
    from tilecore_kernels import minilm

    found = minilm.compare(minilm.SENTENCES, target)
    return DemoRow(
        "sentence embeddings",
        f"{len(minilm.SENTENCES)} sentences, all-MiniLM-L6-v2",
        found.checked_against,
        found.error,
        found.error <= minilm.TOLERANCE,
        found.seconds * 1e3,
        found.peer_seconds * 1e3,
        found.flops / found.seconds / 1e9,
        "GFLOP/s",
    )
