"""What one access costs while it is legal: checks look at some bytes, and fill no memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

COUNT = 20_000
ACCESSES = {
    "shared read": "sum += tc::load_shared(S + i);",
    "shared write": "tc::store_shared(S + i, sum);",
    "shared atomic": "sum += tc::atomic_add_shared(S + i, 1.0f);",
    "asynchronous copy": (
        "tc::copy_async<1>(S + i, B + i); tc::copy_async_commit(); tc::copy_async_wait<0>();"
    ),
    "global read": "sum += tc::load_global(B + i);",
    "global write": "tc::store_global(B + i, sum);",
}
LIMIT_SECONDS = 1e-6
"""Of processor time for one access. Filling the place of illegal accesses takes twice as long."""


def text_of(access: str) -> str:
    return f"""
TC_KERNEL(32, 1) k(float* B) {{
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 32);
  const int i = tc::lane_in_block();
  tc::store_shared(S + i, 0.0f);
  float sum = 0.0f;
  for (int turn = 0; turn < {COUNT}; ++turn) {{
    {access}
    if (turn % 64 == 0) tc::warp_barrier();
  }}
  tc::store_global(B + i, sum);
}}
"""


@pytest.mark.parametrize("name", ACCESSES)
def test_a_legal_access_is_cheap(name, run_text):
    text = text_of(ACCESSES[name])
    array = np.zeros(32, np.float32)
    run_text(text, [array], 32, shared_bytes=128)  # builds it, too
    costs = []
    for _ in range(3):
        before = time.process_time()
        run_text(text, [array], 32, shared_bytes=128)
        costs.append((time.process_time() - before) / (32 * COUNT))
    assert min(costs) < LIMIT_SECONDS, f"{min(costs) * 1e9:.0f} ns"
    print(f"{name}: {min(costs) * 1e9:.0f} ns")
