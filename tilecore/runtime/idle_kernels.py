"""Kernels whose launch would change nothing, as all that they write is empty.

Such a launch is left out: among what it would read may be empty tensors, too, of which a copy
engine has no description.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import reduce

from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, binary, const
from tilecore.ir.program import Kernel, Program
from tilecore.runtime.scalar_grids import launch_sizes
from tilecore.runtime.sizes import SizeFunction, Sizes, compile_sizes
from tilecore.runtime.written import written_buffers


def idle_kernels(program: Program) -> Callable[[str, Sizes], bool]:
    """Whether all tensors that the kernel of a name writes are empty at these sizes.

    A kernel that writes no tensor, or a workspace, is never idle.
    """
    counts = {kernel.name: _elements(program, kernel) for kernel in program.kernels}

    def is_idle(name: str, sizes: Sizes) -> bool:
        elements = counts.get(name)
        return elements is not None and not any(elements(sizes))

    return is_idle


def _elements(program: Program, kernel: Kernel) -> SizeFunction | None:
    names = written_buffers(dataclasses.replace(program, kernels=(kernel,)))
    tensors = [p for p in program.params if isinstance(p, Buffer) and p.name in names]
    if not tensors or len(tensors) < len(names):
        return None
    counts = [reduce(_times, tensor.shape, const(1)) for tensor in tensors]
    return compile_sizes(counts, launch_sizes(program))


def _times(a: Expr, b: Expr) -> Expr:
    return binary("mul", a, b)
