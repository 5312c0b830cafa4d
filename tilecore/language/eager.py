"""The eager style: a function that declares its tensors in its body and is traced per call.

Dimensions of T.const are found from the arguments' shapes. The body is traced twice: once up to
the last declaration, with unknown dimensions, to solve them; then with their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

from tilecore.errors import ArgumentError, Loc
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType, numpy_dtype
from tilecore.ir.dtypes import dtype_of as ir_dtype_of
from tilecore.ir.expr import Const, Expr, Var, free_vars, substitute
from tilecore.ir.expr import const as ir_const
from tilecore.ir.program import Program
from tilecore.language.builder import Builder, current, tracing
from tilecore.language.dtypes import dtype
from tilecore.language.finish import collect_symbols, finish_program
from tilecore.language.linear import linear_terms
from tilecore.language.locate import fail, misuse, run_staged
from tilecore.language.operators import describe
from tilecore.language.source import function_loc
from tilecore.language.types import TensorType, declare_param, ptr, scalar_dtype, split_names
from tilecore.language.values import BufferValue, Scalar


@dataclass(frozen=True, slots=True)
class TensorKey:
    """What of a tensor argument a compiled kernel depends on.

    Attributes:
        shape: extents.
        dtype: element type.
        strides: in elements, of a tensor that is not compact.
    """

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None

    def of(self, dtype: DType) -> TensorKey:
        """The key of what the tensor holds, where that is packed in its bytes: `dtype` below 8
        bits, along the last axis."""
        if dtype.bits >= 8 or self.dtype.bits != 8 or not self.shape:
            return self
        packed = 8 // dtype.bits
        strides = self.strides
        if strides is not None:
            strides = (*(stride * packed for stride in strides[:-1]), strides[-1])
        return TensorKey((*self.shape[:-1], self.shape[-1] * packed), dtype, strides)

    def strides_of(self) -> tuple[int, ...]:
        """Strides in elements, of a compact tensor too."""
        return self.strides if self.strides is not None else _row_major(self.shape)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))


class UnknownTensor:
    """A tensor argument of which only the sizes are known."""


class PointerArgument:
    """A tensor argument that the signature calls an address: T.make_tensor declares it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.description = f"the address {name}"


UNKNOWN_TENSOR = UnknownTensor()
"""Stands for a tensor argument of which only the sizes are known (``f.compile(M=1024)``)."""


def tensor_key(value: Any) -> TensorKey | None:
    """The key of a tensor-like argument (NumPy, torch, DLPack, T.Tensor), or None for others."""
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or kind is None:
        return None
    extents = [extent.value if isinstance(extent, Const) else extent for extent in shape]
    if any(isinstance(extent, Expr) for extent in extents):
        fail("an eager function is traced for known sizes", got=f"a type of shape {shape}")
    known = tuple(int(extent) for extent in extents)
    strides = element_strides(value)
    if str(kind).endswith("_x2"):  # a pair of sub-byte elements in each byte
        kind = "uint8"
    return TensorKey(known, ir_dtype_of(kind), None if strides == _row_major(known) else strides)


