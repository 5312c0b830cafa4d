"""Declarations inside a body (eager style), annotated assignments, and ``return``."""

from __future__ import annotations

from typing import Any

from tilecore.language.bindings import UNBOUND, Poison, settle
from tilecore.language.builder import current
from tilecore.language.locate import fail
from tilecore.language.types import TensorType, scalar_dtype
from tilecore.language.values import Operators


def declare(name: str, annotation: Any, value: Any) -> Any:
    """``name: annotation`` as a statement: what `name` is bound to.

    In an eager function this types the argument of that name. Elsewhere it only checks that the
    annotation agrees with what the name already is.
    """
    builder = current()
    if builder.eager is not None and builder.eager.is_argument(name):
        return builder.eager.declare(name, annotation)
    if isinstance(annotation, TensorType) and (value is UNBOUND or isinstance(value, Poison)):
        fail(
            f"{name} is declared, but is no parameter of the function",
            expected="a parameter of that name",
            hint="inside a kernel allocate with T.alloc_shared, T.alloc_fragment, T.alloc_var",
        )
    return value


def annotated(annotation: Any, value: Any) -> Any:
    """``name: annotation = value``: scalars are converted to an annotated dtype."""
    from tilecore.language.math_ops import cast

    if isinstance(value, Operators | int | float) and not getattr(value, "fresh", False):
        found = scalar_dtype(annotation)
        if found is not None:
            return cast(value, found)
    return value


def return_(value: Any) -> Any:
    """``return value``.

    Raises:
        LanguageError: under runtime control flow.
    """
    builder = current()
    base = builder.function_depths[-1] if builder.function_depths else 0
    for frame in builder.frames[base:]:
        if frame.kind in ("for", "parallel", "while", "then", "else"):
            line = "" if frame.loc is None else f" (line {frame.loc.line})"
            fail(
                f"`return` under runtime control flow{line}",
                expected="a return at the end of the function",
                hint="put the rest of the body under the opposite condition",
            )
    return settle(value)
