"""``@tilecore.jit``: compile on call, once per set of arguments.

Factory style: the function returns a `T.prim_func`; calling it gives the compiled kernel.
Eager style: the function's body is the program; calling it compiles for these arguments and runs.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any, Never

import numpy as np

from tilecore.errors import ArgumentError
from tilecore.ir.program import Program
from tilecore.language.eager import (
    UNKNOWN_TENSOR,
    TensorKey,
    element_strides,
    trace_eager,
)
from tilecore.language.foreign import refuse_options
from tilecore.language.functions import PrimFunc, annotations_of
from tilecore.language.jit_keys import freeze, key_or_value, outer_key, outer_names
from tilecore.language.locate import caller_loc, fail, misuse, scope_around
from tilecore.language.operators import describe
from tilecore.language.source import function_loc, function_tree
from tilecore.language.staging import rewrite

Compile = Callable[..., Any]
_QUICK_TYPES = (int, bool, str, type(None))
"""Types of arguments that are their own keys."""


def _compile(program: Program, **options: Any) -> Any:
    """tilecore.compile, found when the first kernel is needed: it stands above the language."""
    from tilecore.driver import compile

    return compile(program, **options)


class JitFunction:
    """What `jit` makes of a function.

    Attributes:
        is_eager: whether calling it runs (else calling it returns a kernel).
    """

    __test__ = False  # its name may begin so: it is no test

    def __init__(
        self, function: FunctionType, outer: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self.function = function
        self.options = dict(options)
        self.is_eager = is_eager(function)
        self._outer = outer
        self._kernels: dict[Any, Any] = {}
        self._quick: dict[Any, tuple[Any, tuple[int, ...]]] = {}
        functools.update_wrapper(self, function)
        if self.is_eager and options.get("out_idx") is not None:
            raise misuse(
                f"{function.__name__} is in the eager style and takes no out_idx",
                hint="return its T.empty tensors",
                loc=function_loc(function),
            )

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @functools.cached_property
    def _staged(self) -> FunctionType:
        return rewrite(self.function)

    @functools.cached_property
    def _annotations(self) -> dict[str, Any]:
        return annotations_of(self.function, self._outer)

    def __reduce__(self) -> str:
        """Copied and pickled as functions are: by its name."""
        return self.function.__qualname__

    def _bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], partial: bool = False
    ) -> dict[str, Any]:
        """Arguments by name, defaults included; `partial` where some may be left out."""
        bind = self._signature.bind_partial if partial else self._signature.bind
        try:
            bound = bind(*args, **kwargs)
        except TypeError as error:
            raise misuse(
                f"call of {self.function.__name__}: {error}",
                loc=function_loc(self.function),
                kind=ArgumentError,
            ) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The program for these arguments, not compiled."""
        if not self.is_eager:
            return self._made(args, kwargs)
        arguments, sizes = self._split(args, kwargs)
        keys = {name: key_or_value(value) for name, value in arguments.items()}
        return trace_eager(self.function, self._staged, keys, self._annotations, sizes)

    def _split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Arguments by name, and T.const sizes given by name in place of tensors.

        Tensors that are left out, and scalars of the call, are known by their declarations alone.
        """
        if not self.is_eager:
            return self._bind(args, kwargs), {}
        known = self._signature.parameters
        sizes = {name: value for name, value in kwargs.items() if name not in known}
        for name, value in sizes.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise misuse(
                    f"size {name} must be an integer",
                    expected="an int for a T.const size that no tensor is given for",
                    got=value,
                    hint="tensors are given by the names of their parameters",
                    loc=function_loc(self.function),
                    kind=ArgumentError,
                )
        given = {name: value for name, value in kwargs.items() if name in known}
        bound = self._bind(args, given, partial=True)
        scalars = _runtime_scalars(self._annotations)
        missing = {name: None if name in scalars else UNKNOWN_TENSOR for name in known}
        return {**missing, **bound}, sizes

    def _made(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Program:
        made = self.function(*args, **kwargs)
        if not isinstance(made, PrimFunc):
            fail(
                f"{self.function.__name__} returned no tile program",
                expected="a function decorated with T.prim_func (or an eager body, with T.Kernel)",
                got=describe(made),
                loc=function_loc(self.function),
            )
        return made.program

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled kernel for these arguments (cached), not run."""
        arguments, sizes = self._split(args, kwargs)
        try:
            key = (self._cache_key(arguments), tuple(sorted(sizes.items())), self._outer_key())
            found = self._kernels.get(key)
        except TypeError:  # an argument that may change: compile's own cache decides
            return _compile(self.trace(*args, **kwargs), **self.options)
        if found is None:
            found = _compile(self.trace(*args, **kwargs), **self.options)
            self._kernels[key] = found
        return found

    def _cache_key(self, arguments: Mapping[str, Any]) -> Any:
        scalars = _runtime_scalars(self._annotations) if self.is_eager else frozenset()
        return tuple(
            (name, None if name in scalars else freeze(self._known_of(value)))
            for name, value in arguments.items()
        )

    def _known_of(self, value: Any) -> Any:
        """What the program may depend on of an argument: a factory may read a tensor's elements."""
        return key_or_value(value) if self.is_eager else value

    @functools.cached_property
    def _outer_names(self) -> Any:
        return outer_names(self.function)

    def _outer_key(self) -> tuple[Any, ...]:
        """Values from outside that the program was traced with."""
        return outer_key(self._outer_names)

    def par_compile(
        self, configs: Iterable[Mapping[str, Any] | Sequence[Any]], num_workers: int | None = None
    ) -> list[Any]:
        """Kernels for several sets of arguments, compiled by several threads."""

        def one(config: Mapping[str, Any] | Sequence[Any]) -> Any:
            if isinstance(config, Mapping):
                return self.compile(**config)
            return self.compile(*config)

        with ThreadPoolExecutor(num_workers) as pool:
            return list(pool.map(one, configs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Factory style: the kernel. Eager style: the results."""
        if not self.is_eager:
            return self.compile(*args, **kwargs)
        key = None if kwargs else self._quick_key(args)
        if key is not None and key in self._quick:
            kernel, places = self._quick[key]
            return kernel(*[args[place] for place in places])
        arguments = list(self._bind(args, kwargs).items())
        kernel = self.compile(*args, **kwargs)
        scalars = _runtime_scalars(self._annotations)
        places = tuple(
            place
            for place, (name, value) in enumerate(arguments)
            if name in scalars or isinstance(key_or_value(value), TensorKey)
        )
        if key is not None and all(place < len(args) for place in places):
            self._quick[key] = kernel, places
        return kernel(*[arguments[place][1] for place in places])

    def _quick_key(self, args: tuple[Any, ...]) -> Any:
        """A key that is cheap to make, finer than `_cache_key`; None when there is none."""
        parts: list[Any] = []
        for place, value in enumerate(args):
            shape = None if isinstance(value, np.generic) else getattr(value, "shape", None)
            if place in self._scalar_places:
                parts.append(None)
            elif shape is not None:
                strides = element_strides(value) if self._has_strides else None
                parts.append((tuple(shape), value.dtype, strides))
            elif type(value) in _QUICK_TYPES:
                parts.append((type(value), value))
            else:
                try:
                    parts.append(freeze(value))
                except TypeError:
                    return None
        parts += self._outer_key()
        key = tuple(parts)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    @functools.cached_property
    def _has_strides(self) -> bool:
        """Whether a declaration may read sizes off strides."""
        names = ast.walk(function_tree(self.function))
        return any(isinstance(one, ast.Attribute) and one.attr == "StridedTensor" for one in names)

    @functools.cached_property
    def _scalar_places(self) -> frozenset[int]:
        scalars = _runtime_scalars(self._annotations)
        return frozenset(
            place for place, name in enumerate(self._signature.parameters) if name in scalars
        )

    def __repr__(self) -> str:
        style = "eager" if self.is_eager else "factory"
        return f"<tilecore.jit {self.function.__name__} ({style})>"


def _runtime_scalars(annotations: Mapping[str, Any]) -> frozenset[str]:
    from tilecore.language.eager import is_runtime_scalar

    return frozenset(name for name, value in annotations.items() if is_runtime_scalar(value))


def is_eager(function: FunctionType) -> bool:
    """True when the function's own body holds the program, not a nested prim_func.

    So it is when it launches a kernel, or declares tensors (of its body or of its signature) and
    leaves the launch to a macro.
    """
    tree = function_tree(function)
    if any(_holds_program(statement) for statement in tree.body):
        return True
    nested = any(isinstance(node, ast.FunctionDef) for node in tree.body)
    args = tree.args
    typed = [one.annotation for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return not nested and any(one is not None and _names_tensor(one) for one in typed)


_TENSORS = ("Tensor", "StridedTensor")


def _holds_program(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    if isinstance(node, ast.Call) and _last_name(node.func) in ("Kernel", "ClusterKernel", "const"):
        return True
    if isinstance(node, ast.AnnAssign) and node.value is None and _names_tensor(node.annotation):
        return True
    return any(_holds_program(child) for child in ast.iter_child_nodes(node))


def _names_tensor(node: ast.expr) -> bool:
    """True for ``T.Tensor(...)`` and ``T.Tensor[...]`` (torch.Tensor alone is no declaration)."""
    if isinstance(node, ast.Call):
        return _last_name(node.func) in _TENSORS
    return isinstance(node, ast.Subscript) and _last_name(node.value) in _TENSORS


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class JitProgram:
    """``@tilecore.jit`` above ``@T.prim_func``: compiled when it is first called."""

    def __init__(self, function: PrimFunc, options: Mapping[str, Any]) -> None:
        self.program = function.program
        self.options = dict(options)

    @functools.cached_property
    def kernel(self) -> Any:
        """The compiled kernel."""
        return _compile(self.program, **self.options)

    def __call__(self, *args: Any) -> Any:
        """Compile if need be, and run."""
        return self.kernel(*args)


_OPTIONS = ("out_idx", "backend", "arch", "device", "options", "fast_math")


def jit(
    func: Callable[..., Any] | PrimFunc | None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    backend: str | None = None,
    arch: str | None = None,
    device: str = "native",
    options: Any = None,
    fast_math: bool = False,
    **unknown: Never,
) -> Any:
    """Decorator: compile on call, for `tilecore.compile`'s options.

    Args:
        func: a factory of a `T.prim_func`, an eager function, or a prim_func.
        out_idx: factory style: parameters that are allocated by the call and returned.
        backend: name of an installed backend; None takes the best one here.
        arch: one of the backend's architectures.
        device: ``"native"``, ``"emulator"`` or ``"reference"``.
        options: compile options.
        fast_math: allow approximate math.

    Raises:
        LanguageError: `func` is nothing of these.
        ArgumentError: there is no such option.
    """
    if unknown:
        refuse_options("tilecore.jit", unknown, _OPTIONS, caller_loc())
    chosen: dict[str, Any] = {
        "out_idx": out_idx if out_idx is None or isinstance(out_idx, int) else list(out_idx),
        "backend": backend,
        "arch": arch,
        "device": device,
        "options": options,
        "fast_math": fast_math,
    }
    if func is None:
        return functools.partial(_decorate, options=chosen)
    return _decorate(func, chosen, depth=2)


def _decorate(func: Any, options: Mapping[str, Any], depth: int = 1) -> Any:
    if isinstance(func, PrimFunc):
        return JitProgram(func, options)
    if not isinstance(func, FunctionType):
        fail("tilecore.jit decorates a function", got=describe(func))
    return JitFunction(func, scope_around(depth), options)
