"""How this backend's own operations become text: names of the ``cdna3`` namespace."""

from __future__ import annotations

from collections.abc import Mapping

from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.errors import UnsupportedError
from tilecore.hooks.records import EmitRule
from tilecore.ir.buffers import Region
from tilecore.ir.stmts import Intrinsic

from .mma import ATOMS


def _mfma(printer: KernelPrinter, stmt: Intrinsic) -> str:
    name = stmt.op.removeprefix("mma.")
    c, a, b = (printer.region(arg) for arg in stmt.args if isinstance(arg, Region))
    return f"cdna3::{name}({c}, {a}, {b});"


def _no_named_barrier(printer: KernelPrinter, stmt: Intrinsic) -> str:
    raise UnsupportedError(
        f"{printer.target} has one barrier a workgroup, which all of its lanes must reach",
        got=stmt.op,
        hint="use T.sync_threads() without arguments",
        loc=stmt.loc,
    )


def emit_rules() -> Mapping[str, EmitRule]:
    """Rules by operation name."""
    return {
        **{f"mma.{atom.name}": _mfma for atom in ATOMS},
        "named_barrier.sync": _no_named_barrier,
        "named_barrier.arrive": _no_named_barrier,
    }
