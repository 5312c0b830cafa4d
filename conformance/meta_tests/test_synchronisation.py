"""Every barrier, wait, arrival and fence of a generated kernel is needed, and the emulator knows.

Each is taken out of the text in turn; then the emulator must report a fault. So a kernel holds no
barrier too many, and none can be missing without being seen. What may go missing without harm is
listed with its reason; an entry that no longer applies fails.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.driver import emulated_kernel
from tilecore.errors import EmulatorFault
from tilecore.hooks.manager import hooks_of
from tilecore.kernel import CompiledKernel
from tilecore_kernels import flash_attention, gemm, softmax
from tilecore_kernels.tiles import RowConfig

STATEMENT = re.compile(
    r"(?<=\n) *(?:if \([^\n]*\) )?"
    r"\w+::\w*(?:barrier|wait|arrive|sync|commit|fence|publish)\w*(?:<[^;\n]*>)?\([^\n]*?\);"
)
"""A line's first statement that synchronises, with the condition on its line."""

Program = tuple[Any, list[np.ndarray]]


def _gemm(block_m: int, threads: int) -> Program:
    rng = np.random.default_rng(0)
    problem = gemm.GemmProblem(200, 512, 512, "float16")
    config = gemm.GemmConfig(block_m, 128, 64, num_stages=2, threads=threads)
    arrays = [rng.standard_normal(s).astype(np.float16) for s in ((200, 512), (512, 512))]
    return gemm.gemm(problem, config), [*arrays, np.zeros((200, 512), np.float16)]


def _gemm_by_registers() -> Program:
    """Lanes take each tile of A to registers: they read what a copy engine then overwrites."""

    @T.prim_func
    def by_registers(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            own = T.alloc_fragment((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(a, own)
                T.copy(B[k * 64, 0], b)
                T.gemm(own, b, c)
            T.copy(c, C)

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float16) for s in ((64, 512), (512, 64))]
    return by_registers, [*arrays, np.zeros((64, 64), np.float32)]


def _attention(block_q: int, threads: int) -> Program:
    rng = np.random.default_rng(0)
    problem = flash_attention.AttentionProblem(1, 2, 600, 64, "float16", right=0)
    config = flash_attention.AttentionConfig(block_q, 64, num_stages=2, threads=threads)
    arrays = [rng.standard_normal((1, 2, 600, 64)).astype(np.float16) for _ in range(3)]
    return flash_attention.flash_attention(problem, config), [*arrays, np.zeros_like(arrays[0])]


def _softmax(columns: int) -> Program:
    problem = softmax.SoftmaxProblem(5, columns, "float32")
    config = RowConfig(1, 256, 128)
    data = np.random.default_rng(0).standard_normal((5, columns)).astype(np.float32)
    return softmax.softmax(problem, config), [data, np.zeros_like(data)]


def _left_tiles(blocks: int, unequal: bool = False) -> Program:
    """Each step's product is left in shared memory, whence a warp of its own adds it to memory.

    Where blocks make `unequal` numbers of steps, they take their tiles from a counter.
    """

    @T.prim_func
    def left_tiles(
        A: T.Tensor((128, 64), "float16"),
        B: T.Tensor((192, 64), "float16"),
        Sums: T.Tensor((2, 4096), "float32"),
    ):
        with T.Kernel(blocks, threads=128) as block:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            left = T.alloc_shared((4096,), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(block % 3 + 1 if unequal else 3, num_stages=2):
                T.copy(A[block % 2 * 64, 0], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    left[i * 64 + j] = c[i, j]
                T.atomic_add(Sums[k % 2, 0:4096], left)

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float16) for s in ((128, 64), (192, 64))]
    return left_tiles, [*arrays, np.zeros((2, 4096), np.float32)]


def _own_barriers() -> Program:
    """Two halves of a block hand a tile to and fro by barriers that the author allocates."""

    @T.prim_func
    def own_barriers(A: T.Tensor((4, 64), "int32"), B: T.Tensor((4, 64), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64,), "int32")
            full, empty = T.alloc_barrier(64), T.alloc_barrier(64)
            lane = T.get_thread_binding()
            if lane < 64:
                for k in T.serial(4):
                    T.barrier_wait(empty, (k + 1) % 2)
                    s[lane] = A[k, lane]
                    T.barrier_arrive(full)
            else:
                for k in T.serial(4):
                    T.barrier_wait(full, k % 2)
                    B[k, lane - 64] = s[127 - lane]
                    T.barrier_arrive(empty)

    return own_barriers, [
        np.arange(256, dtype=np.int32).reshape(4, 64),
        np.zeros((4, 64), np.int32),
    ]


def _named_barriers() -> Program:
    """Half of a block meets by a number; the other half only arrives, and goes on."""

    @T.prim_func
    def named_barriers(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128,), "int32")
            lane = T.get_thread_binding()
            if lane < 128:
                T.named_barrier_sync(3, 256)
                B[lane] = s[127 - lane]
                T.sync_threads(4, 128)
                s[lane] = B[lane]
                T.sync_threads(4, 128)
                B[lane] = s[127 - lane]
            else:
                s[lane - 128] = A[lane - 128]
                T.named_barrier_arrive(3, 256)

    return named_barriers, [np.arange(128, dtype=np.int32), np.zeros(128, np.int32)]


