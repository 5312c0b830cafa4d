"""Search over configurations by measurement: the decorator, and the tuner as an object."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilecore.compat.jit import JITImpl, compile
from tilecore.compat.kernel import JITKernel
from tilecore.compat.profiler import Profiler, do_bench
from tilecore.compat.settings import settings
from tilecore.compat.supply import TensorSupplyType, kernel_params
from tilecore.errors import ArgumentError, TilecoreError

_inputs: list[Any] = []


@contextlib.contextmanager
def set_autotune_inputs(*tensors: Any) -> Generator[None]:
    """Measure on these tensors inside the block."""
    before = list(_inputs)
    flat = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    _inputs[:] = flat
    try:
        yield
    finally:
        _inputs[:] = before


@dataclass(slots=True)
class AutotuneResult:
    """The best configuration: milliseconds, its arguments and its kernel."""

    latency: float
    config: dict[str, Any]
    ref_latency: float | None
    kernel: JITKernel

    @property
    def libcode(self) -> str:
        """The kernel's source."""
        return self.kernel.kernel_source


def _search(
    make: Callable[[dict[str, Any]], JITKernel],
    configs: Sequence[Mapping[str, Any]],
    measure: Callable[[JITKernel], float],
) -> AutotuneResult:
    """The fastest of the configurations that compile and run.

    Raises:
        TilecoreError: none does; the first one's error.
    """
    best: AutotuneResult | None = None
    first: TilecoreError | None = None
    for config in configs:
        try:
            kernel = make(dict(config))
            latency = measure(kernel)
        except TilecoreError as error:
            first = first or error
            continue
        if best is None or latency < best.latency:
            best = AutotuneResult(latency, dict(config), None, kernel)
        if settings.quick:
            break
    if best is None:
        raise first or ArgumentError("a search needs at least one configuration")
    best.kernel.latency, best.kernel.config = best.latency, best.config
    return best


