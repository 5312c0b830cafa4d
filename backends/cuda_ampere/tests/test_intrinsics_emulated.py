"""Ampere's intrinsics in the emulator against NumPy, by the layouts of headers/README.md.

The coordinates are written down here a second time, independently of the C++ tables.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilecore.emulator import KernelFaults

LANES = np.arange(32)[:, None]
G, T = LANES // 4, LANES % 4


def layout_16_bit_k16():
    i = np.arange(8)[None]
    a = (G + 8 * (i // 2 % 2), 2 * T + i % 2 + 8 * (i // 4))
    i = np.arange(4)[None]
    b = (2 * T + i % 2 + 8 * (i // 2), G + 0 * i)
    return a, b, d_layout()


def layout_16_bit_k8():
    i = np.arange(4)[None]
    a = (G + 8 * (i // 2), 2 * T + i % 2)
    i = np.arange(2)[None]
    return a, (2 * T + i, G + 0 * i), d_layout()


def layout_tf32():
    i = np.arange(4)[None]
    a = (G + 8 * (i % 2), T + 4 * (i // 2))
    i = np.arange(2)[None]
    return a, (T + 4 * i, G + 0 * i), d_layout()


def layout_int8():
    i = np.arange(16)[None]
    a = (G + 8 * (i // 4 % 2), 4 * T + i % 4 + 16 * (i // 8))
    i = np.arange(8)[None]
    return a, (4 * T + i % 4 + 16 * (i // 4), G + 0 * i), d_layout()


def layout_f64():
    return (G, T), (T, G), (G + 0 * np.arange(2), 2 * T + np.arange(2)[None])


def d_layout():
    i = np.arange(4)[None]
    return G + 8 * (i // 2), 2 * T + i % 2


CASES = {
    "f16": ("mma_m16n8k16", "float", "tc::half", "tc::half", layout_16_bit_k16),
    "bf16": ("mma_m16n8k16", "float", "tc::bfloat16", "tc::bfloat16", layout_16_bit_k16),
    "f16_sums": ("mma_m16n8k16", "tc::half", "tc::half", "tc::half", layout_16_bit_k16),
    "f16_k8": ("mma_m16n8k8", "float", "tc::half", "tc::half", layout_16_bit_k8),
    "bf16_k8": ("mma_m16n8k8", "float", "tc::bfloat16", "tc::bfloat16", layout_16_bit_k8),
    "tf32": ("mma_m16n8k8_tf32", "float", "float", "float", layout_tf32),
    "s8": ("mma_m16n8k32", "int32_t", "int8_t", "int8_t", layout_int8),
    "u8": ("mma_m16n8k32", "int32_t", "uint8_t", "uint8_t", layout_int8),
    "s8_u8": ("mma_m16n8k32", "int32_t", "int8_t", "uint8_t", layout_int8),
    "u8_s8": ("mma_m16n8k32", "int32_t", "uint8_t", "int8_t", layout_int8),
    "e4m3": ("mma_m16n8k32", "float", "tc::e4m3", "tc::e4m3", layout_int8),
    "e4m3_e5m2": ("mma_m16n8k32", "float", "tc::e4m3", "tc::e5m2", layout_int8),
    "e5m2_e4m3": ("mma_m16n8k32", "float", "tc::e5m2", "tc::e4m3", layout_int8),
    "e5m2": ("mma_m16n8k32", "float", "tc::e5m2", "tc::e5m2", layout_int8),
    "f64": ("mma_m8n8k4", "double", "double", "double", layout_f64),
}
DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "tc::half": np.float16,
    "tc::bfloat16": ml_dtypes.bfloat16,
    "tc::e4m3": ml_dtypes.float8_e4m3fn,
    "tc::e5m2": ml_dtypes.float8_e5m2,
    "int32_t": np.int32,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
}


def mma_text(name: str, d: str, a: str, b: str, counts: tuple[int, int, int]) -> str:
    na, nb, nd = counts
    return f"""
