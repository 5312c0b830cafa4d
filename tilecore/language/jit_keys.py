"""What a compiled kernel of `tilecore.jit` depends on, as keys: arguments, and values from outside.

A key holds values, not identities: what may change behind its identity is no key, and a call with
it traces anew.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tilecore.language.eager import UNKNOWN_TENSOR, TensorKey, tensor_key
from tilecore.language.types import ptr
from tilecore.language.values import Operators

_PLAIN = (int, str, bytes, complex, type(None), np.generic, np.dtype, enum.Enum, range)
_NAMED = (type, ModuleType, FunctionType, BuiltinFunctionType, TensorKey)
_LIBRARIES = ("torch", "ml_dtypes", "tilecore")
"""Packages whose hashable values (dtypes, devices, programs) do not change."""


def key_or_value(value: Any) -> Any:
    """A tensor's key, any other value itself."""
    if isinstance(value, np.generic | Operators):
        return value
    if value is ptr:
        return UNKNOWN_TENSOR
    key = tensor_key(value)
    return value if key is None else key


def freeze(value: Any) -> Any:
    """A value as a key: containers by contents, scalars by expression, types kept apart.

    Raises:
        TypeError: the value may change and keep its identity.
    """
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(freeze, value))
    if isinstance(value, dict):
        return ("dict", *((freeze(key), freeze(item)) for key, item in value.items()))
    if isinstance(value, Operators):
        return ("scalar", repr(value.to_expr()))  # promises about sizes count
    if isinstance(value, float | np.floating):
        return (type(value).__name__, repr(value))  # zeros of both signs, and nan is itself
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if not isinstance(value, (*_PLAIN, *_NAMED, frozenset)):
        hash(value)
        if type(value).__module__.split(".")[0] not in _LIBRARIES:
            raise TypeError(f"a {type(value).__name__} may change")
    return (type(value).__name__, value)


def _fields(value: Any) -> tuple[Any, ...]:
    """A dataclass by its fields, which may be reassigned."""
    named = (
        (field.name, freeze(getattr(value, field.name))) for field in dataclasses.fields(value)
    )
    return (type(value), *named)


def outer_names(function: FunctionType) -> tuple[tuple[Mapping[str, Any], str], ...]:
    """Where a function finds names of plain values that are bound outside of it.

    Each is a dictionary and a key; closures are looked at by `Cells`. Functions of the same module
    that it mentions (macros, too) are looked at likewise. Names of modules, functions and classes
    are left out: they are hardly ever rebound, and looking at them at each call has its price.
    """
    found: dict[tuple[int, str], tuple[Mapping[str, Any], str]] = {}
    _collect(function, function.__globals__, found, set())
    return tuple(found.values())


def outer_key(names: tuple[tuple[Mapping[str, Any], str], ...]) -> tuple[Any, ...]:
    """The present values behind `outer_names`; what may change behind its identity is left out."""
    return tuple(_frozen(place.get(name)) for place, name in names)


class Cells(Mapping[str, Any]):
    """The variables of enclosing functions that a function uses, by name."""

    def __init__(self, function: FunctionType) -> None:
        self.cells = dict(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )

    def __getitem__(self, name: str) -> Any:
        try:
            return self.cells[name].cell_contents
        except ValueError:  # not yet assigned
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


def _collect(
    function: FunctionType,
    module: Mapping[str, Any],
    found: dict[tuple[int, str], tuple[Mapping[str, Any], str]],
    seen: set[FunctionType],
) -> None:
    if function in seen or function.__globals__ is not module:
        return
    seen.add(function)
    cells = Cells(function)
    places = [(cells, name) for name in cells]
    places += [(module, name) for name in _global_names(function.__code__) if name in module]
    for place, name in places:
        value = place.get(name)
        inner = getattr(value, "function", value)
        if isinstance(inner, FunctionType):
            _collect(inner, module, found, seen)
        elif not isinstance(value, _NAMED):
            found[(id(place), name)] = (place, name)


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _frozen(value: Any) -> Any:
    try:
        return freeze(value)
    except (TypeError, RecursionError):
        return ("identity", id(value))
