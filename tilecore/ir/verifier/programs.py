"""Rules about programs and kernels."""

from __future__ import annotations

from collections.abc import Iterable

from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Const, Expr, Var
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.verifier.exprs import check_integer
from tilecore.ir.verifier.layouts import check_layouts
from tilecore.ir.verifier.nest_races import check_nest_races
from tilecore.ir.verifier.private_arrays import check_private_arrays
from tilecore.ir.verifier.state import State
from tilecore.ir.verifier.stmts import check_block, check_hints
from tilecore.ir.verifier.uniformity import check_uniform


def verify(program: Program, level: Level | None = None) -> None:
    """Check that a program is legal at its level.

    Args:
        program: what to check.
        level: the level whose rules hold; the program's own by default.

    Raises:
        LanguageError: the program breaks a rule of the tile level, with the user's line.
        VerifyError: a program of a lower level breaks one: a pass is at fault.
    """
    state = State(level or program.level, program.loc)
    for symbol in program.symbols:
        _check_scalar(symbol, "the dynamic size", state)
        state.require(symbol.dtype.is_int, f"the dynamic size {symbol.name} is no integer")
    for param in program.params:
        if isinstance(param, Var):
            _check_scalar(param, "the parameter", state)
    for buffer in (*program.params, *program.workspaces):
        if isinstance(buffer, Buffer):
            _check_global(buffer, state)
    _check_outputs(program, state)
    names = [kernel.name for kernel in program.kernels]
    if len(set(names)) < len(names):
        state.fail("two kernels have the same name", got=names)
    for kernel in program.kernels:
        _check_kernel(kernel, program, state)


def _check_scalar(var: Var, what: str, state: State) -> None:
    if var.multiple_of < 1:
        state.fail(f"{what} {var.name} is a multiple of nothing", "1 or more", var.multiple_of)
    if var.lower is not None and var.upper is not None and var.lower > var.upper:
        state.fail(f"{what} {var.name} has no value", "lower <= upper", (var.lower, var.upper))
    state.declare(var)


def _check_global(buffer: Buffer, state: State) -> None:
    if buffer.scope is not Scope.GLOBAL:
        state.fail(f"the parameter {buffer.name} is not global", Scope.GLOBAL, buffer.scope)
    if buffer.strides is not None and len(buffer.strides) != buffer.rank:
        state.fail(f"{buffer.name} needs a stride for each axis", buffer.rank, len(buffer.strides))
    for extent in (*buffer.shape, *(buffer.strides or ())):
        check_integer(extent, state, f"an extent or a stride of {buffer.name}")
    _check_not_negative(buffer.shape, f"an extent of {buffer.name}", state)
    state.declare(buffer)


def _check_not_negative(exprs: Iterable[Expr], what: str, state: State) -> None:
    for expr in exprs:
        if isinstance(expr, Const) and expr.value < 0:
            state.fail(f"{what} is negative", "0 or more", expr.value)


def _check_outputs(program: Program, state: State) -> None:
    for index in program.outputs:
        if not 0 <= index < len(program.params):
            state.fail("an output that is no parameter", f"0 to {len(program.params) - 1}", index)
        if not isinstance(program.params[index], Buffer):
            state.fail("a scalar as an output", "a buffer", program.params[index].name)
    if len(set(program.outputs)) < len(program.outputs):
        state.fail("an output is named twice", got=program.outputs)


def _check_kernel(kernel: Kernel, program: Program, state: State) -> None:
    state.loc = kernel.loc or program.loc
    if not 1 <= len(kernel.grid) <= 3 or len(kernel.grid) != len(kernel.grid_vars):
        state.fail("a grid has one to three axes", "1 to 3", len(kernel.grid))
    for extent in kernel.grid:
        check_integer(extent, state, "an extent of the grid")
    _check_not_negative(kernel.grid, "an extent of the grid", state)
    state.require(kernel.threads >= 1, "a block has no threads", "1 or more", kernel.threads)
    if len(kernel.cluster) != 3 or min(kernel.cluster) < 1:
        state.fail("a cluster has three extents of 1 or more", "(x, y, z)", kernel.cluster)
    order = kernel.block_order
    if order is not None and (order.panel < 1 or order.order not in ("row", "column")):
        state.fail("an unknown block order", "row or column, panel of 1 or more", order)
    check_hints(kernel.hints, state)
    outside = dict(state.scope)
    for var in kernel.grid_vars:
        state.require(var.dtype.is_int, f"the block index {var.name} is no integer")
        state.declare(var)
    check_block(kernel.body, state)
    if state.level is Level.TILE:
        check_uniform(kernel.body, state)
        check_private_arrays(kernel.body)
        check_nest_races(kernel.body)
    state.loc = kernel.loc or program.loc
    check_layouts(kernel, state)
    state.scope = outside
