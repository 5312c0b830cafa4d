"""Attention over packed sequences in the emulator: blocks that stay on grids known at launch."""

from __future__ import annotations

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import lower
from tilecore_kernels.attention_problem import AttentionConfig
from tilecore_kernels.flash_varlen import FLASH_VARLEN
from tilecore_kernels.varlen_problem import VarlenProblem, inputs, reference

LENGTHS = ((300, 300), (0, 9), (65, 200), (400, 390), (5, 5))
SLOW = pytest.mark.slow
CONFIGS = ((192, 80, 3, 384), (128, 64, 2, 256))


def problem_of(right: int | None) -> VarlenProblem:
    return VarlenProblem(2, 64, 400, kv_heads=1, right=right, lengths=LENGTHS)


@pytest.mark.parametrize("right", [0, None])
@pytest.mark.parametrize("config", CONFIGS)
def test_packed_sequences_equal_float64(
    config: tuple[int, int, int, int], right: int | None
) -> None:
    """Also where rows before the first sequence and behind the last belong to none."""
    problem = problem_of(right)
    program = FLASH_VARLEN.program(problem, AttentionConfig(*config))
    assert "hopper::take_tile(" in lower(program, backend="cuda_hopper").source.text
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, k, v, starts_q, starts_k = inputs(problem, np.random.default_rng(0))
    front, back = 210, 500
    wide_q = np.concatenate([q[:1].repeat(front, 0), q, q[:1].repeat(back, 0)])
    got = [np.full(wide_q.shape, np.nan, q.dtype), np.full((2, len(wide_q)), np.nan, np.float32)]
    kernel(wide_q, k, v, starts_q + np.int32(front), starts_k, *got)
    out, lse = reference(problem, q, k, v, starts_q, starts_k)
    own = slice(front, front + len(q))
    np.testing.assert_allclose(got[0][own].astype(np.float64), out, rtol=2e-3, atol=2e-3)
    finite = np.isfinite(lse)
    np.testing.assert_array_equal(np.isneginf(got[1][:, own]), ~finite)
    np.testing.assert_allclose(got[1][:, own][finite], lse[finite], rtol=1e-4, atol=1e-3)
    for outside in (slice(0, front), slice(own.stop, None)):
        assert np.isnan(got[0][outside]).all() and np.isnan(got[1][:, outside]).all()


@pytest.mark.parametrize("order", ["rows first", "batch second", "batch last"])
@pytest.mark.parametrize("causal", [False, True])
def test_any_axis_may_be_known_at_launch_only(order: str, causal: bool) -> None:
    """Every place of a grid is visited once, whichever of its extents are dynamic."""
    heads, dim, tile = 3, 64, 64
    batch, length = T.dynamic("batch, length")
    type_ = T.Tensor((batch, heads, length, dim), "float16")
    rows = T.ceildiv(length, tile)
    grid = (rows, heads, batch) if order != "batch second" else (rows, batch, heads)
    if order == "rows first":
        grid = (rows, batch * heads)  # type: ignore[assignment]

    @T.prim_func
    def attention(Q: type_, K: type_, V: type_, Out: type_):  # type: ignore[valid-type]
        with T.Kernel(*grid, threads=128) as places:
            q = T.alloc_shared((tile, dim), "float16")
            k = T.alloc_shared((tile, dim), "float16")
            v = T.alloc_shared((tile, dim), "float16")
            scores = T.alloc_fragment((tile, tile), "float32")
            weights = T.alloc_fragment((tile, tile), "float16")
            out = T.alloc_fragment((tile, dim), "float32")
            if order == "rows first":
                head, b = places[1] % heads, places[1] // heads
            elif order == "batch second":
                head, b = places[2], places[1]
            else:
                head, b = places[1], places[2]
            first = places[0] * tile
            T.copy(Q[b, head, first : first + tile, 0:dim], q)
            T.clear(out)
            steps = places[0] + 1 if causal else T.ceildiv(length, tile)
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(K[b, head, step * tile : step * tile + tile, 0:dim], k)
                T.copy(V[b, head, step * tile : step * tile + tile, 0:dim], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            T.copy(out, Out[b, head, first : first + tile, 0:dim])

    text = lower(attention, backend="cuda_hopper").source.text
    assert ("hopper::take_tile(" if causal else "round_loaded") in text
    kernel = tilecore.compile(attention, backend="cuda_hopper", device="emulator")
    rng = np.random.default_rng(0)
    shape = (5, heads, 192, dim)
    q, k, v = (rng.integers(-1, 2, shape).astype(np.float16) for _ in range(3))
    got = np.full(shape, np.nan, np.float16)
    kernel(q, k, v, got)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3)
    if causal:
        at = np.arange(192) // tile
        scores *= at[:, None] >= at[None, :]
    want = scores @ v.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=0.5)


