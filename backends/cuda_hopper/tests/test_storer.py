"""Tiles that a loop adds to memory from shared memory: by a warp of its own, in every schedule of
the others, or by lanes where the copy engine cannot."""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower

TILE, DEPTH, STEPS, GRID = 64, 32, 5, 3


def products(
    first: int = 0,
    unequal: bool = False,
    stages: int = 2,
    threads: int = 128,
    products: int = 1,
    resident: bool = False,
    shift: int = 0,
) -> Any:
    """Sums[k % 2] += (A_b B_k + ...) for each step k of block b, from a buffer in shared memory.

    `first` is the loop's first step, so that blocks do not stay where it is not 0; `unequal` blocks
    make b + 1 steps; `products` contractions of a step; `resident`: A is loaded once a block;
    `shift` elements to the side, so that addresses are no multiples of 16 bytes.
    """
    rows = TILE * threads // 128
    size = rows * TILE

    @T.prim_func
    def products_of_tiles(
        A: T.Tensor((GRID * rows, DEPTH), "float16"),
        B: T.Tensor((STEPS * DEPTH, TILE), "float16"),
        Sums: T.Tensor((2, size + 16), "float32"),
    ):
        with T.Kernel(GRID, threads=threads) as b:
            a_tile = T.alloc_shared((rows, DEPTH), "float16")
            b_tile = T.alloc_shared((DEPTH, TILE), "float16")
            leaves = T.alloc_shared((size,), "float32")
            c = T.alloc_fragment((rows, TILE), "float32")
            d = T.alloc_fragment((rows, TILE), "float32")
            if resident:
                T.copy(A[b * rows, 0], a_tile)
            T.clear(d)
            end = b + 1 if unequal else STEPS
            for k in T.Pipelined(first, end, num_stages=stages):
                if not resident:
                    T.copy(A[b * rows, 0], a_tile)
                T.copy(B[k * DEPTH, 0], b_tile)
                T.gemm(a_tile, b_tile, c, clear_accum=True)
                for _ in range(products - 1):
                    T.gemm(a_tile, b_tile, d)
                for i, j in T.Parallel(rows, TILE):
                    leaves[i * TILE + j] = c[i, j]
                T.atomic_add(Sums[k % 2, shift : shift + size], leaves)

    return products_of_tiles


CASES: dict[str, dict[str, Any]] = {
    "blocks that stay": {},
    "blocks of their own": {"first": 1},
    "unequal steps": {"unequal": True},
    "three stages, two warpgroups": {"stages": 3, "threads": 256},
    "contractions in flight": {"products": 3},
    "operands that stay": {"products": 3, "resident": True},
    "operands that stay, unequal steps": {"products": 3, "resident": True, "unequal": True},
    "operands that stay, plain steps": {"resident": True},
}


def operands(options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A, B, Sums and what is expected in these."""
    rows = TILE * options.get("threads", 128) // 128
    shift, first = options.get("shift", 0), options.get("first", 0)
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (GRID * rows, DEPTH)).astype(np.float16)
    b = rng.integers(-3, 4, (STEPS * DEPTH, TILE)).astype(np.float16)
    want = np.zeros((2, rows * TILE + 16), np.float32)
    for block in range(GRID):
        for k in range(first, block + 1 if options.get("unequal") else STEPS):
            one = a[block * rows : (block + 1) * rows].astype(np.float32)
            product = one @ b[k * DEPTH : (k + 1) * DEPTH].astype(np.float32)
            want[k % 2, shift : shift + rows * TILE] += product.reshape(-1)
    return a, b, np.zeros_like(want), want


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_storer_adds_what_consumers_leave(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    kernel = tilecore.compile(products(**CASES[name]), backend="cuda_hopper", device="emulator")
    assert "// storer" in kernel.source
    assert "atomic_add_global" not in kernel.source
    a, b, sums, want = operands(CASES[name])
    kernel(a, b, sums)
    np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize("shift", [2, 16])
def test_lanes_add_what_the_engine_cannot(shift: int) -> None:
    """Addresses that are no multiples of 16 bytes; ones that are."""
    kernel = tilecore.compile(products(shift=shift), backend="cuda_hopper", device="emulator")
    assert ("// storer" in kernel.source) == (shift % 4 == 0)
    a, b, sums, want = operands({"shift": shift})
    kernel(a, b, sums)
    np.testing.assert_array_equal(sums, want)


def test_lanes_add_what_reaches_beyond_its_buffer() -> None:
    """Elements outside are dropped; the engine would add them to what lies there."""
    assert "// storer" not in lower(products(shift=20), backend="cuda_hopper").source.text


def test_consumers_only_fill_the_slot_and_go_on() -> None:
    source = lower(products(products=3, resident=True), backend="cuda_hopper").source.text
    consumers = source[source.index("// consumers") :]
    step = consumers[consumers.index("leaves_empty") :]
    step = step[: step.index("barrier_arrive(leaves_full")]
    assert "store_shared" in step and "hopper::publish()" in step
    assert "bulk_add" not in consumers
    assert "barrier_init(leaves_full, 4)" in source and "barrier_init(leaves_empty, 1)" in source
