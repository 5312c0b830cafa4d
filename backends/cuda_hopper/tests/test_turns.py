"""Chained contractions by turns of two teams: taken where they can be, and never another result."""

# Annotations are values of the tile language here, so they are not postponed.

import re
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower
from tilecore_kernels.decode_problem import DecodeConfig
from tilecore_kernels.mla_decode import MLA_DECODE, latent_problem

ROWS, DIM, OUT, TILE = 64, 128, 128, 32
COLUMNS = T.GemmWarpPolicy.FullCol
HANDS_OVER = "handed_over"


def chained(tiles: int, begin: int, stages: int, kind: str = "running maximum") -> Any:
    """Out, Top = softmax weights against a running maximum, and that maximum.

    `kind` is what the loop carries from tile to tile, or what stands in the way of turns.
    """
    keys = (begin + tiles) * TILE

    @T.prim_func
    def chained(
        Q: T.Tensor((ROWS, DIM), "float16"),
        K: T.Tensor((keys, DIM), "float16"),
        Out: T.Tensor((ROWS, OUT), "float32"),
        Top: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(1, threads=256):
            q = T.alloc_shared((ROWS, DIM), "float16")
            k = T.alloc_shared((TILE, DIM), "float16")
            weights = T.alloc_shared((ROWS, TILE), "float16")
            scores = T.alloc_fragment((ROWS, TILE), "float32")
            places = T.alloc_fragment((ROWS, TILE), "float32")
            out = T.alloc_fragment((ROWS, OUT), "float32")
            peak = T.alloc_fragment((ROWS,), "float32")
            top = T.alloc_fragment((ROWS,), "float32")
            factor = T.alloc_fragment((ROWS,), "float32")
            T.copy(Q, q)
            T.clear(out)
            T.clear(top)
            T.clear(places)
            for step in T.Pipelined(begin, begin + tiles, num_stages=stages):
                T.copy(K[step * TILE, 0], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=COLUMNS)
                T.reduce_max(scores, peak, dim=1)
                for i in T.Parallel(ROWS):
                    factor[i] = T.exp2((top[i] - T.max(top[i], peak[i])) * 0.125)
                    top[i] = T.max(top[i], peak[i])
                for i, j in T.Parallel(ROWS, TILE):
                    scores[i, j] = T.exp2((scores[i, j] - top[i]) * 0.125)
                if kind == "the tile itself":
                    for i, j in T.Parallel(ROWS, TILE):
                        scores[i, j] = scores[i, j] * k[j, 0]
                if kind == "large":
                    for i, j in T.Parallel(ROWS, TILE):
                        places[i, j] = places[i, j] + scores[i, j]
                        scores[i, j] = places[i, j]
                for i, j in T.Parallel(ROWS, OUT):
                    out[i, j] = out[i, j] * factor[i]
                T.copy(scores, weights)
                if kind == "read again":
                    for i, j in T.Parallel(ROWS, TILE):
                        weights[i, j] = weights[i, j] * T.float16(0.5)
                T.gemm(weights, k[:, 0:OUT], out, policy=COLUMNS)
            T.copy(out, Out)
            T.copy(top, Top)

    return chained


def want(q: np.ndarray, k: np.ndarray, begin: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    out, top = np.zeros((ROWS, OUT)), np.zeros(ROWS)
    places = np.zeros((ROWS, TILE))
    for first in range(begin * TILE, len(k), TILE):
        tile = k[first : first + TILE].astype(np.float64)
        scores = q.astype(np.float64) @ tile.T
        new = np.maximum(top, scores.max(1))
        factor, top = np.exp2((top - new) * 0.125), new
        weights = np.exp2((scores - top[:, None]) * 0.125)
        if kind == "the tile itself":
            weights = weights * tile[None, :, 0]
        if kind == "large":
            places = places + weights
            weights = places
        if kind == "read again":
            weights = weights * 0.5
        out = out * factor[:, None] + weights @ tile[:, :OUT]
    return out, top


def check(tiles: int, begin: int, stages: int, kind: str = "running maximum") -> str:
    """Run in the emulator, compare, and answer the generated text."""
    rng = np.random.default_rng(tiles)
    q = rng.standard_normal((ROWS, DIM)).astype(np.float16)
    k = rng.standard_normal(((begin + tiles) * TILE, DIM)).astype(np.float16)
    program = chained(tiles, begin, stages, kind)
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    out, top = np.full((ROWS, OUT), np.nan, np.float32), np.full(ROWS, np.nan, np.float32)
    kernel(q, k, out, top)
    want_out, want_top = want(q, k, begin, kind)
    np.testing.assert_allclose(top, want_top, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(out, want_out, rtol=2e-3, atol=2e-3 * (1 + np.abs(want_out).max()))
    return lower(program, backend="cuda_hopper").source.text


@pytest.mark.parametrize("tiles", [1, 2, 3, 6])
@pytest.mark.parametrize("stages", [2, 3])
def test_any_number_of_tiles(tiles: int, stages: int) -> None:
    text = check(tiles, begin=0, stages=stages)
    assert (HANDS_OVER in text) == (tiles > 1)  # a single tile is no loop


@pytest.mark.parametrize("tiles", [2, 5])
def test_columns_of_the_shared_operand_stay_in_registers(tiles: int) -> None:
    """One read before the loop; a contraction of scores takes the rest from shared memory."""
    text = check(tiles, begin=0, stages=2)
    assert text.count("TC_FRAGMENT(tc::half, q_held") == 1
    assert "hopper::words(q_held" in text and "f32_f16, 32, ss" in text


def test_no_more_columns_are_held_than_registers_are_left() -> None:
    """Latent decoding: 42 registers are left, 64 columns take 16."""
    problem = latent_problem(2, 200)
    config = DecodeConfig(64, 64, 2, 256, 1, COLUMNS)
    text = lower(MLA_DECODE.program(problem, config), backend="cuda_hopper").source.text
    assert "TC_FRAGMENT(tc::half, q_held, 64)" in text


def test_held_columns_have_no_place_in_shared_memory() -> None:
    """They come from global memory; what is left makes room for a third slot of 48 keys."""
    config = DecodeConfig(64, 48, 3, 256, 1, COLUMNS)
    text = lower(MLA_DECODE.program(latent_problem(2, 200), config), backend="cuda_hopper").source
    assert "TC_FRAGMENT(tc::half, q_held, 96)" in text.text  # 192 of 576 columns
    assert re.search(rf"q_rest = tc::shared_buffer<tc::half>\(smem, \d+, {64 * 384}\)", text.text)
    assert re.search(r"tc::load_global<2>\(Q_in, Q \+", text.text)
    assert "q = tc::shared_buffer" not in text.text


def test_from_three_slots_on_both_teams_begin_with_scores() -> None:
    """Only then does the first team add the other's tile behind scores that are under way."""
    waits = [
        len(re.findall(r"wgmma_wait<1>", lower(chained(6, 0, stages), backend="cuda_hopper")
                       .source.text))
        for stages in (2, 3)
    ]  # fmt: skip
    assert waits == [1, 2]


@pytest.mark.parametrize("tiles", [2, 5])
def test_a_loop_that_begins_later(tiles: int) -> None:
    assert HANDS_OVER in check(tiles, begin=3, stages=2)


@pytest.mark.parametrize("kind", ["large", "read again", "the tile itself"])
def test_what_cannot_be_handed_over_stays_with_all_warps(kind: str) -> None:
    assert HANDS_OVER not in check(3, begin=0, stages=2, kind=kind)


def test_one_stage_runs_without_producers() -> None:
    assert HANDS_OVER not in check(2, begin=0, stages=1)


@pytest.mark.parametrize(
    ("lengths", "splits", "shares", "page", "tile", "stages", "heads"),
    [
        ((130, 0, 64), 1, 0, 0, 64, 2, 64),
        ((65, 1, 200), 3, 0, 0, 64, 2, 64),
        ((200, 0, 129), 9, 0, 64, 64, 2, 64),
        ((96, 31, 0), 2, 0, 32, 32, 2, 64),
        ((193, 0, 48), 1, 0, 0, 48, 3, 64),
        ((49, 200), 2, 0, 0, 48, 3, 96),
        ((49, 200, 0), 1, 4, 64, 64, 2, 64),
        ((200, 0, 60), 1, 3, 0, 48, 3, 96),
    ],
)
def test_latent_decoding(
    lengths: tuple[int, ...], splits: int, shares: int, page: int, tile: int, stages: int,
    heads: int,
) -> None:  # fmt: skip
    """Ragged lengths, rows without keys, more splits than tiles, pages, three slots, heads that
    fill no tile, even shares: results of some sequences, parts of others."""
    problem = latent_problem(len(lengths), 200, page_size=page, heads=heads)
    config = DecodeConfig(64, tile, stages, 256, splits, COLUMNS, shares)
    program = MLA_DECODE.program(problem, config)
    assert HANDS_OVER in lower(program, backend="cuda_hopper").source.text
    arguments = list(MLA_DECODE.inputs(problem, np.random.default_rng(0)))
    arguments[2] = np.array(lengths, np.int32)
    outs = [np.full(shape, np.nan, dtype) for shape, dtype in MLA_DECODE.outputs(problem)]
    tilecore.compile(program, backend="cuda_hopper", device="emulator")(*arguments, *outs)
    out, sums = MLA_DECODE.reference(problem, *arguments)
    np.testing.assert_allclose(outs[0], out, atol=2e-3)
    np.testing.assert_allclose(outs[1], sums, atol=1e-4)
