"""The float64 oracle for a tile program, called with positional arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilecore.ir.buffers import Buffer
from tilecore.ir.program import Program
from tilecore.reference import run


def oracle(program: Any, *arguments: Any, **options: Any) -> dict[str, npt.NDArray[Any]]:
    """What a program must compute, without changing the arguments.

    Args:
        program: a `Program`, or anything with a ``program`` attribute (a prim_func, a kernel).
        arguments: as the kernel takes them: one for each parameter, outputs left out or not.
            Torch tensors are read as they are; bfloat16 ones by way of float64.
        options: of `tilecore.reference.run`.

    Returns:
        Everything that was written, by parameter name; floats in unrounded float64.

    Raises:
        ValueError: the number of arguments fits neither with nor without the outputs.
        TilecoreError: whatever `run` raises.
    """
    tile_program: Program = getattr(program, "program", program)
    params = list(tile_program.params)
    if len(arguments) != len(params):
        params = [p for k, p in enumerate(params) if k not in tile_program.outputs]
    if len(arguments) != len(params):
        raise ValueError(f"{len(arguments)} arguments for {len(params)} parameters")
    named = {
        param.name: _private(argument) if isinstance(param, Buffer) else argument
        for param, argument in zip(params, arguments, strict=True)
    }
    return run(tile_program, named, **options)


def _private(argument: Any) -> npt.NDArray[Any]:
    if hasattr(argument, "detach"):
        tensor = argument.detach().cpu()
        try:
            return np.array(tensor.numpy())
        except TypeError:  # NumPy has no such dtype
            return np.array(tensor.double().numpy())
    return np.array(argument)
