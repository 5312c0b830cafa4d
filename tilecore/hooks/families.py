"""Which backends share a family of extras, and programs that use those of another one.

A backend's plugin module says ``TILECORE_LANGUAGE = ("family", "package.module")``; the names that
it adds to the language build operations called ``family.name`` (`language.families`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilecore.errors import Loc, UnsupportedError
from tilecore.hooks.manager import installed_backends, language_of
from tilecore.ir.expr import Call, walk
from tilecore.ir.program import Program
from tilecore.ir.visit import exprs_of, walk_stmts

PACKAGE = "tilecore.language"


def families() -> dict[str, tuple[str, tuple[str, ...]]]:
    """By family, the module of its extras and the backends that have them."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for backend in installed_backends():
        for family, module in language_of(backend):
            backends = found.get(family, (module, ()))[1]
            found[family] = (module, (*backends, backend))
    return found


def refuse_foreign(program: Program, chain: Sequence[str]) -> None:
    """Refuse a program with extras of a family that no backend of `chain` belongs to.

    Raises:
        UnsupportedError: with the operation, its line, and the backends that have it.
    """
    known: dict[str, tuple[str, tuple[str, ...]]] | None = None
    for op, loc in _dotted_calls(program):
        known = families() if known is None else known
        family, _, name = op.partition(".")
        if family in known and not set(known[family][1]) & set(chain):
            raise UnsupportedError(
                f"T.{name} belongs to {PACKAGE}.{family}",
                expected=f"one of the backends {', '.join(known[family][1])}",
                got=chain[-1],
                loc=loc,
                hint=f"import {PACKAGE} for what runs on every backend",
            )


def _dotted_calls(program: Program) -> Iterator[tuple[str, Loc | None]]:
    """Calls whose name has a dot in it, the compiler's own among them, and their lines."""
    for kernel in program.kernels:
        loc: Loc | None = kernel.loc
        for stmt in walk_stmts(kernel.body):
            loc = getattr(stmt, "loc", None) or loc
            for top in exprs_of(stmt):
                for node in walk(top):
                    if isinstance(node, Call) and "." in node.op:
                        yield node.op, loc
