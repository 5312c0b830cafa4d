"""Helpers of the language tests: text of a traced function, and its result in the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilecore.ir.parser import parse_program
from tilecore.ir.printer import format_block, format_program
from tilecore.ir.program import Program
from tilecore.ir.stmts import Stmt
from tilecore.ir.verifier import verify
from tilecore.ir.visit import walk_stmts
from tilecore.reference import run

BACKENDS = ("reference", "cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3")
"""The reference interpreter, and every backend of this repository."""


def body_text(function: Any, kernel: int = 0) -> str:
    """Text of one kernel's body; the program must survive printing and parsing."""
    program: Program = function.program
    verify(program)
    assert parse_program(format_program(program)) == program
    return format_block(program.kernels[kernel].body)


def statements(function: Any, kind: type[Stmt]) -> list[Any]:
    """All statements of a kind, in program order."""
    return list(_walk(function, kind))


def _walk(function: Any, kind: type[Stmt]) -> Iterator[Stmt]:
    for kernel in function.program.kernels:
        for stmt in walk_stmts(kernel.body):
            if isinstance(stmt, kind):
                yield stmt


def result(function: Any, name: str, **arguments: Any) -> np.ndarray:
    """One written buffer after running the program in the reference interpreter."""
    verify(function.program)
    return run(function.program, arguments)[name]


def line_of(text: str, marker: str) -> int:
    """1-based line of the first line of `text` that contains `marker`."""
    return next(k for k, line in enumerate(text.splitlines(), 1) if marker in line)
