"""Places that are read from memory: pages of a table, for every number of stages and pieces."""

import numpy as np
import pytest
from compiling import kernel_on
from passes_support import context, run

import tilecore.language as T
from tilecore.ir.stmts import Intrinsic
from tilecore.ir.visit import exprs_of, walk_stmts
from tilecore.passes import LOWERING_PASSES
from tilecore.passes.scopes import loads_in


def gather(pages, count, num_stages, piece=16, threads=32):
    """Sums of the pages that a table names, in order, tile by tile."""

    @T.prim_func
    def program(
        X: T.Tensor((pages, 16, 32), "float16"),
        Table: T.Tensor((2, count), "int32"),
        Y: T.Tensor((2, count, 16, 32), "float16"),
        S: T.Tensor((2, 16, 32), "float32"),
    ):
        with T.Kernel(2, threads=threads) as row:
            x = T.alloc_shared((16, 32), "float16")
            total = T.alloc_fragment((16, 32), "float32")
            T.clear(total)
            for step in T.Pipelined(count, num_stages=num_stages):
                for part in range(16 // piece):
                    T.copy(
                        X[Table[row, step], part * piece : (part + 1) * piece, 0:32],
                        x[part * piece : (part + 1) * piece, 0:32],
                    )
                for i, j in T.Parallel(16, 32):
                    total[i, j] += x[i, j]
                T.copy(x, Y[row, step, 0:16, 0:32])
            T.copy(total, S[row, 0:16, 0:32])

    return program


@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3", "cpu_llvm"])
@pytest.mark.parametrize("piece", [16, 8])
def test_pages_of_a_table(backend, piece):
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (7, 16, 32)).astype(np.float16)
    table = np.array([[3, 0, 6, 6, 1], [5, 2, -1, 7, 4]], np.int32)  # two are outside: zeros
    inside = (table >= 0) & (table < 7)
    wanted = np.where(inside[..., None, None], x[np.where(inside, table, 0)], 0)
    for num_stages in (0, 1, 2, 3):
        y, s = np.full((2, 5, 16, 32), np.nan, np.float16), np.full((2, 16, 32), np.nan, np.float32)
        program = gather(7, 5, num_stages, piece)
        kernel_on(backend, program)(x, table, y, s)
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(s, wanted.astype(np.float32).sum(axis=1))


def test_a_place_is_read_once():
    program = run(gather(7, 5, 2))
    for one in LOWERING_PASSES:
        program = one(program, context())
    (kernel,) = program.kernels
    copies = [
        s for s in walk_stmts(kernel.body) if isinstance(s, Intrinsic) and s.op == "async.copy"
    ]
    assert copies
    for copy in copies:
        assert not any(loads_in(expr) for expr in exprs_of(copy))
