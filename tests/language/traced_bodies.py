"""Bodies of kernels as functions, for tests of one construct: their programs, texts and errors."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import language_support as support
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError, TilecoreError


def traced(body: Any) -> Any:
    """The program of ``body(A, R, bx, by)``, with A float16 (64, 48) and R float32 (64, 48)."""
    macro = T.macro(body)

    @T.prim_func
    def main(A: T.Tensor((64, 48), "float16"), R: T.Tensor((64, 48), "float32")):
        with T.Kernel(2, 3, threads=64) as (bx, by):
            macro(A, R, bx, by)

    return main


def text(body: Any) -> str:
    """Text of the kernel; the program survives printing and parsing."""
    return support.body_text(traced(body))


def refused(body: Any, message: str, error: type[TilecoreError] = LanguageError) -> TilecoreError:
    """The error of tracing `body`, which names a line of the body's own file."""
    with pytest.raises(error, match=message) as caught:
        traced(body)
    loc = caught.value.loc
    assert loc is not None and loc.file == body.__code__.co_filename
    return caught.value
