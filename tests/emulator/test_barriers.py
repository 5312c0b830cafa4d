"""Named barriers, transaction barriers, asynchronous agents, clusters."""

from __future__ import annotations

import numpy as np
import pytest

SEEDS = pytest.mark.parametrize("seed", range(8))

# What a backend's header would offer on top of the engine, spelt for these tests.
PRELUDE = """
using namespace tc::emulator;
using Barrier = tc::shared_pointer<uint64_t>;
TC_DEVICE void init(Barrier b, int n, TC_HERE) { transaction_init(b.place, n, text_line); }
TC_DEVICE void arrive(Barrier b, TC_HERE) { transaction_arrive(b.place, 1, text_line); }
TC_DEVICE void expect(Barrier b, int n, TC_HERE) { transaction_expect(b.place, n, text_line); }
TC_DEVICE void wait(Barrier b, int p, TC_HERE) { transaction_wait(b.place, p, text_line); }
TC_DEVICE bool test(Barrier b, int p, TC_HERE) { return transaction_test(b.place, p, text_line); }

// A copy engine: moves `bytes` on its own and counts them on the barrier.
struct BulkCopy {
  SharedPlace to, barrier;
  const void* from;
  uint32_t bytes, clock;
  LaneHead* lane;
};
TC_DEVICE void perform(void* payload) {
  auto& copy = *static_cast<BulkCopy*>(payload);
  deliver(copy.to, copy.from, copy.bytes, copy.clock, true, *copy.lane);
  transaction_complete(copy.barrier, copy.bytes, copy.clock, 0, *copy.lane);
}
template <class T>
TC_DEVICE void bulk_copy(tc::shared_pointer<T> to, const T* from, int n, Barrier b, TC_HERE) {
  const uint32_t bytes = n * sizeof(T);
  begin_async_write(to.place, bytes, text_line);
  const void* source = global_read(from, bytes, text_line);
  BulkCopy copy{to.place, b.place, source, bytes, warp_clock(), &here()};
  enqueue_async(perform, &copy, sizeof copy);
}
"""

PIPELINE = (
    PRELUDE
    + """
// One producer lane fills two stages; warps 1 and 2 read them.
TC_KERNEL(96, 1) k(const float* A, float* B, int steps) {
  TC_SHARED_MEMORY(smem);
  auto full = tc::shared_buffer<uint64_t>(smem, 0, 2);
  auto empty = tc::shared_buffer<uint64_t>(smem, 16, 2);
  auto S = tc::shared_buffer<float>(smem, 1024, 2 * 64);
  const int i = tc::lane_in_block(), warp = tc::warp_in_block();
  if (i == 0)
    for (int s = 0; s < 2; ++s) {
      TC_LINE(1);
      init(full + s, 1);
      init(empty + s, ARRIVALS);
      PUBLISH
    }
  INIT_BARRIER
  if (warp == 0) {
    if (tc::lane_in_warp() == 0)
      for (int step = 0; step < steps; ++step) {
        const int s = step % 2, phase = step / 2 % 2;
        TC_LINE(2);
        WAIT_EMPTY
        expect(full + s, BYTES);
        arrive(full + s);
        TC_LINE(3);
        bulk_copy(S + s * 64, A + step * 64, 64, full + s);
      }
  } else {
    float sum = 0.0f;
    for (int step = 0; step < steps; ++step) {
      const int s = step % 2, phase = step / 2 % 2;
      TC_LINE(4);
      WAIT_FULL
      TC_LINE(5);
      sum += tc::load_shared(S + (s * 64 + 95 - i));
      TC_LINE(6);
      arrive(empty + s);
    }
    tc::store_global(B + (i - 32), sum);
  }
}
"""
)
RIGHT = {
    "ARRIVALS": "64",
    "PUBLISH": "transaction_publish();",
    "INIT_BARRIER": "tc::barrier();",
    "WAIT_EMPTY": "wait(empty + s, phase ^ 1);",
    "WAIT_FULL": "wait(full + s, phase);",
    "BYTES": "256",
}


def pipeline(**changes: str) -> str:
    text = PIPELINE
    for key, value in (RIGHT | changes).items():
        text = text.replace(key, value)
    return text


