"""Inputs for kernels: torch tensors made from the parameters of a program."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilecore.compat.settings import is_on_accelerator
from tilecore.errors import ArgumentError, UnsupportedError
from tilecore.ir.attached import attached
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType, dtype_of
from tilecore.ir.expr import Const, Var
from tilecore.ir.expr_text import format_expr
from tilecore.ir.program import Program
from tilecore.language.dtypes import dtype
from tilecore.runtime.sizes import compile_sizes


class TensorSupplyType(enum.Enum):
    """How inputs are made. ``Auto``: small integers for integer dtypes, else as ``Uniform``.

    ``Uniform``: from -1 to 1. ``Normal``: mean -1, deviation 1. ``Randn``: mean 0, deviation 1.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def torch_dtype(dtype: DType) -> Any:
    """The torch dtype of an element type.

    Raises:
        UnsupportedError: torch has none.
    """
    import torch

    name = {"boolean": "bool", "float4_e2m1fn": "uint8", "int4": "int8", "tfloat32": "float32"}.get(
        dtype.name, dtype.name
    )
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UnsupportedError(f"torch has no dtype {dtype.name}")
    return found


def default_device() -> str:
    """Where tensors are made: the accelerator if torch sees one, else the host."""
    return "cuda" if is_on_accelerator() else "cpu"


def make_tensor(shape: tuple[int, ...], dtype: DType, supply: TensorSupplyType) -> Any:
    """One tensor. Shape in elements; dtypes below a byte are refused, as no one layout is meant.

    Raises:
        UnsupportedError: torch has no such dtype.
    """
    import torch

    if dtype.bits < 8:
        raise UnsupportedError(f"inputs of packed dtype {dtype.name} are not made: pass tensors")
    kind, device = torch_dtype(dtype), default_device()
    if supply is TensorSupplyType.Zero:
        return torch.zeros(shape, device=device).to(kind)
    if supply is TensorSupplyType.One:
        return torch.ones(shape, device=device).to(kind)
    if dtype.kind == "bool":
        return torch.randint(0, 2, shape, device=device).to(kind)
    if dtype.kind in ("int", "uint") or supply is TensorSupplyType.Integer:
        lowest = 0 if dtype.kind == "uint" else -2
        return torch.randint(lowest, 3, shape, device=device).to(kind)
    if supply in (TensorSupplyType.Uniform, TensorSupplyType.Auto):
        return (torch.rand(shape, device=device) * 2 - 1).to(kind)
    mean = -1.0 if supply is TensorSupplyType.Normal else 0.0
    return (torch.randn(shape, device=device) + mean).to(kind)


@dataclass(frozen=True, slots=True)
class KernelParam:
    """A parameter, as functions that supply inputs are told it.

    Attributes:
        name: of the parameter.
        shape: extents; a dynamic one by its name.
        dtype: the element type.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: dtype

    def torch_dtype(self) -> Any:
        """The dtype of tensors for it."""
        return torch_dtype(dtype_of(str(self.dtype)))

    def is_scalar(self) -> bool:
        """True for a parameter that is a number."""
        return not self.shape


def kernel_params(program: Program, *, inputs_only: bool = False) -> list[KernelParam]:
    """The parameters of a program, in order."""
    found: list[KernelParam] = []
    for position, param in enumerate(program.params):
        if inputs_only and position in program.outputs:
            continue
        shape: tuple[int | str, ...] = ()
        if isinstance(param, Buffer):
            shape = tuple(
                int(extent.value) if isinstance(extent, Const) else format_expr(extent)
                for extent in param.shape
            )
        found.append(KernelParam(param.name, shape, dtype(param.dtype.name)))
    return found


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Integer,
) -> Callable[[KernelParam], Any]:
    """A function that makes a tensor for a parameter with constant extents."""

    def supply(param: KernelParam) -> Any:
        if not all(isinstance(extent, int) for extent in param.shape):
            raise ArgumentError(f"{param.name} has dynamic extents", got=param.shape)
        shape = tuple(int(extent) for extent in param.shape)
        return make_tensor(shape, dtype_of(str(param.dtype)), supply_type)

    return supply


def make_inputs(
    program: Program,
    supply: TensorSupplyType = TensorSupplyType.Auto,
    sizes: Mapping[str, int] | None = None,
) -> list[Any]:
    """Tensors for every parameter that is no output.

    Args:
        program: the tile program.
        supply: how values are drawn.
        sizes: the dynamic sizes by name.

    Raises:
        ArgumentError: a dynamic size without value, or a scalar parameter.
    """
    if found := sorted(attached(program)):
        raise ArgumentError(
            f"{program.name}: no address can be made up for {found[0]}",
            expected="tensors for parameters of type T.ptr, and for tables of them",
            got="made-up inputs",
            hint="pass input_tensors",
        )
    given = dict(sizes or {})
    known = {symbol.name for symbol in program.symbols}
    if set(given) != known:
        raise ArgumentError(
            f"{program.name}: inputs need a value for each dynamic size",
            expected=", ".join(sorted(known)) or "none",
            got=", ".join(sorted(given)) or "none",
            hint="pass dynamic_symbolic_constraints or input_tensors",
        )
    values = tuple(given[symbol.name] for symbol in program.symbols)
    made: list[Any] = []
    for position, param in enumerate(program.params):
        if position in program.outputs:
            continue
        if isinstance(param, Var):
            raise ArgumentError(
                f"{program.name}: no value can be made for scalar {param.name}",
                hint="pass input_tensors",
            )
        made.append(make_tensor(_shape(param, program, values), param.dtype, supply))
    return made


def _shape(buffer: Buffer, program: Program, values: tuple[int, ...]) -> tuple[int, ...]:
    return compile_sizes(buffer.shape, program.symbols)(values)