def split_options(
    make: Callable[..., Any], config: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A configuration's arguments, and the compile options among them (``pass_configs``)."""
    known = inspect.signature(make).parameters
    options = {name for name in ("pass_configs",) if name in config and name not in known}
    return (
        {name: value for name, value in config.items() if name not in options},
        {name: config[name] for name in options},
    )


class Tuned:
    """A jit function whose missing arguments are searched for, once per set of arguments."""

    def __init__(
        self, inner: JITImpl, configs: Any, supply: TensorSupplyType, supply_prog: Any
    ) -> None:
        self.inner = inner
        self.configs = configs
        self.supply = supply
        self.supply_prog = supply_prog
        self._found: dict[Any, AutotuneResult] = {}
        functools.update_wrapper(self, inner.function)

    def _configs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[dict[str, Any]]:
        made: Any = self.configs
        if callable(made):
            try:
                made = made(*args, **kwargs)
            except TypeError:
                made = made()
        return [dict(config) for config in made]

    def _measure(self, kernel: JITKernel) -> float:
        if self.supply_prog is not None:
            inputs = list(self.supply_prog(kernel_params(kernel.program, inputs_only=True)))
        else:
            inputs = list(_inputs) or Profiler(kernel, self.supply).make_inputs()
        return float(do_bench(lambda: kernel(*inputs)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the jit function, with the best configuration."""
        if kwargs.pop("__return_kernel", False):
            return self.compile(*args, **kwargs)
        found = self._search_once(args, kwargs)
        if found is None:
            return self.inner(*args, **kwargs)
        if self.inner.is_eager:
            config, options = split_options(self.inner.function, found.config)
            return self.inner.with_options(options)(*args, **{**config, **kwargs})
        return found.kernel

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel of the best configuration, not run."""
        found = self._search_once(args, kwargs)
        return self.inner.compile(*args, **kwargs) if found is None else found.kernel

    def _search_once(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> AutotuneResult | None:
        """The result for these arguments; None when they make every choice."""
        configs = self._configs(args, kwargs)
        names = set(configs[0]) - {"pass_configs"} if configs else set()
        signature = inspect.signature(self.inner.function)
        known = {name: value for name, value in kwargs.items() if name in signature.parameters}
        if names and names <= set(signature.bind_partial(*args, **known).arguments):
            return None
        key = (repr([getattr(a, "shape", a) for a in args]), repr(sorted(kwargs.items())))
        if key not in self._found:
            self._found[key] = self._run(configs, args, kwargs)
        return self._found[key]

    def _run(
        self, configs: list[dict[str, Any]], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> AutotuneResult:
        def make(config: dict[str, Any]) -> JITKernel:
            config, options = split_options(self.inner.function, config)
            return self.inner.with_options(options).compile(*args, **{**config, **kwargs})

        if self.inner.is_eager:
            tensors = [value for value in args if hasattr(value, "shape")]
            if not tensors:
                return _search(make, configs, self._measure)
            return _search(make, configs, lambda kernel: do_bench(lambda: kernel(*tensors)))
        return _search(make, configs, self._measure)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def autotune(
    func: Any = None,
    *,
    configs: Any,
    supply_type: TensorSupplyType = TensorSupplyType.Auto,
    supply_prog: Any = None,
    **_: Any,
) -> Any:
    """Decorator above `jit`: search `configs` (a list, or a function of the call's arguments).

    Other options of a search (times, tolerances, caches) change nothing here.
    """

    def decorate(inner: Any) -> Any:
        if not isinstance(inner, JITImpl):
            raise ArgumentError("autotune decorates a jit function", got=type(inner).__name__)
        return Tuned(inner, configs, supply_type, supply_prog)

    return decorate if func is None else decorate(func)


class AutoTuner:
    """A search as an object: `from_kernel`, `set_compile_args`, `set_profile_args`, `run`."""

    def __init__(self, make: Callable[..., Any], configs: Sequence[Mapping[str, Any]]) -> None:
        self._make = make
        self._configs = [dict(config) for config in configs]
        self._compile: dict[str, Any] = {}
        self._profile: dict[str, Any] = {}

    @classmethod
    def from_kernel(
        cls, kernel: Callable[..., Any], configs: Sequence[Mapping[str, Any]]
    ) -> AutoTuner:
        """A search over a factory's arguments."""
        return cls(kernel, configs)

    def set_compile_args(self, **options: Any) -> AutoTuner:
        """Options of `compile`."""
        self._compile = options
        return self

    def set_profile_args(self, **options: Any) -> AutoTuner:
        """`supply_type`, `ref_prog`, `supply_prog`; others change nothing."""
        self._profile = options
        return self

    def run(self, warmup: float = 25, rep: float = 100, **_: Any) -> AutotuneResult:
        """Measure all configurations; the fastest one's result. Other options change nothing."""
        supply = self._profile.get("supply_type", TensorSupplyType.Auto)
        supply_prog, reference = self._profile.get("supply_prog"), self._profile.get("ref_prog")

        def inputs(kernel: JITKernel) -> list[Any]:
            if supply_prog is not None:
                return list(supply_prog(kernel_params(kernel.program, inputs_only=True)))
            return list(_inputs) or Profiler(kernel, supply).make_inputs()

        def measure(kernel: JITKernel) -> float:
            values = inputs(kernel)
            return float(do_bench(lambda: kernel(*values), warmup, rep))

        def make(config: dict[str, Any]) -> JITKernel:
            config, options = split_options(self._make, config)
            return compile(self._make(**config), **{**self._compile, **options})

        found = _search(make, self._configs, measure)
        if reference is not None:
            values = inputs(found.kernel)
            found.ref_latency = float(do_bench(lambda: reference(*values), warmup, rep))
        return found


__all__ = ["AutoTuner", "AutotuneResult", "autotune", "set_autotune_inputs"]
