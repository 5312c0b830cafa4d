"""Software pipelines: one answer for every number of stages, and the shape that was planned."""

import numpy as np
import pytest
from passes_support import kernel_of, run

import tilecore
import tilecore.language as T
from tilecore.ir.stmts import For, Gemm, Intrinsic
from tilecore.ir.visit import walk_stmts


def matmul(m, n, k, num_stages, tile=(32, 32, 16), threads=64):
    tile_m, tile_n, tile_k = tile

    @T.prim_func
    def program(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=threads) as (bx, by):
            a = T.alloc_shared((tile_m, tile_k), "float16")
            b = T.alloc_shared((tile_k, tile_n), "float16")
            c = T.alloc_fragment((tile_m, tile_n), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=num_stages):
                T.copy(A[by * tile_m, step * tile_k], a)
                T.copy(B[step * tile_k, bx * tile_n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * tile_m, bx * tile_n])

    return program


def operations(program, op):
    body = kernel_of(run(program)).body
    return [s for s in walk_stmts(body) if isinstance(s, Intrinsic) and s.op == op]


@pytest.mark.parametrize("k", [16, 40, 104])
def test_every_number_of_stages_gives_the_same_bits(k):
    rng = np.random.default_rng(k)
    a = rng.standard_normal((40, k)).astype(np.float16)
    b = rng.standard_normal((k, 48)).astype(np.float16)
    results = []
    for num_stages in range(5):
        c = np.full((40, 48), np.nan, np.float32)
        program = matmul(40, 48, k, num_stages)
        tilecore.compile(program, backend="cuda_ampere", device="emulator")(a, b, c)
        results.append(c)
    np.testing.assert_allclose(results[0], a.astype(np.float32) @ b.astype(np.float32), atol=1e-2)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_buffers_have_a_slot_a_stage(num_stages):
    kernel = kernel_of(run(matmul(64, 64, 256, num_stages)))
    gemm = next(s for s in walk_stmts(kernel.body) if isinstance(s, Gemm))
    assert gemm.a.buffer.static_shape == (num_stages, 32, 16)
    waits = [
        int(w.args[0].value) for w in operations(matmul(64, 64, 256, num_stages), "async.wait")
    ]
    assert waits == [num_stages - 2, 0]


def test_one_stage_needs_no_second_slot_and_still_overlaps():
    kernel = kernel_of(run(matmul(64, 64, 256, 1)))
    gemm = next(s for s in walk_stmts(kernel.body) if isinstance(s, Gemm))
    assert gemm.a.buffer.static_shape == (32, 16)
    loop = next(s for s in kernel.body if isinstance(s, For))
    names = [s.op for s in walk_stmts(loop.body) if isinstance(s, Intrinsic)]
    at_gemm = [type(s).__name__ for s in loop.body].index("Gemm")
    assert "async.copy" in names
    after = [s for s in walk_stmts(loop.body[at_gemm:]) if isinstance(s, Intrinsic)]
    assert any(s.op == "async.copy" for s in after), (
        "the copy for the next iteration follows the use"
    )


def test_unaligned_rows_stay_synchronous_and_right():
    program = matmul(33, 35, 17, 3)
    assert operations(program, "async.copy") == []
    a = np.random.rand(33, 17).astype(np.float16)
    b = np.random.rand(17, 35).astype(np.float16)
    c = np.zeros((33, 35), np.float32)
    tilecore.compile(program, backend="cuda_ampere", device="emulator")(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-2)


@pytest.mark.parametrize(
    ("order", "stage"),
    [
        ([0, 1, 2], [0, 0, 1]),
        ([1, 0, 2], [0, 0, 2]),
        ([-1, -1, 0], [-1, -1, 1]),
        ([2, 0, 1], [0, 0, 1]),
    ],
)
def test_the_authors_own_schedule_is_followed_and_right(order, stage):
    @T.prim_func
    def program(
        A: T.Tensor((32, 80), "float16"),
        B: T.Tensor((80, 32), "float16"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_shared((32, 16), "float16")
            b = T.alloc_shared((16, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(5, order=order, stage=stage):
                T.copy(A[0, step * 16], a)
                T.copy(B[step * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    kernel = kernel_of(run(program))
    copies = [
        s for s in walk_stmts(kernel.body) if isinstance(s, Intrinsic) and s.op == "async.copy"
    ]
    assert len(copies) >= 4  # in the prologue and in the loop
    rng = np.random.default_rng(1)
    a = rng.standard_normal((32, 80)).astype(np.float16)
    b = rng.standard_normal((80, 32)).astype(np.float16)
    c = np.zeros((32, 32), np.float32)
    tilecore.compile(program, backend="cuda_ampere", device="emulator")(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-2)


@pytest.mark.parametrize("num_stages", [2, 3, 4])
def test_one_operand_may_stay_synchronous(num_stages):
    """Rows of A are not aligned (k = 27), rows of B are: only B's copies run ahead."""
    program = matmul(32, 32, 27, num_stages)
    sources = {c.args[0].buffer.name for c in operations(program, "async.copy")}
    assert sources == {"B"}
    a = np.random.rand(32, 27).astype(np.float16)
    b = np.random.rand(27, 32).astype(np.float16)
    c = np.zeros((32, 32), np.float32)
    tilecore.compile(program, backend="cuda_ampere", device="emulator")(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-2)
