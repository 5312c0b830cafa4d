"""Whatever is called with whatever: an error with the author's line, or a program."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilecore.language as T
from tilecore.errors import TilecoreError

NOT_CALLED = {"prim_func", "macro", "Kernel", "ClusterKernel", "PrimFunc", "Macro", "Ref"}
NOT_CALLED |= {"GemmWarpPolicy"}  # a Python enumeration
NAMES = sorted(name for name in dir(T) if not name.startswith("_") and name not in NOT_CALLED)
CALLS = 3  # of each name


def traced(name: str, rnd: random.Random, in_nest: bool) -> None:
    def call(A: Any, I: Any, s: Any, f: Any, l: Any, v: Any, i: Any) -> None:  # noqa: E741
        pool = [
            A, I, s, f, l, v, i, i + 1, A[0, 0], I[2], s[0:2, :], f[0, :], A[1:3, 0:4], 3, 0, -1,
            1.5, 2**40, float("nan"), True, None, "text", "float32", T.float32, T.int8, [1, 2],
            (8, 8), (), {}, lambda *_: 0, "sum", object(),
        ]  # fmt: skip
        getattr(T, name)(*(rnd.choice(pool) for _ in range(rnd.choice([0, 1, 1, 2, 2, 3, 4]))))

    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), I: T.Tensor((8,), "int32")):  # noqa: E741
        with T.Kernel(2, threads=32) as bx:
            s = T.alloc_shared((8, 8), "float32")
            f = T.alloc_fragment((8, 8), "float32")
            l = T.alloc_local((8,), "float32")  # noqa: E741
            v = T.alloc_var("int32")
            if in_nest:
                for i in T.Parallel(8):
                    call(A, I, s, f, l, v, i)
            else:
                call(A, I, s, f, l, v, bx)


@pytest.mark.parametrize("in_nest", [False, True], ids=["block", "nest"])
def test_arguments_of_any_kind_give_an_error_of_the_language(in_nest: bool) -> None:
    rnd = random.Random(0)
    wrong = 0
    for name in NAMES:
        if not callable(getattr(T, name)):
            continue
        for _ in range(CALLS):
            try:
                traced(name, rnd, in_nest)
            except TilecoreError as error:
                wrong += 1
                assert error.loc is not None and error.loc.file == __file__, f"T.{name}: {error}"
            except Exception as error:  # what Python raised of its own
                pytest.fail(f"T.{name}: {type(error).__name__}: {error}")
    assert wrong > len(NAMES)


def test_a_function_that_a_construct_does_not_call_raised_nothing() -> None:
    """Only what the author's own function raises, while it runs, is left as it is."""
    with pytest.raises(TilecoreError, match="T.dynamic has no meaning for an argument"):
        T.dynamic(lambda: 0)
    with pytest.raises(ZeroDivisionError):
        T.Fragment((4,), lambda i: (i // 0, 0))
