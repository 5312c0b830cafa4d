"""The tiles of packed sequences: the list itself, and attention of whatever they hold."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore
import tilecore.language as T
from tilecore_kernels.attention_problem import AttentionConfig
from tilecore_kernels.flash_varlen import FLASH_VARLEN, flash_varlen
from tilecore_kernels.tiles import ceildiv
from tilecore_kernels.varlen_problem import VarlenProblem, inputs, reference
from tilecore_kernels.varlen_tiles import WORDS, list_tiles, number_tiles

Lengths = tuple[tuple[int, int], ...]
TILE_Q, MAX_Q = 16, 5000
LANES = ("cuda_hopper", "cuda_ampere", "rocm_cdna3")
UNEQUAL: Lengths = ((100, 100), (0, 9), (65, 130), (33, 0), (0, 0), (1, 1), (64, 64))
EDGES: dict[str, Lengths] = {
    "no sequence": (),
    "all empty": ((0, 0), (0, 0), (0, 0)),
    "no queries": ((0, 7), (0, 300)),
    "no keys": ((70, 0), (5, 0)),
    "one sequence": ((130, 130),),
    "one row": ((1, 1),),
    "whole tiles": ((64, 64), (128, 128), (64, 64)),
    "as many tiles as places": ((1, 1),) * 9,
    "more sequences than are counted at once": ((0, 0),) * 130 + ((70, 70), (0, 3), (1, 200)),
}


@functools.cache
def listing(from_end: bool | None, backend: str, device: str = "native") -> Any:
    """The listing kernel alone, with the list as its output; None is the one that numbers."""
    batch, places = T.dynamic("batch, places")

    @T.prim_func
    def program(
        StartsQ: T.Tensor((batch + 1,), "int32"), StartsK: T.Tensor((batch + 1,), "int32"),
        Tiles: T.Tensor((places, WORDS), "int32"),
    ):  # fmt: skip
        if from_end is None:
            number_tiles(StartsQ, StartsK, Tiles, TILE_Q)
        else:
            list_tiles(StartsQ, StartsK, Tiles, TILE_Q, MAX_Q, from_end)

    return tilecore.compile(program, backend=backend, device=device)


def starts_of(lengths: Lengths, front: int = 0) -> np.ndarray:
    """Starts of queries and of keys, (2, batch + 1); `front` rows belong to no sequence."""
    starts = np.full((2, len(lengths) + 1), front, np.int32)
    starts[:, 1:] += np.cumsum(np.array(lengths, np.int32).reshape(-1, 2), axis=0).T
    return starts


def expected(lengths: Lengths, starts: np.ndarray, from_end: bool, places: int) -> np.ndarray:
    """The list, one tile after the other."""
    found = []
    for b in sorted(range(len(lengths)), key=lambda b: (-lengths[b][1], b)):
        queries, keys = lengths[b]
        last = range(queries - TILE_Q, -TILE_Q, -TILE_Q)
        for first in last if from_end else range(0, queries, TILE_Q):
            found.append((b, first, starts[0, b], queries, starts[1, b], keys))
    wanted = np.zeros((places, WORDS), np.int32)
    wanted[:, 1] = -TILE_Q * from_end
    wanted[: len(found)] = np.array(found, np.int32).reshape(-1, WORDS)
    return wanted


def check_list(lengths: Lengths, from_end: bool, front: int, backend: str, device: str) -> None:
    starts = starts_of(lengths, front)
    total = int(starts[0, -1]) + 3
    most = min(total // TILE_Q + len(lengths), ceildiv(MAX_Q, TILE_Q) * len(lengths), total)
    # More tiles than places would fail here.
    wanted = expected(lengths, starts, from_end, most)
    got = np.full(wanted.shape, -1, np.int32)
    listing(from_end, backend, device)(starts[0].copy(), starts[1].copy(), got)
    np.testing.assert_array_equal(got, wanted)
    check_numbers(starts, total // TILE_Q + len(lengths) + 1, backend, device)


def check_numbers(starts: np.ndarray, places: int, backend: str, device: str) -> None:
    """Every number is written; a sequence's tiles have those that whoever knows it computes."""
    got = np.full((places, WORDS), -1, np.int32)
    listing(None, backend, device)(starts[0].copy(), starts[1].copy(), got)
    starts = np.concatenate([starts, starts[:, -1:]], axis=1)
    lengths = np.diff(starts)
    seen = set()
    for number, (b, first, *rest) in enumerate(got.tolist()):
        assert rest == [starts[0, b], lengths[0, b], starts[1, b], lengths[1, b]]
        if 0 <= first < lengths[0, b]:
            assert number == starts[0, b] // TILE_Q + b + first // TILE_Q
            seen.add((b, first))
    assert seen == {(b, n) for b, q in enumerate(lengths[0]) for n in range(0, q, TILE_Q)}


LENGTH = st.one_of(st.integers(0, 3), st.integers(0, 200), st.sampled_from((16, 32, 2100)))
LISTS = st.lists(st.tuples(LENGTH, LENGTH), max_size=300).map(tuple)


