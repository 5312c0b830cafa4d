"""What must hold of the tensors of one call, and the dynamic sizes that their shapes tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from tilecore.errors import ArgumentError
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Const, Expr, Var
from tilecore.ir.packing import storage_shape
from tilecore.ir.program import Program
from tilecore.runtime.size_equations import SizeEquation, size_equations
from tilecore.runtime.sizes import SizeFunction, Sizes, compile_sizes
from tilecore.runtime.tensors import (
    Device,
    TensorView,
    is_compact,
    row_major_strides,
    storage_names,
)
from tilecore.runtime.written import written_buffers

Tensors = Sequence[tuple[Buffer, TensorView]]


class TensorChecks:
    """The global buffers of a program; every method raises `ArgumentError` when one does not hold.

    Args:
        program: the program as its author wrote it.
        device_kind: where tensors must live.
        workspaces: those that a call allocates.
    """

    def __init__(self, program: Program, device_kind: str, workspaces: Sequence[Buffer]) -> None:
        self.program = program
        self.device_kind = device_kind
        self.written = written_buffers(program)
        buffers = [p for p in program.params if isinstance(p, Buffer)]
        self._buffers = {buffer.name: buffer for buffer in buffers}
        self._shapes: dict[str, SizeFunction] = {
            buffer.name: compile_sizes(buffer.shape, program.symbols)
            for buffer in (*buffers, *workspaces)
        }
        self._strides: dict[str, SizeFunction] = {
            buffer.name: compile_sizes(buffer.strides, program.symbols)
            for buffer in buffers
            if buffer.strides is not None
        }

        inputs = [p for k, p in enumerate(program.params) if k not in program.outputs]
        self.equations = size_equations(
            [p for p in inputs if isinstance(p, Buffer)], program.symbols
        )

    def shape_of(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        """Extents of a buffer in elements, given the dynamic sizes."""
        return self._shapes[name](sizes)

    def device(self, tensors: Tensors) -> Device:
        """The one device that all tensors are on."""
        if not tensors:
            return Device(self.device_kind)
        first_buffer, first = tensors[0]
        for buffer, view in tensors:
            if view.device.kind != self.device_kind:
                self._fail(
                    f"{buffer.name} is on the wrong device",
                    f"a tensor in {self.device_kind} memory",
                    f"one on {view.device}",
                )
            if view.device != first.device:
                self._fail(
                    f"{first_buffer.name} and {buffer.name} are on different devices",
                    f"all tensors on {first.device}",
                    f"{buffer.name} on {view.device}",
                )
        return first.device

    def sizes(self, tensors: Tensors) -> Sizes:
        """The dynamic sizes, after checking dtype, rank, shape and strides of every tensor."""
        for buffer, view in tensors:
            self._check_dtype_and_rank(buffer, view)
        sizes = self._solve(tensors)
        for buffer, view in tensors:
            self._check_shape(buffer, view, sizes)
            self._check_strides(buffer, view, sizes)
        return sizes

    def _check_dtype_and_rank(self, buffer: Buffer, view: TensorView) -> None:
        names = storage_names(buffer.dtype)
        if view.dtype not in names:
            packed = f" (packed {buffer.dtype})" if buffer.dtype.bits < 8 else ""
            self._fail(f"{buffer.name} has the wrong dtype", f"{names[0]}{packed}", view.dtype)
        if len(view.shape) != buffer.rank:
            self._fail(
                f"{buffer.name} has the wrong rank",
                describe(buffer),
                f"rank {len(view.shape)}, shape {view.shape}",
            )
        if not view.writeable and buffer.name in self.written:
            if view.library == "torch":
                self._fail(
                    f"{buffer.name} requires a gradient, and this kernel writes it",
                    "a tensor whose values autograd does not keep", "one with requires_grad",
                    hint="call under torch.no_grad(), or pass tensor.detach()",
                )  # fmt: skip
            self._fail(f"{buffer.name} is read-only, and this kernel writes it")

    def _solve(self, tensors: Tensors) -> Sizes:
        solved: dict[str, tuple[int, str]] = {}
        for buffer, view in tensors:
            for name, value, place in _sizes_told(buffer, view):
                known = solved.setdefault(name, (value, place))
                if known[0] != value:
                    self._fail(
                        f"size {name} has two values",
                        f"{known[0]} as in {known[1]}",
                        f"{value} in {place}",
                    )
        later = {equation.size for equation in self.equations}
        for symbol in self.program.symbols:
            if symbol.name not in solved and symbol.name not in later:  # a packed axis tells it
                solved[symbol.name] = _size_of_packed_axis(symbol, tensors)
        views = {buffer.name: view for buffer, view in tensors}
        for equation in self.equations:
            if equation.size not in solved:  # else an output that was passed tells it
                solved[equation.size] = self._solve_equation(equation, solved, views)
        for symbol in self.program.symbols:
            self._check_promises(symbol, *solved[symbol.name])
        return tuple(solved[symbol.name][0] for symbol in self.program.symbols)

    def _solve_equation(
        self,
        equation: SizeEquation,
        solved: Mapping[str, tuple[int, str]],
        views: Mapping[str, TensorView],
    ) -> tuple[int, str]:
        view = views[equation.buffer]
        buffer = self._buffers[equation.buffer]
        strides = element_strides(buffer, view)
        value = (strides if equation.is_stride else view.shape)[equation.axis]
        known = {name: value for name, (value, _) in solved.items()}
        found = equation.solve(known, value)
        if found is None:
            given = "".join(f", {name} = {known[name]}" for name in equation.known)
            self._fail(
                f"no single size {equation.size} fits {equation.place}",
                f"an extent that the declared shape can have{given}",
                value,
            )
        return found, equation.place

    def _check_promises(self, symbol: Var, value: int, place: str) -> None:
        limit = 2 ** (symbol.dtype.bits - 1) - 1
        if value % symbol.multiple_of:
            expected = f"a multiple of {symbol.multiple_of}"
        elif symbol.lower is not None and value < symbol.lower:
            expected = f"at least {symbol.lower}"
        elif symbol.upper is not None and value > symbol.upper:
            expected = f"at most {symbol.upper}"
        elif value > limit:
            expected = f"at most {limit}, as {symbol.name} is {symbol.dtype}"
        else:
            return
        self._fail(f"size {symbol.name} is not as declared", expected, f"{value} in {place}")

    def _check_shape(self, buffer: Buffer, view: TensorView, sizes: Sizes) -> None:
        shape = self.shape_of(buffer.name, sizes)
        stored = storage_shape(buffer.dtype, shape)
        if stored == view.shape:
            return
        expected = str(stored) if stored == shape else f"{stored} (packed from {shape})"
        if buffer.static_shape is None:
            named = zip(self.program.symbols, sizes, strict=True)
            expected += " with " + ", ".join(f"{symbol.name} = {size}" for symbol, size in named)
        self._fail(f"{buffer.name} has the wrong shape", expected, view.shape)

    def _check_strides(self, buffer: Buffer, view: TensorView, sizes: Sizes) -> None:
        if buffer.strides is None:
            if not is_compact(view.shape, view.strides):
                self._fail(
                    f"{buffer.name} is not contiguous",
                    f"strides {row_major_strides(view.shape)}",
                    view.strides,
                    hint="pass a contiguous copy, or declare the parameter with strides",
                )
        elif 0 not in view.shape:
            expected = self._strides[buffer.name](sizes)
            given = element_strides(buffer, view)
            for extent, want, have in zip(view.shape, expected, given, strict=True):
                if extent != 1 and want != have:
                    self._fail(f"{buffer.name} has the wrong strides", expected, given)

    def _fail(
        self, reason: str, expected: object = None, got: object = None, hint: str | None = None
    ) -> NoReturn:
        text = f"{self.program.name}: {reason}"
        raise ArgumentError(text, expected=expected, got=got, hint=hint, loc=self.program.loc)


def element_strides(buffer: Buffer, view: TensorView) -> tuple[int, ...]:
    """A tensor's strides in elements of the parameter; those of packed ones are in bytes."""
    if buffer.dtype.bits >= 8 or not view.strides:
        return view.strides
    packed = 8 // buffer.dtype.bits
    return (*(stride * packed for stride in view.strides[:-1]), view.strides[-1])