def data(steps: int = 6) -> tuple[list, np.ndarray]:
    a = np.random.default_rng(1).integers(-9, 9, (steps, 64)).astype(np.float32)
    b = np.zeros(64, np.float32)
    return [a, b, np.int32(steps)], a.sum(0)[::-1]


@SEEDS
@pytest.mark.parametrize(
    "changes", [{}, {"WAIT_FULL": "while (!test(full + s, phase)) TC_LINE(4);"}]
)
def test_producer_and_consumers(run_text, seed, changes):
    arguments, expected = data()
    run_text(pipeline(**changes), arguments, 96, shared_bytes=2048, seed=seed)
    np.testing.assert_array_equal(arguments[1], expected)


@SEEDS
@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"WAIT_FULL": ""}, {"shared_in_flight", "shared_uninitialised", "shared_race"}),
        ({"WAIT_EMPTY": ""}, {"shared_in_flight", "shared_race", "barrier_misuse"}),
        ({"ARRIVALS": "65"}, {"deadlock"}),
        ({"ARRIVALS": "63"}, {"barrier_misuse", "shared_race", "deadlock", "shared_in_flight"}),
        ({"BYTES": "260"}, {"deadlock"}),
        ({"WAIT_EMPTY": "wait(empty + s, phase);"}, {"deadlock"}),
        ({"INIT_BARRIER": ""}, {"shared_race", "barrier_misuse"}),
        ({"PUBLISH": ""}, {"barrier_misuse"}),
    ],
)
def test_broken_pipelines(faults_of, seed, changes, kinds):
    arguments, _ = data()
    caught = faults_of(pipeline(**changes), arguments, 96, shared_bytes=2048, seed=seed)
    assert caught.kinds & kinds, caught.kinds


@SEEDS
def test_plain_writes_must_be_published_to_agents(run_text, faults_of, seed):
    text = (
        PRELUDE
        + """
TC_KERNEL(64, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 64);
  const int i = tc::lane_in_block();
  TC_LINE(1);
  tc::store_shared(S + i, 1.0f);
  PUBLISH
  tc::barrier();
  TC_LINE(2);
  if (i == 0) {
    check_published(S.place, 256, 0);
    begin_async_read(S.place, 256, 0);
  }
  tc::barrier();
  TC_LINE(3);
  OVERWRITE
  tc::barrier();
  if (i == 0) end_async_read(S.place, 256);
}
"""
    )
    b = np.zeros(1, np.float32)
    right = text.replace("PUBLISH", "publish_to_agents();")
    run_text(right.replace("OVERWRITE", ""), [b], 64, shared_bytes=256, seed=seed)
    caught = faults_of(
        text.replace("PUBLISH", "").replace("OVERWRITE", ""), [b], 64, shared_bytes=256, seed=seed
    )
    assert caught.kinds == {"shared_race"}
    assert caught.faults[0].other_loc.line == 1
    overwriting = right.replace("OVERWRITE", "tc::store_shared(S + i, 2.0f);")
    caught = faults_of(overwriting, [b], 64, shared_bytes=256, seed=seed)
    assert caught.kinds == {"shared_in_flight"}


@SEEDS
def test_named_barriers_order_a_part_of_the_block(run_text, faults_of, seed):
    text = """
TC_KERNEL(128, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 64);
  const int i = tc::lane_in_block(), warp = tc::warp_in_block();
  if (warp < 2) {
    TC_LINE(1);
    tc::store_shared(S + i, float(i));
    ARRIVE
  } else {
    WAIT
    TC_LINE(2);
    tc::store_global(B + (i - 64), tc::load_shared(S + (127 - i)));
  }
}
"""
    b = np.zeros(64, np.float32)
    right = text.replace("ARRIVE", "tc::named_barrier_arrive(3, 128);")
    right = right.replace("WAIT", "tc::named_barrier(3, 128);")
    run_text(right, [b], 128, shared_bytes=256, seed=seed)
    np.testing.assert_array_equal(b, 63 - np.arange(64))
    # Barriers of the halves alone order nothing between them.
    halves = text.replace("ARRIVE", "tc::named_barrier(1, 64);")
    halves = halves.replace("WAIT", "tc::named_barrier(2, 64);")
    caught = faults_of(halves, [b], 128, shared_bytes=256, seed=seed)
    assert "shared_race" in caught.kinds


