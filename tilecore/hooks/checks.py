"""Checks of hook answers: what a backend may not get wrong without being named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilecore.errors import BackendError
from tilecore.hooks.model import PerformanceModel
from tilecore.hooks.records import (
    Artifact,
    AsyncCopyAtom,
    BulkCopyPlan,
    DeviceInfo,
    EmulatorSupport,
    MatrixStore,
    MmaAtom,
    PipelinePlan,
    Source,
    ToolchainInfo,
)
from tilecore.ir.layout import Layout
from tilecore.ir.program import Program
from tilecore.target import Target

_KINDS: dict[str, type | tuple[type, ...]] = {
    "tilecore_probe_device": DeviceInfo,
    "tilecore_explain_absence": str,
    "tilecore_probe_toolchain": ToolchainInfo,
    "tilecore_select_mma": MmaAtom,
    "tilecore_choose_layout": Layout,
    "tilecore_plan_pipeline": PipelinePlan,
    "tilecore_lower_async_copy": AsyncCopyAtom,
    "tilecore_matrix_stores": tuple,
    "tilecore_plan_bulk_copy": BulkCopyPlan,
    "tilecore_schedule": Program,
    "tilecore_emit": Source,
    "tilecore_model": PerformanceModel,
    "tilecore_emulator_support": EmulatorSupport,
    "tilecore_toolchain_fingerprint": str,
    "tilecore_compile": Artifact,
    "tilecore_synchronize": bool,
}
_OPTIONAL = frozenset({
    "tilecore_probe_device", "tilecore_select_mma", "tilecore_lower_async_copy",
    "tilecore_synchronize", "tilecore_probe_toolchain", "tilecore_emulator_support",
    "tilecore_explain_absence", "tilecore_plan_bulk_copy", "tilecore_model",
    "tilecore_matrix_stores",
})  # fmt: skip
_ENUMERATION_LIMIT = 1 << 18  # elements; above it injectivity is not enumerated


def check_result(backend: str, hook: str, arguments: dict[str, Any], result: Any) -> Any:
    """Return `result` if it is legal for `hook`.

    Raises:
        BackendError: naming backend and hook, with what was expected.
    """
    if hook == "tilecore_describe_targets":
        return _check_targets(backend, result)
    if hook == "tilecore_emit_rules":
        return _merge_rules(backend, result)
    if result is None:
        if hook in _OPTIONAL:
            return None
        raise BackendError(f"no plugin of backend {backend!r} answers {hook}")
    kind = _KINDS.get(hook)
    if kind is not None and not isinstance(result, kind):
        raise BackendError(
            f"backend {backend!r}: wrong answer to {hook}", expected=kind, got=result
        )
    if hook == "tilecore_matrix_stores" and not all(isinstance(r, MatrixStore) for r in result):
        raise BackendError(
            f"backend {backend!r}: wrong answer to {hook}", expected=MatrixStore, got=result
        )
    if hook == "tilecore_choose_layout":
        _check_layout(backend, arguments["request"].buffer, result)
    if hook == "tilecore_plan_pipeline":
        _check_plan(backend, arguments["request"].loop, result)
    if hook == "tilecore_create_launcher" and not callable(result):
        raise BackendError(f"backend {backend!r}: the launcher is not callable", got=result)
    return result


def _check_targets(backend: str, result: Any) -> tuple[Target, ...]:
    targets: tuple[Any, ...] = tuple(result or ())
    if not targets or not all(isinstance(target, Target) for target in targets):
        raise BackendError(f"backend {backend!r} describes no targets", got=result)
    return targets


def _merge_rules(backend: str, results: list[Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for rules in reversed(results):  # pluggy asks the last registered first
        if not isinstance(rules, Mapping):
            raise BackendError(f"backend {backend!r}: emit rules", expected="a mapping", got=rules)
        merged.update(rules)
    return merged


def _check_layout(backend: str, buffer: Any, layout: Layout) -> None:
    shape = buffer.static_shape
    if len(layout.axes) != len(shape) or any(
        have < need for have, need in zip(layout.shape, shape, strict=True)
    ):
        raise BackendError(
            f"backend {backend!r}: layout of {buffer.name} does not cover its shape",
            expected=shape,
            got=layout,
        )
    if math.prod(layout.shape) <= _ENUMERATION_LIMIT and not layout.is_injective():
        raise BackendError(
            f"backend {backend!r}: layout of {buffer.name} maps two elements to one place",
            got=layout,
        )


def _check_plan(backend: str, loop: Any, plan: PipelinePlan) -> None:
    count = len(loop.body)
    if plan.num_stages < 1 or len(plan.stage) != count or sorted(plan.order) != list(range(count)):
        raise BackendError(
            f"backend {backend!r}: pipeline plan does not fit its loop",
            expected=f"stages >= 1, {count} stage numbers, order a permutation of {count}",
            got=plan,
        )