def describe(parameter: Buffer | Var) -> str:
    """How an error message states what a parameter takes."""
    if isinstance(parameter, Var):
        return f"a number of dtype {parameter.dtype}"
    extents = ", ".join(_extent_text(extent) for extent in parameter.shape)
    return f"a tensor of shape ({extents}) and dtype {parameter.dtype}"


def _sizes_told(buffer: Buffer, view: TensorView) -> Iterator[tuple[str, int, str]]:
    """(size, value, place) for each axis or stride that is exactly one dynamic size."""
    packed_axis = buffer.rank - 1 if buffer.dtype.bits < 8 else None
    for axis, (extent, value) in enumerate(zip(buffer.shape, view.shape, strict=True)):
        if isinstance(extent, Var) and axis != packed_axis:
            yield extent.name, value, f"{buffer.name}.shape[{axis}]"
    given = element_strides(buffer, view)
    for axis, (stride, value) in enumerate(zip(buffer.strides or (), given, strict=False)):
        if isinstance(stride, Var):
            yield stride.name, value, f"{buffer.name}.stride({axis})"


def _size_of_packed_axis(symbol: Var, tensors: Tensors) -> tuple[int, str]:
    """A size that only the last axis of a packed tensor tells: taken to fill its bytes."""
    for buffer, view in tensors:
        if buffer.dtype.bits < 8 and buffer.rank and buffer.shape[-1] == symbol:
            place = f"{buffer.name}.shape[{buffer.rank - 1}]"
            return view.shape[-1] * 8 // buffer.dtype.bits, place
    raise AssertionError(f"ArgumentPlan admits no size that nothing tells: {symbol.name}")


def _extent_text(extent: Expr) -> str:
    if isinstance(extent, Const):
        return str(extent.value)
    return extent.name if isinstance(extent, Var) else "an expression"
