"""The generated function of a launch whose arguments have the facts of an earlier one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from tilecore.ir.buffers import Buffer
from tilecore.runtime.arguments import MISSING, ArgumentPlan, Signature, View
from tilecore.runtime.guards import repeating_guard, torch_guard
from tilecore.runtime.launcher import BoundLaunch, InlineLaunch
from tilecore.runtime.scalars import integer_range
from tilecore.runtime.tensors import NUMPY_DATA_OFFSET, allocator


class _Miss:
    def __repr__(self) -> str:
        return "<miss>"


MISS: Any = _Miss()
"""What a fast function returns when these are not its facts; nothing was launched then."""

FastCall = Callable[..., Any]
"""Takes the inputs in order. Launches and returns the result, or returns `MISS`."""


@dataclass(frozen=True, slots=True)
class FastPath:
    """Launches for one set of facts.

    Attributes:
        attempt: launches, or returns `MISS`.
        entry: takes every call of the kernel; what has other facts goes the careful way.
    """

    attempt: FastCall
    entry: Callable[..., Any]


def make_fast_call(
    plan: ArgumentPlan,
    values: Sequence[Any],
    views: Sequence[View],
    signature: Signature,
    bound: BoundLaunch,
    careful: Callable[[tuple[Any, ...], dict[str, Any]], Any],
) -> FastPath | None:
    """The fast functions for arguments with the facts of `values`.

    `careful` takes the positional and named arguments of calls with other facts. There are none
    (the result is None) for a call that passes its outputs, for tensors of libraries that can only
    be read through an exchange protocol, for empty tensors, which may have no address, and for
    outputs that may only be written while torch records no gradients.
    """
    if len(values) != len(plan.inputs) or any(0 in getattr(view, "shape", ()) for view in views):
        return None
    if any(
        parameter.name in plan.checks.written and getattr(value, "requires_grad", False)
        for parameter, value in zip(plan.inputs, values, strict=True)
    ):
        return None
    kinds = tuple(_kind(view) for view in views)
    if "other" in kinds or any(type(v) is not np.ndarray for v, k in zip(values, kinds, strict=True)
                               if k == "numpy"):  # fmt: skip
        return None
    namespace: dict[str, Any] = {
        "miss": MISS, "missing": MISSING, "careful": careful, "bound": bound,
        "ndarray": np.ndarray,
        "address": ctypes.c_size_t.from_address,
        "known_at": None,
    }  # fmt: skip
    torch_tensors = [v for v, kind in zip(values, kinds, strict=True) if kind == "torch"]
    if torch_tensors:
        namespace["guard"] = torch_guard(torch_tensors)
        namespace["repeating"] = repeating_guard(torch_tensors)
    for index, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        if kind == "numpy":
            namespace[f"dtype{index}"] = value.dtype
            namespace[f"shape{index}"] = value.shape
            namespace[f"strides{index}"] = value.strides
        elif kind == "torch":
            # Called with the tensor, the type's method is not looked up again by every call.
            namespace[f"data_ptr_x{index}"] = type(value).data_ptr
    allocated = [plan.program.params[position] for position in plan.program.outputs]
    for index, (buffer, shape) in enumerate(
        zip(
            (*allocated, *plan.workspaces), (*signature.outputs, *signature.workspaces), strict=True
        )
    ):
        namespace[f"make{index}"] = allocator(
            shape, buffer.dtype, signature.device, signature.library
        )
        if _made_kind(signature.library) == "torch":
            namespace[f"data_ptr_m{index}"] = sys.modules["torch"].Tensor.data_ptr
    inline: InlineLaunch | None = getattr(bound, "inline", None)
    if inline is not None:
        namespace |= inline.names
    exec(_code(plan, kinds, signature.library, inline.lines if inline else ()), namespace)
    return FastPath(namespace["fast"], namespace["entry"])


def _kind(view: View) -> str:
    return getattr(view, "library", "scalar")


def _code(
    plan: ArgumentPlan, kinds: tuple[str, ...], library: str, launch: tuple[str, ...]
) -> CodeType:
    """Compiled source; what varies between signatures is in the functions' globals."""
    key = (kinds, library, launch)
    code = plan.fast_code.get(key)
    if code is None:
        source = fast_source(plan, kinds, library, launch)
        code = compile(source, f"<fast call of {plan.program.name}>", "exec")
        plan.fast_code[key] = code
    return code


