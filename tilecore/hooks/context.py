"""What a pass is given besides the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilecore.hooks.manager import Hooks
    from tilecore.hooks.records import CompileOptions
    from tilecore.target import Target


@dataclass(frozen=True, slots=True)
class Context:
    """The target, its hooks, and the options of one compilation.

    `is_tight` asks for shared memory layouts without gaps, since a kernel did not fit with them.
    Every pass is a function ``pass_name(program, context) -> program`` in a module of its name.
    """

    target: Target
    hooks: Hooks
    options: CompileOptions
    is_tight: bool = False
