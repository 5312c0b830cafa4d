"""How this backend's own operations become text: names of the ``ampere`` namespace."""

from __future__ import annotations

from collections.abc import Mapping

from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.codegen.simt.expressions import ExpressionPrinter, function_rule
from tilecore.codegen.simt.statements import statement_rule
from tilecore.errors import UnsupportedError
from tilecore.hooks.records import EmitRule
from tilecore.ir.buffers import Region
from tilecore.ir.expr import Call, Const, Expr
from tilecore.ir.stmts import Intrinsic
from tilecore_backend_cuda_ampere.copy import L2_PREFETCH, L2_PREFETCH_BYTES
from tilecore_backend_cuda_ampere.mma import ATOMS

DIALECT = Dialect(namespaces=frozenset({"ampere"}))


def _regions(stmt: Intrinsic) -> tuple[Region, ...]:
    return tuple(arg for arg in stmt.args if isinstance(arg, Region))


def _ldmatrix(printer: KernelPrinter, stmt: Intrinsic) -> str:
    name = stmt.op.removeprefix("ampere.")
    registers, row = _regions(stmt)
    count = dict(stmt.hints)["count"]
    return f"ampere::{name}<{count}>({printer.region(registers)}, {printer.region(row)});"


def _stmatrix(printer: KernelPrinter, stmt: Intrinsic) -> str:
    name = stmt.op.removeprefix("ampere.")
    registers, row = _regions(stmt)
    count = dict(stmt.hints)["count"]
    return f"ampere::{name}<{count}>({printer.region(row)}, {printer.region(registers)});"


def _async_copy(printer: KernelPrinter, stmt: Intrinsic) -> str:
    """cp.async, with the author's choice of what the second-level cache fetches along with it."""
    prefetch = dict(stmt.hints).get(L2_PREFETCH)
    if prefetch is None:
        return printer.async_copy(stmt)
    if prefetch not in L2_PREFETCH_BYTES:
        raise UnsupportedError(
            f"annotation {L2_PREFETCH} of a copy",
            expected=", ".join(map(str, L2_PREFETCH_BYTES)),
            got=prefetch,
            loc=stmt.loc,
        )
    source, target, *valid = stmt.args
    assert isinstance(source, Region) and isinstance(target, Region)
    (count,) = source.static_shape or (1,)
    elements = str(count)
    for condition in valid:
        assert isinstance(condition, Expr)
        elements = f"{printer.expressions.text(condition)} ? {count} : 0"
    arguments = f"{printer.region(target)}, {printer.region(source)}, {elements}"
    return f"ampere::copy_async<{count}, {prefetch}>({arguments});"


def _lop3(printer: ExpressionPrinter, call: Call) -> str:
    *values, table = call.args
    assert isinstance(table, Const)
    return f"ampere::lop3<{int(table.value)}>({', '.join(printer.text(a) for a in values)})"


def emit_rules() -> Mapping[str, EmitRule]:
    """Rules by operation name."""
    return {
        **{f"mma.{atom.name}": statement_rule(f"ampere::{atom.name}") for atom in ATOMS},
        "ampere.ldmatrix": _ldmatrix,
        "ampere.ldmatrix_trans": _ldmatrix,
        "ampere.stmatrix": _stmatrix,
        "ampere.stmatrix_trans": _stmatrix,
        "ampere.to_tf32": function_rule("ampere::to_tf32"),
        "async.copy": _async_copy,
        "barrier.init": statement_rule("ampere::barrier_init"),
        "barrier.arrive": statement_rule("ampere::barrier_arrive"),
        "barrier.wait": statement_rule("ampere::barrier_wait"),
        "lane.at_use": function_rule("ampere::at_use"),
        "cuda.prmt": function_rule("ampere::prmt"),
        "cuda.lop3": _lop3,
    }