def lengths_of(seed: int) -> tuple[tuple[int, int], ...]:
    """Sequences as a seed draws them: many short ones, some long, some without queries or keys."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    drawn = rng.integers(0, (280, 330), (count, 2)) * rng.integers(0, 2, (count, 2))
    whole = rng.integers(0, 3, count) == 0  # whole tiles leave as copies
    return tuple((384 if w else int(q), int(k)) for (q, k), w in zip(drawn, whole, strict=True))


def check_lengths(
    lengths: tuple[tuple[int, int], ...],
    config: tuple[int, int, int, int],
    right: int | None,
) -> str:
    """Compare with float64; answers the text of the kernels."""
    problem = VarlenProblem(2, 64, 400, kv_heads=1, right=right, lengths=lengths)
    program = FLASH_VARLEN.program(problem, AttentionConfig(*config))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, *rest = inputs(problem, np.random.default_rng(0))
    got = [np.full(q.shape, np.nan, q.dtype), np.full((2, len(q)), np.nan, np.float32)]
    kernel(q, *rest, *got)
    out, lse = reference(problem, q, *rest)
    np.testing.assert_allclose(got[0].astype(np.float64), out, rtol=2e-3, atol=2e-3)
    finite = np.isfinite(lse)
    np.testing.assert_array_equal(np.isneginf(got[1]), ~finite)
    np.testing.assert_allclose(got[1][finite], lse[finite], rtol=1e-4, atol=1e-3)
    return str(kernel.source)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=SLOW) for n in range(4, 40))])
def test_roles_agree_on_listed_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No role waits for a tile, a step or a slot that another one does not give.

    The emulator reports whoever would wait for ever, in an order of warps that the seed draws. Why
    none can, whatever the lengths:

    - Number of tiles. Producer and consumers walk while ``tile < places * heads``, an expression of
      launch parameters alone. The producer asks for the next tile once in every round and hands
      the answer over through two slots; consumers take it in the same round. So all see the same
      tiles, and the same number of them, also where there are fewer tiles than blocks: a block
      whose first tile does not exist does nothing on either side.
    - The counter. Tiles in range are each worked on once, and asked after once: ``places * heads``
      questions a launch, with which it is at zero again.
    - Number of steps. Both sides compute it with the same expression of the six numbers of a listed
      tile, which no kernel writes while this one reads: the listing kernel has ended, and its
      writes are seen, at `wait_for_earlier`, which every lane passes before roles part. Numbers
      that make no sense give no steps, on both sides.
    - Every place is written. Tiles of sequences fill the list from its front, each place by the one
      block that counted what is before it; places behind the last tile get zeros, whose tile has no
      rows: the producer loads Q's slot once, as for every tile, and consumers let it go.
    - Slots of keys and values count on over all tiles by the same sum of steps on both sides.
    - The store. Whether it is one copy depends on the tile alone, so that all lanes of a group meet
      at the group's two barriers or none does; without order between tiles no barrier is left
      that groups would have to reach together. What a group's copy engine still reads is waited for
      by the lane that started it, before its group fills the staging again.
    """
    monkeypatch.setenv("TILECORE_EMULATOR_SEED", str(seed))
    config = CONFIGS[seed % 2]
    right = (0, None, 3)[seed % 3]
    text = check_lengths(lengths_of(seed), config, right)
    listed, attention = text.split("TC_KERNEL(")[1:]
    assert "hopper::take_tile(" in attention and "hopper::store_tile<" in attention
    assert "wait_for_earlier()" in listed.split("load_global")[0]
    assert "wait_for_earlier()" in attention.split("// producers")[0]
    assert "load_global" not in attention.split("wait_for_earlier()")[0]


@pytest.mark.parametrize(
    "lengths",
    [
        ((0, 0),) * 3, ((0, 9), (0, 0)), ((300, 0), (5, 0)), ((384, 384),), ((1, 1),),
        ((0, 0),) * 150 + ((200, 300), (0, 4), (192, 80)),
        pytest.param(((1, 2), (0, 1), (2, 0), (0, 0)) * 250, marks=SLOW),
    ],
    ids=["empty", "no queries", "no keys", "one", "one row", "153", "1000"],
)  # fmt: skip
def test_lists_of_few_and_of_many_sequences(lengths: tuple[tuple[int, int], ...]) -> None:
    """More places than tiles, fewer tiles than blocks, more sequences than one round counts."""
    check_lengths(lengths, CONFIGS[0], 0)


@pytest.mark.parametrize("config", CONFIGS)
def test_groups_do_not_meet_at_the_end_of_a_tile(config: tuple[int, int, int, int]) -> None:
    """No tile's rows are another one's: a group stores, and begins the next tile, by itself."""
    program = FLASH_VARLEN.program(problem_of(0), AttentionConfig(*config))
    _, attention = lower(program, backend="cuda_hopper").source.text.split("TC_KERNEL(")[1:]
    consumers = attention.split("// consumers")[1]
    assert "store_tile<" in consumers
    assert f"named_barrier(1, {2 * config[0]})" not in consumers


def test_nothing_to_write_is_not_launched() -> None:
    """Copies would ask for rows of a tensor that has none, and so no map."""
    problem = VarlenProblem(2, 64, 400, kv_heads=1, right=0, lengths=((0, 9), (0, 0)))
    program = FLASH_VARLEN.program(problem, AttentionConfig(*CONFIGS[0]))
    kernel = tilecore.compile(program, backend="cuda_hopper", device="emulator")
    q, *rest = inputs(problem, np.random.default_rng(0))
    kernel(q, *rest, np.empty_like(q), np.empty((2, 0), np.float32))
