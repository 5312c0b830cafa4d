"""`run`: a tile program on NumPy arrays, the oracle that every backend is compared with."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TextIO

import numpy as np

from tilecore.errors import ArgumentError, UnsupportedError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType, numpy_dtype
from tilecore.ir.expr import Expr, Var, free_vars
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.visit import walk_stmts
from tilecore.reference.evaluate import Frame
from tilecore.reference.interpreter import Interpreter
from tilecore.reference.storage import Storage, make_storage
from tilecore.reference.tile_ops import scalar
from tilecore.reference.values import Array, encode, value_dtype, wrap


def run(
    program: Program,
    arguments: Mapping[str, Any],
    *,
    exact_dtypes: bool = False,
    check_uninitialised: bool = False,
    output: TextIO | None = None,
) -> dict[str, Array]:
    """Execute a program of the TILE level, block after block.

    Args:
        program: what to execute.
        arguments: by parameter name, arrays (of the buffer's dtype as `numpy_dtype` gives it, or
            float64 for any float) and numbers. Outputs (`Program.outputs`) may be left out.
            Dynamic sizes are read off the shapes; one that no shape tells may be given by name.
            Arrays that the program writes are written in place.
        exact_dtypes: round floats to their dtype at every operation and store. By default all
            floats are computed and kept in float64, which is what an oracle should do.
        check_uninitialised: fault when an element of an on-chip buffer is used before it was
            written. Such elements are nan (0x5A bytes, for integers) in any case.
        output: where T.print writes; standard output by default.

    Returns:
        By name, the buffers that were written and the outputs; floats as float64, unrounded
        unless `exact_dtypes`.

    Raises:
        ArgumentError: an argument is missing, or its dtype, rank or shape is wrong.
        EmulatorFault: the program does something undefined, with the line.
        DeviceAssertError: an assertion of the program failed, with the line.
        UnsupportedError: an operation of a lower level or a backend.
    """
    if program.level is not Level.TILE:
        raise UnsupportedError(
            "the reference executes the tile level only", expected=Level.TILE, got=program.level
        )
    machine = _Machine(program, exact_dtypes, check_uninitialised, output or sys.stdout)
    with np.errstate(all="ignore"):
        machine.bind(dict(arguments))
        for kernel in program.kernels:
            machine.launch(kernel)
        return machine.results()


class _Machine:
    """One execution: the program's global buffers and scalars."""

    def __init__(
        self, program: Program, is_exact: bool, tracks_writes: bool, output: TextIO
    ) -> None:
        self.program = program
        self.tracks_writes = tracks_writes
        self.output = output
        self.raw = raw_buffers(program)
        self.frame = Frame((), is_exact=is_exact)
        self.given: dict[str, Array] = {}

    # --- arguments -----------------------------------------------------------------------------

    def bind(self, arguments: dict[str, Any]) -> None:
        names = {param.name for param in self.program.params}
        symbols = {symbol.name: symbol for symbol in self.program.symbols}
        unknown = sorted(set(arguments) - names - set(symbols))
        if unknown:
            raise ArgumentError("no such parameter", expected=sorted(names), got=unknown)
        for param in self.program.params:
            if isinstance(param, Var):
                self._bind_scalar(param, arguments)
        for name, symbol in symbols.items():
            if name in arguments:
                self._bind_scalar(symbol, arguments)
        for index, param in enumerate(self.program.params):
            if isinstance(param, Buffer):
                if param.name in arguments:
                    self._note_sizes(param, np.asarray(arguments[param.name]), symbols)
                elif index not in self.program.outputs:
                    raise ArgumentError("missing argument", expected=param.name, loc=param.loc)
        while self._solve_size(arguments, symbols):
            pass
        missing = sorted(set(symbols) - set(self.frame.values))
        if missing:
            raise ArgumentError("no argument's shape tells these sizes", got=missing)
        for param in self.program.params:
            if isinstance(param, Buffer):
                self._bind_buffer(param, arguments.get(param.name))
        for workspace in self.program.workspaces:
            self._bind_buffer(workspace, None)

    def _bind_scalar(self, var: Var, arguments: dict[str, Any]) -> None:
        if var.name not in arguments:
            raise ArgumentError("missing argument", expected=var.name)
        value = np.asarray(arguments[var.name])
        if value.shape != ():
            raise ArgumentError(f"argument {var.name} must be a number", got=value.shape)
        if var.dtype.is_float:
            self.frame.values[var.name] = value.astype(np.float64)
        elif var.dtype.is_bool:
            self.frame.values[var.name] = value.astype(bool)
        else:
            if value.dtype.kind == "f" or int(wrap(value, var.dtype)) != int(value):
                raise ArgumentError(
                    f"argument {var.name} does not fit", expected=var.dtype, got=value
                )
            self.frame.values[var.name] = wrap(value, var.dtype)

    def _note_sizes(self, buffer: Buffer, array: Array, symbols: dict[str, Var]) -> None:
        if array.ndim != buffer.rank:
            raise ArgumentError(
                f"argument {buffer.name} has the wrong rank", expected=buffer.rank, got=array.ndim
            )
        pairs = list(zip(buffer.shape, array.shape, strict=True))
        if buffer.strides is not None:
            steps = [stride // array.itemsize for stride in array.strides]
            pairs += zip(buffer.strides, steps, strict=True)
        for expr, size in pairs:
            if isinstance(expr, Var) and expr.name in symbols:
                value = np.asarray(size, value_dtype(expr.dtype))
                self.frame.values.setdefault(expr.name, value)

    def _solve_size(self, arguments: dict[str, Any], symbols: dict[str, Var]) -> bool:
        """Find one more size from an extent that is ``a * size + b``; False when there is none."""
        values = self.frame.values
        for buffer in self.program.params:
            if not isinstance(buffer, Buffer) or buffer.name not in arguments:
                continue
            for expr, size in zip(buffer.shape, np.shape(arguments[buffer.name]), strict=True):
                unknown = {v.name for v in free_vars(expr)} & symbols.keys() - values.keys()
                if len(unknown) != 1:
                    continue
                name = unknown.pop()
                kind = value_dtype(symbols[name].dtype)
                at = []
                for trial in (0, 1):
                    values[name] = np.asarray(trial, kind)
                    at.append(int(scalar(expr, self.frame)))
                factor = at[1] - at[0]
                values[name] = np.asarray((size - at[0]) // factor if factor else 0, kind)
                if factor and int(scalar(expr, self.frame)) == size:
                    return True
                del values[name]
        return False

    def _bind_buffer(self, buffer: Buffer, argument: Any) -> None:
        shape = self._sizes(buffer.shape)
        storage = make_storage(
            buffer, shape, is_raw=buffer.name in self.raw, rounds=self.frame.is_exact
        )
        self.frame.storages[buffer.name] = storage
        if argument is None:
            return
        array = np.asarray(argument)
        if array.shape != shape:
            raise ArgumentError(
                f"argument {buffer.name} has the wrong shape", expected=shape, got=array.shape
            )
        _check_dtype(buffer, array)
        storage.array[...] = storage.encode(array.astype(value_dtype(buffer.dtype)))
        self.given[buffer.name] = array

    def _sizes(self, exprs: tuple[Expr, ...]) -> tuple[int, ...]:
        return tuple(int(scalar(expr, self.frame)) for expr in exprs)

    # --- execution -----------------------------------------------------------------------------

    def launch(self, kernel: Kernel) -> None:
        """Run all blocks, the first grid axis fastest."""
        extents = self._sizes(kernel.grid)
        for reversed_index in itertools.product(*(range(extent) for extent in extents[::-1])):
            index = reversed_index[::-1]
            values = dict(self.frame.values)
            for var, at in zip(kernel.grid_vars, index, strict=True):
                values[var.name] = np.asarray(at, value_dtype(var.dtype))
            place = ", ".join(
                f"{var.name}={at}" for var, at in zip(kernel.grid_vars, index, strict=True)
            )
            frame = replace(self.frame, values=values, storages=dict(self.frame.storages))
            Interpreter(
                frame,
                kernel.threads,
                self.frame.is_exact,
                self.tracks_writes,
                self.raw,
                self.output,
                f"block ({place})",
            ).run(kernel.body)

    def results(self) -> dict[str, Array]:
        """What was written, also copied into the caller's arrays."""
        results: dict[str, Array] = {}
        for index, param in enumerate(self.program.params):
            if not isinstance(param, Buffer):
                continue
            storage = self.frame.storages[param.name]
            if storage.dirty:
                self._write_back(storage, param.dtype)
            if storage.dirty or index in self.program.outputs:
                results[param.name] = storage.decode(storage.array)
        return results

    def _write_back(self, storage: Storage, dtype: DType) -> None:
        array = self.given.get(storage.buffer.name)
        if array is None:
            return
        if not array.flags.writeable:
            raise ArgumentError("the program writes a read-only array", got=storage.buffer.name)
        values = storage.decode(storage.array)
        array[...] = encode(values, dtype).astype(array.dtype)


def _check_dtype(buffer: Buffer, array: Array) -> None:
    expected = numpy_dtype(buffer.dtype)
    if array.dtype != expected and not (buffer.dtype.is_float and array.dtype == np.float64):
        raise ArgumentError(
            f"argument {buffer.name} has the wrong dtype", expected=expected, got=array.dtype
        )


def raw_buffers(program: Program) -> frozenset[str]:
    """Buffers that are seen under two dtypes, and all views of them."""
    groups: list[set[str]] = []
    mixed: set[str] = set()
    for kernel in program.kernels:
        for stmt in walk_stmts(kernel.body):
            if isinstance(stmt, S.Alias):
                pair = {stmt.buffer.name, stmt.source.name}
                touching = [group for group in groups if group & pair]
                groups = [group for group in groups if not group & pair]
                groups.append(pair.union(*touching))
                if stmt.buffer.dtype != stmt.source.dtype:
                    mixed |= pair
    return frozenset(name for group in groups if group & mixed for name in group)
