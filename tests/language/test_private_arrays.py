"""Private arrays and T.Parallel: an iteration's scratch is its own, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiling import kernel_on
from language_support import BACKENDS, line_of

import tilecore
import tilecore.language as T
from tilecore.errors import LanguageError

N = 200
Array = Any


def legal(body: Callable[..., None], threads: int) -> Any:
    @T.prim_func
    def main(x: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=threads):
            body(x, y)

    return main


@T.macro
def written_then_read(x, y):
    own = T.alloc_local((4,), "float32")
    for i in T.Parallel(N):
        for k in T.vectorized(4):
            own[k] = x[i] + k
        y[i] = own[0] + own[3]


@T.macro
def two_nests_with_one_scratch(x, y):
    own = T.alloc_local((2,), "float32")
    for i in T.Parallel(N):
        own[i % 2] = x[i]
        y[i] = own[i % 2] + 1
    for i in T.Parallel(N):
        own[0] = y[i] * 2
        own[1] = own[0] + 1
        y[i] = own[1]


@T.macro
def both_branches(x, y):
    v = T.alloc_var("float32", init=7)
    for i in T.Parallel(N):
        if x[i] > 0:
            v = x[i]
        else:
            v = 0
            v -= x[i]
        y[i] = v


@T.macro
def one_condition_twice(x, y):
    own = T.alloc_local((1,), "float32")
    for i in T.Parallel(N + 5):
        if i < N:
            own[0] = x[i]
        if i < N:
            y[i] = own[0] * 2


@T.macro
def sums_of_rounds(x, y):
    total = T.alloc_local((1,), "float32")
    for i in T.Parallel(N):
        total[0] = 0
        for k in T.serial(3):
            total[0] += x[i] + k
        y[i] = total[0]


@T.macro
def set_by_the_block(x, y):
    own = T.alloc_local((4,), "float32")
    for k in T.serial(4):
        own[k] = x[k]
    for i in T.Parallel(N):
        y[i] = own[i % 4]


@T.macro
def written_anew(x, y):
    own = T.alloc_local((2,), "float32")
    for i in T.Parallel(N):
        own[0] = x[i]
        y[i] = own[0]
    own[0] = 3
    own[1] = own[0] + 1
    for i in T.Parallel(N):
        y[i] = y[i] + own[1]


@T.macro
def rounds_of_the_block(x, y):
    own = T.alloc_local((1,), "float32")
    T.copy(x, y)
    for k in T.serial(3):
        for i in T.Parallel(N):
            own[0] = y[i] + k
            y[i] = own[0]


def numbers() -> Array:
    return np.random.default_rng(0).integers(-9, 9, N).astype(np.float32)


LEGAL: dict[Any, Callable[[Array], Array]] = {
    written_then_read: lambda x: 2 * x + 3,
    two_nests_with_one_scratch: lambda x: (x + 1) * 2 + 1,
    both_branches: np.abs,
    one_condition_twice: lambda x: 2 * x,
    sums_of_rounds: lambda x: 3 * x + 3,
    set_by_the_block: lambda x: np.resize(x[:4], N),
    written_anew: lambda x: x + 4,
    rounds_of_the_block: lambda x: x + 3,
}


@pytest.mark.parametrize("threads", [32, 96])
@pytest.mark.parametrize("body", LEGAL, ids=lambda body: body.__name__)
def test_scratch_of_an_iteration_is_its_own(body: Any, threads: int) -> None:
    x = numbers()
    for backend in BACKENDS:
        y = np.zeros(N, np.float32)
        kernel_on(backend, legal(body, threads))(x, y)
        np.testing.assert_array_equal(y, LEGAL[body](x), err_msg=backend)


REFUSED = {
    "read by the block": """
        for i in T.Parallel(4):
            own[i] = x[i]
        y[0] = own[0]  # here
    """,
    "read by the block in a loop": """
        for i in T.Parallel(4):
            own[i] = x[i]
        for k in T.serial(4):
            y[k] = own[k]  # here
    """,
    "a tile operation": """
        for i in T.Parallel(4):
            own[i] = x[i]
        T.copy(own, y[0:4])  # here
    """,
    "another nest": """
        for i in T.Parallel(4):
            own[i] = x[i]
        for i in T.Parallel(4):
            y[i] = own[i]  # here
    """,
    "an iteration's neighbour": """
        for i in T.Parallel(3):
            own[i] = x[i]
            y[i] = own[i + 1]  # here
    """,
    "the other end": """
        for i in T.Parallel(4):
            own[i] = x[i]
            y[i] = own[3 - i]  # here
    """,
    "what earlier iterations left": """
        own[0] = 0
        for i in T.Parallel(4):
            own[0] += x[i]  # here
            y[i] = own[0]
    """,
    "under a condition": """
        v = T.alloc_var("float32", init=0)
        for i in T.Parallel(8):
            if x[i] > 0:
                v = x[i]
            y[i] = v  # here
    """,
    "a variable read afterwards": """
        v = T.alloc_var("float32", init=0)
        for i in T.Parallel(8):
            v = x[i]
        y[0] = v  # here
    """,
    "the next round of the block": """
        for k in T.serial(4):
            if k > 0:
                y[k] = own[0]  # here
            for i in T.Parallel(4):
                own[i] = x[i]
    """,
    "a condition of the block": """
        for i in T.Parallel(4):
            own[i] = x[i]
        if own[0] > 0:  # here
            y[0] = 1
    """,
    "an element that was not written anew": """
        for i in T.Parallel(4):
            own[i] = x[i]
        own[0] = 1
        y[0] = own[0] + own[1]  # here
    """,
    "through a view": """
        for i in T.Parallel(4):
            own[i] = x[i]
        seen = T.view(own, (2, 2))
        y[0] = seen[0, 0]  # here
    """,
}
FRAME = """\
import tilecore.language as T
@T.prim_func
def main(x: T.Tensor((8,), "float32"), y: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=64):
        own = T.alloc_local((4,), "float32")
"""


@pytest.mark.parametrize("name", REFUSED)
def test_what_iterations_left_is_refused_at_the_line_that_reads(name: str, tmp_path: Any) -> None:
    text = FRAME + REFUSED[name].lstrip("\n")
    path = tmp_path / "program.py"
    path.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec", dont_inherit=True), names)
    line = line_of(text, "# here")
    for backend in (None, "cpu_llvm", "cuda_hopper"):
        with pytest.raises(LanguageError, match="is private, and read where") as caught:
            if backend is None:
                tilecore.compile(names["main"], device="reference")
            else:
                tilecore.lower(names["main"], backend)
        error = caught.value
        assert error.loc is not None and (error.loc.file, error.loc.line) == (str(path), line)
        assert error.expected and error.got and error.hint and "alloc_fragment" in error.hint
