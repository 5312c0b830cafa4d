"""``T.dynamic(..., multiple_of=8)`` makes copies as wide as it promises, and no wider."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilecore.language as T
from tilecore.compiler import lower
from tilecore.hooks.manager import installed_backends

BACKENDS = [n for n in ("cuda_ampere", "cuda_hopper", "rocm_cdna3") if n in installed_backends()]


def copied(n: Any) -> Any:
    @T.prim_func
    def main(x: T.Tensor((n, n), "float16"), y: T.Tensor((n, n), "float16")):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(n, 64), threads=128) as (bx, by):
            s = T.alloc_shared((64, 64), "float16")
            T.copy(x[by * 64, bx * 64], s)
            T.copy(s, y[by * 64, bx * 64])

    return main


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("multiple", [1, 2, 4, 8, 24])
def test_a_promise_widens_global_accesses(backend: str, multiple: int) -> None:
    program = copied(T.dynamic("n", multiple_of=multiple))
    text = lower(program, backend, device="emulator").source.text
    reads = set(map(int, re.findall(r"(?:load_global|copy_async)<(\d+)>", text)))
    writes = set(map(int, re.findall(r"store_global<(\d+)>", text)))
    widest = min(8, multiple & -multiple)
    assert reads == writes == (set() if widest == 1 else {widest})