TC_KERNEL(64, 1) k(const {a}* A, const {b}* B, {d}* D) {{
  const int i = tc::lane_in_block();
  TC_FRAGMENT({a}, a, {na});
  TC_FRAGMENT({b}, b, {nb});
  TC_FRAGMENT({d}, d, {nd});
  for (int j = 0; j < {na}; ++j) a[j] = tc::load_global(A + i * {na} + j);
  for (int j = 0; j < {nb}; ++j) b[j] = tc::load_global(B + i * {nb} + j);
  for (int j = 0; j < {nd}; ++j) d[j] = tc::load_global(D + i * {nd} + j);
  ampere::{name}(d, a, b);
  for (int j = 0; j < {nd}; ++j) tc::store_global(D + i * {nd} + j, d[j]);
}}
"""


@pytest.mark.parametrize("case", CASES)
def test_layouts_are_bijections(case):
    for coordinates in CASES[case][4]():
        rows, columns = np.broadcast_arrays(*coordinates)
        pairs = set(zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True))
        assert len(pairs) == rows.size == (rows.max() + 1) * (columns.max() + 1)


@pytest.mark.parametrize("case", CASES)
def test_mma(run_text, case):
    name, d_type, a_type, b_type, layout = CASES[case]
    a_at, b_at, d_at = layout()
    rng = np.random.default_rng(3)
    m, k, n = a_at[0].max() + 1, a_at[1].max() + 1, b_at[1].max() + 1
    low = 0 if case.startswith("u") or "_u" in case else -8
    a = rng.integers(low if a_type != "int8_t" else -8, 9, (2, m, k)).astype(DTYPES[a_type])
    b = rng.integers(low if b_type != "int8_t" else -8, 9, (2, k, n)).astype(DTYPES[b_type])
    d = rng.integers(-8, 9, (2, m, n)).astype(DTYPES[d_type])

    def spread(tile: np.ndarray, at) -> np.ndarray:
        return np.stack([warp[at] for warp in tile]).reshape(64, -1)

    fragments = [spread(a, a_at), spread(b, b_at), spread(d, d_at)]
    counts = tuple(fragment.shape[1] for fragment in fragments)
    run_text(mma_text(name, d_type, a_type, b_type, counts), "k", fragments, (1, 1, 1), 64, 0)
    expected = a.astype(np.float64) @ b.astype(np.float64) + d.astype(np.float64)
    np.testing.assert_array_equal(fragments[2].astype(np.float64), spread(expected, d_at))


@pytest.mark.parametrize("operand", range(3))
def test_an_operand_beyond_its_registers_is_a_fault(run_text, operand):
    counts = [8, 4, 4]
    counts[operand] -= 2
    text = mma_text(
        "mma_m16n8k16", "float", "tc::half", "tc::half", (counts[0], counts[1], counts[2])
    )
    arrays = [
        np.zeros((64, n), t) for n, t in zip(counts, (np.float16,) * 2 + (np.float32,), strict=True)
    ]
    with pytest.raises(KernelFaults) as caught:
        run_text(text, "k", arrays, (1, 1, 1), 64, 0)
    assert caught.value.kinds == {"registers_out_of_bounds"}


def test_tf32_drops_low_bits_and_to_tf32_rounds(run_text):
    text = """
TC_KERNEL(32, 1) k(const float* A, float* R) {
  const int i = tc::lane_in_block();
  tc::store_global(R + i, ampere::to_tf32(tc::load_global(A + i)));
}
"""
    rng = np.random.default_rng(0)
    a = rng.normal(size=32).astype(np.float32)
    a[:3] = np.inf, -np.inf, np.float32(1 + 2**-11)
    r = np.zeros(32, np.float32)
    run_text(text, "k", [a, r], (1, 1, 1), 32, 0)
    assert not (r.view(np.uint32) & 0x1FFF).any()
    np.testing.assert_allclose(r[2:], a[2:], rtol=2**-11)
    assert r[2] == 1 + 2**-10  # a tie goes away from zero
    np.testing.assert_array_equal(r[:2], a[:2])


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_go_and_come(run_text, n, transposed):
    suffix = "_trans" if transposed else ""
    text = f"""
TC_KERNEL(32, 1) k(const tc::half* A, tc::half* R, tc::half* C) {{
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<tc::half>(smem, 0, {n} * 64);
  auto Z = tc::shared_buffer<tc::half>(smem, 512, {n} * 64);
  const int i = tc::lane_in_block();
  for (int j = i; j < {64 * n}; j += 32) tc::store_shared(S + j, tc::load_global(A + j));
  tc::warp_barrier();
  TC_FRAGMENT(tc::half, r, {2 * n});
  const int row = i % {8 * n};
  ampere::ldmatrix{suffix}<{n}>(r, S + row * 8);
  for (int j = 0; j < {2 * n}; ++j) tc::store_global(R + i * {2 * n} + j, r[j]);
  ampere::stmatrix{suffix}<{n}>(Z + row * 8, r);
  tc::warp_barrier();
  for (int j = i; j < {64 * n}; j += 32) tc::store_global(C + j, tc::load_shared(Z + j));
}}
"""
    a = np.arange(n * 64, dtype=np.float16).reshape(n, 8, 8)
    r, c = np.zeros((32, n, 2), np.float16), np.zeros_like(a)
    report = run_text(text, "k", [a, r, c], (1, 1, 1), 32, 1024)
    tiles = a.swapaxes(1, 2) if transposed else a
    pair = np.arange(2)[None]
    expected = np.stack([tile[G, 2 * T + pair] for tile in tiles], axis=1)
    np.testing.assert_array_equal(r, expected)
    np.testing.assert_array_equal(c, a)
    wide = [access for access in report.shared_accesses if access.bytes_per_lane == 16]
    assert [access.ideal_wavefronts for access in wide] == [n, n]
