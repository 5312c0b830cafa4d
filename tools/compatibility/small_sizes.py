"""Smaller sizes for programs that have some: a host is no accelerator.

The rule: an integer that is a size by the name it is given to is lowered to the name's limit. Such
names are those of options of ``argparse``, of defaults and arguments of a program's entry functions
and of what they call, and of assignments there; of a list of settings that a program goes through
the first one is run. A program that fails so is run again as it is written.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_LIMITS = [
    (re.compile(r"^(batch|batch_size|b|bs|b_q|z)$", re.IGNORECASE), 1),
    (re.compile(r"^(heads|num_heads|n_heads|h_q|head_num)$", re.IGNORECASE), 16),
    (re.compile(r"seq|ctx|context|kv_len|max_len|^s_?[qk]?v?$|^t$|^l$|^skv$", re.IGNORECASE), 256),
    (re.compile(r"topk$|topk_tokens|selected_blocks", re.IGNORECASE), 64),
    (re.compile(r"^[mnk]$|tokens|hidden|^dim_in$|^dim_out$|^num_pages$", re.IGNORECASE), 256),
    (re.compile(r"experts$|^num_experts|d_expert|^n_routed", re.IGNORECASE), 8),
]
LIMITS = "; ".join(f"`{pattern.pattern}` {limit}" for pattern, limit in _LIMITS)
"""The names and their limits, as the page states them."""

EMULATED = {256: 128}
"""Limits of an emulated run, by those of a host's: it steps through every lane."""

EMULATED_NAMES = [(re.compile(r"^w$"), 8), (re.compile(r"^h$"), 16)]
"""Names that an emulated run lowers besides: sides of images, where `h` is heads elsewhere."""


def use_emulator_limits() -> None:
    """Lower sizes further, for programs that are emulated lane by lane."""
    lower = [(pattern, EMULATED.get(limit, limit)) for pattern, limit in _LIMITS]
    _LIMITS[:] = EMULATED_NAMES + lower


changed: list[str] = []
"""Names whose value was lowered in this process."""


def _smaller(name: str, value: int) -> int:
    for pattern, limit in _LIMITS:
        if pattern.search(name):
            if value > limit:
                changed.append(name)
            return min(value, limit)
    return value


_ENTRIES = re.compile(r"^(main|run_regression_perf|run_\w+|test_\w+|benchmark\w*)$")


class _Lower(ast.NodeTransformer):
    """Lowers constants that are sizes by their names, in the statements that it visits."""

    def _constant(self, name: str, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            node.value = _smaller(name, node.value)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """``f(seq_len=4096)``."""
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg is not None:
                self._constant(keyword.arg, keyword.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        """``seq_len = 4096`` and ``B, S = 4, 4096``."""
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._constant(target.id, node.value)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for part, value in zip(target.elts, node.value.elts, strict=False):
                    if isinstance(part, ast.Name):
                        self._constant(part.id, value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Defaults of its parameters, and its body unless it is a kernel."""
        if node.decorator_list and not _ENTRIES.match(node.name):
            return node
        names = [*node.args.posonlyargs, *node.args.args]
        for name, default in zip(reversed(names), reversed(node.args.defaults), strict=False):
            self._constant(name.arg, default)
        for name, given in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if given is not None:
                self._constant(name.arg, given)
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        """Of a list of settings the first."""
        if isinstance(node.iter, ast.List | ast.Tuple) and len(node.iter.elts) > 1:
            first = node.iter.elts[0]
            if isinstance(first, ast.Call | ast.Tuple | ast.List | ast.Dict):
                changed.append("settings")
                node.iter.elts = [first]
        self.generic_visit(node)
        return node


def with_small_sizes(tree: ast.Module) -> ast.Module:
    """The program with lower sizes in its entry functions and in what runs at its end."""
    lower = _Lower()
    for node in tree.body:
        entry = isinstance(node, ast.FunctionDef) and _ENTRIES.match(node.name)
        if entry or isinstance(node, ast.If | ast.For | ast.With):
            lower.visit(node)
    return tree


def shrink(root: Path) -> None:
    """Lower sizes in options of `argparse` and in modules below `root` that are imported."""
    original = argparse._ActionsContainer.add_argument

    def add_argument(self: Any, *flags: Any, **options: Any) -> Any:
        default = options.get("default")
        if flags and isinstance(default, int) and not isinstance(default, bool):
            name = str(options.get("dest", max(flags, key=len))).lstrip("-").replace("-", "_")
            options["default"] = _smaller(name, default)
        return original(self, *flags, **options)

    argparse._ActionsContainer.add_argument = add_argument  # type: ignore[method-assign]
    sys.meta_path.insert(0, _SmallModules(root))


class _SmallLoader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        """The module's code with lower sizes."""
        tree = with_small_sizes(ast.parse(data, str(path)))
        return compile(tree, str(path), "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> Any:
        """Always from the source: compiled files on disk have other sizes."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _SmallModules(importlib.abc.MetaPathFinder):
    """Finds modules of the programs' own folders."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec whose loader lowers sizes; None for modules from elsewhere."""
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None or not found.origin.endswith(".py"):
            return None
        if self.root not in Path(found.origin).parents or "test_" in Path(found.origin).name:
            return None
        found.loader = _SmallLoader(fullname, found.origin)
        return found