def element_strides(value: Any) -> tuple[int, ...] | None:
    """Strides of an array in elements; None for what has none (a T.Tensor type)."""
    stride: Any = getattr(value, "stride", None)
    if callable(stride):
        per_axis: Any = stride()
        return tuple(per_axis)
    steps, size = getattr(value, "strides", None), getattr(value, "itemsize", None)
    if steps is None or not isinstance(size, int) or not size:
        return None
    return tuple(step // size for step in steps)


def is_runtime_scalar(annotation: Any) -> bool:
    """True for ``n: T.int32``: a value of each call. ``n: int`` is known while compiling."""
    return isinstance(annotation, dtype)


class _Declared(Exception):
    """Raised by the first trace when every tensor argument has been declared."""


class EagerCall:
    """One call of an eager function: arguments, and what their declarations say.

    Attributes:
        tensors: tensor arguments; None for one that is described by `sizes` alone.
        scalars: arguments that are values of each call.
        sizes: T.const dimensions that are known, by name.
        solving: True in the first trace.
        loc: of the function.
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorKey | None],
        scalars: Mapping[str, DType],
        sizes: Mapping[str, int],
        loc: Loc | None = None,
    ) -> None:
        self.loc = loc
        self.tensors = tensors
        self.scalars = scalars
        self.sizes: dict[str, int] = dict(sizes)
        self.constants: dict[str, DType] = {}
        self.declared: dict[str, TensorType] = {}
        self.solving = True

    def is_argument(self, name: str) -> bool:
        """True for a name that a declaration may type."""
        return name in self.tensors or name in self.scalars

    def declare(self, name: str, annotation: Any) -> Any:
        """Type one argument; returns what the author's name is bound to."""
        builder = current()
        if name in self.scalars:
            kind = scalar_dtype(annotation)
            if kind != self.scalars[name]:
                fail(f"{name} is declared twice", expected=self.scalars[name], got=annotation)
            return Scalar(Var(name, self.scalars[name]))
        if not isinstance(annotation, TensorType):
            fail(f"argument {name} is a tensor", expected="T.Tensor[[...], dtype]", got=annotation)
        if not self.solving:
            return BufferValue(self._param(builder, name, annotation))
        self.declared[name] = annotation
        if len(self.declared) == len(self.tensors):
            raise _Declared
        return BufferValue(annotation.buffer(name, None))

    def _param(self, builder: Builder, name: str, annotation: TensorType) -> Buffer:
        param = declare_param(name, annotation)
        assert isinstance(param, Buffer)
        builder.params.append(param)
        for symbol in collect_symbols([param]):
            if not builder.is_alive(symbol.name):
                builder.unique(symbol.name)
                builder.declare_host(symbol.name)
        return param

    def solve(self) -> None:
        """Find the sizes of T.const from the declared shapes.

        Raises:
            ArgumentError: an argument does not fit its declaration.
        """
        pending: list[tuple[str, int, Expr, tuple[int, ...]]] = []
        for name, annotation in self.declared.items():
            given = self.tensors[name]
            if given is None:
                continue
            key = given.of(annotation.dtype)
            extents = self._shape(name, annotation, key)
            pending += [(name, axis, one, key.shape) for axis, one in enumerate(extents)]
            strides = enumerate(annotation.strides or ())
            pending += [(name, axis, one, key.strides_of()) for axis, one in strides]
        progress = True
        while progress:
            progress = False
            for name, axis, extent, shape in pending:
                progress |= self._solve_one(name, axis, extent, shape[axis])

    def _refuse(self, reason: str, expected: Any, got: Any) -> NoReturn:
        raise misuse(reason, expected=expected, got=got, loc=self.loc, kind=ArgumentError)

    def _shape(self, name: str, annotation: TensorType, key: TensorKey) -> tuple[Expr, ...]:
        if len(annotation.shape) != len(key.shape):
            self._refuse(f"argument {name} has another rank", len(annotation.shape), key.shape)
        if numpy_dtype(annotation.dtype) != numpy_dtype(key.dtype):
            self._refuse(f"argument {name} has another dtype", annotation.dtype, key.dtype)
        return annotation.shape

    def _solve_one(self, name: str, axis: int, extent: Expr, actual: int) -> bool:
        known = {var: ir_const(self.sizes[var.name], var.dtype) for var in self._known(extent)}
        extent = substitute(extent, known)  # type: ignore[arg-type]
        unknown = [var for var in free_vars(extent) if var.name in self.constants]
        if len(unknown) != 1:
            if isinstance(extent, Const) and extent.value != actual:
                self._refuse(f"axis {axis} of argument {name} does not fit", extent.value, actual)
            return False
        terms, offset = linear_terms(extent)
        factor = terms.get(unknown[0])
        if factor is None or len(terms) != 1:
            return False
        value, rest = divmod(actual - offset, factor)
        if rest or value < 0:
            self._refuse(
                f"axis {axis} of argument {name} does not fit",
                f"{factor} * {unknown[0].name} + {offset}",
                actual,
            )
        self.sizes[unknown[0].name] = value
        return True

    def _known(self, extent: Expr) -> list[Var]:
        return [var for var in free_vars(extent) if var.name in self.sizes]


def const(name: str, dtype: Any = "int32") -> Any:
    """Dimensions found from the arguments' shapes and known while compiling (eager style).

    Args:
        name: one name, or several separated by commas or blanks (then a tuple is returned).
        dtype: index type.
    """
    call = current().eager
    if call is None:
        fail(
            "T.const outside of an eager function",
            expected="a tilecore.jit function that takes tensors",
            hint="in a T.prim_func use the factory's arguments, or T.dynamic",
        )
    kind = ir_dtype_of(dtype)
    values: list[Any] = []
    for one in split_names(name):
        call.constants[one] = kind
        values.append(Scalar(Var(one, kind)) if call.solving else _solved(call, one))
    return values[0] if len(values) == 1 else tuple(values)


def _solved(call: EagerCall, name: str) -> int:
    if name not in call.sizes:
        fail(
            f"dimension {name} is not determined by the arguments",
            expected="a declared tensor with an extent such as M or 2 * M",
        )
    return call.sizes[name]


def _new_builder(function: FunctionType, call: EagerCall) -> Builder:
    builder = Builder(function.__name__)
    builder.eager = call
    builder.unique(function.__name__)
    for name in (*call.tensors, *call.scalars):
        builder.unique(name)
        builder.declare_host(name)
    return builder


def trace_eager(
    function: FunctionType,
    staged: FunctionType,
    arguments: Mapping[str, Any],
    annotations: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> Program:
    """Trace an eager function for these arguments.

    Args:
        function: the author's function.
        staged: its rewritten form.
        arguments: bound arguments; tensors as `TensorKey` or `UNKNOWN_TENSOR`.
        annotations: the signature's annotations, as objects.
        sizes: T.const dimensions given by name.

    Raises:
        LanguageError: the body misuses the language.
        ArgumentError: the arguments do not fit the declarations.
    """
    tensors: dict[str, TensorKey | None] = {
        name: value if isinstance(value, TensorKey) else None
        for name, value in arguments.items()
        if isinstance(value, TensorKey) or value is UNKNOWN_TENSOR
    }
    scalars: dict[str, DType] = {}
    for name in arguments:
        if name not in tensors and is_runtime_scalar(annotations.get(name)):
            found = scalar_dtype(annotations[name])
            assert found is not None
            scalars[name] = found
    call = EagerCall(tensors, scalars, sizes, function_loc(function))
    builder = _new_builder(function, call)
    values = _initial(arguments, annotations, call)
    try:
        with tracing(builder):
            _predeclare(call, values, annotations)
            run_staged(staged, **values)
    except _Declared:
        pass
    missing = [name for name in tensors if name not in call.declared]
    if missing:
        fail(
            f"tensor argument {missing[0]} of {function.__name__} is not declared",
            expected=f"a line `{missing[0]}: T.Tensor[[...], dtype]` in the body",
            loc=function_loc(function),
        )
    call.solve()
    call.solving = False
    builder = _new_builder(function, call)
    values = _initial(arguments, annotations, call)
    with tracing(builder):
        _predeclare(call, values, annotations)
        returned = run_staged(staged, **values)
    return _finish(function, builder, call, returned, list(arguments))


def _initial(
    arguments: Mapping[str, Any], annotations: Mapping[str, Any], call: EagerCall
) -> dict[str, Any]:
    from tilecore.language.bindings import Poison

    result: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in call.scalars:
            result[name] = Scalar(Var(name, call.scalars[name]))
        elif name in call.tensors and annotations.get(name) is ptr:
            result[name] = PointerArgument(name)
        elif name in call.tensors:
            reason = f"tensor argument {name} is used before it is declared"
            result[name] = Poison(name, reason, f"write `{name}: T.Tensor[[...], dtype]` first")
        else:
            result[name] = value
    return result


def _predeclare(call: EagerCall, values: dict[str, Any], annotations: Mapping[str, Any]) -> None:
    """Tensors that the signature itself types."""
    for name in call.tensors:
        annotation = annotations.get(name)
        if isinstance(annotation, TensorType):
            values[name] = call.declare(name, annotation)


def _finish(
    function: FunctionType, builder: Builder, call: EagerCall, returned: Any, order: Sequence[str]
) -> Program:
    loc = function_loc(function)
    results = returned if isinstance(returned, tuple | list) else (returned,)
    names = [value.name for value in results if isinstance(value, BufferValue)]
    if returned is not None and len(names) != len(results):
        fail("an eager function returns tensors", expected="T.empty(...)", got=describe(returned))
    for name in names:
        if name not in builder.outputs:
            fail(f"{name} is returned, but is no output", expected="a T.empty tensor", loc=loc)
    unreturned = [name for name in builder.outputs if name not in names]
    if unreturned:
        fail(f"output {unreturned[0]} is not returned", expected=f"return {unreturned[0]}", loc=loc)
    by_name = {param.name: param for param in builder.params}
    for name, kind in call.scalars.items():
        by_name.setdefault(name, Var(name, kind))
    inputs = [by_name[name] for name in order if name in by_name]
    builder.params = [*inputs, *(by_name[name] for name in names)]
    builder.outputs = names
    return finish_program(builder, loc)
