"""Each planted fault is reported, whatever the order of lanes: eight seeds."""

from __future__ import annotations

import numpy as np
import pytest

SEEDS = range(8)

REVERSE = """
TC_KERNEL(128, 1) k(const float* A, float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 128);
  const int i = tc::lane_in_block();
  TC_LINE(10);
  tc::store_shared(S + i, tc::load_global(A + i));
  BARRIER
  TC_LINE(11);
  tc::store_global(B + i, tc::load_shared(S + (127 - i)));
}
"""


def arrays(n: int = 128) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.float32) + 1, np.zeros(n, np.float32)]


@pytest.mark.parametrize("seed", SEEDS)
def test_barrier_makes_it_right(run_text, seed):
    a, b = arrays()
    run_text(REVERSE.replace("BARRIER", "tc::barrier();"), [a, b], 128, shared_bytes=512, seed=seed)
    np.testing.assert_array_equal(b, a[::-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_barrier(faults_of, seed):
    caught = faults_of(REVERSE.replace("BARRIER", ""), arrays(), 128, shared_bytes=512, seed=seed)
    assert caught.kinds & {"shared_race"}
    race = next(fault for fault in caught.faults if fault.kind == "shared_race")
    assert {race.loc.line, race.other_loc.line} == {10, 11}
    assert "no barrier between" in race.message


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_comes_too_early(faults_of, run_text, seed):
    # The buffer is reused: without the second barrier a fast warp overwrites what a slow one reads.
    text = """
TC_KERNEL(64, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 64);
  const int i = tc::lane_in_block();
  float sum = 0.0f;
  for (int step = 0; step < 3; ++step) {
    TC_LINE(20);
    tc::store_shared(S + i, float(i + step));
    tc::barrier();
    TC_LINE(21);
    sum += tc::load_shared(S + (63 - i));
    SECOND
  }
  tc::store_global(B + i, sum);
}
"""
    b = np.zeros(64, np.float32)
    run_text(text.replace("SECOND", "tc::barrier();"), [b], 64, shared_bytes=256, seed=seed)
    np.testing.assert_array_equal(b, 3 * (63 - np.arange(64)) + 3)
    caught = faults_of(text.replace("SECOND", ""), [b], 64, shared_bytes=256, seed=seed)
    assert caught.kinds == {"shared_race"}


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_of_one_warp_race_too(faults_of, run_text, seed):
    text = """
TC_KERNEL(32, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 32);
  const int i = tc::lane_in_block();
  TC_LINE(5);
  tc::store_shared(S + i, float(i));
  MEET
  TC_LINE(6);
  tc::store_global(B + i, tc::load_shared(S + (31 - i)));
}
"""
    b = np.zeros(32, np.float32)
    run_text(text.replace("MEET", "tc::warp_barrier();"), [b], 32, shared_bytes=128, seed=seed)
    np.testing.assert_array_equal(b, 31 - np.arange(32))
    caught = faults_of(text.replace("MEET", ""), [b], 32, shared_bytes=128, seed=seed)
    assert "shared_race" in caught.kinds


ASYNC = """
TC_KERNEL(64, 1) k(const float* A, float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 256);
  const int i = tc::lane_in_block();
  TC_LINE(3);
  tc::copy_async<4>(S + 4 * i, A + 4 * i);
  tc::copy_async_commit();
  WAIT
  BARRIER
  TC_LINE(4);
  tc::store_global(B + i, tc::load_shared(S + (255 - i)));
  tc::copy_async_wait<0>();
}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("wait", "barrier", "kinds"),
    [
        ("tc::copy_async_wait<0>();", "tc::barrier();", set()),
        ("", "tc::barrier();", {"shared_in_flight"}),
        ("tc::copy_async_wait<1>();", "tc::barrier();", {"shared_in_flight"}),
        ("tc::copy_async_wait<0>();", "", {"shared_race"}),
    ],
)
def test_asynchronous_copies(faults_of, run_text, seed, wait, barrier, kinds):
    a = np.arange(256, dtype=np.float32)
    b = np.zeros(64, np.float32)
    text = ASYNC.replace("WAIT", wait).replace("BARRIER", barrier)
    if not kinds:
        run_text(text, [a, b], 64, shared_bytes=1024, seed=seed)
        np.testing.assert_array_equal(b, a[::-1][:64])
        return
    caught = faults_of(text, [a, b], 64, shared_bytes=1024, seed=seed)
    # A copy that a slow lane has not even issued yet reads as "never written".
    assert caught.kinds & (kinds | {"shared_uninitialised"})
    assert caught.kinds <= kinds | {"shared_race", "shared_uninitialised", "shared_in_flight"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("body", "kind", "line"),
    [
        ("TC_LINE(1); tc::store_global(B + i + 1, 0.0f);", "global_out_of_bounds", 1),
        ("TC_LINE(2); tc::store_global(B + i - 1, 0.0f);", "global_out_of_bounds", 2),
        ("TC_LINE(3); tc::load_global(B + (int64_t(1) << 40));", "global_out_of_bounds", 3),
        ("float v[2]; TC_LINE(4); tc::load_global<2>(v, B + i % 62);", "global_misaligned", 4),
        ("TC_LINE(5); tc::store_global(const_cast<float*>(A) + i, 0.0f);", "global_read_only", 5),
        ("TC_LINE(6); tc::store_shared(S + (i + 1), 0.0f);", "shared_out_of_bounds", 6),
        ("TC_LINE(7); tc::store_shared(S + (i - 1), 0.0f);", "shared_out_of_bounds", 7),
        ("float v[2] = {}; TC_LINE(8); tc::store_shared<2>(S + 1, v);", "shared_misaligned", 8),
        ("TC_LINE(9); tc::load_shared(S + i);", "shared_uninitialised", 9),
        ("TC_LINE(10); if (i < 8) tc::barrier();", "barrier_divergence", 10),
        ("TC_LINE(11); if (i < 32) tc::barrier(); else tc::barrier();", None, 11),
        ("if (i >= 32) return; TC_LINE(12); tc::barrier();", "barrier_divergence", 12),
        ("TC_LINE(13); if (i % 2) tc::shuffle(i, 0);", "warp_divergence", 13),
        ("TC_LINE(14); tc::uniform(i / 8);", "not_uniform", 14),
        ("TC_LINE(15); tc::named_barrier(1, 96);", "barrier_misuse", 15),
        ("TC_LINE(16); tc::named_barrier(16, 64);", "barrier_misuse", 16),
        ("TC_LINE(17); tc::named_barrier(1 + i / 32, 64);", "deadlock", 17),
        ('TC_LINE(18); TC_ASSERT(i < 5, "five lanes");', "assertion", 18),
        ("TC_LINE(19); tc::copy_async<4>(S, A);", "copy_never_waited", 19),
    ],
)
def test_each_kind(faults_of, run_text, seed, body, kind, line):
    text = (
        "TC_KERNEL(64, 1) k(const float* A, float* B) {\n  TC_SHARED_MEMORY(smem);\n"
        "  auto S = tc::shared_buffer<float>(smem, 64, 64);\n"
        f"  const int i = tc::lane_in_block();\n  {body}\n}}\n"
    )
    a, b = arrays(64)
    a.flags.writeable = False
    if kind is None:  # both arms stand on one line of the text: the same place
        run_text(text, [a, b], 64, shared_bytes=512, seed=seed)
        return
    caught = faults_of(text, [a, b], 64, shared_bytes=512, seed=seed)
    found = [fault for fault in caught.faults if fault.kind == kind]
    assert found, caught.kinds
    assert found[0].loc.line == line
    assert found[0].block == (0, 0, 0)
    assert found[0].lanes


@pytest.mark.parametrize("seed", SEEDS)
def test_two_places_of_one_barrier(faults_of, seed):
    text = """
TC_KERNEL(64, 1) k(float* B) {
  TC_LINE(1);
  if (tc::lane_in_block() < 32) {
    tc::barrier();
  } else {
    TC_LINE(2);
    tc::barrier();
  }
}
"""
    caught = faults_of(text, [np.zeros(1, np.float32)], 64, seed=seed)
    assert caught.kinds == {"barrier_divergence"}


@pytest.mark.parametrize("seed", SEEDS)
def test_deadlock_says_who_waits_for_what(faults_of, seed):
    text = """
TC_KERNEL(128, 1) k(float* B) {
  const int warp = tc::warp_in_block();
  TC_LINE(7);
  if (warp < 2) {
    tc::named_barrier(1, 128);
  } else {
    TC_LINE(8);
    tc::named_barrier(2, 128);
  }
}
"""
    caught = faults_of(text, [np.zeros(1, np.float32)], 128, seed=seed)
    assert caught.kinds == {"deadlock"}
    assert {fault.loc.line for fault in caught.faults} == {7, 8}
    assert "barrier 1 (64 of 128 arrived)" in str(caught)
    assert "barrier 2 (64 of 128 arrived)" in str(caught)


def test_endless_loop_ends_at_the_time_limit(faults_of):
    text = """
TC_KERNEL(32, 1) k(const int* A) {
  volatile int i = 0;
  while (i < 1) {
    TC_LINE(9);
  }
}
"""
    caught = faults_of(text, [np.zeros(1, np.int32)], 32, time_limit_seconds=0.3)
    assert caught.kinds == {"timeout"}
    assert caught.faults[0].loc.line == 9


def test_faults_of_many_lanes_are_one_entry(faults_of):
    text = """
TC_KERNEL(64, 1) k(float* B) {
  TC_LINE(4);
  tc::store_global(B + tc::lane_in_block() + 64, 0.0f);
}
"""
    caught = faults_of(text, [np.zeros(64, np.float32)], 64, grid=(5, 1, 1))
    assert len(caught.faults) == 1
    fault = caught.faults[0]
    assert fault.count == 5 * 64
    assert fault.lanes == tuple(range(64))
    assert "lanes 0-63" in str(caught)
    assert "argument buffer 0, which has 256 bytes" in fault.message


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_told_does_not_depend_on_which_thread_was_faster(faults_of, seed):
    """Early blocks take long, later ones meet their faults first; each tells another offset."""
    text = """
TC_KERNEL(32, 1) k(float* B) {
  const int block = tc::block_x() + tc::block_y() * 4;
  for (int step = 0; step < (block < 3 ? 2000 : 1); ++step) tc::warp_barrier();
  TC_LINE(40);
  if (block != 0) tc::store_global(B + 1000 + block, 1.0f);
  TC_LINE(41);
  if (block != 1) tc::store_global(B + 2000 + block, 1.0f);
  TC_LINE(40);
  if (block != 2) tc::load_global(B + 3000 + block);
}
"""
    told = [
        faults_of(text, [np.zeros(64, np.float32)], 32, grid=(4, 3, 1), seed=seed, workers=workers)
        for workers in (1, 2, 5)
    ]
    assert told[0].faults == told[1].faults == told[2].faults
    first = [(fault.block, fault.loc.line, fault.count) for fault in told[0].faults]
    assert first == [((0, 0, 0), 41, 352), ((0, 0, 0), 40, 352), ((1, 0, 0), 40, 352)]


def test_same_value_by_several_lanes_is_no_race(run_text):
    text = """
TC_KERNEL(64, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 1);
  tc::store_shared(S, 3.0f);
  tc::barrier();
  tc::store_global(B + tc::lane_in_block(), tc::load_shared(S));
}
"""
    b = np.zeros(64, np.float32)
    run_text(text, [b], 64, shared_bytes=4)
    assert (b == 3).all()


REGISTERS = """
TC_KERNEL(64, 0) k(const float* A, float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 256);
  TC_FRAGMENT(float, held, 8);
  for (int j = 0; j < 8; ++j) held[j] = tc::load_global(A + j);
  const int past = 8 + int(tc::load_global(A));
  TC_LINE(31);
  ACCESS
  tc::store_global(B + tc::lane_in_block(), held[0]);
}
"""
OUTSIDE = {
    "read": "held[0] = held[past];",
    "write": "held[past] = 1.0f;",
    "read far away": "held[0] = held[past * 100000];",
    "before the first": "held[3 - past] = 1.0f;",
    "vector read from global memory": "tc::load_global<4>(held + (past - 3), A);",
    "vector write to global memory": "tc::store_global<4>(B, held + (past - 3));",
    "vector read from shared memory": "tc::store_shared<4>(S, held); "
    "tc::load_shared<4>(held + (past - 1), S);",
    "vector write to shared memory": "tc::store_shared<2>(S, held + (past - 1));",
    "access with hardware bounds": "tc::load_bounded<4>(held + (past - 3), A, 0, 4);",
    "atomic pair": "tc::atomic_add_global<2>(B, held + (past - 1));",
}


@pytest.mark.parametrize("access", OUTSIDE)
def test_registers_outside_of_their_array(faults_of, access):
    arrays = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    text = REGISTERS.replace("ACCESS", OUTSIDE[access])
    caught = faults_of(text, arrays, 64, shared_bytes=1024)
    assert caught.kinds == {"registers_out_of_bounds"}
    (fault,) = [f for f in caught.faults if f.kind == "registers_out_of_bounds"]
    assert fault.loc.line == 31 and "of held, which has 8" in fault.message


def test_registers_inside_of_their_array(run_text):
    arrays = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    inside = "tc::load_global<4>(held + (past - 4), A); tc::store_shared<2>(S, held + (past - 2));"
    run_text(REGISTERS.replace("ACCESS", inside), arrays, 64, shared_bytes=1024)
