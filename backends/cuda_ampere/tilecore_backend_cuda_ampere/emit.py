"""How this backend's own operations become text: names of the ``ampere`` namespace."""

from __future__ import annotations

from collections.abc import Mapping

from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.codegen.simt.expressions import ExpressionPrinter, function_rule
from tilecore.hooks.records import EmitRule
from tilecore.ir.buffers import Region
from tilecore.ir.expr import Call, Const
from tilecore.ir.stmts import Intrinsic
from tilecore_backend_cuda_ampere.mma import ATOMS

DIALECT = Dialect(namespaces=frozenset({"ampere"}))


def _regions(stmt: Intrinsic) -> tuple[Region, ...]:
    return tuple(arg for arg in stmt.args if isinstance(arg, Region))


def _mma(printer: KernelPrinter, stmt: Intrinsic) -> str:
    name = stmt.op.removeprefix("mma.")
    c, a, b = (printer.region(region) for region in _regions(stmt))
    return f"ampere::{name}({c}, {a}, {b});"


def _ldmatrix(printer: KernelPrinter, stmt: Intrinsic) -> str:
    name = stmt.op.removeprefix("ampere.")
    registers, row = _regions(stmt)
    count = dict(stmt.hints)["count"]
    return f"ampere::{name}<{count}>({printer.region(registers)}, {printer.region(row)});"


def _lop3(printer: ExpressionPrinter, call: Call) -> str:
    *values, table = call.args
    assert isinstance(table, Const)
    return f"ampere::lop3<{int(table.value)}>({', '.join(printer.text(a) for a in values)})"


def emit_rules() -> Mapping[str, EmitRule]:
    """Rules by operation name."""
    return {
        **{f"mma.{atom.name}": _mma for atom in ATOMS},
        "ampere.ldmatrix": _ldmatrix,
        "ampere.ldmatrix_trans": _ldmatrix,
        "ampere.to_tf32": function_rule("ampere::to_tf32"),
        "lane.at_use": function_rule("ampere::at_use"),
        "cuda.prmt": function_rule("ampere::prmt"),
        "cuda.lop3": _lop3,
    }
