"""The last of two contractions runs under the next iteration's work: same bits, planned order."""

import importlib

import numpy as np
import pytest
from passes_support import context, kernel_of

import tilecore
import tilecore.language as T
from tilecore import driver
from tilecore.errors import EmulatorFault
from tilecore.ir.expr import const
from tilecore.ir.stmts import For, Gemm, If, Intrinsic
from tilecore.ir.visit import buffers_in, walk_stmts
from tilecore.passes import SCHEDULING_PASSES

schedule = importlib.import_module("tilecore.passes.roles.delayed_schedule")
overlap = importlib.import_module("tilecore_backend_cuda_hopper.overlap")

ROWS, KEYS, DIM = 64, 32, 32


def chained(
    steps: int,
    num_stages: int = 2,
    odd: frozenset[str] = frozenset(),
    keys: int = KEYS,
    groups: int = 1,
):
    """A loop of two gemms with work between; `odd` adds statements that ask for care.

    scale_first: the result is scaled before the scores are used.
    peek: the scores take in the result so far.
    weights_early: the weights are looked at before they are written.
    clear: the second gemm drops the old result in one iteration.
    after: something follows the second gemm.
    branch: part of the work is under a condition.

    `groups` warpgroups have 64 rows each.
    """
    rows = ROWS * groups

    @T.prim_func
    def program(
        Q: T.Tensor((rows, DIM), "float16"),
        K: T.Tensor((steps * keys, DIM), "float16"),
        V: T.Tensor((steps * keys, DIM), "float16"),
        Out: T.Tensor((rows, DIM), "float32"),
        R: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(1, threads=128 * groups) as _:
            q = T.alloc_shared((rows, DIM), "float16")
            k = T.alloc_shared((keys, DIM), "float16")
            v = T.alloc_shared((keys, DIM), "float16")
            s = T.alloc_fragment((rows, keys), "float32")
            w = T.alloc_fragment((rows, keys), "float16")
            o = T.alloc_fragment((rows, DIM), "float32")
            r = T.alloc_fragment((rows,), "float32")
            f = T.alloc_fragment((rows,), "float32")
            T.copy(Q, q)
            T.clear(o)
            T.clear(w)
            T.fill(r, 1.0)
            for step in T.Pipelined(steps, num_stages=num_stages):
                T.copy(K[step * keys, 0], k)
                T.copy(V[step * keys, 0], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                if "scale_first" in odd:
                    for i, j in T.Parallel(rows, DIM):
                        o[i, j] = o[i, j] * 0.75
                if "peek" in odd:
                    T.reduce_max(o, f, dim=1)
                    for i in T.Parallel(rows):
                        r[i] = r[i] + f[i] * 0.125
                if "weights_early" in odd:
                    for i, j in T.Parallel(rows, keys):
                        s[i, j] = s[i, j] + T.cast(w[i, j], "float32")
                if "branch" in odd:  # noqa: SIM102 - the outer condition is Python's
                    if step % 2 == 1:
                        for i, j in T.Parallel(rows, keys):
                            s[i, j] = T.if_then_else(i > j, s[i, j], 0.0)
                T.reduce_sum(s, f, dim=1)
                for i in T.Parallel(rows):
                    half = f[i] * 0.5
                    r[i] = r[i] * 0.5 + half
                for i, j in T.Parallel(rows, keys):
                    s[i, j] = s[i, j] * 0.25 + r[i] * 0.125
                for i, j in T.Parallel(rows, DIM):
                    o[i, j] = o[i, j] * 0.5
                T.copy(s, w)
                T.gemm(w, v, o, clear_accum=(step == 1) if "clear" in odd else False)
                if "after" in odd:
                    for i, j in T.Parallel(rows, DIM):
                        o[i, j] = o[i, j] + 1.0
            T.copy(o, Out)
            T.copy(r, R)

    return program


def plain(steps: int):
    """A float32 matrix product in a pipelined loop."""

    @T.prim_func
    def program(
        A: T.Tensor((64, steps * 32), "float32"),
        B: T.Tensor((steps * 32, 32), "float32"),
        C: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((64, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(steps, num_stages=2):
                T.copy(A[0, step * 32], a)
                T.copy(B[step * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return program


def scheduled(program):
    where = context("cuda_hopper", "sm_90a")
    result = program.program
    for one in SCHEDULING_PASSES:
        result = one(result, where)
    return kernel_of(result)


def is_delayed(program) -> bool:
    """True when a contraction runs on while other work is done."""
    body = scheduled(program).body
    return any(isinstance(s, Gemm) and dict(s.hints).get("asynchronous") for s in walk_stmts(body))


def outcome(program, steps: int, keys: int = KEYS, rows: int = ROWS):
    rng = np.random.default_rng(steps)
    q = rng.standard_normal((rows, DIM)).astype(np.float16)
    k, v = (rng.standard_normal((steps * keys, DIM)).astype(np.float16) for _ in range(2))
    o, r = np.full((rows, DIM), np.nan, np.float32), np.full(rows, np.nan, np.float32)
    tilecore.compile(program, backend="cuda_hopper", device="emulator")(q, k, v, o, r)
    return o, r, (q, k, v)


def expected(q, k, v, steps: int):
    """`chained` without odd statements, in float64."""
    o, r = np.zeros((len(q), DIM)), np.ones(len(q))
    for step in range(steps):
        at = slice(step * KEYS, (step + 1) * KEYS)
        s = q.astype(float) @ k[at].astype(float).T
        r = r * 0.5 + s.sum(1) * 0.5
        w = s * 0.25 + r[:, None] * 0.125
        o = o * 0.5 + w @ v[at].astype(float)
    return o, r


def word(stmt) -> str:
    match stmt:
        case Gemm(c=c):
            return f"gemm {c.buffer.name}"
        case Intrinsic(op="contraction.wait", args=(pending, *_)):
            return f"wait {pending.value}"
        case Intrinsic(op="barrier.wait", args=(region, _)):
            return f"full {region.buffer.name[0]}"
        case Intrinsic(op=op):
            return op
        case If(then=(Intrinsic(op="barrier.arrive", args=(region,)),)):
            return f"release {region.buffer.name[0]}"
        case If(then=(inner,)) if isinstance(inner, Intrinsic):
            return f"if {word(inner)}"
        case _:
            return "work"


def test_one_iteration_is_in_the_planned_order():
    loops = [s for s in walk_stmts(scheduled(chained(5)).body) if isinstance(s, For)]
    (steady,) = [s for s in loops if any(isinstance(t, Gemm) for t in s.body)]
    assert steady.start == const(1)
    words = [word(s) for s in steady.body]
    once = [w for k, w in enumerate(words) if w != "work" or words[k - 1] != "work"]
    assert once == [
        "gemm s", "full v", "gemm o", "wait 1", "release k", "work", "contraction.settle",
        "if full k", "wait 0", "release v", "work",
    ]  # fmt: skip


def test_three_warpgroups_scale_their_result_beside_the_next_scores():
    assert is_delayed(chained(5, odd=frozenset({"peek"}), groups=3))  # where it must stay
    body = scheduled(chained(5, groups=3)).body
    (steady,) = [s for s in walk_stmts(body) if isinstance(s, For) and s.start == const(1)]
    words = [word(s) for s in steady.body]
    assert words[:4] == ["gemm s", "full v", "work", "gemm o"]
    assert {b.name for b in buffers_in((steady.body[2],))} == {"o"}


@pytest.mark.parametrize("odd", ["", "scale_first", "peek", "weights_early"])
@pytest.mark.parametrize("steps", [1, 4])
def test_the_place_of_the_scaling_changes_no_bit(steps, odd, monkeypatch):
    flags, rows = frozenset(odd.split()), 3 * ROWS
    o, r, inputs = outcome(chained(steps, 2, flags, groups=3), steps, rows=rows)
    if not odd:
        right_o, _ = expected(*inputs, steps)
        np.testing.assert_allclose(o, right_o, rtol=2e-2, atol=2e-2 * abs(right_o).max())
    monkeypatch.setattr(overlap, "RESCALED_LATER", 4)
    monkeypatch.setattr(driver, "_memory", {})
    same_o, same_r, _ = outcome(chained(steps, 2, flags, groups=3), steps, rows=rows)
    np.testing.assert_array_equal(same_o, o)
    np.testing.assert_array_equal(same_r, r)


def test_the_producer_loads_in_the_order_of_use():
    body = scheduled(chained(5)).body
    loads = [s for s in walk_stmts(body) if isinstance(s, Intrinsic) and s.op == "bulk.load"]
    names = [s.args[0].buffer.name for s in loads if s.args[0].buffer.name != "Q"]
    assert names == ["K", "K", "V"]  # one ahead, then K of the next and V of this iteration


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_results_do_not_depend_on_the_schedule(steps):
    o, r, inputs = outcome(chained(steps, 1), steps)
    right_o, right_r = expected(*inputs, steps)
    np.testing.assert_allclose(o, right_o, rtol=2e-2, atol=2e-2 * max(1.0, abs(right_o).max()))
    np.testing.assert_allclose(r, right_r, rtol=1e-4, atol=1e-3)
    for num_stages in (2, 3):
        same_o, same_r, _ = outcome(chained(steps, num_stages), steps)
        np.testing.assert_array_equal(same_o, o)
        np.testing.assert_array_equal(same_r, r)


@pytest.mark.parametrize(
    ("odd", "delayed"),
    [
        ("", True), ("branch", True), ("scale_first", True), ("peek", True),
        ("weights_early", True), ("clear", False), ("after", False),
    ],
)  # fmt: skip
def test_what_depends_on_the_late_result_waits_for_it(odd, delayed):
    flags = frozenset(odd.split())
    program = chained(3, 2, flags)
    assert is_delayed(program) == delayed
    o, r, _ = outcome(chained(3, 1, flags), 3)
    same_o, same_r, _ = outcome(program, 3)
    np.testing.assert_array_equal(same_o, o)
    np.testing.assert_array_equal(same_r, r)


def walked(tiles: int, num_stages: int):
    """A triangle: tile number b of the rows makes b + 1 steps, less one for the first."""

    @T.prim_func
    def program(
        Q: T.Tensor((tiles * ROWS, DIM), "float16"),
        K: T.Tensor((tiles * KEYS, DIM), "float16"),
        Out: T.Tensor((tiles * ROWS, DIM), "float32"),
    ):
        with T.Kernel(tiles, threads=128) as bx:
            q = T.alloc_shared((ROWS, DIM), "float16")
            k = T.alloc_shared((KEYS, DIM), "float16")
            v = T.alloc_shared((KEYS, DIM), "float16")
            s = T.alloc_fragment((ROWS, KEYS), "float32")
            w = T.alloc_fragment((ROWS, KEYS), "float16")
            o = T.alloc_fragment((ROWS, DIM), "float32")
            T.copy(Q[bx * ROWS, 0], q)
            T.clear(o)
            for step in T.Pipelined(bx, num_stages=num_stages):
                T.copy(K[step * KEYS, 0], k)
                T.copy(K[step * KEYS, 0], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, w)
                T.gemm(w, v, o)
            T.copy(o, Out[bx * ROWS, 0])

    return program


def test_blocks_that_stay_take_unequal_tiles():
    tiles = 8  # of 3 emulated blocks: several rounds, the last one not full
    assert dict(scheduled(walked(tiles, 2)).hints).get("persistent")
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((tiles * n, DIM)).astype(np.float16) for n in (ROWS, KEYS))
    results = []
    for num_stages in (1, 2, 3):
        o = np.full((tiles * ROWS, DIM), np.nan, np.float32)
        tilecore.compile(walked(tiles, num_stages), backend="cuda_hopper", device="emulator")(
            q, k, o
        )
        results.append(o)
    assert not results[0][:ROWS].any()  # no step: zeros
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


def test_lanes_that_read_slots_themselves_release_them_together():
    """Without matrix atoms for float32, every lane reads shared memory at its own pace."""
    loops = [s for s in walk_stmts(scheduled(plain(5)).body) if isinstance(s, For)]
    (loop,) = [s for s in loops if any(isinstance(t, Gemm) for t in s.body)]
    words = [word(s) for s in loop.body]
    assert words[-2:] == ["sync_warp", "release a"]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 160), (160, 32)))
    c = np.full((64, 32), np.nan, np.float32)
    tilecore.compile(plain(5), backend="cuda_hopper", device="emulator")(a, b, c)
    np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def test_a_plan_that_registers_do_not_hold_is_not_made():
    assert is_delayed(chained(3, keys=128))
    assert not is_delayed(chained(3, keys=512))


def test_without_its_wait_the_schedule_is_found_out(monkeypatch):
    wait = schedule.wait_for

    def too_early(pending, gemm, with_a=False):
        return wait(1 if pending == 0 else 2, gemm, with_a)

    monkeypatch.setattr(schedule, "wait_for", too_early)
    # Kernels that were compiled with the right waits are not what is asked about, nor the reverse.
    monkeypatch.setattr(driver, "_memory", {})
    with pytest.raises(EmulatorFault):
        outcome(chained(3), 3)
