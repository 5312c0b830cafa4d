"""Kernels whose nested conditions need more convergence barriers than a warp has."""

from __future__ import annotations

import struct

import pytest

from tilecore.errors import ResourceError
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore.target import Target
from tilecore_backend_cuda_ampere import toolchain
from tilecore_backend_cuda_ampere.convergence import parked_barriers

TARGET = Target("cuda_ampere", "sm_80")
# One lane in four loads nothing, and asks so again before each byte.
NESTED = """
TC_KERNEL(32, 0) k(const int8_t* TC_RESTRICT x, int8_t* TC_RESTRICT y, int rows, int columns) {
  TC_SHARED_MEMORY(smem);
  const int lane = tc::lane_in_block();
  auto a = tc::shared_buffer<int8_t>(smem, 0, 5376);
  TC_UNROLL
  for (int i = 0; i < 14; ++i) {
    TC_FRAGMENT(int8_t, v, 16);
    TC_UNROLL
    for (int j = 0; j < 16; ++j) {
      if (lane % 4 * 16 + j < 48) {
        v[j] = (lane / 4 + i * 8 < rows) && (lane % 4 * 16 + j < columns)
          ? tc::load_global(x + (lane / 4 + i * 8) * 95 + lane % 4 * 16 + j) : int8_t(0);
      }
    }
    if (lane % 4 * 16 < 48) {
      tc::store_shared<16>(a + lane / 4 * 48 + lane % 4 * 16 + i * 384, v);
    }
  }
  tc::barrier();
  TC_NO_UNROLL
  for (int i = lane; i < 5376; i += 32) y[i] = a[i];
}
"""
PLAIN = "TC_KERNEL(32, 0) k(float* x) { x[tc::lane_in_block()] *= 2.0f; }\n"


def source(text: str) -> Source:
    return Source(text, "c++", (KernelSource("k", (), (), 32, 5376),))


def elf(*instructions: int, flags: int = 4) -> bytes:
    """A file with one section of 16-byte instructions, of each its first half."""
    code = b"".join(struct.pack("<QQ", word, 0x355) for word in instructions)
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, 64 + len(code))
    struct.pack_into("<HH", head, 0x3A, 64, 1)
    section = struct.pack("<IIQQQQ", 0, 1, flags, 0, 64, len(code)).ljust(64, b"\0")
    return bytes(head) + code + section


def test_moves_of_barriers_are_found_in_code() -> None:
    out, back, nowhere, other = 0x227355, 0x2200007356, 0xFF7355, 0x7945
    assert parked_barriers(elf(other, out, back, nowhere)) == 2
    assert parked_barriers(elf(other, nowhere)) == 0
    assert parked_barriers(elf(out, back, flags=2)) == 0  # data


def test_no_binary_parks_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = toolchain.compile_cubin(source(NESTED), TARGET, CompileOptions())
    assert parked_barriers(made.data) == 0
    monkeypatch.setattr(toolchain, "parked_barriers", lambda cubin: 0)
    careless = toolchain.compile_cubin(source(NESTED), TARGET, CompileOptions())
    if not toolchain.nvrtc_version().startswith("13.0"):
        pytest.skip("whether another assembler parks barriers here is its own affair")
    assert parked_barriers(careless.data) > 0  # the text is of the kind


def test_a_kernel_without_right_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "parked_barriers", lambda cubin: 7)
    with pytest.raises(ResourceError, match="more nested conditions than a warp has barriers"):
        toolchain.compile_cubin(source(PLAIN), TARGET, CompileOptions())
