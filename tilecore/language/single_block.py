"""Programs without T.Kernel: the whole body runs as one block.

Kernel authors write such functions for a host, where no grid is needed. Whether a function launches
kernels is read off its source, and off that of the macros that it calls, before it is traced.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from tilecore.language.source import function_tree

_LAUNCHES = ("Kernel", "ClusterKernel")


def launches_kernels(function: FunctionType) -> bool:
    """True when the function, or a macro that it calls, holds a T.Kernel."""
    return _launches(function, set())


def _launches(function: FunctionType, seen: set[int]) -> bool:
    seen.add(id(function))
    for node in ast.walk(function_tree(function)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in _LAUNCHES:
            return True
        if isinstance(node.func, ast.Name):
            if node.func.id in _LAUNCHES:
                return True
            called = _macro_function(_value(function, node.func.id))
            if called is not None and id(called) not in seen and _launches(called, seen):
                return True
    return False


def _value(function: FunctionType, name: str) -> Any:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for free, cell in cells:
        if free == name:
            try:
                return cell.cell_contents
            except ValueError:  # not assigned yet
                return None
    return function.__globals__.get(name)


def _macro_function(value: Any) -> FunctionType | None:
    from tilecore.language.functions import Macro

    return value.function if isinstance(value, Macro) else None
