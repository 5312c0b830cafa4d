"""A hand-written pipelined matmul: exact when right, reported when any one part is missing."""

from __future__ import annotations

import numpy as np
import pytest

from tilecore.emulator import KernelFaults

SEEDS = range(8)
SHARED_BYTES = 3 * 2 * 128 * 32 * 2


def matmul(run_text, text: str, m: int, n: int, k: int, seed: int):
    """Runs it on small integers, which fp16 and fp32 hold exactly: (report, result, expected)."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (m, k)).astype(np.float16)
    b = rng.integers(-4, 5, (k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    grid = (-(-n // 128), -(-m // 128), 1)
    arguments = [a, b, c, np.int32(m), np.int32(n), np.int32(k)]
    expected = a.astype(np.float32) @ b.astype(np.float32)
    try:
        report = run_text(text, "matmul", arguments, grid, 128, SHARED_BYTES, seed)
    except KernelFaults as caught:
        return caught, c.astype(np.float32), expected
    return report, c.astype(np.float32), expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [(128, 128, 64), (256, 128, 128), (100, 120, 40), (129, 8, 8)])
def test_exact_and_free_of_bank_conflicts(run_text, matmul_text, size, seed):
    report, got, expected = matmul(run_text, matmul_text, *size, seed)
    assert not isinstance(report, KernelFaults), str(report)
    np.testing.assert_array_equal(got, expected)
    assert report.bank_conflicts == 0
    assert sum(access.accesses for access in report.shared_accesses) > 0


def broken(text: str, what: str) -> str:
    return f"#define BROKEN_{what}\n{text}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("what", "kinds", "lines"),
    [
        ("NO_BARRIER", {"shared_race"}, {12, 13, 16, 17, 18, 19}),
        ("NO_WAIT", {"shared_in_flight"}, {16, 17, 18, 19}),
        ("NO_LAST_WAIT", {"copy_never_waited"}, {24}),
        ("DIVERGENT_BARRIER", {"barrier_divergence"}, {15, 21}),
        ("DEADLOCK", {"deadlock"}, {22}),
        ("OUT_OF_BOUNDS", {"global_out_of_bounds"}, {24}),
        ("MISALIGNED", {"global_misaligned"}, {24}),
    ],
)
def test_each_broken_variant_is_reported(run_text, matmul_text, what, kinds, lines, seed):
    size = (100, 120, 136) if what == "OUT_OF_BOUNDS" else (128, 128, 136)
    caught, _, _ = matmul(run_text, broken(matmul_text, what), *size, seed)
    assert isinstance(caught, KernelFaults)
    assert kinds <= caught.kinds
    for fault in caught.faults:
        assert fault.loc.line in lines, str(fault)
        if fault.kind not in ("copy_never_waited", "deadlock"):
            assert fault.text_line > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_swizzle_on_one_side_only_gives_wrong_data(run_text, matmul_text, seed):
    text = broken(matmul_text, "SWIZZLE_DATA")
    report, got, expected = matmul(run_text, text, 128, 128, 64, seed)
    assert not isinstance(report, KernelFaults)
    assert not np.array_equal(got, expected)


def test_a_missing_swizzle_shows_as_bank_conflicts(run_text, matmul_text):
    text = broken(matmul_text, "SWIZZLE_CONFLICTS")
    report, got, expected = matmul(run_text, text, 128, 128, 64, 0)
    np.testing.assert_array_equal(got, expected)
    # Rows of 64 bytes: 8 rows of a matrix hit 16 of the 32 banks 4 times each.
    reads = [access for access in report.shared_accesses if not access.is_write]
    in_line_18 = [access for access in reads if access.loc.line == 18]
    assert [access.wavefronts / access.ideal_wavefronts for access in in_line_18] == [4.0]
    assert all(access.bank_conflicts == 0 for access in reads if access.loc.line != 18)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90"])
def test_the_same_text_compiles_for_the_device(compile_text, matmul_text, arch):
    cubin, log = compile_text(matmul_text, arch)
    assert cubin.startswith(b"\x7fELF")
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
