"""How GPU benchmarks time and check: shared, so that their figures mean the same."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch


def milliseconds(call: Callable[[], Any], settle: int, measure: int) -> float:
    """Median time of a call with the second-level cache flushed in between.

    Args:
        call: what to time.
        settle: milliseconds of calls before timing.
        measure: milliseconds of calls that are timed.
    """
    from triton.testing import do_bench  # not needed to compile only

    return float(do_bench(call, warmup=settle, rep=measure, return_mode="median"))


FLUSH_BYTES = 256 << 20  # more than the second-level cache of any device here


def milliseconds_after_reads(call: Callable[[], Any], calls: int = 40) -> float:
    """Median time of a call after one that has read other memory.

    `milliseconds` flushes by writing: lines that a call brings in then push out lines that must
    first be written back, which halves the bandwidth that a call of some ten megabytes can see.
    """
    other = torch.zeros(FLUSH_BYTES // 4, device="cuda")
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    for begin, end in events:
        other.max()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    times = sorted(begin.elapsed_time(end) for begin, end in events)
    return times[calls // 2]


@dataclass(frozen=True, slots=True)
class Turns:
    """Two calls measured by turns in one process.

    Attributes:
        first, second: median milliseconds of each.
        ratio: the median of the second's over the first's, pair by pair: clocks and temperature
            drift more slowly than turns change.
        ratios: of the single pairs, in order.
    """

    first: float
    second: float
    ratio: float
    ratios: tuple[float, ...]


def by_turns(
    first: Callable[[], Any], second: Callable[[], Any], turns: int, settle: int, measure: int,
    rest: float = 0.0,
) -> Turns:  # fmt: skip
    """Measure two calls by turns; every other pair begins with the second.

    Args:
        first, second: what to compare.
        turns: pairs of measurements.
        settle, measure: as for `milliseconds`, each time.
        rest: seconds of idleness before each measurement, in which the device cools.
    """
    found: list[tuple[float, float]] = []
    for turn in range(turns):
        times: dict[int, float] = {}
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            torch.cuda.synchronize()
            time.sleep(rest)
            times[which] = milliseconds((first, second)[which], settle, measure)
        found.append((times[0], times[1]))
    ratios = tuple(b / a for a, b in found)
    a, b = (statistics.median(column) for column in zip(*found, strict=True))
    return Turns(a, b, statistics.median(ratios), ratios)


def milliseconds_in_graph(calls: Sequence[Callable[[], Any]], replays: int = 5) -> float:
    """Time of one of `calls` when a CUDA graph of all of them runs over and over.

    So do the layers of a model follow one another; the calls are to use more memory, all together,
    than the second-level cache holds.
    """
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(3):
        graph.replay()
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / replays / len(calls))
    return sorted(times)[1]


def example_at(path: str) -> ModuleType:
    """A peer's example program, loaded from its file."""
    spec = importlib.util.spec_from_file_location("peer_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fastest(
    candidates: Iterable[tuple[str, Callable[[], Callable[[], Any]]]], settle: int, measure: int
) -> Callable[[], Any]:
    """The fastest of some calls; those that fail are told and passed over.

    Args:
        candidates: name and maker of each call.
        settle, measure: as for `milliseconds`.

    Raises:
        RuntimeError: none ran.
    """
    times: list[tuple[float, Callable[[], Any]]] = []
    for name, make in candidates:
        try:
            call = make()
            call()
            times.append((milliseconds(call, settle, measure), call))
        except Exception as error:
            print(f"  {name}: {str(error)[:200]}", flush=True)
            continue
        print(f"  {name}: {times[-1][0]:.4f} ms", flush=True)
    if not times:
        raise RuntimeError("no configuration ran")
    return min(times, key=lambda one: one[0])[1]


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference over the norm; infinite where something is not finite."""
    error = (got.float() - want.float()).norm() / want.float().norm()
    return float(error) if bool(torch.isfinite(error)) else float("inf")


def attention_in_float64(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> torch.Tensor:
    """Attention of (batch, heads, length, dim) in float64; causal masks are aligned to the bottom
    right, and queries without keys get zeros."""
    scores = q.double() @ k.double().transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        rows, columns = q.shape[2], k.shape[2]
        diagonal = torch.arange(rows, device=q.device)[:, None] + columns - rows
        hidden = torch.arange(columns, device=q.device)[None, :] > diagonal
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0) @ v.double()
