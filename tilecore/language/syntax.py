"""Tables about Python's syntax: what has no meaning in a tile program, names of operators."""

from __future__ import annotations

import ast

REFUSED: dict[type[ast.AST], str] = {
    ast.Try: "try",
    ast.ClassDef: "class",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.AsyncFunctionDef: "async def",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Match: "match",
    ast.NamedExpr: "the := operator",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Await: "await",
}

OPERATOR_NAMES: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.MatMult: "matmul",
}
