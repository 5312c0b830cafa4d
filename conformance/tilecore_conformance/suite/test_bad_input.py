"""Wrong use is refused with one of tilecore's errors, and never reaches the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, LanguageError, ResourceError, TilecoreError
from tilecore_conformance.execute import GuardedArray, compile_for
from tilecore_conformance.subjects import Subject

ROWS, COLS = 33, 65


def _copy_program() -> Any:
    @T.prim_func
    def copy(
        X: T.Tensor((ROWS, COLS), "float32"),
        count: T.int32,
        Y: T.Tensor((ROWS, COLS), "float32"),
    ):
        with T.Kernel(ROWS, threads=64) as bx:
            for j in T.Parallel(COLS):
                Y[bx, j] = T.if_then_else(j < count, X[bx, j], 0.0)

    return copy


def _array(shape: tuple[int, ...] = (ROWS, COLS), dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


WRONG_CALLS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "wrong_dtype": lambda x, y: (_array(dtype="float64"), 3, y),
    "wrong_rank": lambda x, y: (_array((ROWS * COLS,)), 3, y),
    "wrong_shape": lambda x, y: (_array((ROWS, COLS + 1)), 3, y),
    "transposed": lambda x, y: (_array((COLS, ROWS)).T, 3, y),
    "strided": lambda x, y: (_array((ROWS, 2 * COLS))[:, ::2], 3, y),
    "reversed": lambda x, y: (_array()[::-1], 3, y),
    "missing_argument": lambda x, y: (x, 3),
    "extra_argument": lambda x, y: (x, 3, y, y),
    "scalar_for_tensor": lambda x, y: (1.0, 3, y),
    "tensor_for_scalar": lambda x, y: (x, x, y),
    "none": lambda x, y: (None, 3, y),
    "text": lambda x, y: ("x", 3, y),
    "scalar_out_of_range": lambda x, y: (x, 2**40, y),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_arguments_are_refused(subject: Subject, name: str) -> None:
    """The error names what is wrong, and the output is untouched."""
    if not subject.executes:
        pytest.skip("nothing is called at this level")
    if subject.target is None:
        pytest.skip("argument checks of the interpreter are core's own, tested there")
    on_device = subject.level == "run" and subject.target.lanes_per_warp > 1
    kernel = compile_for(subject, _copy_program())
    x, y = (GuardedArray(_array(), 0, on_device) for _ in range(2))
    with pytest.raises(ArgumentError) as caught:
        kernel(*WRONG_CALLS[name](x.tensor, y.tensor))
    assert len(str(caught.value).splitlines()) == 1, "one line of reason"
    assert (y.read() == 1).all()
    kernel(x.tensor, COLS, y.tensor)  # the kernel is still usable


def test_tensor_of_another_device_is_refused(subject: Subject) -> None:
    """A host array where device memory is expected, and a tensor without memory on the host."""
    if not subject.executes or subject.target is None:
        pytest.skip("nothing is called at this level")
    torch = pytest.importorskip("torch")
    on_device = subject.level == "run" and subject.target.lanes_per_warp > 1
    kernel = compile_for(subject, _copy_program())
    y = GuardedArray(_array(), 0, on_device)
    elsewhere = _array() if on_device else torch.empty((ROWS, COLS), device="meta")
    with pytest.raises(ArgumentError):
        kernel(elsewhere, 3, y.tensor)
    assert (y.read() == 1).all()


def test_read_only_output_is_refused(subject: Subject) -> None:
    if not subject.executes or subject.target is None:
        pytest.skip("nothing is called at this level")
    if subject.level == "run" and subject.target.lanes_per_warp > 1:
        pytest.skip("device tensors have no such flag")
    kernel = compile_for(subject, _copy_program())
    y = _array()
    y.flags.writeable = False
    with pytest.raises(ArgumentError):
        kernel(_array(), 3, y)


def test_too_many_threads_are_refused(subject: Subject) -> None:
    if subject.target is None or subject.target.max_threads == 0:
        pytest.skip("threads are not a resource of this target")
    threads = subject.target.max_threads * 2

    @T.prim_func
    def wide(Y: T.Tensor((4096,), "float32")):
        with T.Kernel(1, threads=threads) as _:
            for i in T.Parallel(4096):
                Y[i] = 1.0

    with pytest.raises(ResourceError) as caught:
        tilecore.lower(wide, target=subject.target)
    assert str(subject.target.max_threads) in str(caught.value)


def test_too_much_shared_memory_is_refused(subject: Subject) -> None:
    """With the bytes asked for, the limit, and the buffers."""
    if subject.target is None or subject.target.smem_bytes == 0:
        pytest.skip("shared memory is not a resource of this target")
    rows = subject.target.smem_bytes // 4 // 64 + 64

    @T.prim_func
    def large(X: T.Tensor((rows, 64), "float32"), Y: T.Tensor((rows, 64), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_shared((rows, 64), "float32")
            T.copy(X, x)
            for i, j in T.Parallel(rows, 64):
                Y[i, j] = x[rows - 1 - i, j]

    with pytest.raises(ResourceError) as caught:
        tilecore.lower(large, target=subject.target)
    message = str(caught.value)
    assert str(subject.target.smem_bytes) in message
    assert "x" in message


def test_unknown_backend_and_architecture_are_refused(subject: Subject) -> None:
    program = _copy_program()
    with pytest.raises(TilecoreError, match="no backend named"):
        tilecore.compile(program, "no_such_backend")
    if subject.target is not None:
        with pytest.raises(TilecoreError, match="architecture"):
            tilecore.compile(program, subject.backend, arch="no_such_architecture")


def test_mismatched_tiles_are_refused(subject: Subject) -> None:
    """Wrong ranks and contraction lengths are found in the program, with the author's line."""

    def build() -> Any:
        @T.prim_func
        def wrong(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128) as _:
                a = T.alloc_shared((64, 32), "float32")
                b = T.alloc_shared((64, 64), "float32")
                c = T.alloc_fragment((64, 64), "float32")
                T.copy(A[0, 0], a)
                T.gemm(a, b, c)
                T.copy(c, C)

        return wrong

    with pytest.raises(TilecoreError) as caught:
        tilecore.compile(build(), device="reference")
    assert isinstance(caught.value, LanguageError)
    assert "test_bad_input.py" in str(caught.value)