CLUSTER = (
    PRELUDE
    + """
TC_KERNEL(64, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 64);
  const int i = tc::lane_in_block(), rank = here().place->rank;
  TC_LINE(1);
  tc::store_shared(S + i, float(tc::block_x() * 100 + i));
  FIRST
  auto peer = S;
  peer.place.rank = rank ^ 1;
  TC_LINE(2);
  const float v = tc::load_shared(peer + (63 - i));
  LAST
  tc::store_global(B + tc::block_x() * 64 + i, v);
}
"""
)


@SEEDS
def test_blocks_of_a_cluster_read_each_other(run_text, faults_of, seed):
    b = np.zeros((4, 64), np.float32)
    sync = "cluster_barrier_arrive(__LINE__); cluster_barrier_wait(__LINE__);"
    right = CLUSTER.replace("FIRST", sync).replace("LAST", sync)
    arguments = {"grid": (4, 1, 1), "cluster": (2, 1, 1), "shared_bytes": 256, "seed": seed}
    run_text(right, [b], 64, **arguments)
    expected = (np.arange(4) ^ 1)[:, None] * 100 + 63 - np.arange(64)[None]
    np.testing.assert_array_equal(b, expected)
    not_yet = CLUSTER.replace("FIRST", "tc::barrier();").replace("LAST", sync)
    assert faults_of(not_yet, [b], 64, **arguments).kinds & {"shared_race", "shared_uninitialised"}
    gone = CLUSTER.replace("FIRST", sync).replace("LAST", "")
    caught = faults_of(gone, [b], 64, **arguments)
    assert caught.kinds == {"shared_race"}
    assert "may all have returned" in str(caught)


def test_groups_of_several_warps_meet(run_text, faults_of):
    text = (
        PRELUDE
        + """
inline void sum_body(const Meeting& meeting) {
  int total = 0;
  for (int i = 0; i < meeting.count; ++i) total += *static_cast<int*>(meeting.operands[i]);
  for (int i = 0; i < meeting.count; ++i) *static_cast<int*>(meeting.operands[i]) = total;
}
inline constexpr CollectiveKind sum_kind{"sum", sum_body, 128};
TC_KERNEL(256, 1) k(int* B) {
  int v = tc::lane_in_block();
  TC_LINE(1);
  if (CONDITION) collective(sum_kind, &v, 1);
  tc::store_global(B + tc::lane_in_block(), v);
}
"""
    )
    b = np.zeros(256, np.int32)
    for width in (32, 64):
        run_text(text.replace("CONDITION", "true"), [b], 256, lanes_per_warp=width)
        expected = np.arange(256).reshape(2, 128).sum(1).repeat(128)
        np.testing.assert_array_equal(b, expected)
    caught = faults_of(text.replace("CONDITION", "v != 3"), [b], 256)
    assert caught.kinds <= {"warp_divergence", "deadlock"}


@SEEDS
def test_flags_order_warps(run_text, faults_of, seed):
    text = """
TC_KERNEL(64, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 32);
  auto flag = tc::shared_buffer<int>(smem, 128, 1);
  const int i = tc::lane_in_warp();
  if (tc::lane_in_block() == 0) tc::store_shared(flag, 0);
  tc::barrier();
  if (tc::warp_in_block() == 0) {
    TC_LINE(1);
    tc::store_shared(S + i, float(i));
    tc::warp_barrier();
    TC_LINE(2);
    if (i == 0) RELEASE;
  } else {
    TC_LINE(3);
    while (tc::load_acquire_shared(flag) == 0) TC_LINE(3);
    TC_LINE(4);
    tc::store_global(B + i, tc::load_shared(S + (31 - i)));
  }
}
"""
    b = np.zeros(32, np.float32)
    right = text.replace("RELEASE", "tc::store_release_shared(flag, 1)")
    run_text(right, [b], 64, shared_bytes=132, seed=seed)
    np.testing.assert_array_equal(b, 31 - np.arange(32))
    relaxed = text.replace("RELEASE", "tc::atomic_exchange_shared(flag, 1)")
    caught = faults_of(relaxed, [b], 64, shared_bytes=132, seed=seed)
    assert caught.kinds == {"shared_race"}
    assert {caught.faults[0].loc.line, caught.faults[0].other_loc.line} == {1, 4}