def _warps_alone() -> Program:
    """The lanes of each warp read what its others wrote, under a condition that warps differ in."""

    @T.prim_func
    def warps_alone(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "int32")
            lane = T.get_thread_binding()
            if lane < 64:
                s[lane] = A[lane]
                T.sync_warp()
                B[lane] = s[lane // 32 * 32 + 31 - lane % 32]
                T.sync_warp()
                s[lane] = B[lane] + 1
                T.sync_warp()
                B[lane] = s[lane // 32 * 32 + (lane + 5) % 32]

    return warps_alone, [np.arange(128, dtype=np.int32), np.zeros(128, np.int32)]


PROGRAMS: dict[str, Callable[[], Program]] = {
    "gemm 64": lambda: _gemm(64, 128),
    "gemm 128": lambda: _gemm(128, 256),
    "gemm by registers": _gemm_by_registers,
    "attention": lambda: _attention(64, 128),
    "left tiles": lambda: _left_tiles(9),
    "taken tiles": lambda: _left_tiles(140, unequal=True),
    "softmax": lambda: _softmax(1000),
    "own barriers": _own_barriers,
    "named barriers": _named_barriers,
    "warps alone": _warps_alone,
}

DRAIN = "groups of copies after the loop are empty where the last iterations issue none"
HARMLESS: dict[tuple[str, str], dict[str, str]] = {
    ("cuda_ampere", "gemm 64"): {r"copy_async_wait<0>": DRAIN},
    ("cuda_ampere", "attention"): {
        r"copy_async_commit\(\)": "the copies are in the next group then, which is waited for, too",
        r"copy_async_wait<0>": "likewise",
    },
    ("rocm_cdna3", "gemm 128"): {
        r"tc::barrier": "after the last iteration, which stores nothing: paths are not told apart"
    },
    ("cuda_hopper", "taken tiles"): {
        r"warp_barrier": "the number is the same in all lanes by a function of the whole warp",
    },
    ("cuda_hopper", "attention"): {
        r"q_empty": "who waits for keys of a later tile has waited for the readers of its queries",
        r"tile_full|warp_barrier": "the queries' barrier orders the same",
    },
}

CASES = [
    pytest.param("cuda_ampere", "gemm 64"),
    pytest.param("cuda_ampere", "softmax"),
    pytest.param("cuda_ampere", "attention", marks=pytest.mark.slow),
    pytest.param("rocm_cdna3", "gemm 128"),
    pytest.param("rocm_cdna3", "softmax"),
    pytest.param("cuda_hopper", "gemm 128"),
    pytest.param("cuda_hopper", "gemm by registers"),
    pytest.param("cuda_hopper", "left tiles"),
    pytest.param("cuda_hopper", "taken tiles", marks=pytest.mark.slow),
    pytest.param("cuda_hopper", "attention", marks=pytest.mark.slow),
    *[
        pytest.param(backend, name)
        for name in ("own barriers", "named barriers", "warps alone")
        for backend in ("cuda_ampere", "cuda_hopper", "rocm_cdna3")
    ],
]


def _without(kernel: CompiledKernel, removed: re.Match[str]) -> CompiledKernel:
    """The kernel with one statement of its text left out."""
    lowered = kernel._lowered
    text = kernel.source[: removed.start()] + kernel.source[removed.end() :]
    source = dataclasses.replace(lowered.source, text=text)
    changed = dataclasses.replace(lowered, source=source)
    return _in_turn(emulated_kernel(changed, hooks_of(kernel.target.backend)))


def _in_turn(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel with its blocks run one after the other: which of them takes a tile that blocks
    ask for is the same in every run then, and so is what a missing wait does."""
    launcher = kernel.caller.launcher
    launcher.options = dataclasses.replace(launcher.options, workers=1)
    return kernel


@pytest.mark.parametrize(("backend", "name"), CASES)
def test_each_is_needed(backend: str, name: str) -> None:
    function, arrays = PROGRAMS[name]()
    kernel = _in_turn(tilecore.compile(function, backend=backend, device="emulator"))
    kernel(*arrays)
    harmless = HARMLESS.get((backend, name), {})
    unused = set(harmless)
    silent = []
    sites = list(STATEMENT.finditer(kernel.source))
    assert sites, "nothing synchronises"
    for site in sites:
        try:
            _without(kernel, site)(*arrays)
        except EmulatorFault:
            continue
        statement = site.group().strip()
        known = {pattern for pattern in harmless if re.search(pattern, statement)}
        unused -= known
        if not known:
            silent.append(statement)
    assert not silent, "could be removed and nothing was reported"
    assert not unused, "entries of HARMLESS that no longer apply"
