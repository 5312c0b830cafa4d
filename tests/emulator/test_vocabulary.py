"""What the functions of the vocabulary compute, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilecore.errors import ArgumentError, LaunchError

WIDTHS = pytest.mark.parametrize("width", [32, 64])


@WIDTHS
def test_indices(run_text, width):
    text = """
TC_KERNEL(256, 1) k(int* out) {
  const int lanes = 4 * 3 * 6;
  const int block = tc::block_x() + tc::grid_x() * (tc::block_y() + tc::grid_y() * tc::block_z());
  int v[9] = {tc::lane_x(), tc::lane_y(), tc::lane_z(), tc::lane_in_warp(), tc::warp_in_block(),
              tc::block_x(), tc::block_y(), tc::block_z(), tc::lanes_per_warp};
  for (int j = 0; j < 9; ++j)
    tc::store_global(out + (block * lanes + tc::lane_in_block()) * 9 + j, v[j]);
}
"""
    grid, block = (3, 2, 2), (4, 3, 6)
    out = np.full((12, 72, 9), -1, np.int32)
    run_text(text, [out], block, grid=grid, lanes_per_warp=width)
    b, i = np.meshgrid(np.arange(12), np.arange(72), indexing="ij")
    expected = np.stack(
        [
            i % 4,
            i // 4 % 3,
            i // 12,
            i % width,
            i // width,
            b % 3,
            b // 3 % 2,
            b // 6,
            0 * i + width,
        ],
        axis=-1,
    )
    np.testing.assert_array_equal(out, expected)


@WIDTHS
@pytest.mark.parametrize("seed", range(3))
def test_shuffles_and_votes(run_text, width, seed, rng):
    text = """
TC_KERNEL(128, 1) k(const double* A, const int* P, double* S, uint64_t* V) {
  const int i = tc::lane_in_block();
  const double a = tc::load_global(A + i);
  const int p = tc::load_global(P + i);
  double r[8] = {tc::shuffle(a, 5), tc::shuffle_xor(a, 3), tc::shuffle_down(a, 4),
                 tc::shuffle_up(a, 7), tc::shuffle(a, 2, 8), tc::shuffle_xor(a, 16, 16),
                 tc::shuffle_down(a, 3, 8), tc::shuffle_up(a, 1, 4)};
  for (int j = 0; j < 8; ++j) tc::store_global(S + i * 8 + j, r[j]);
  tc::store_global(V + i * 3, uint64_t(tc::ballot(p > 0)));
  tc::store_global(V + i * 3 + 1, uint64_t(tc::vote_any(p > 2)));
  tc::store_global(V + i * 3 + 2, uint64_t(tc::vote_all(p >= 0)));
}
"""
    a = rng.normal(size=128)
    p = rng.integers(0, 4, 128).astype(np.int32)
    p[:width] = 1
    p[3] = -1
    s, v = np.zeros((128, 8)), np.zeros((128, 3), np.uint64)
    run_text(text, [a, p, s, v], 128, lanes_per_warp=width, seed=seed)
    i = np.arange(128)
    lane, first = i % width, i // width * width

    def source(target: np.ndarray, segment: int) -> np.ndarray:
        inside = (target >= 0) & (target // segment == lane // segment)
        return a[first + np.where(inside, target, lane)]

    expected = [
        a[first + 5],
        source(lane ^ 3, width),
        source(lane + 4, width),
        source(lane - 7, width),
        a[first + lane // 8 * 8 + 2],
        source(lane ^ 16, 16),
        source(lane + 3, 8),
        source(lane - 1, 4),
    ]
    np.testing.assert_array_equal(s, np.stack(expected, axis=1))
    warps = p.reshape(-1, width)
    ballots = [sum(1 << j for j in range(width) if warp[j] > 0) for warp in warps]
    np.testing.assert_array_equal(v[:, 0], np.repeat(np.array(ballots, np.uint64), width))
    np.testing.assert_array_equal(v[:, 1], np.repeat((warps > 2).any(1), width))
    np.testing.assert_array_equal(v[:, 2], np.repeat((warps >= 0).all(1), width))


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_vector_accesses_and_partial_copies(run_text, n, rng):
    text = f"""
TC_KERNEL(32, 1) k(const uint16_t* A, uint16_t* B, uint16_t* C) {{
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<uint16_t>(smem, 256, 32 * {n});
  const int i = tc::lane_in_block() * {n};
  TC_FRAGMENT(uint16_t, r, {n});
  tc::load_global_readonly<{n}>(r, A + i);
  tc::store_shared<{n}>(S + i, r);
  tc::warp_barrier();
  tc::load_shared<{n}>(r, S + (32 - 1) * {n} - i);
  tc::store_global_streaming<{n}>(B + i, r);
  tc::warp_barrier();
#if {n} >= 2
  tc::copy_async_partial<{n}>(S + i, A + i, tc::lane_in_block() % {n + 1});
  tc::copy_async_commit();
  tc::copy_async_wait<0>();
  tc::load_shared<{n}>(r, S + i);
  tc::store_global<{n}>(C + i, r);
#endif
}}
"""
    a = rng.integers(1, 2**16, (32, n)).astype(np.uint16)
    b, c = np.zeros_like(a), np.zeros_like(a)
    run_text(text, [a, b, c], 32, shared_bytes=1024)
    np.testing.assert_array_equal(b, a[::-1])
    if n >= 2:
        kept = np.arange(n)[None] < (np.arange(32) % (n + 1))[:, None]
        np.testing.assert_array_equal(c, np.where(kept, a, 0))


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("ctype", "dtype"),
    [
        ("int32_t", np.int32),
        ("uint32_t", np.uint32),
        ("int64_t", np.int64),
        ("uint64_t", np.uint64),
        ("float", np.float32),
        ("double", np.float64),
        ("tc::half", np.float16),
        ("tc::bfloat16", ml_dtypes.bfloat16),
    ],
)
def test_atomics(run_text, space, ctype, dtype):
    is_integer = np.dtype(dtype).kind in "iu"
    bitwise = """
  tc::atomic_or_SPACE(P + 3, T(1) << i % 8);
  tc::atomic_and_SPACE(P + 4, T(~(T(1) << i % 8)));
  tc::atomic_xor_SPACE(P + 5, T(i));
  tc::atomic_exchange_SPACE(P + 6, T(7));
  tc::atomic_compare_exchange_SPACE(P + 7, T(0), T(9));
