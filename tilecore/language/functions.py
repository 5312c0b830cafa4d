"""T.prim_func and T.macro: from the author's function to a `Program`."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from tilecore.errors import LanguageError, Loc
from tilecore.ir.buffers import Buffer
from tilecore.ir.printer import format_program
from tilecore.ir.program import Param, Program
from tilecore.language.bindings import settle
from tilecore.language.builder import Builder, current, tracing
from tilecore.language.finish import collect_symbols, finish_program
from tilecore.language.indexing import element_of
from tilecore.language.kernel import KernelLaunch
from tilecore.language.locate import fail, misuse, refuse, run_staged, scope_around
from tilecore.language.operators import describe, static_int
from tilecore.language.single_block import launches_kernels
from tilecore.language.source import function_loc
from tilecore.language.staging import rewrite
from tilecore.language.types import Dimension, Ref, declare_param, scalar_dtype
from tilecore.language.values import BufferValue, Cell, Scalar


class PrimFunc:
    """A traced program; compile it with ``tilecore.compile`` to call it.

    Attributes:
        program: the tile IR.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.__name__ = program.name

    @property
    def name(self) -> str:
        """The function's name."""
        return self.program.name

    @property
    def params(self) -> tuple[Param, ...]:
        """Parameters in call order."""
        return self.program.params

    def script(self, *, locs: bool = False) -> str:
        """The program as IR text; with `locs` every statement says its line."""
        return format_program(self.program, locs=locs)

    def with_outputs(self, out_idx: int | Sequence[int] | None) -> PrimFunc:
        """The same function with parameters that the caller does not pass but gets back."""
        return PrimFunc(set_outputs(self.program, out_idx))

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raises: a program must be compiled before it can run."""
        raise misuse(
            f"{self.name} is a tile program and not yet compiled",
            hint=f"kernel = tilecore.compile({self.name}); kernel(...)",
            loc=self.program.loc,
        )

    def __repr__(self) -> str:
        return f"<T.prim_func {self.name}>"


def set_outputs(program: Program, out_idx: int | Sequence[int] | None) -> Program:
    """`program` with `outputs` given as TileLang's out_idx (an int or list, negatives allowed).

    Raises:
        LanguageError: an index that is no buffer parameter.
    """
    if out_idx is None:
        return program
    indices = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    count = len(program.params)
    result: list[int] = []
    for index in indices:
        place = static_int(index, "out_idx", at_least=-count, at_most=count - 1) % count
        if not isinstance(program.params[place], Buffer):
            fail("an output must be a tensor", got=f"scalar parameter {program.params[place].name}")
        if place in result:
            fail("out_idx names a parameter twice", got=index)
        result.append(place)
    return replace(program, outputs=tuple(result))


def annotations_of(function: FunctionType, outer: Mapping[str, Any]) -> dict[str, Any]:
    """The function's annotations as objects; strings are evaluated where they were written.

    Args:
        function: the author's function.
        outer: names of the scope that encloses it (a factory's arguments), seen after its closure.

    Raises:
        LanguageError: an annotation that cannot be evaluated.
    """
    closure = _closure(function)
    result: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(function).items():
        if not isinstance(annotation, str) or scalar_dtype(annotation) is not None:
            result[name] = annotation
            continue
        scope = {**vars(builtins), **function.__globals__, **outer, **closure}
        try:
            value = eval(annotation, scope)
            result[name] = eval(value, scope) if _is_expression(value) else value
        except LanguageError:
            raise
        except Exception as error:
            raise misuse(
                f"the annotation of {name} cannot be evaluated: {error}",
                got=annotation,
                loc=function_loc(function),
            ) from error
    return result


def _is_expression(value: Any) -> bool:
    """True for an annotation that was a string under string annotations, not a dtype's name."""
    return type(value) is str and any(mark in value for mark in "([.")


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    result: dict[str, Any] = {}
    for name, cell in cells:
        try:
            result[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return result


def trace(function: FunctionType, outer: Mapping[str, Any]) -> Program:
    """Run the staged function with its parameters and collect the program.

    A parameter whose annotation is None does not exist: the body sees None in its place.
    """
    loc = function_loc(function)
    signature = inspect.signature(function)
    annotations = annotations_of(function, outer)
    builder = Builder(function.__name__)
    builder.unique(function.__name__)
    declared: dict[str, Param | None] = {}
    for name, parameter in signature.parameters.items():
        _check_parameter(parameter, annotations, loc)
        annotation = annotations[name]
        declared[name] = None if annotation is None else declare_param(name, annotation, loc)
    params = [param for param in declared.values() if param is not None]
    reserve_names(builder, params)
    arguments = [_in_body(param) for param in declared.values()]
    builder.params = params
    staged = rewrite(function)
    with tracing(builder):
        if launches_kernels(function):
            returned = run_staged(staged, *arguments)
        else:
            with KernelLaunch((), None):
                returned = run_staged(staged, *arguments)
    if returned is not None:
        fail(
            f"{builder.name} returns a value",
            expected="no value: results are written to parameters (out_idx=...)",
            got=describe(returned),
            loc=loc,
        )
    return finish_program(builder, loc)


def _in_body(param: Param | None) -> Any:
    """What a parameter is inside the function."""
    if param is None:
        return None
    return BufferValue(param) if isinstance(param, Buffer) else Scalar(param)


def reserve_names(builder: Builder, params: Sequence[Param]) -> None:
    """Sizes and parameters keep their names; everything else in the program avoids them.

    Raises:
        LanguageError: a parameter and a size share a name.
    """
    symbols = collect_symbols(params)
    names = {param.name for param in params}
    for symbol in symbols:
        if symbol.name in names:
            fail(f"{symbol.name} names both a parameter and a dynamic size", hint="rename one")
    for name in [*sorted(names), *(symbol.name for symbol in symbols)]:
        builder.unique(name)
        builder.declare_host(name)


def _check_parameter(
    parameter: inspect.Parameter, annotations: Mapping[str, Any], loc: Loc
) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        fail(f"parameter {parameter.name} is variadic", expected="named parameters", loc=loc)
    if parameter.default is not parameter.empty:
        fail(f"parameter {parameter.name} has a default", expected="no default", loc=loc)
    if parameter.name not in annotations:
        fail(
            f"parameter {parameter.name} has no annotation",
            expected="T.Tensor(shape, dtype) or a dtype such as T.int32",
            loc=loc,
        )


def prim_func(function: Callable[..., Any] | None = None, *, eager_jit: bool = False) -> Any:
    """Decorator: trace a function whose parameters are annotated with types of the language.

    Raises:
        LanguageError: with the author's line, for every misuse of the language.
    """
    if eager_jit:
        refuse("T.prim_func(eager_jit=True)", "use tilecore.jit for the eager style")
    if function is None:
        return prim_func
    if not isinstance(function, FunctionType):
        fail("T.prim_func decorates a function", got=describe(function))
    return PrimFunc(trace(function, scope_around(1)))


class Macro:
    """A function that is inlined where it is called. Its names are its own (hygienic)."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self._staged: FunctionType | None = None
        self._refs: frozenset[str] | None = None
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return functools.partial(self.__call__, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inline the body here."""
        builder = current()
        if self._staged is None:
            self._staged = rewrite(self.function)
            self._refs = _ref_parameters(self.function)
        bound = _bind_call(self.function, args, kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _argument(name, value, name in (self._refs or ()))
        depth, loops, hints = len(builder.frames), len(builder.loops), builder.hints
        builder.function_depths.append(depth)
        builder.hints = []
        try:
            result = run_staged(self._staged, *bound.args, **bound.kwargs)
        except RecursionError:
            raise misuse(
                f"macro {self.function.__name__} is inlined in itself without an end",
                expected="a condition that is known while the program is read and ends it",
                got="calls until Python's stack was full",
                hint="repeat in the program: T.serial, T.unroll, while",
                loc=function_loc(self.function),
            ) from None
        finally:
            builder.function_depths.pop()
            del builder.loops[loops:]
        builder.hints = hints
        return result

    def __repr__(self) -> str:
        return f"<T.macro {self.function.__name__}>"


def _bind_call(
    function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        fail(f"call of macro {function.__name__}: {error}")
    bound.apply_defaults()
    return bound


def _ref_parameters(function: FunctionType) -> frozenset[str]:
    names = set()
    for name, annotation in inspect.get_annotations(function).items():
        text = annotation.strip("'\"") if isinstance(annotation, str) else ""
        by_name = text.rsplit(".", 1)[-1] in ("Ref", "Var")
        if annotation is Ref or annotation is Dimension or by_name:
            names.add(name)
    return frozenset(names)


def _argument(name: str, value: Any, by_reference: bool) -> Any:
    if not by_reference:
        return settle(value)
    element = element_of(value)
    if element is None:
        fail(
            f"macro argument {name} is taken by reference",
            expected="a T.alloc_var variable or an element of a buffer",
            got=describe(value),
        )
    if isinstance(value, Cell) and not value.fresh:
        return value
    return Cell(*element, fresh=False)


def macro(function: Callable[..., Any] | None = None, *, hygienic: bool = True) -> Any:
    """Decorator: a helper that is inlined at each call and may return values."""
    if not hygienic:
        refuse(
            "T.macro(hygienic=False)", "a macro's names are its own", hint="pass T.Ref arguments"
        )
    if function is None:
        return macro
    if not isinstance(function, FunctionType):
        fail("T.macro decorates a function", got=describe(function))
    return Macro(function)
