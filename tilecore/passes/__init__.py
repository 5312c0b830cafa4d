"""One pass a file; this is the order in which they run.

`SCHEDULING_PASSES` take the canonical tile level to the scheduled level, `LOWERING_PASSES` take that
to the lane level. Every pass is a function ``name(program, context) -> program``.
"""

from __future__ import annotations

from collections.abc import Callable

from tilecore.hooks.context import Context
from tilecore.ir.program import Program

SCHEDULING_PASSES: tuple[Callable[[Program, Context], Program], ...] = ()
LOWERING_PASSES: tuple[Callable[[Program, Context], Program], ...] = ()
