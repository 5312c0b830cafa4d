"""Where in the author's source are we? Found from the Python stack, so that nothing need be passed.

Rewritten functions are compiled under the author's file name and line numbers, hence the first
frame outside this package is the author's line.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar

from tilecore.errors import LanguageError, Loc, TilecoreError, UnsupportedError
from tilecore.language.remedies import completed

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_extras: set[str] = set()  # files of families' extras, which are no author's either


def hide_file(path: str | None) -> None:
    """Let no line of this file be taken for the author's."""
    if path is not None:
        _extras.add(path)


def caller_loc() -> Loc | None:
    """The author's current line: the innermost frame outside `tilecore.language` and extras."""
    frame = inspect.currentframe()
    while frame is not None and (
        frame.f_code.co_filename.startswith(_HERE) or frame.f_code.co_filename in _extras
    ):
        frame = frame.f_back
    if frame is None:
        return None
    return Loc(frame.f_code.co_filename, frame.f_lineno)


def misuse(
    reason: str,
    *,
    expected: Any = None,
    got: Any = None,
    hint: str | None = None,
    loc: Loc | None = None,
    kind: type[TilecoreError] = LanguageError,
) -> TilecoreError:
    """The error of a misuse, with what its place leaves out taken from the list of remedies."""
    expected, got, hint = completed(reason, expected, got, hint)
    return kind(reason, expected=expected, got=got, hint=hint, loc=loc)


def fail(
    reason: str,
    *,
    expected: Any = None,
    got: Any = None,
    hint: str | None = None,
    loc: Loc | None = None,
) -> NoReturn:
    """Raise a `LanguageError` at the author's line (or at `loc` where that is given)."""
    raise misuse(reason, expected=expected, got=got, hint=hint, loc=loc or caller_loc())


def refuse(what: str, reason: str, *, hint: str | None = None) -> NoReturn:
    """Raise an `UnsupportedError` that names a construct which is not supported, and why."""
    raise UnsupportedError(f"{what} is not supported: {reason}", loc=caller_loc(), hint=hint)


P = ParamSpec("P")
R = TypeVar("R")


_WRONG_KIND = (TypeError, ValueError, AttributeError, LookupError, OverflowError)
"""What Python raises where an argument is of a kind that the code does not expect."""


def checked(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """`function`, with a call that does not fit its parameters reported at the author's line."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except _WRONG_KIND as error:
            trace = error.__traceback__
            if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:
                text = str(error).replace(f"{function.__qualname__}()", f"T.{name}()")
                raise misuse(text, loc=caller_loc()) from None  # raised by the call itself
            if _is_authors(error, (*args, *kwargs.values())):
                raise
            raise _wrong_kind(name, function, args, kwargs, error) from error

    return call


def check_method(name: str, kind: type, method: str) -> None:
    """Let a method of a class of this package, called as ``T.name(...)``, report as `checked`."""
    own = vars(kind).get(method)
    if isinstance(own, FunctionType) and not hasattr(own, "__wrapped__"):
        setattr(kind, method, checked(name, own))


def _is_authors(error: BaseException, arguments: tuple[Any, ...]) -> bool:
    """Whether the author's own function, given as an argument, may have raised this."""
    own = [value.__code__ for value in arguments if isinstance(value, FunctionType)]
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in own:
            return True
        trace = trace.tb_next
    return False


def _wrong_kind(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: BaseException,
) -> TilecoreError:
    """The misuse of arguments of kinds that a construct has no meaning for."""
    is_method = function.__name__ in ("__init__", "__call__")
    shown = [_short(value) for value in args[is_method:]]
    shown += [f"{key}={_short(value)}" for key, value in kwargs.items()]
    return misuse(
        f"T.{name} has no meaning for an argument of this kind",
        expected=f"T.{name}{inspect.signature(function)}".replace("(self, ", "("),
        got=", ".join(shown) or "no argument",
        hint=f"Python says: {error}",
        loc=caller_loc(),
    )


def _short(value: Any) -> str:
    text = getattr(value, "description", None)
    return text if isinstance(text, str) else f"{type(value).__name__} {value!r}"[:60]


def run_staged(staged: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Run rewritten code; a name that Python itself finds unassigned is the author's error."""
    try:
        return staged(*args, **kwargs)
    except NameError as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        name = str(error).partition("'")[2].partition("'")[0] or "a name"
        code = None if trace is None else trace.tb_frame.f_code
        where = None if trace is None or code is None else Loc(code.co_filename, trace.tb_lineno)
        if isinstance(error, UnboundLocalError):
            raise misuse(
                f"{name} is read before it is assigned",
                loc=where,
                hint="it may be a variable of an outer scope",
            ) from None
        if code is None or code.co_filename.startswith(_HERE):
            raise
        raise misuse(f"{name} has no meaning here", loc=where, hint=_unknown(name)) from None


def _unknown(name: str) -> str:
    """Where a name may come from that Python does not find."""
    import tilecore.language as language

    if name in dir(language):
        return f"T.{name}"
    return (
        "indices of a block are named by `with T.Kernel(...) as (bx, by):`, others by assignments"
    )


def scope_around(depth: int) -> dict[str, Any]:
    """Names of the scope where the author's decorator stands, `depth` calls above the caller.

    Annotations kept as strings are evaluated there: a factory's arguments are in no closure.
    """
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame.f_back if frame is not None else None
    return {} if frame is None else dict(frame.f_locals)
