"""Which names of a function need watching: those assigned more than once or under control flow."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CONTROL = (ast.If, ast.For, ast.While)


def stores(nodes: Iterable[ast.AST]) -> list[str]:
    """Names assigned in `nodes`, with repetition, nested functions and comprehensions left out."""
    found: list[str] = []
    for node in nodes:
        _collect(node, found)
    return found


def _collect(node: ast.AST, found: list[str]) -> None:
    if isinstance(node, _FUNCTIONS + _COMPREHENSIONS):
        return
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        found.append(node.id)
    for child in ast.iter_child_nodes(node):
        _collect(child, found)


def declared(body: Iterable[ast.AST]) -> set[str]:
    """Names that stand in a bare declaration, ``A: T.Tensor[...]``."""
    return {
        node.target.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.AnnAssign)
        and node.value is None
        and isinstance(node.target, ast.Name)
    }


def controlled(body: Iterable[ast.AST]) -> set[str]:
    """Names assigned anywhere under an if, for or while (loop variables included)."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, _CONTROL):
            found.update(stores([node]))
        found.update(controlled(ast.iter_child_nodes(node)))
    return found


def parameters(function: ast.FunctionDef) -> list[str]:
    """Names of all parameters."""
    args = function.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    every += [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [arg.arg for arg in every]


def watched(function: ast.FunctionDef) -> set[str]:
    """Names whose reads and assignments must go through `language.bindings`."""
    counts: dict[str, int] = {}
    for name in [*parameters(function), *stores(function.body)]:
        counts[name] = counts.get(name, 0) + 1
    return {name for name, count in counts.items() if count > 1} | controlled(function.body)


def target_names(target: ast.AST) -> list[str]:
    """Names bound by an assignment target, left to right."""
    return [
        node.id
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
