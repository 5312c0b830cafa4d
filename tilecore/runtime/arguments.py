"""Turning a call's arguments into views, and views into the signature of a launch.

The plan is made once per kernel. It answers, for the arguments of one call, either a `Signature`
(what the dynamic sizes are, what must be allocated) or an error that names the parameter, what was
expected and what came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tilecore.errors import ArgumentError, UnsupportedError
from tilecore.ir.attached import attached
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.program import Program
from tilecore.runtime.scalars import scalar_value
from tilecore.runtime.size_equations import plain_sizes
from tilecore.runtime.sizes import Sizes
from tilecore.runtime.tensor_checks import TensorChecks, describe
from tilecore.runtime.tensors import Device, TensorView, library_of, view_of


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING: Any = _Missing()
"""Stands for an argument that was not passed."""

View = TensorView | int | float | bool
"""A checked argument: a tensor's view, or a scalar's Python number."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What one set of argument facts means for a launch.

    Attributes:
        sizes: values of the program's dynamic sizes.
        device: where all tensors are.
        library: who allocates outputs and workspaces.
        outputs: extents of each output that is to be allocated, in elements.
        workspaces: extents of each workspace that is to be allocated, in elements.
    """

    sizes: Sizes
    device: Device
    library: str
    outputs: tuple[tuple[int, ...], ...]
    workspaces: tuple[tuple[int, ...], ...]


class ArgumentPlan:
    """The parameters of a program, ready to check calls.

    Args:
        program: the program as its author wrote it (tile level).
        device_kind: where tensors must live.
        alignment_bytes: what every address must be a multiple of.

    Raises:
        UnsupportedError: a dynamic size follows from no shape, so no call can tell its value.
    """

    def __init__(
        self, program: Program, device_kind: str = "cpu", alignment_bytes: int = 1
    ) -> None:
        self.program = program
        self.alignment_bytes = alignment_bytes
        self.input_positions = tuple(
            position for position in range(len(program.params)) if position not in program.outputs
        )
        self.inputs = tuple(program.params[position] for position in self.input_positions)
        elsewhere = attached(program)  # the program finds these: no call allocates them
        self.workspaces = tuple(one for one in program.workspaces if one.name not in elsewhere)
        self.checks = TensorChecks(program, device_kind, self.workspaces)
        self.fast_code: dict[tuple[object, ...], CodeType] = {}
        self._refuse_unknown_sizes()

    def match(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments in parameter order from a call's positional and named ones.

        The result has one entry per input, or one per parameter when the call passes the
        outputs too.

        Raises:
            ArgumentError: missing, surplus, unknown or doubly given arguments.
        """
        if not named and len(args) == len(self.inputs) and not any(a is MISSING for a in args):
            return tuple(args)
        outputs = {self.program.params[position].name for position in self.program.outputs}
        passes_outputs = len(args) > len(self.inputs) or not outputs.isdisjoint(named)
        names = [p.name for p in (self.program.params if passes_outputs else self.inputs)]
        if len(args) > len(names):
            self._fail("too many arguments", f"{len(names)}: {', '.join(names)}", len(args))
        values = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names:
                self._fail(f"unknown argument {name!r}", f"one of {', '.join(names)}")
            if values.get(name, MISSING) is not MISSING:
                self._fail(f"argument {name!r} is given twice")
            values[name] = value
        missing = [name for name in names if values.get(name, MISSING) is MISSING]
        if missing:
            self._fail(f"missing argument {', '.join(missing)}", ", ".join(names))
        return tuple(values[name] for name in names)

    def views(self, values: Sequence[Any]) -> tuple[View, ...]:
        """Views of the tensors and Python values of the scalars, as `match` ordered them.

        Raises:
            ArgumentError: a value is of the wrong kind, or a number out of its dtype's range.
        """
        return tuple(
            self._view_scalar(parameter, value)
            if isinstance(parameter, Var)
            else self._view_tensor(parameter, value)
            for parameter, value in zip(self.parameters(len(values)), values, strict=True)
        )

    def parameters(self, count: int) -> tuple[Buffer | Var, ...]:
        """The parameters that a call with `count` arguments speaks of."""
        return self.program.params if count == len(self.program.params) else self.inputs

    def check(self, views: Sequence[View]) -> Signature:
        """Check all facts of the tensors and read the dynamic sizes off them.

        Raises:
            ArgumentError: wrong device, dtype, rank, shape, stride, or a broken promise.
        """
        tensors = [
            (parameter, view)
            for parameter, view in zip(self.parameters(len(views)), views, strict=True)
            if isinstance(parameter, Buffer) and isinstance(view, TensorView)
        ]
        device = self.checks.device(tensors)
        sizes = self.checks.sizes(tensors)
        outputs: tuple[tuple[int, ...], ...] = ()
        if len(views) < len(self.program.params):
            names = [self.program.params[position].name for position in self.program.outputs]
            outputs = tuple(self.checks.shape_of(name, sizes) for name in names)
        libraries = {view.library for _, view in tensors}
        without = "numpy" if device.kind == "cpu" else "other"  # no tensor says who allocates
        library = next((x for x in ("torch", "other", "numpy") if x in libraries), without)
        workspaces = tuple(self.checks.shape_of(one.name, sizes) for one in self.workspaces)
        return Signature(sizes, device, library, outputs, workspaces)

    def check_addresses(self, views: Sequence[View]) -> None:
        """Check the addresses, which no signature covers.

        Raises:
            ArgumentError: there is none, or it is not a multiple of `alignment_bytes`.
        """
        for parameter, view in zip(self.parameters(len(views)), views, strict=True):
            if not isinstance(view, TensorView):
                continue
            if not view.address and 0 not in view.shape:  # storage given up, or never there
                self._fail(f"{parameter.name} has no memory", "a tensor with storage",
                           f"a null address from a {type(view.owner).__name__}")  # fmt: skip
            if view.address % self.alignment_bytes:
                self._fail(
                    f"{parameter.name} is misaligned",
                    f"an address that is a multiple of {self.alignment_bytes} bytes",
                    f"{view.address:#x}, {view.address % self.alignment_bytes} bytes off",
                    hint="pass a copy, or a view that starts at an aligned element",
                )

    def _view_tensor(self, parameter: Buffer, value: Any) -> TensorView:
        if not library_of(value):
            self._reject(parameter, f"a value of type {type(value).__name__}")
        try:
            return view_of(value)
        except ArgumentError as error:
            raise ArgumentError(
                f"{self.program.name}: {parameter.name}: {error.reason}",
                expected=error.expected,
                got=error.got,
                hint=error.hint,
                loc=self.program.loc,
            ) from None

    def _view_scalar(self, parameter: Var, value: Any) -> int | float | bool:
        try:
            return scalar_value(value, parameter.dtype)
        except (TypeError, OverflowError) as error:
            return self._reject(parameter, str(error))

    def _reject(self, parameter: Buffer | Var, got: str) -> Any:
        self._fail(f"{parameter.name} is of the wrong kind", describe(parameter), got)

    def _refuse_unknown_sizes(self) -> None:
        inputs = [buffer for buffer in self.inputs if isinstance(buffer, Buffer)]
        told = plain_sizes(inputs) | {equation.size for equation in self.checks.equations}
        unknown = sorted({symbol.name for symbol in self.program.symbols} - told)
        if unknown:
            raise UnsupportedError(
                f"{self.program.name}: dynamic size {', '.join(unknown)} follows from no shape "
                "or stride of an input, so a call cannot tell its value",
                loc=self.program.loc,
                hint="give one input an axis of exactly that size",
            )

    def _fail(
        self, reason: str, expected: object = None, got: object = None, hint: str | None = None
    ) -> None:
        text = f"{self.program.name}: {reason}"
        raise ArgumentError(text, expected=expected, got=got, hint=hint, loc=self.program.loc)
