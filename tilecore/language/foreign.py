"""What Python, NumPy and other libraries' habits ask of values of a program, and what to write.

A value of the program has no Python value while the program is traced; these answers say what does
the same when it runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from tilecore.errors import ArgumentError, Loc
from tilecore.language.locate import caller_loc, fail

_NO_VALUE = "a runtime value has no Python value while the program is traced; "
_TRACE_HINTS = {
    "truth": "use it in an `if` or `while` statement (a helper that has one needs @T.macro), "
    "T.if_then_else, T.max or T.min",
    "int()": 'convert with T.cast(x, "int32")',
    "float()": 'functions of math have a counterpart here (T.exp, T.sqrt); T.cast(x, "float32") '
    "converts",
    "use as a Python index": "keep a table that it indexes in a buffer; loop over a Python tuple "
    "for indices that are known while tracing",
}


def trace_hint(what: str) -> str:
    """What to write instead of asking a runtime value for its Python value."""
    return _NO_VALUE + _TRACE_HINTS[what]


_OPTIONS = {
    "target": 'backend= names what to compile for, such as backend="cpu_llvm"',
    "pass_configs": "options=tilecore.CompileOptions(...)",
    "compile_flags": "options=tilecore.CompileOptions(...)",
    "num_warps": "threads= of T.Kernel",
    "num_stages": "num_stages= of T.Pipelined",
}
"""Of other compilers' entry points."""


def refuse_options(
    function: str, unknown: Iterable[str], known: Sequence[str], loc: Loc | None
) -> None:
    """Refuse keyword arguments that an entry point, called at `loc`, does not have.

    Raises:
        ArgumentError: there is one.
    """
    for name in unknown:
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]}=?" if close else "leave the argument out"
        raise ArgumentError(
            f"{function} has no argument {name!r}",
            expected=", ".join(known),
            got=name,
            hint=_OPTIONS.get(name, meant),
            loc=loc,
        )


_UFUNCS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}
"""Methods for the operator that a function of NumPy stands for, and with its operands swapped."""

_COUNTERPARTS = {
    "absolute": "T.abs",
    "arctan": "T.atan",
    "conjugate": None,
    "fabs": "T.abs",
    "float_power": "T.pow",
    "fmax": "T.max",
    "fmin": "T.min",
    "invert": "~",
    "logical_and": "&",
    "logical_not": "T.Not",
    "logical_or": "|",
    "maximum": "T.max",
    "minimum": "T.min",
    "negative": "-",
    "rint": "T.round",
    "square": "x * x",
}
"""Of NumPy's functions whose names differ from those of the language."""


def numpy_function(value: Any, name: str, inputs: tuple[Any, ...]) -> Any:
    """A function of NumPy on a value of the program: an operator is ours, others are refused.

    Raises:
        LanguageError: it is no operator.
    """
    if name in _UFUNCS and len(inputs) == 2:
        mine, swapped = _UFUNCS[name]
        first, second = inputs
        if hasattr(first, "to_expr"):
            return getattr(first, mine)(second)
        scalar = first[()] if getattr(first, "shape", None) == () else first  # NumPy wraps them
        return getattr(second, swapped)(scalar)
    import tilecore.language as language

    known = _COUNTERPARTS.get(name, f"T.{name}" if name in dir(language) else None)
    return fail(
        f"NumPy's {name} of a runtime value",
        expected="a function of the language",
        got=value.description,
        hint=f"write {known}" if known else "NumPy computes while the program is traced",
    )


_ATTRIBUTES = {
    "T": "T.transpose(src, dst), or transpose_A= and transpose_B= of T.gemm",
    "abs": "T.abs of an element inside T.Parallel",
    "all": "T.all_of(buffer)",
    "any": "T.any_of(buffer)",
    "astype": "T.copy, which converts, or T.cast of an element",
    "contiguous": "T.copy into a buffer of its own",
    "copy": "T.copy(src, dst)",
    "copy_": "T.copy(src, dst)",
    "fill": "T.fill(buffer, value)",
    "fill_": "T.fill(buffer, value)",
    "flatten": "T.reshape(buffer, shape)",
    "item": "an element, A[0]",
    "max": "T.reduce_max(src, dst, dim)",
    "mean": "T.reduce_sum(src, dst, dim), then a division",
    "min": "T.reduce_min(src, dst, dim)",
    "numel": "the product of A.shape",
    "permute": "T.transpose(src, dst)",
    "reshape": "T.reshape(buffer, shape)",
    "size": "A.shape[k]",
    "sum": "T.reduce_sum(src, dst, dim)",
    "to": "T.copy, which converts, or T.cast of an element",
    "transpose": "T.transpose(src, dst)",
    "view": "T.view(buffer, shape, dtype)",
    "zero_": "T.clear(buffer)",
}
"""Of arrays and tensors of other libraries."""


def no_attribute(value: Any, name: str) -> str:
    """What to say of an attribute that a buffer (or a piece of one) does not have."""
    loc: Loc | None = caller_loc()
    place = "" if loc is None else f"{loc}: "
    known = [one for one in dir(type(value)) if not one.startswith("_")]
    close = difflib.get_close_matches(name, known, n=1)
    if name in _ATTRIBUTES:
        hint = f"write {_ATTRIBUTES[name]}"
    elif close:
        hint = f"did you mean {close[0]}?"
    else:
        hint = f"it has {', '.join(known)}"
    return f"{place}{value.description} has no {name!r} ({hint})"
