"""T.sync_grid: launches one after the other, with what blocks keep on the chip carried over."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import kernel_on

import tilecore.language as T
from tilecore.hooks.manager import installed_backends

BACKENDS = ["reference", *(name for name in installed_backends() if name != "toy")]


@T.prim_func
def exchanged(
    x: T.Tensor((8, 32), "int32"), y: T.Tensor((8, 32), "int32"), z: T.Tensor((8,), "int32")
):
    with T.Kernel(8, threads=32) as b:
        f = T.alloc_fragment((32,), "int32")
        s = T.alloc_shared((32,), "int32")
        v = T.alloc_var("int32", init=3)
        other = 7 - b
        T.copy(x[b, :], f)
        T.fill(s, b)
        v += b
        for i in T.Parallel(32):
            x[b, i] = f[i] + 1
        T.sync_grid()
        T.copy(x[other, :], s)
        for i in T.Parallel(32):
            y[b, i] = s[i] * 100 + f[i]
            T.sync_grid()
            x[b, i] = y[other, i] + s[i]
        z[b] = v


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_meet_and_keep_what_they_hold(backend: str) -> None:
    start = (np.arange(256) % 13).astype(np.int32).reshape(8, 32)
    x, y, z = start.copy(), np.zeros_like(start), np.zeros(8, np.int32)
    kernel_on(backend, exchanged)(x, y, z)
    sent = start[::-1] + 1
    expected = sent * 100 + start
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(x, expected[::-1] + sent)
    assert z.tolist() == list(range(3, 11))


def test_only_what_is_kept_gets_a_workspace() -> None:
    program = exchanged.program
    assert len(program.kernels) == 3
    assert sorted(w.name for w in program.workspaces) == ["f_kept", "s_kept", "v_kept"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_number_of_blocks_meets(backend: str) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "int32"), total: T.Tensor((1,), "int32")):
        with T.Kernel(n, threads=32) as b:
            own = T.alloc_fragment((4,), "int32")
            T.fill(own, b)
            T.atomic_add(total[0], x[b])
            T.sync_grid()
            x[b] = total[0] + own[2]

    kernel = kernel_on(backend, main)
    for count in (1, 300, 0, 7):
        x, total = np.arange(count, dtype=np.int32), np.zeros(1, np.int32)
        kernel(x, total)
        np.testing.assert_array_equal(x, np.arange(count) + np.arange(count).sum())
