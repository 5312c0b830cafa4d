"""The generated function of a launch whose arguments have the facts of an earlier one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np

from tilecore.ir.buffers import Buffer
from tilecore.runtime.arguments import ArgumentPlan, Signature, View
from tilecore.runtime.guards import torch_guard
from tilecore.runtime.launcher import BoundLaunch
from tilecore.runtime.scalars import integer_range
from tilecore.runtime.tensors import NUMPY_DATA_OFFSET, allocator


class _Miss:
    def __repr__(self) -> str:
        return "<miss>"


MISS: Any = _Miss()
"""What a fast function returns when these are not its facts; nothing was launched then."""

FastCall = Callable[..., Any]
"""Takes the inputs in order. Launches and returns the result, or returns `MISS`."""


def make_fast_call(
    plan: ArgumentPlan,
    values: Sequence[Any],
    views: Sequence[View],
    signature: Signature,
    bound: BoundLaunch,
) -> FastCall | None:
    """The fast function for arguments with the facts of `values`.

    None where there is none: a call that passes its outputs, and tensors of libraries that can
    only be read through an exchange protocol.
    """
    if len(values) != len(plan.inputs):
        return None
    kinds = tuple(_kind(view) for view in views)
    if "other" in kinds or any(type(v) is not np.ndarray for v, k in zip(values, kinds, strict=True)
                               if k == "numpy"):  # fmt: skip
        return None
    namespace: dict[str, Any] = {
        "miss": MISS, "bound": bound, "ndarray": np.ndarray,
        "address": ctypes.c_size_t.from_address,
    }  # fmt: skip
    torch_tensors = [v for v, kind in zip(values, kinds, strict=True) if kind == "torch"]
    if torch_tensors:
        namespace["guard"] = torch_guard(torch_tensors)
    for index, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        if kind == "numpy":
            namespace[f"dtype{index}"] = value.dtype
            namespace[f"shape{index}"] = value.shape
            namespace[f"strides{index}"] = value.strides
    workspaces = plan.program.workspaces
    allocated = [plan.program.params[position] for position in plan.program.outputs]
    for index, (buffer, shape) in enumerate(
        zip((*allocated, *workspaces), (*signature.outputs, *signature.workspaces), strict=True)
    ):
        namespace[f"make{index}"] = allocator(
            shape, buffer.dtype, signature.device, signature.library
        )
    exec(_code(plan, kinds, signature.library), namespace)
    return namespace["fast"]


def _kind(view: View) -> str:
    return getattr(view, "library", "scalar")


def _code(plan: ArgumentPlan, kinds: tuple[str, ...], library: str) -> CodeType:
    """Compiled source of ``fast``; what varies between signatures is in its globals."""
    code = plan.fast_code.get((kinds, library))
    if code is None:
        source = fast_source(plan, kinds, library)
        code = compile(source, f"<fast call of {plan.program.name}>", "exec")
        plan.fast_code[kinds, library] = code
    return code


def fast_source(plan: ArgumentPlan, kinds: tuple[str, ...], library: str) -> str:
    """The source of ``fast`` for inputs of these kinds (``"torch"``, ``"numpy"``, ``"scalar"``)."""
    inputs = plan.inputs
    lines = [f"def fast({', '.join(f'x{i}' for i in range(len(inputs)))}):"]
    tests: list[str] = []
    passed: dict[int, str] = {}  # position among the program's parameters -> expression
    addresses: list[str] = []
    taken: list[str] = []
    guarded = [f"x{i}" for i, kind in enumerate(kinds) if kind == "torch"]
    if guarded:
        tests.append(f"guard({', '.join(guarded)})")
    for index, (position, parameter, kind) in enumerate(
        zip(plan.input_positions, inputs, kinds, strict=True)
    ):
        name = f"x{index}"
        if not isinstance(parameter, Buffer):
            tests.append(_scalar_test(name, parameter.dtype))
            passed[position] = name
            continue
        if kind == "numpy":
            tests.append(_numpy_test(index, parameter.name in plan.checks.written))
        taken.append(f"    p{index} = {_address(name, kind)}")
        addresses.append(f"p{index}")
        passed[position] = f"p{index}"
    if tests:
        lines += [f"    if not ({' and '.join(tests)}):", "        return miss"]
    lines += taken
    if plan.alignment_bytes > 1 and addresses:
        mask = plan.alignment_bytes - 1
        lines += [f"    if ({' | '.join(addresses)}) & {mask}:", "        return miss"]
    outputs = plan.program.outputs
    made = len(outputs) + len(plan.program.workspaces)
    for index in range(made):
        lines.append(f"    m{index} = make{index}()")
        if index < len(outputs):
            passed[outputs[index]] = _address(f"m{index}", _made_kind(library))
    arguments = [passed[position] for position in sorted(passed)]
    arguments += [_address(f"m{i}", _made_kind(library)) for i in range(len(outputs), made)]
    lines.append(f"    bound({', '.join(arguments)})")
    results = ", ".join(f"m{index}" for index in range(len(outputs)))
    lines.append(f"    return {results or None}")
    return "\n".join(lines) + "\n"


def _made_kind(library: str) -> str:
    return "numpy" if library == "numpy" else "torch"


def _address(name: str, kind: str) -> str:
    if kind == "torch":
        return f"{name}.data_ptr()"
    if NUMPY_DATA_OFFSET is None:
        return f"{name}.ctypes.data"
    return f"address(id({name}) + {NUMPY_DATA_OFFSET}).value"


def _numpy_test(index: int, is_written: bool) -> str:
    name = f"x{index}"
    test = (
        f"type({name}) is ndarray and {name}.dtype is dtype{index}"
        f" and {name}.shape == shape{index} and {name}.strides == strides{index}"
    )
    return test + (f" and {name}.flags.writeable" if is_written else "")


def _scalar_test(name: str, dtype: Any) -> str:
    if dtype.is_bool:
        return f"type({name}) is bool"
    if dtype.is_float:
        return f"type({name}) is float"
    low, high = integer_range(dtype)
    return f"type({name}) is int and {low} <= {name} <= {high}"
