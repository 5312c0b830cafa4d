"""``tilecore bench``: the kernels package's kernels at the sizes that they are measured at."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tilecore.cli.demo import kernels_module
from tilecore.errors import TilecoreError
from tilecore.targets import choose_target


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One measurement.

    Attributes:
        kernel: family name.
        problem: its sizes and dtypes.
        backend: which backend, and for which architecture.
        milliseconds: median time of one call.
        gflops: 10^9 operations per second.
        gigabytes: 10^9 bytes per second, of the bytes that must move.
        notes: what the toolchain remarked (spills, serialised instructions).
        error: why it could not be run, or "".
    """

    kernel: str
    problem: str
    backend: str
    milliseconds: float = 0.0
    gflops: float = 0.0
    gigabytes: float = 0.0
    notes: tuple[str, ...] = ()
    error: str = ""


def run(name: str | None, backend: str | None, seconds: float) -> list[BenchRow]:
    """Measure one family, or all.

    Raises:
        click.UsageError: no such kernel.
    """
    families = kernels_module("").FAMILIES
    if name is not None and name not in families:
        raise click.UsageError(f"no kernel {name!r}; there are {', '.join(sorted(families))}")
    chosen = families.values() if name is None else [families[name]]
    return [row for family in chosen for row in _measure(family, backend, seconds)]


def _measure(family: Any, backend: str | None, seconds: float) -> Iterator[BenchRow]:
    import numpy as np

    from tilecore.ir.dtypes import dtype_of, numpy_dtype

    tensors, measure = kernels_module("tensors"), kernels_module("measure")
    target = choose_target(backend)
    for problem in family.problems:
        row = BenchRow(family.name, str(problem), str(target))
        try:
            kernel = kernels_module("").compile_kernel(
                family.name, problem, target.backend, arch=target.arch
            )
            arrays = family.inputs(problem, np.random.default_rng(0))
            passed = [tensors.to_target(array, target) for array in arrays]
            passed += [
                tensors.to_target(np.zeros(shape, numpy_dtype(dtype_of(dtype))), target)
                for shape, dtype in family.outputs(problem)
            ]
            timing = measure.time_call(
                functools.partial(kernel, *passed),
                tensors.synchronizer(target),
                budget_s=seconds,
            )
        except TilecoreError as error:
            yield BenchRow(row.kernel, row.problem, row.backend, error=str(error))
            continue
        yield BenchRow(
            row.kernel,
            row.problem,
            row.backend,
            milliseconds=timing.median * 1e3,
            gflops=family.flops(problem) / timing.median / 1e9,
            gigabytes=family.bytes_moved(problem) / timing.median / 1e9,
            notes=tuple(note for used in kernel.resources for note in used.notes),
        )


def as_json(row: BenchRow) -> str:
    """One row as a line of JSON."""
    return json.dumps(asdict(row))


def show(rows: Sequence[BenchRow], console: Console) -> None:
    """The rows as a table."""
    table = Table("kernel", "problem", "backend")
    for title in ("time", "GFLOP/s", "GB/s"):
        table.add_column(title, justify="right")
    table.add_column("notes")
    for row in rows:
        if row.error:
            table.add_row(row.kernel, row.problem, row.backend, "", "", "", f"[red]{row.error}")
            continue
        table.add_row(
            row.kernel,
            row.problem,
            row.backend,
            f"{row.milliseconds:.3f} ms",
            f"{row.gflops:,.1f}",
            f"{row.gigabytes:,.1f}",
            "\n".join(row.notes),
        )
    console.print(table)
