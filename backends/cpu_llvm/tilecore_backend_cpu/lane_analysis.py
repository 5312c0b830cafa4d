"""What a nest's body allows: vectors or one lane at a time, and how wide."""

from __future__ import annotations

from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Load, Var, transform, walk
from tilecore.ir.stmts import Allocate, Block, For, If, Let, Stmt, Store

from .analysis import depends_on
from .state import BlockState


def inline_lets(expr: Expr, definitions: dict[str, Expr]) -> Expr:
    """Replace let-bound variables of the nest by their definitions."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var) and node.name in definitions:
            return inline_lets(definitions[node.name], definitions)
        return None

    return transform(expr, visit)


def can_vectorise(s: BlockState, body: Block, name: str, locals_here: set[str]) -> bool:
    """Whether lanes of variable `name` can run a body side by side."""
    for stmt in body:
        match stmt:
            case Let():
                continue
            case Store(buffer=buffer):
                if buffer.scope is Scope.LOCAL and buffer.name not in locals_here:
                    return False
            case If(then=then, otherwise=otherwise):
                if not can_vectorise(s, then, name, locals_here):
                    return False
                if not can_vectorise(s, otherwise, name, locals_here):
                    return False
            case For(start=start, extent=extent, step=step, body=inner):
                if any(depends_on(e, name, s.definitions) for e in (start, extent, step)):
                    return False
                if any(_reads_memory(e) for e in (start, extent, step)):
                    return False
                if not can_vectorise(s, inner, name, locals_here):
                    return False
            case Allocate(buffer=buffer) if not buffer.shape:
                locals_here.add(buffer.name)
            case _:
                return False
    return True


def _reads_memory(expr: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(expr))


def is_raw_copy(stmt: Store) -> bool:
    """A store of an element of the same type: no conversion, any width of vector."""
    return isinstance(stmt.value, Load) and stmt.value.buffer.dtype == stmt.buffer.dtype


def widest_bits(stmt: Stmt) -> int:
    """Bits of the widest element type that a statement computes with."""
    if isinstance(stmt, Store):
        if is_raw_copy(stmt):
            return stmt.buffer.dtype.bits
        return max(compute_bits(stmt.buffer.dtype), _expr_bits(stmt.value))
    if isinstance(stmt, Let):
        return _expr_bits(stmt.value)
    if isinstance(stmt, If):
        return _expr_bits(stmt.condition)
    if isinstance(stmt, Allocate):
        return compute_bits(stmt.buffer.dtype)
    return 8


def compute_bits(dtype: DType) -> int:
    """Bits of an element in registers."""
    return 32 if dtype.is_float and dtype.bits < 32 else dtype.bits


def _expr_bits(expr: Expr) -> int:
    if isinstance(expr, Load):
        return compute_bits(expr.dtype)
    own = compute_bits(expr.dtype)  # type: ignore[attr-defined]
    return max([own, *(_expr_bits(child) for child in expr.children)])
