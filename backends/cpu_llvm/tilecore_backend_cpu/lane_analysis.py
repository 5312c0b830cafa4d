"""What a nest's body allows: vectors or one lane at a time, and how wide."""

from __future__ import annotations

from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Load, Var, dtype_of_expr, reads_memory, transform
from tilecore.ir.stmts import Allocate, Block, For, If, Let, Stmt, Store

from .analysis import depends_on
from .state import BlockState


def inline_lets(expr: Expr, definitions: dict[str, Expr]) -> Expr:
    """Replace let-bound variables of the nest by their definitions."""
    known: dict[str, Expr] = {}

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Var) or node.name not in definitions:
            return None
        if node.name not in known:
            known[node.name] = transform(definitions[node.name], visit)
        return known[node.name]

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
                if any(reads_memory(e) for e in (start, extent, step)):
                    return False
                if not can_vectorise(s, inner, name, locals_here):
                    return False
            case Allocate(buffer=buffer) if not buffer.shape:
                locals_here.add(buffer.name)
            case _:
                return False
    return True


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
    """Bits of the widest type in an expression, indices of what it loads left out."""
    found, stack, seen = 0, [expr], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        found = max(found, compute_bits(dtype_of_expr(node)))
        if not isinstance(node, Load):
            stack += node.children
    return found
