"""Even shares of a batch's keys: the list itself, and decoding whichever way keys are divided."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore
import tilecore.language as T
from tilecore.language import GemmWarpPolicy
from tilecore.targets import choose_target
from tilecore_kernels import FAMILIES
from tilecore_kernels.decode_pieces import list_pieces
from tilecore_kernels.decode_problem import DecodeConfig, DecodeProblem
from tilecore_kernels.decode_shares import (
    PART_WORDS,
    PIECE_WORDS,
    SHARE_WORDS,
    list_shares,
    places_of,
)
from tilecore_kernels.tiles import ceildiv

Lengths = tuple[int, ...]
LANES = ("cuda_hopper", "cuda_ampere", "rocm_cdna3")
TILE, CAPACITY = 16, 5000
BATCHES = (1, 3, 140)
EDGES: tuple[Lengths, ...] = (
    (0, 0, 0), (1, 1, 1), (CAPACITY, 0, 1), (CAPACITY,) * 3, (-4, 3 * CAPACITY, 17),
)  # fmt: skip


@functools.cache
def listing(batch: int, shares: int, backend: str, device: str = "native") -> Any:
    """The listing kernel alone, with what it writes as outputs."""
    problem = DecodeProblem(batch, 1, CAPACITY, 16)
    places = places_of(problem, DecodeConfig(16, TILE, 1, 128, 1, num_shares=shares))

    @T.prim_func
    def program(
        Lengths: T.Tensor((batch,), "int32"),
        Pieces: T.Tensor((places, PIECE_WORDS), "int32"),
        Shares: T.Tensor((shares, SHARE_WORDS), "int32"),
        PartsOf: T.Tensor((batch, PART_WORDS), "int32"),
    ):  # fmt: skip
        list_shares(problem, Lengths, Pieces, Shares, PartsOf, TILE)

    return tilecore.compile(program, backend=backend, device=device)


def expected(lengths: Lengths, shares: int, places: int) -> tuple[np.ndarray, ...]:
    """Pieces, shares and parts, one tile after the other; -1 where nothing is written."""
    limits = [min(max(n, 0), CAPACITY) for n in lengths]
    tiles = [ceildiv(n, TILE) for n in limits]
    most = max(1, ceildiv(sum(tiles), shares))
    pieces = np.full((places, PIECE_WORDS), -1, np.int32)
    runs = np.zeros((shares, SHARE_WORDS), np.int32)
    parts = np.zeros((len(lengths), PART_WORDS), np.int32)
    rank = step = 0
    for b, count in enumerate(tiles):
        own = sorted({(step + tile) // most for tile in range(count)})
        for share in own:
            begin, end = max(0, share * most - step), min(count, (share + 1) * most - step)
            place = rank + share
            assert (pieces[place] == -1).all(), "two pieces at one place"
            pieces[place] = b, begin, end, limits[b], len(own)
            if not runs[share].any():
                runs[share, 0] = place
            runs[share, 1] = place + 1
        parts[b] = (rank + own[0] if own else 0), len(own)
        rank, step = rank + (count > 0), step + count
    sizes = [int((pieces[a:z, 2] - pieces[a:z, 1]).sum()) for a, z in runs]
    assert sum(sizes) == sum(tiles) and max(sizes) <= most
    return pieces, runs, parts


def check_list(lengths: Lengths, shares: int, backend: str, device: str) -> None:
    wanted = expected(lengths, shares, shares + len(lengths) - 1)
    got = [np.full(x.shape, -1, np.int32) for x in wanted]
    listing(len(lengths), shares, backend, device)(np.array(lengths, np.int32), *got)
    has_keys = wanted[2][:, 1] > 0
    for one, other in zip(got[:2], wanted[:2], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(got[2][has_keys], wanted[2][has_keys])
    assert not got[2][~has_keys, 1].any()


LENGTH = st.one_of(st.integers(0, 3), st.integers(0, CAPACITY), st.sampled_from((16, 512)))
LISTS = st.sampled_from(BATCHES).flatmap(lambda n: st.tuples(*[LENGTH] * n))


@given(LISTS, st.sampled_from((1, 4, 33)))
@settings(max_examples=40, deadline=None)
def test_the_list_holds_every_tile_once_in_even_shares(lengths: Lengths, shares: int) -> None:
    """Bit by bit what a walk over all tiles gives: no order of blocks or lanes enters."""
    check_list(lengths, shares, "cpu_llvm", "native")


@pytest.mark.parametrize("backend", LANES)
def test_the_list_is_the_same_on_lanes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of lanes; the emulator reports two lanes that write one place."""
    for seed in range(2):
        monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
        listing.cache_clear()
        rng = np.random.default_rng(seed)
        many = tuple(int(n) for n in rng.integers(0, 900, 140))
        for lengths in (many, *EDGES):
            check_list(lengths, 7 + seed, backend, "emulator")


@functools.cache
def listing_pieces(batch: int, count: int, backend: str, device: str = "native") -> Any:
    """The kernel that lists pieces alone, with what it writes as outputs."""
    problem = DecodeProblem(batch, 1, CAPACITY, 16)
    places = places_of(problem, DecodeConfig(16, TILE, 1, 128, 1, num_shares=count))

    @T.prim_func
    def program(
        Lengths: T.Tensor((batch,), "int32"),
        Pieces: T.Tensor((places, PIECE_WORDS), "int32"),
        PartsOf: T.Tensor((batch, PART_WORDS), "int32"),
    ):  # fmt: skip
        list_pieces(problem, Lengths, Pieces, PartsOf, TILE, count)

    return tilecore.compile(program, backend=backend, device=device)