def fast_source(
    plan: ArgumentPlan, kinds: tuple[str, ...], library: str, launch: tuple[str, ...] = ()
) -> str:
    """The source of ``fast`` and ``entry`` for inputs of these kinds.

    Both functions do the same; ``entry`` takes any call and hands those that are not of its facts
    to ``careful``.

    Args:
        plan: the parameters.
        kinds: ``"torch"``, ``"numpy"`` or ``"scalar"`` for each input.
        library: who allocates outputs.
        launch: text of the launch (`InlineLaunch.lines`); empty where it is called.
    """
    names = [f"x{index}" for index in range(len(kinds))]
    entry = [f"{name}=missing" for name in names] + (["/"] if names else [])
    lines = [f"def fast({', '.join(names)}):", *_body(plan, kinds, library, launch, "return miss")]
    lines.append(f"def entry({', '.join([*entry, '*extra', '**named'])}):")
    passed = "".join(f"{name}, " for name in names)
    careful = f"return careful(({passed}*extra,), named)"
    lines += ["    if extra or named:", f"        {careful}"]
    lines += _body(plan, kinds, library, launch, careful)
    return "\n".join(lines) + "\n"


def _body(
    plan: ArgumentPlan,
    kinds: tuple[str, ...],
    library: str,
    launch: tuple[str, ...],
    on_miss: str,
) -> Sequence[str]:
    """Compare facts, take addresses, check alignment, allocate, launch, return."""
    tests: list[str] = []
    passed: dict[int, str] = {}  # position among the program's parameters -> expression
    taken: list[str] = []
    guarded = [f"x{i}" for i, kind in enumerate(kinds) if kind == "torch"]
    if guarded:
        passed_on = ", ".join(guarded)
        twice = f" or repeating({passed_on})" if len(guarded) > 1 else ""
        tests.append(f"(guard({passed_on}){twice})")
    for index, (position, parameter, kind) in enumerate(
        zip(plan.input_positions, plan.inputs, kinds, strict=True)
    ):
        if not isinstance(parameter, Buffer):
            tests.append(_scalar_test(f"x{index}", parameter.dtype))
            passed[position] = f"x{index}"
            continue
        if kind == "numpy":
            tests.append(_numpy_test(index, parameter.name in plan.checks.written))
        taken.append(f"    p{index} = {_address(f'x{index}', kind)}")
        passed[position] = f"p{index}"
    lines: list[str] = []
    if tests:
        lines += [f"    if not ({' and '.join(tests)}):", f"        {on_miss}"]
    lines += taken
    outputs = plan.program.outputs
    made = len(outputs) + len(plan.workspaces)
    addresses = [name for name in passed.values() if name.startswith("p")]
    test = _address_test(plan, addresses, on_miss)
    if launch:  # which looks at the values again only where they changed
        same = len(addresses) == len(passed) > 0 and not made
        lines += _unless_known(addresses, test) if same else [*test, "    at = None"]
    else:
        lines += test
    lines += [f"    m{index} = make{index}()" for index in range(made)]
    for index, position in enumerate(outputs):
        passed[position] = _address(f"m{index}", _made_kind(library))
    arguments = [passed[position] for position in sorted(passed)]
    places = {
        buffer.name: _address(f"m{index}", _made_kind(library))
        for index, buffer in enumerate(plan.workspaces, len(outputs))
    }
    arguments += [places.get(buffer.name, "0") for buffer in plan.program.workspaces]
    results = ", ".join(f"m{index}" for index in range(len(outputs)))
    if launch:
        lines += [f"    v{index} = {text}" for index, text in enumerate(arguments)]
        lines += launch
    else:
        lines.append(f"    bound({', '.join(arguments)})")
    return [*lines, f"    return {results or None}"]


def _address_test(plan: ArgumentPlan, addresses: Sequence[str], on_miss: str) -> list[str]:
    """No memory, or memory that wide accesses do not fit, is for the careful way."""
    if not addresses:
        return []
    misfit = f"not ({' and '.join(addresses)})"
    if plan.alignment_bytes > 1:
        misfit += f" or ({' | '.join(addresses)}) & {plan.alignment_bytes - 1}"
    return [f"    if {misfit}:", f"        {on_miss}"]


def _unless_known(addresses: Sequence[str], test: Sequence[str]) -> list[str]:
    """`at` is a tuple of the addresses: the last one that was tested, if they are still the same.

    Threads may put other ones in its place at any time, so it is read once.
    """
    return [
        "    global known_at",
        "    known = known_at",
        f"    at = ({', '.join(addresses)},)",
        "    if at == known:",
        "        at = known",
        "    else:",
        *(f"    {line}" for line in test),
        "        known_at = at",
    ]


def _made_kind(library: str) -> str:
    return "numpy" if library == "numpy" else "torch"


def _address(name: str, kind: str) -> str:
    if kind == "torch":
        return f"data_ptr_{name}({name})"
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
