"""The function that a compiled kernel is called through.

Two ways lead to a launch. The careful one reads every argument, checks it, and binds a launch for
what it found. It then leaves behind a fast function, specialised to those facts, which later calls
try first: it compares facts, takes addresses, and launches. The fast function is Python source
generated for the kernel's parameters, because at a microsecond a call every loop would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilecore.ir.attached import pointers
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.program import Program
from tilecore.runtime.arguments import ArgumentPlan, Signature, View
from tilecore.runtime.fast_path import MISS, FastPath, make_fast_call
from tilecore.runtime.launcher import BoundLaunch, alignment_of, bind, device_kind_of
from tilecore.runtime.tensors import TensorView, address_of, allocator, view_of

_RECENT = 4  # fast functions tried before the careful way; each that misses costs 0.2 us
_REMEMBERED = 512  # signatures kept per kernel; beyond it all are forgotten and found anew


@dataclass(slots=True)
class _Known:
    """A signature met before, its bound launch, and its fast function once there is one."""

    signature: Signature
    bound: BoundLaunch
    fast: FastPath | None = None


class KernelCaller:
    """Calls one compiled program.

    A call takes the parameters by position or name, without the outputs (which are then allocated
    and returned) or with them, and enqueues the kernels on the current stream of the tensors'
    device. It returns None, the output, or a tuple of outputs.

    Args:
        program: the program as its author wrote it (tile level).
        launcher: the backend's launcher for it.

    Attributes:
        on_entry: called with a function that takes the same calls as this object, and launches
            those with the facts of the latest one at once. Whoever is called by the user passes
            calls on to the last one that it was given.

    Raises:
        UnsupportedError: a dynamic size that no call can tell.
    """

    def __init__(self, program: Program, launcher: Any) -> None:
        self.program = program
        self.launcher = launcher
        self.plan = ArgumentPlan(program, device_kind_of(launcher), alignment_of(launcher))
        self._known: dict[tuple[object, ...], _Known] = {}
        self._recent: list[FastPath] = []
        self.on_entry: Callable[[Callable[..., Any]], None] | None = None
        self.pointers = pointers(program)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Launch on the current stream; see the class."""
        if self._recent:
            return self._recent[0].entry(*args, **named)
        return self.launch(args, named)

    def launch(self, args: Sequence[Any], named: dict[str, Any], stream: int | None = None) -> Any:
        """Check everything and launch; on `stream` if one is given.

        Raises:
            ArgumentError: the arguments do not fit.
            LaunchError: the backend could not launch.
        """
        values = self.plan.match(args, named)
        if self.pointers:
            values = self._addressed(values)
        if stream is None and len(values) == len(self.plan.inputs):
            result = self._try_recent(values)
            if result is not MISS:
                return result
        views = self.plan.views(values)
        facts = tuple(view.facts if isinstance(view, TensorView) else None for view in views)
        known = self._known.get(facts)
        if known is None:
            known = self._learn(facts, views)
        elif stream is None:
            result = self._try_known(known, values, views)
            if result is not MISS:
                return result
        self.plan.check_addresses(views)
        return self._run(values, views, known, stream)

    def _try_recent(self, values: Sequence[Any]) -> Any:
        """Calls that alternate between a few sets of shapes find theirs here."""
        for path in self._recent:
            result = path.attempt(*values)
            if result is not MISS:
                if path is not self._recent[0]:
                    self._put_first(path, path)
                return result
        return MISS

    def _put_first(self, path: FastPath, instead_of: FastPath | None) -> None:
        """Let the next call try `path` first."""
        others = [other for other in self._recent if other is not instead_of]
        self._recent = [path, *others][:_RECENT]
        if self.on_entry is not None:
            self.on_entry(path.entry)

    def _addressed(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The values with the addresses of tensors that are given for parameters of type T.ptr."""
        names = (parameter.name for parameter in self.plan.parameters(len(values)))
        return tuple(
            address_of(value, name, self.plan.checks.device_kind)
            if name in self.pointers
            else value
            for name, value in zip(names, values, strict=True)
        )

    def _learn(self, facts: tuple[object, ...], views: Sequence[View]) -> _Known:
        signature = self.plan.check(views)
        bound = bind(self.launcher, signature.sizes, signature.device.ordinal)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        known = self._known[facts] = _Known(signature, bound)
        return known

    def _try_known(self, known: _Known, values: Sequence[Any], views: Sequence[View]) -> Any:
        """Launch by the fast function of facts that were met before; make one if need be.

        Facts met once get none: sizes that grow with each call would never use theirs. `MISS` when
        there can be none, or when it was just made (the careful launch follows and is right).
        """
        fast = known.fast
        if fast is not None and fast not in self._recent:
            self._put_first(fast, fast)
            return fast.attempt(*values)
        known.fast = make_fast_call(
            self.plan, values, views, known.signature, known.bound, self.launch
        )
        if known.fast is not None:
            self._put_first(known.fast, fast)
        return MISS

    def _run(
        self,
        values: Sequence[Any],
        views: Sequence[View],
        known: _Known,
        stream: int | None,
    ) -> Any:
        signature = known.signature
        params = self.program.params
        outputs = [
            allocator(shape, _buffer(params[position]).dtype, signature.device, signature.library)()
            for position, shape in zip(self.program.outputs, signature.outputs, strict=False)
        ]
        workspaces = {
            buffer.name: allocator(shape, buffer.dtype, signature.device, signature.library)()
            for buffer, shape in zip(self.plan.workspaces, signature.workspaces, strict=True)
        }
        flat = [view.address if isinstance(view, TensorView) else view for view in views]
        for position, output in zip(self.program.outputs, outputs, strict=False):
            flat.insert(position, view_of(output).address)  # outputs are in ascending order
        flat += [
            view_of(workspaces[one.name]).address if one.name in workspaces else 0
            for one in self.program.workspaces
        ]
        if stream is None:
            known.bound(*flat)
        else:
            self.launcher((*flat, *signature.sizes), stream)
        if len(views) == len(params):  # the caller's own outputs come back
            outputs = [values[position] for position in self.program.outputs]
        return result_of(outputs)


def result_of(outputs: Sequence[Any]) -> Any:
    """None, the one output, or the tuple of outputs."""
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _buffer(parameter: Buffer | Var) -> Buffer:
    assert isinstance(parameter, Buffer), "the verifier admits only buffers as outputs"
    return parameter