"""
    text = """
using T = CTYPE;
TC_KERNEL(64, 1) k(CTYPE* G) {
  TC_SHARED_MEMORY(smem);
  const int i = tc::lane_in_block();
  auto P = POINTER;
  if (i < 8) STORE(P + i, tc::convert<T>(i == 4 ? 255 : i == 2 ? 100 : 0));
  tc::barrier();
  TC_LINE(3);
  tc::atomic_add_SPACE(P, tc::convert<T>(1));
  tc::atomic_max_SPACE(P + 1, tc::convert<T>(i));
  tc::atomic_min_SPACE(P + 2, tc::convert<T>(i + 2));
  BITWISE
  tc::barrier();
  COPY
}
"""
    shared = space == "shared"
    replacements = {
        "BITWISE": bitwise if is_integer else "",
        "POINTER": "tc::shared_buffer<T>(smem, 0, 8)" if shared else "G",
        "STORE": "tc::store_shared" if shared else "tc::store_global",
        "COPY": "if (i < 8) tc::store_global(G + i, tc::load_shared(P + i));" if shared else "",
        "CTYPE": ctype,
        "SPACE": space,
    }
    for key, value in replacements.items():
        text = text.replace(key, value)
    out = np.zeros(8, dtype)
    run_text(text, [out], 64, shared_bytes=64)
    xor = int(np.bitwise_xor.reduce(np.arange(64)))
    expected = [64, 63, 2, 255, 0, xor, 7, 9] if is_integer else [64, 63, 2, 0, 255, 0, 0, 0]
    np.testing.assert_array_equal(out.astype(np.float64), expected)


def test_blocks_on_several_threads_share_atomics(run_text):
    text = """
TC_KERNEL(64, 1) k(float* sum, float* pair) {
  tc::atomic_add_global(sum, 1.0f);
  const float two[2] = {1.0f, 2.0f};
  tc::atomic_add_global<2>(pair, two);
}
"""
    total, pair = np.zeros(1, np.float32), np.zeros(2, np.float32)
    run_text(text, [total, pair], 64, grid=(50, 1, 1), workers=4)
    assert total[0] == 3200
    assert pair.tolist() == [3200, 6400]


def test_blocks_that_wait_for_each_other_need_residency(run_text, faults_of):
    text = """
TC_KERNEL(32, 1) k(int* flag, int* out) {
  if (tc::block_x() == 0) {
    while (tc::load_acquire_global(flag) == 0) TC_LINE(3);
    tc::store_global(out + tc::lane_in_block(), 5);
  } else if (tc::lane_in_block() == 0) {
    tc::store_release_global(flag, 1);
  }
}
"""
    flag, out = np.zeros(1, np.int32), np.zeros(32, np.int32)
    run_text(text, [flag, out], 32, grid=(2, 1, 1), resident=True, workers=1)
    assert (out == 5).all()
    alone = text.replace("tc::store_release_global(flag, 1)", "(void)0")
    caught = faults_of(alone, [np.zeros(1, np.int32), out], 32, resident=True, grid=(2, 1, 1))
    assert caught.kinds <= {"deadlock", "timeout"}
    assert caught.faults[0].loc.line == 3


def test_print_and_constants(run_text):
    text = """
static constexpr int N = 3;
TC_DEVICE int twice(int v) { return 2 * v; }
TC_KERNEL(32, 1) k(int64_t big, float f, double d, uint64_t u) {
  if (tc::lane_in_block() == 0)
    TC_PRINT("%lld %g %g %llu %d\\n", (long long)big, f, d, (unsigned long long)u, twice(N));
}
"""
    arguments = [np.int64(-(2**40)), np.float32(1.5), np.float64(0.1), np.uint64(2**63)]
    report = run_text(text, arguments, 32)
    assert report.prints == f"{-(2**40)} 1.5 0.1 {2**63} 6\n"


def test_empty_launches_and_arrays(run_text):
    text = "TC_KERNEL(32, 1) k(float* A) { if (A == nullptr) tc::store_global(A, 1.0f); }"
    run_text(text, [np.zeros(0, np.float32)], 32)
    run_text(text, [np.zeros(0, np.float32)], 32, grid=(0, 5, 1))


def test_bad_launches(run_text):
    text = "TC_KERNEL(32, 1) k(float* A, int n) {}"
    with pytest.raises(ArgumentError, match="unknown width"):
        run_text(text, [np.zeros(1, np.float32), 3], 32)
    with pytest.raises(ArgumentError, match="C-contiguous"):
        run_text(text, [np.zeros((4, 4), np.float32).T, np.int32(3)], 32)
    with pytest.raises(LaunchError, match="lanes of a block"):
        run_text(text, [], 1025)
    with pytest.raises(LaunchError, match="divide the grid"):
        run_text(text, [], 32, grid=(3, 1, 1), cluster=(2, 1, 1))
