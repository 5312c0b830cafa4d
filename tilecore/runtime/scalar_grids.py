"""Grids that scalar parameters decide: known only when a call gives the numbers.

A launcher binds a launch to the dynamic sizes, which shapes tell before anything runs. A scalar in
a grid is told by the call itself. So such a launcher takes the scalars as further sizes, and its
bound launch looks up, or makes, the one for the numbers that it is called with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilecore.ir.expr import Var, free_vars
from tilecore.ir.program import Program
from tilecore.runtime.sizes import Sizes

_REMEMBERED = 256  # grids kept per bound launch; beyond it all are forgotten and made anew


def grid_scalars(program: Program) -> tuple[int, ...]:
    """Positions of the scalar parameters that grids of `program` mention, in ascending order."""
    mentioned = {
        var.name
        for kernel in program.kernels
        for extent in kernel.grid
        for var in free_vars(extent)
    }
    return tuple(
        position
        for position, param in enumerate(program.params)
        if isinstance(param, Var) and param.name in mentioned
    )


def launch_sizes(program: Program) -> tuple[Var, ...]:
    """What a program's grids are functions of: its dynamic sizes, then such scalars."""
    scalars = [program.params[position] for position in grid_scalars(program)]
    return (*program.symbols, *(scalar for scalar in scalars if isinstance(scalar, Var)))


def call_sizes(
    arguments: tuple[Any, ...], symbols: int, positions: tuple[int, ...]
) -> tuple[int, ...]:
    """What grids are functions of, from a call's flat arguments: its dynamic sizes, then scalars.

    Args:
        arguments: the flat arguments, dynamic sizes last.
        symbols: how many dynamic sizes there are.
        positions: of the scalars that grids mention (`grid_scalars`).
    """
    sizes = arguments[len(arguments) - symbols :]
    return tuple(int(value) for value in (*sizes, *(arguments[place] for place in positions)))


def bind_scalars(
    bind: Callable[[Sizes, int], Any], positions: tuple[int, ...], sizes: Sizes, device: int
) -> Callable[..., None]:
    """A launch with fixed dynamic sizes whose grids follow the scalars at `positions`.

    Args:
        bind: the launcher's own, for dynamic sizes with the scalars after them.
        positions: of the scalars among a launch's arguments.
        sizes: the dynamic sizes.
        device: ordinal of the device.
    """
    bound: dict[Sizes, Any] = {}

    def launch(*values: int | float) -> None:
        numbers = tuple(int(values[position]) for position in positions)
        found = bound.get(numbers)
        if found is None:
            if len(bound) >= _REMEMBERED:
                bound.clear()
            found = bound[numbers] = bind((*sizes, *numbers), device)
        found(*values)

    return launch
