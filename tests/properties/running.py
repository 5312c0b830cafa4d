"""Running random programs: from text to results, the same inputs for everyone."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiling import kernel_on
from random_programs import RandomProgram
from wide_programs import FLAT, WideProgram

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.targets import present_device


@cache
def module_of(text: str) -> Any:
    """The module of a program's text, from a file, as programs are read from theirs."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as stream:
        stream.write(text)
    spec = importlib.util.spec_from_file_location("random_program", stream.name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # The source is read when the program is traced, which `results` does for several variants.
    return module


def results(
    program: RandomProgram, num_stages: int, threads: int, backend: str
) -> tuple[np.ndarray, np.ndarray]:
    """C and D of one run on a backend, or in the reference interpreter."""
    m, n, k = program.sizes[:3]
    rng = np.random.default_rng(m * 10007 + n * 101 + k)

    def integers(*shape: int) -> np.ndarray:
        return rng.integers(-4, 5, shape).astype(np.float32)

    inputs = integers(m, k), integers(k, n), integers(m, n)
    c, d = np.zeros((m, n), np.float32), np.zeros((m,), np.float32)
    function = module_of(program.text).make(*program.sizes, num_stages, threads)
    kernel_on(backend, function)(*inputs, c, d)
    return c, d


def assert_same(
    names: Sequence[str], program: Any, one: Sequence[Any], other: Sequence[Any], variants: str
) -> None:
    """Both results, tensors of these names, are equal bit by bit (a zero's sign aside)."""
    for name, left, right in zip(names, one, other, strict=True):
        if not np.array_equal(left, right):
            places = np.argwhere(left != right)
            where = tuple(int(x) for x in places[0])
            raise AssertionError(
                f"{variants}: {name} differs at {len(places)} places, first {where}: "
                f"{left[where]} and {right[where]}\nsizes {program.sizes}\n{program.text}"
            )


def wide_results(
    program: WideProgram, num_stages: int, threads: int, backend: str
) -> tuple[np.ndarray, ...]:
    """C, D and E of one run of a wide program."""
    m, n, k = program.sizes[:3]
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    operand = numpy_dtype(dtype_of(program.operand))

    def integers(*shape: int) -> np.ndarray:
        return rng.integers(-3, 4, shape).astype(np.float32)

    a = integers(*((k, m) if program.turned[0] else (m, k))).astype(operand)
    b = integers(*((n, k) if program.turned[1] else (k, n))).astype(operand)
    outputs = np.zeros((m, n), np.float32), np.zeros(m, np.int32), np.zeros(FLAT, np.int32)
    function = module_of(program.text).make(*program.sizes, num_stages, threads)
    kernel_on(backend, function)(a, b, integers(m, n), *outputs)
    return outputs


def torch_beside(backend: str) -> Any:
    """torch, where a device of the backend is; elsewhere the test is skipped, and says so."""
    torch = pytest.importorskip("torch")
    if present_device(backend) is None:
        pytest.skip(f"no device of {backend} here")
    return torch


def on_device(torch: Any, array: np.ndarray) -> Any:
    """A device tensor with an array's elements, also of dtypes that NumPy has not."""
    return torch.from_numpy(array.view(np.uint8)).cuda().view(getattr(torch, array.dtype.name))