def expected_pieces(lengths: Lengths, count: int, places: int) -> tuple[np.ndarray, np.ndarray]:
    """Pieces and parts, one sequence after the other."""
    limits = [min(max(n, 0), CAPACITY) for n in lengths]
    tiles = [ceildiv(n, TILE) for n in limits]
    most = max(1, ceildiv(sum(tiles), count))
    parts = [ceildiv(n, most) for n in tiles]
    sizes = [ceildiv(n, max(1, own)) for n, own in zip(tiles, parts, strict=True)]
    listed: list[tuple[int, ...]] = []
    ranges = np.zeros((len(lengths), PART_WORDS), np.int32)
    for b in sorted(range(len(lengths)), key=lambda b: (-sizes[b], b)):
        ranges[b] = len(listed), parts[b]
        for k in range(parts[b]):
            begin, end = k * tiles[b] // parts[b], (k + 1) * tiles[b] // parts[b]
            assert 0 < end - begin <= most
            listed.append((b, begin, end, limits[b], parts[b]))
    wanted = np.zeros((places, PIECE_WORDS), np.int32)
    wanted[: len(listed)] = np.array(listed, np.int32).reshape(-1, PIECE_WORDS)
    return wanted, ranges


@pytest.mark.parametrize("backend", ["cpu_llvm", *LANES])
def test_pieces_are_listed_once_the_largest_first(backend: str) -> None:
    device = "native" if backend == "cpu_llvm" else "emulator"
    rng = np.random.default_rng(3)
    many = tuple(int(n) for n in rng.integers(0, 900, 140))
    for count, lengths in ((1, many), (40, many), *((7, edge) for edge in EDGES)):
        wanted = expected_pieces(lengths, count, count + len(lengths) - 1)
        got = [np.full(x.shape, -1, np.int32) for x in wanted]
        listing_pieces(len(lengths), count, backend, device)(np.array(lengths, np.int32), *got)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@functools.cache
def decoding(name: str, shares: int, backend: str, page_size: int) -> tuple[DecodeProblem, Any]:
    """A kernel for three sequences of up to 200 keys."""
    problem = DecodeProblem(3, 4, 200, 32, kv_heads=2, page_size=page_size)
    if name == "mla_decode":
        problem = DecodeProblem(3, 4, 200, 48, kv_heads=1, dim_v=32, page_size=page_size)
    device = "native" if backend == "cpu_llvm" else "emulator"
    config = DecodeConfig(16, 32, 2, 128, 2, GemmWarpPolicy.FullCol, shares)
    program = FAMILIES[name].program(problem, config)
    return problem, tilecore.compile(program, backend=backend, device=device)


def decoded(
    name: str, lengths: Lengths, shares: int, backend: str, page_size: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """O and the log-sum-exp of three sequences, compared with the reference."""
    family = FAMILIES[name]
    problem, kernel = decoding(name, shares, backend, page_size)
    arrays = family.inputs(problem, np.random.default_rng(0))
    next(a for a in arrays if a.shape == (3,))[:] = lengths
    got = tuple(np.full(shape, np.nan, dtype) for shape, dtype in family.outputs(problem))
    kernel(*arrays, *got)
    out, sums = family.reference(problem, *arrays)
    np.testing.assert_allclose(got[0].astype(np.float64), out, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(np.isneginf(got[1]), np.isneginf(sums))
    seen = np.isfinite(sums)
    np.testing.assert_allclose(got[1][seen], sums[seen], rtol=1e-4, atol=1e-3)
    return got[0], got[1]


KEYS = st.one_of(st.sampled_from((0, 1, 32, 200)), st.integers(0, 200))


WAYS = (
    ("flash_decode", 1, 0), ("flash_decode", 3, 16), ("flash_decode", 8, 64),
    ("flash_decode", 70, 0), ("mla_decode", 3, 0), ("mla_decode", 8, 16),
)  # fmt: skip
"""Kernel, shares, page size."""


@given(st.sampled_from(WAYS), st.tuples(KEYS, KEYS, KEYS))
@settings(max_examples=40, deadline=None)
def test_any_number_of_shares_equals_float64(way: tuple[str, int, int], lengths: Lengths) -> None:
    name, shares, page_size = way
    decoded(name, lengths, shares, "cpu_llvm", page_size)


@pytest.mark.parametrize("backend", LANES)
@pytest.mark.parametrize("name", ["flash_decode", "mla_decode"])
def test_shares_on_lanes(name: str, backend: str) -> None:
    """One kernel for all lengths: nothing of one call stays for the next."""
    for lengths in ((200, 1, 0), (0, 0, 0), (200, 200, 200), (33, 0, 170)):
        decoded(name, lengths, 4, backend, 16 if backend == "cuda_hopper" else 0)


def test_batches_are_divided_in_even_shares_first() -> None:
    """Lengths are not known at a launch; a single sequence needs no list."""
    target = choose_target("cuda_hopper")
    family = FAMILIES["flash_decode"]
    problem = DecodeProblem(64, 32, 8192, 128, kv_heads=8)
    assert family.configs(problem, target)[0] == DecodeConfig(
        16, 64, 3, 128, 1, GemmWarpPolicy.FullCol, 33
    )
    for other in (replace(problem, batch=1), replace(problem, kv_len=512)):
        assert family.configs(other, target)[0].num_shares == 0
    latent = FAMILIES["mla_decode"]
    found = latent.configs(latent.problems[0], target)
    assert found[0].num_shares == 0 and any(c.num_shares for c in found)
