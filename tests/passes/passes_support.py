"""Helpers of the SIMT pass tests: a backend of plain hooks, and programs as text or traced."""

from __future__ import annotations

from typing import Any

from tilecore.hooks.context import Context
from tilecore.hooks.manager import hooks_of
from tilecore.hooks.records import CompileOptions
from tilecore.ir.program import Kernel, Program
from tilecore.passes import SCHEDULING_PASSES
from tilecore.targets import targets_of


def context(backend: str = "cuda_ampere", arch: str = "sm_80") -> Context:
    """A compilation for one architecture."""
    target = {t.arch: t for t in targets_of(backend)}[arch]
    return Context(target, hooks_of(backend), CompileOptions())


def run(program: Any, *passes: str, until: str | None = None) -> Program:
    """`program` after the named passes, or after all scheduling passes up to `until`."""
    result = getattr(program, "program", program)
    where = context()
    for one in SCHEDULING_PASSES:
        if passes and one.__name__ not in passes:
            continue
        result = one(result, where)
        if one.__name__ == until:
            break
    return result


def kernel_of(program: Program) -> Kernel:
    """The only kernel."""
    (kernel,) = program.kernels
    return kernel


def staged(program) -> dict[str, int]:
    """Fragments that go through shared memory, with their bytes there."""
    hints = dict(kernel_of(run(program)).hints)
    return {k.removeprefix("staged."): v for k, v in hints.items() if k.startswith("staged.")}
