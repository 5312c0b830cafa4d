"""Smaller defaults for the options of programs that have some: a host is no accelerator."""

from __future__ import annotations

import argparse
import ast
import re
from typing import Any

_LIMITS = (
    (re.compile(r"^(batch|batch_size|b|bs|b_q)$", re.IGNORECASE), 1),
    (re.compile(r"seq|ctx|context|kv_len|max_len|^s_?[qk]?v?$|^t$|^l$|topk$", re.IGNORECASE), 256),
    (re.compile(r"^[mnk]$|tokens|hidden|^dim_in$|^dim_out$|^num_pages$", re.IGNORECASE), 256),
)


def _smaller(name: str, default: int) -> int:
    for pattern, limit in _LIMITS:
        if pattern.search(name):
            return min(default, limit)
    return default


_MAINS = ("main", "run_regression_perf")


def with_small_defaults(tree: ast.Module) -> ast.Module:
    """The program with lower defaults of the sizes that its main function takes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in _MAINS:
            names = [*node.args.posonlyargs, *node.args.args]
            pairs = zip(
                names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True
            )
            for name, default in pairs:
                if isinstance(default, ast.Constant) and type(default.value) is int:
                    default.value = _smaller(name.arg, default.value)
    return tree


def shrink() -> None:
    """Make `argparse` lower the defaults of options that are sizes by their names."""
    original = argparse._ActionsContainer.add_argument

    def add_argument(self: Any, *flags: Any, **options: Any) -> Any:
        default = options.get("default")
        if flags and isinstance(default, int) and not isinstance(default, bool):
            name = str(options.get("dest", max(flags, key=len))).lstrip("-").replace("-", "_")
            options["default"] = _smaller(name, default)
        return original(self, *flags, **options)

    argparse._ActionsContainer.add_argument = add_argument  # type: ignore[method-assign]