@given(LISTS, st.booleans(), st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_the_list_holds_every_tile_once_longest_first(
    lengths: Lengths, causal: bool, front: int
) -> None:
    """Bit by bit what a walk over sorted sequences gives: no order of blocks or lanes enters."""
    check_list(lengths, causal, front, "cpu_llvm", "native")


@pytest.mark.parametrize("backend", LANES)
@pytest.mark.parametrize("seed", range(3))
def test_the_list_is_the_same_on_lanes(
    backend: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order of lanes; the emulator reports two lanes that write one place."""
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    listing.cache_clear()
    rng = np.random.default_rng(seed)
    drawn = tuple((int(q), int(k)) for q, k in rng.integers(0, 90, (40, 2)))
    for lengths in (drawn, *EDGES.values()):
        check_list(lengths, bool(seed % 2), 5 * seed, backend, "emulator")


@dataclass(frozen=True, slots=True)
class Mask:
    """What a kernel is compiled for, but for its lengths: all that is not read on the device."""

    left: int | None = None
    right: int | None = None
    kv_heads: int = 1
    page_size: int = 0

    def of(self, lengths: Lengths) -> VarlenProblem:
        """The problem of these lengths: two heads, 200 queries and 300 keys at most."""
        pages = ceildiv(300, self.page_size) if self.page_size else 0
        return VarlenProblem(
            2, 32, 200, kv_heads=self.kv_heads, left=self.left, right=self.right,
            page_size=self.page_size, max_pages=pages, lengths=lengths,
        )  # fmt: skip


CAUSAL, FULL = Mask(right=0), Mask()
MASKS = (
    CAUSAL, FULL, Mask(left=20, right=0, kv_heads=2), Mask(left=40, right=9), Mask(right=5),
    Mask(right=0, page_size=32), Mask(left=70, page_size=16, kv_heads=2),
)  # fmt: skip


@functools.cache
def attention(mask: Mask, backend: str) -> Any:
    """One kernel for all lengths; with key tiles that divide query tiles, and others."""
    device = "native" if backend == "cpu_llvm" else "emulator"
    keys = 32 if MASKS.index(mask) % 2 else 48
    program = flash_varlen(mask.of(()), AttentionConfig(64, keys, 2, 128))
    return tilecore.compile(program, backend=backend, device=device)


def check_attention(lengths: Lengths, mask: Mask, backend: str) -> None:
    problem = mask.of(lengths)
    arrays = inputs(problem, np.random.default_rng(0))
    rows = len(arrays[0])
    got = (np.full((rows, 2, 32), np.nan, np.float16), np.full((2, rows), np.nan, np.float32))
    attention(mask, backend)(*arrays, *got)
    out, sums = reference(problem, *arrays)
    np.testing.assert_allclose(got[0].astype(np.float64), out, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(np.isneginf(got[1]), np.isneginf(sums))
    seen = np.isfinite(sums)
    np.testing.assert_allclose(got[1][seen], sums[seen], rtol=1e-4, atol=1e-3)


PAIR = st.tuples(st.one_of(st.integers(0, 200), st.sampled_from((0, 64, 128))), st.integers(0, 290))


@given(st.lists(PAIR, max_size=9).map(tuple), st.sampled_from(MASKS))
@settings(max_examples=60, deadline=None)
def test_any_lengths_equal_float64(lengths: Lengths, mask: Mask) -> None:
    check_attention(lengths, mask, "cpu_llvm")


@pytest.mark.parametrize("name", EDGES)
def test_edges_equal_float64(name: str) -> None:
    for mask in MASKS:
        check_attention(EDGES[name], mask, "cpu_llvm")


@pytest.mark.parametrize("mask", (CAUSAL, MASKS[2], MASKS[-1]))
@pytest.mark.parametrize("backend", LANES)
def test_masks_on_lanes(backend: str, mask: Mask) -> None:
    check_attention(UNEQUAL, mask, backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", LANES)
@pytest.mark.parametrize("mask", MASKS)
def test_edges_and_random_lengths_on_lanes(backend: str, mask: Mask) -> None:
    rng = np.random.default_rng(MASKS.index(mask))
    drawn = rng.integers(0, 200, (12, 6, 2)) * rng.integers(0, 2, (12, 6, 2))
    for lengths in (*EDGES.values(), *(tuple((int(q), int(k)) for q, k in one) for one in drawn)):
        check_attention(lengths, mask, backend)


def test_thousands_of_short_sequences() -> None:
    check_attention(((3, 5), (0, 1), (1, 0), (2, 2)) * 600, CAUSAL, "cpu_llvm")


def test_starts_may_change_between_calls() -> None:
    """The list is written by each launch: the same tensors, other lengths in them."""
    problem = CAUSAL.of(UNEQUAL)
    q, k, v, starts_q, starts_k = inputs(problem, np.random.default_rng(0))
    got = np.full(q.shape, np.nan, q.dtype), np.full((2, len(q)), np.nan, np.float32)
    kernel = attention(CAUSAL, "cpu_llvm")
    for turned in (UNEQUAL, UNEQUAL[::-1]):
        starts_q[:], starts_k[:] = starts_of(turned)
        kernel(q, k, v, starts_q, starts_k, *got)
        out, _ = reference(replace(problem, lengths=turned), q, k, v, starts_q, starts_k)
        np.testing.assert_allclose(got[0].astype(np.float64), out, rtol=2e-3, atol=2e-3)


def test_a_packed_sequence_has_the_tiles_of_one_alone() -> None:
    """Those that were measured, on every kind of target."""
    from tilecore.targets import choose_target

    first = FLASH_VARLEN.configs(
        VarlenProblem(16, 128, 8192, right=0), choose_target("cuda_hopper")
    )[0]
    assert first == AttentionConfig(192, 80, 3, 384)
