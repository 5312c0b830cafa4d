"""The end of scheduling: the program says that it is at the scheduled level."""

from __future__ import annotations

import dataclasses

from tilecore.hooks.context import Context
from tilecore.ir.program import Level, Program


def mark_scheduled(program: Program, context: Context) -> Program:
    """Set the level; everything that the level promises was done by the passes before."""
    return dataclasses.replace(program, level=Level.SCHEDULED)
