"""`jit`, `compile`, `par_compile`: the signatures that programs use, onto tilecore's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from tilecore.compat.kernel import JITKernel, as_torch
from tilecore.compat.pass_configs import compile_options, printed_stages
from tilecore.compat.settings import backend_for, settings
from tilecore.driver import compile as compile_program
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.kernel import CompiledKernel
from tilecore.language.functions import PrimFunc
from tilecore.language.jit import JitFunction
from tilecore.language.locate import scope_around


def _chosen(
    out_idx: Any, target: Any, pass_configs: Mapping[Any, Any] | None, compile_flags: Any
) -> dict[str, Any]:
    """Options of `tilecore.compile` for these of a program."""
    if compile_flags:
        raise UnsupportedError("compile_flags: flags of one toolchain are not part of a program")
    return {
        "out_idx": out_idx if out_idx is None or isinstance(out_idx, int) else list(out_idx),
        "backend": None if settings.device == "reference" else backend_for(target),
        "device": settings.device,
        "options": compile_options(pass_configs),
    }


def compile(
    func: Any = None,
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: Any = None,
    target_host: Any = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: Any = None,
) -> JITKernel:
    """Compile a tile program. `execution_backend`, `target_host`, `verbose` change nothing.

    Raises:
        TilecoreError: what is wrong with the program or cannot be done.
    """
    chosen = _chosen(out_idx, target, pass_configs, compile_flags)
    return _shown(JITKernel(compile_program(func, **chosen)), pass_configs)


def _shown(kernel: JITKernel, pass_configs: Mapping[Any, Any] | None) -> JITKernel:
    """The kernel, after the stages that the options ask for have been printed."""
    for stage in printed_stages(pass_configs):
        print(kernel.kernel.ir(stage))
    return kernel


def par_compile(funcs: Iterable[Any], *, num_workers: int | None = None, **options: Any) -> Any:
    """Compile several programs, in several threads."""
    from concurrent.futures import ThreadPoolExecutor

    def one(func: Any) -> JITKernel:
        return compile(func, **options)

    with ThreadPoolExecutor(num_workers) as pool:
        return list(pool.map(one, funcs))


class JITImpl:
    """A decorated function of either style: calling it gives a kernel, or results."""

    __test__ = False  # its name may begin so: it is no test

    def __init__(
        self, function: FunctionType, outer: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self.function = function
        self._outer = outer
        self._given = dict(options)
        self._kernels: dict[int, JITKernel] = {}
        self._variants: dict[str, JITImpl] = {}
        functools.update_wrapper(self, function)

    @functools.cached_property
    def inner(self) -> JitFunction:
        """The function under tilecore's own decorator; options are looked at by the first call."""
        options = _chosen(**self._given)
        return JitFunction(self.function, self._outer, options)

    def with_options(self, options: Mapping[str, Any]) -> JITImpl:
        """The same function under further compile options; itself when there are none."""
        if not options:
            return self
        key = repr(sorted(options.items()))
        if key not in self._variants:
            self._variants[key] = JITImpl(self.function, self._outer, {**self._given, **options})
        return self._variants[key]

    @property
    def is_eager(self) -> bool:
        """Whether calling it runs (else calling it returns a kernel)."""
        return self.inner.is_eager

    def _wrap(self, kernel: CompiledKernel, config: dict[str, Any]) -> JITKernel:
        found = self._kernels.get(id(kernel))
        if found is None:
            found = self._kernels[id(kernel)] = JITKernel(kernel, config)
            _shown(found, self._given.get("pass_configs"))
        return found

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these arguments, not run."""
        return self._wrap(self.inner.compile(*args, **kwargs), kwargs)

    def par_compile(
        self,
        configs: Iterable[Mapping[str, Any] | Sequence[Any]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel]:
        """Kernels for several sets of arguments."""
        if ignore_error:
            raise UnsupportedError("par_compile(ignore_error=True): errors are never passed over")
        kernels = self.inner.par_compile(configs, num_workers)
        return [self._wrap(kernel, {}) for kernel in kernels]

    def get_tir(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The program for these arguments, not compiled."""
        return PrimFunc(self.inner.trace(*args, **kwargs))

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The generated source for these arguments."""
        return self.compile(*args, **kwargs).kernel_source

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Factory style: the kernel. Eager style: the results, as torch tensors.

        With ``__return_kernel=True`` the kernel in either style, not run.
        """
        if kwargs.pop("__return_kernel", False):
            return self.compile(*args, **kwargs)
        if self.is_eager:
            return as_torch(self.inner(*args, **kwargs))
        return self.compile(*args, **kwargs)


def jit(
    func: Callable[..., Any] | PrimFunc | None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: Any = None,
    target_host: Any = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: Any = None,
) -> Any:
    """Decorator: compile on call. `execution_backend`, `verbose` and their kind change nothing.

    Raises:
        LanguageError: `func` is no function.
        UnsupportedError: an option that has no equivalent, by the first call.
    """
    given = {
        "out_idx": out_idx,
        "target": target,
        "pass_configs": pass_configs,
        "compile_flags": compile_flags,
    }
    if func is None:
        outer = scope_around(1)
        return functools.partial(_decorate, outer=outer, given=given)
    return _decorate(func, scope_around(1), given)


def _decorate(func: Any, outer: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    if isinstance(func, PrimFunc):
        return JITKernel(compile_program(func, **_chosen(**given)))
    if not isinstance(func, FunctionType):
        raise LanguageError("jit decorates a function", got=type(func).__name__)
    return JITImpl(func, outer, given)
