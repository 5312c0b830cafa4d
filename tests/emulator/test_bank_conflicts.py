"""Counted bank conflicts against a direct statement of the cost model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TEXT = """
TC_KERNEL(64, 1) k(const int* at, const int* mask) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<T>(smem, 0, 8192 / sizeof(T));
  const int i = tc::lane_in_block();
  TC_FRAGMENT(T, r, N);
  for (int j = 0; j < N; ++j) r[j] = 0;
  const int offset = tc::load_global(at + i) * N;
  TC_LINE(7);
  if (tc::load_global(mask + i)) tc::store_shared<N>(S + offset, r);
  tc::warp_barrier();
}
"""


def wavefronts(byte_offsets: list[int], lanes: list[int], width: int) -> tuple[int, int]:
    """(needed, ideal) of one warp-wide access."""
    needed = ideal = 0
    phase_lanes = min(128 // max(width, 4), 32)
    for first in range(0, 64, phase_lanes):
        words: list[set[int]] = [set() for _ in range(32)]
        for offset, lane in zip(byte_offsets, lanes, strict=True):
            if first <= lane < first + phase_lanes:
                for byte in range(offset, offset + width):
                    words[byte // 4 % 32].add(byte // 4)
        depth = max(map(len, words))
        needed += depth
        ideal += depth > 0
    return needed, ideal


@pytest.mark.parametrize("lanes_per_warp", [32, 64])
@pytest.mark.parametrize(
    ("ctype", "n"), [("uint8_t", 1), ("uint16_t", 2), ("float", 2), ("float", 4)]
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_counts(run_text, lanes_per_warp, ctype, n, data):
    size = {"uint8_t": 1, "uint16_t": 2, "float": 4}[ctype] * n
    slots = st.integers(0, 8192 // size - 1)
    strided = st.builds(
        lambda start, step: [(start + lane * step) % (8192 // size) for lane in range(64)],
        slots,
        st.integers(0, 64),
    )
    at = data.draw(st.one_of(strided, st.lists(slots, min_size=64, max_size=64)))
    mask = data.draw(
        st.one_of(st.just([1] * 64), st.lists(st.integers(0, 1), min_size=64, max_size=64))
    )
    text = TEXT.replace("<N>", f"<{n}>").replace("N;", f"{n};").replace(" N)", f" {n})")
    text = (
        text.replace("(T,", f"({ctype},")
        .replace("<T>", f"<{ctype}>")
        .replace("sizeof(T)", f"sizeof({ctype})")
    )
    report = run_text(
        text,
        [np.array(at, np.int32), np.array(mask, np.int32)],
        64,
        shared_bytes=8192,
        lanes_per_warp=lanes_per_warp,
        seed=data.draw(st.integers(0, 3)),
    )
    expected = [0, 0, 0]
    for first in range(0, 64, lanes_per_warp):
        active = [lane for lane in range(lanes_per_warp) if mask[first + lane]]
        if active:
            cost = wavefronts([at[first + lane] * size for lane in active], active, size)
            expected = [expected[0] + 1, expected[1] + cost[0], expected[2] + cost[1]]
    got = [0, 0, 0]
    for access in report.shared_accesses:
        assert access.loc.line == 7
        got = [access.accesses, access.wavefronts, access.ideal_wavefronts]
    assert got == expected
