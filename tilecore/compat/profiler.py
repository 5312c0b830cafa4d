"""Measuring and checking kernels against a reference program."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilecore.compat.kernel import JITKernel
from tilecore.compat.settings import is_on_accelerator, settings
from tilecore.compat.supply import TensorSupplyType, make_inputs
from tilecore.compat.utils.tensor import torch_assert_close
from tilecore.errors import ArgumentError

_SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean, "median": statistics.median, "min": min, "max": max,
}  # fmt: skip


def _synchronize() -> None:
    import torch

    if is_on_accelerator():
        torch.cuda.synchronize()


def _once(fn: Callable[[], Any]) -> float:
    """Milliseconds of one synchronised call."""
    _synchronize()
    start = time.perf_counter()
    fn()
    _synchronize()
    return (time.perf_counter() - start) * 1e3


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **_: Any,
) -> Any:
    """Milliseconds of one call.

    Args:
        fn: called without arguments.
        warmup: milliseconds of calls before the measurement.
        rep: milliseconds of measured calls.
        _n_warmup: number of calls before it, instead of a time.
        _n_repeat: number of measured calls, instead of a time.
        quantiles: return these quantiles instead of one number.
        return_mode: ``"mean"``, ``"median"``, ``"min"`` or ``"max"``.

    Raises:
        ArgumentError: an unknown `return_mode`.
    """
    if return_mode not in _SUMMARIES:
        raise ArgumentError(
            "unknown return_mode", expected=f"one of {', '.join(_SUMMARIES)}", got=return_mode
        )
    first = _once(fn)
    if settings.quick:
        times = [first]
    else:
        single = max(_once(fn), 1e-3)
        for _call in range(_n_warmup or int(warmup / single)):
            fn()
        times = [_once(fn) for _call in range(_n_repeat or max(1, int(rep / single)))]
    if quantiles is not None:
        ordered = sorted(times)
        return [ordered[round(q * (len(ordered) - 1))] for q in quantiles]
    return _SUMMARIES[return_mode](times)


class Profiler:
    """Runs a kernel on inputs that it makes.

    Args:
        kernel: the kernel.
        supply: how inputs are drawn.
    """

    def __init__(self, kernel: JITKernel, supply: TensorSupplyType = TensorSupplyType.Auto) -> None:
        self.func = kernel
        self.supply = supply

    def make_inputs(self, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """Inputs for one call."""
        return make_inputs(self.func.program, self.supply, sizes)

    def _get_inputs(self) -> list[Any]:
        """The name under which programs know `make_inputs`."""
        return self.make_inputs()

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """One call of the kernel, or of `func`, on made inputs."""
        return (func or self.func)(*self.make_inputs())

    def __call__(self, *args: Any) -> Any:
        """One call of the kernel."""
        return self.func(*args)

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compare with a reference: what both return, or what both wrote into their arguments.

        Raises:
            AssertionError: too many elements differ by more than ``atol + rtol * |reference|``.
            ArgumentError: one returns a value and the other none.
        """
        inputs = list(self.make_inputs() if input_tensors is None else input_tensors)
        copies = [value.clone() for value in inputs]
        wanted = reference_program(*copies)
        came = self.func(*inputs)
        if (wanted is None) != (came is None):
            raise ArgumentError(
                "the kernel and its reference differ in whether they return something",
                hint="compile with out_idx, or let the reference write its arguments",
            )
        pairs = zip(inputs, copies, strict=True) if wanted is None else _paired(came, wanted)
        for value, reference in pairs:
            torch_assert_close(
                value,
                reference,
                rtol=rtol,
                atol=atol,
                max_mismatched_ratio=max_mismatched_ratio,
            )

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[..., Any] | None = None,
    ) -> None:
        """Compare by the program's own check, called with both results."""
        inputs = list(self.make_inputs() if input_tensors is None else input_tensors)
        wanted, came = reference_program(*inputs), self.func(*inputs)
        if manual_check_prog is None:
            raise ArgumentError("manual_assert_close needs manual_check_prog")
        manual_check_prog(_listed(came), _listed(wanted))

    def assert_consistent(self, repeat: int = 10) -> None:
        """The same inputs give the same bits, `repeat` times.

        Raises:
            AssertionError: a result differs.
        """
        import torch

        inputs = self.make_inputs()
        first = _listed(self.func(*inputs))
        for _ in range(repeat):
            for one, other in zip(first, _listed(self.func(*inputs)), strict=True):
                assert torch.equal(one, other), "results differ between calls"

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
    ) -> Any:
        """Milliseconds of one call of the kernel, or of `func`; `backend` changes nothing."""
        inputs = input_tensors or self.make_inputs(dynamic_symbolic_constraints)
        called = func or self.func
        return do_bench(
            lambda: called(*inputs),
            warmup,
            rep,
            n_warmup,
            n_repeat,
            quantiles,
            return_mode,
        )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _paired(came: Any, wanted: Any) -> Any:
    return zip(_listed(came), _listed(wanted), strict=True)
