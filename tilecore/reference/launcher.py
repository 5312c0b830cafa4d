"""The reference behind the same call as a compiled program: addresses in, results in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilecore.errors import LaunchError
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.packing import pack_elements, unpack_elements
from tilecore.ir.program import Program
from tilecore.ir.signature import program_arguments
from tilecore.reference.evaluate import Frame
from tilecore.reference.host_memory import array_at
from tilecore.reference.run import run
from tilecore.reference.tile_ops import scalar
from tilecore.reference.values import Array, value_dtype


class ReferenceLauncher:
    """Executes a tile program on host memory. Callable like every backend's launcher.

    Args:
        program: a program of the TILE level.
        exact_dtypes: round floats to their dtype at every operation and store, so that results
            look like a device's; False keeps float64 until the final store.
        check_uninitialised: fault when on-chip memory is used before it was written.
    """

    def __init__(
        self, program: Program, exact_dtypes: bool = False, check_uninitialised: bool = True
    ) -> None:
        self.program = program
        self.check_uninitialised = check_uninitialised
        self.exact_dtypes = exact_dtypes

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Run the program now.

        Args:
            arguments: in the order of `program_arguments`: host addresses of buffers' first
                elements, Python numbers for scalars and dynamic sizes. Workspaces are not read.
            stream: ignored; there is only one order of execution.

        Raises:
            LaunchError: wrong number of arguments, or what `run` raises.
        """
        order = program_arguments(self.program)
        if len(order) != len(arguments):
            raise LaunchError("wrong number of arguments", expected=len(order), got=len(arguments))
        given = dict(zip((item.name for item in order), arguments, strict=True))
        frame = Frame(())
        for item in order:
            if isinstance(item, Var):
                frame.values[item.name] = np.asarray(given[item.name], value_dtype(item.dtype))
        named: dict[str, Any] = {}
        packed: list[tuple[Buffer, Array]] = []
        for item in (*self.program.params, *self.program.symbols):
            value = given[item.name]
            if not isinstance(item, Buffer):
                named[item.name] = value
                continue
            named[item.name] = array_at(item, int(value), frame)
            if item.dtype.bits < 8:
                count = int(scalar(item.shape[-1], frame))
                packed.append((item, named[item.name]))
                named[item.name] = unpack_elements(named[item.name], item.dtype, count)
        results = run(
            self.program,
            named,
            exact_dtypes=self.exact_dtypes,
            check_uninitialised=self.check_uninitialised,
        )
        for item, raw in packed:
            if item.name in results:
                _put_back(raw, named[item.name], item)


def _put_back(raw: Array, values: Array, buffer: Buffer) -> None:
    """Packed elements into memory; bits that belong to no element stay."""
    packed = pack_elements(values, buffer.dtype)
    if values.shape[-1] % 2:
        packed[..., -1] |= raw[..., -1] & 0xF0
    raw[...] = packed
