"""One cheap test that a call's torch tensors have the facts of an earlier call.

torch has a compiled checker of exactly this, which its own compiler uses: one call compares type,
dtype, device, extents, strides and dispatch keys of all tensors in a third of the time that reading
them from Python takes. It is not a documented interface, so it is used only after it has given the
right answers to the questions below; else the same comparison runs in Python. It may say no to
tensors that fit (the careful path then decides), never yes to ones that don't.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

Guard = Callable[..., bool]
"""Takes the tensors in order; True when all facts are those of the tensors it was made from."""


def torch_guard(tensors: Sequence[Any]) -> Guard:
    """A guard for tensors like these; it keeps none of them alive."""
    if _compiled_guard_works():
        return _compiled_guard(tensors)
    return _python_guard(tensors)


def _compiled_guard(tensors: Sequence[Any]) -> Guard:
    from torch._C._dynamo import guards  # type: ignore[reportMissingImports]

    checker: Any = guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    return checker.check


def repeating_guard(tensors: Sequence[Any]) -> Guard:
    """A guard for calls that pass one tensor in several places, which torch's checker turns down.

    It says no to calls without repetition. Each way of repeating has a guard of its own for the
    tensors without their repetitions, made when a call of that way is first seen to fit.
    """
    fits = _python_guard(tensors)
    known: dict[tuple[int, ...], Guard] = {}

    def check(*candidates: Any) -> bool:
        first: dict[int, int] = {}
        places = tuple(first.setdefault(id(one), k) for k, one in enumerate(candidates))
        if len(first) == len(candidates):
            return False
        distinct = [candidates[k] for k in first.values()]
        guard = known.get(places)
        if guard is not None:
            return guard(*distinct)
        if not fits(*candidates):
            return False
        known[places] = torch_guard(distinct)
        return True

    return check


def _python_guard(tensors: Sequence[Any]) -> Guard:
    wanted = tuple(_facts(tensor) for tensor in tensors)
    kind: type = type(tensors[0])

    def check(*candidates: Any) -> bool:
        return all(type(tensor) is kind for tensor in candidates) and wanted == tuple(
            _facts(tensor) for tensor in candidates
        )

    if any(type(tensor) is not kind for tensor in tensors):
        return lambda *candidates: False
    return check


def _facts(tensor: Any) -> tuple[object, ...]:
    return (
        tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.layout,
        tensor.is_neg(), tensor.is_conj(), tensor.requires_grad,
    )  # fmt: skip


@functools.cache
def _compiled_guard_works() -> bool:
    """Whether torch's checker exists and tells apart all that the careful path tells apart."""
    import torch  # type: ignore[reportMissingImports]

    t: Any = torch
    base: Any = t.zeros(4, 6, dtype=t.float32)
    same: Any = t.ones(4, 6, dtype=t.float32)
    others: list[Any] = [
        base.to(t.float16),
        base.to(t.int32),
        base[:, :5],
        base[:3],
        t.zeros(6, 4).t(),
        t.zeros(4, 12)[:, :6],
        base.reshape(24),
        t.zeros(4, 6, 1),
        t.zeros(4, 6, device="meta"),
        t.zeros(4, 6, dtype=t.complex64).conj().imag,
        t.zeros(4, 6).to_sparse(),
        t.zeros(4, 6, requires_grad=True),
        base.numpy(),
        None,
        3,
    ]
    try:
        check = _compiled_guard([base, base])
        return check(same, base) and not any(
            check(other, base) or check(base, other) for other in others
        )
    except Exception:  # whatever an undocumented interface may do, the Python guard is right
        return False
