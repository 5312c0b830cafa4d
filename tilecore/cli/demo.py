"""``tilecore demo``: the table of the kernels package's demonstration."""

from __future__ import annotations

import importlib
from typing import Any

from rich.console import Console
from rich.table import Table

from tilecore.errors import BackendError
from tilecore.targets import choose_target, present_device


def kernels_module(name: str) -> Any:
    """A module of ``tilecore_kernels``, which core does not depend on.

    Raises:
        BackendError: it is not installed.
    """
    try:
        return importlib.import_module(f"tilecore_kernels.{name}" if name else "tilecore_kernels")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "tilecore_kernels":
            raise BackendError(
                "the kernels are not installed", hint="pip install tilecore-kernels"
            ) from error
        raise


def run(backend: str | None, console: Console) -> bool:
    """Run the demonstration and print its table; False when a check failed."""
    demo = kernels_module("demo")
    target = choose_target(backend)
    found = present_device(target.backend)
    where = found[1].name if found is not None else "no device"
    console.print(f"[bold]{target.backend}[/] on {where} ({target.arch})")
    with console.status("compiling") as status:
        rows: list[Any] = demo.run(backend, report=status.update)
    console.print(_table(rows))
    wrong = [row for row in rows if not row.passed]
    for row in wrong:
        console.print(f"[red]{row.what} {row.shape}: the error is more than rounding explains")
    if not wrong:
        console.print(f"{len(rows)} of {len(rows)} results agree with independent implementations")
    return not wrong


def _table(rows: list[Any]) -> Table:
    table = Table()
    for title in ("kernel", "shape", "checked against", "error", ""):
        table.add_column(title)
    for title in ("time", "theirs", "rate", "of peak"):
        table.add_column(title, justify="right")
    for row in rows:
        theirs = row.peer_milliseconds
        table.add_row(
            row.what,
            row.shape,
            row.checked_against,
            f"{row.error:.1e}",
            "[green]ok" if row.passed else "[red]WRONG",
            f"{row.milliseconds:.3f} ms",
            "" if theirs is None else f"{theirs:.3f} ms",
            f"{row.rate:,.1f} {row.unit}",
            "" if row.share is None else f"{row.share:.0%}",
        )
    return table
