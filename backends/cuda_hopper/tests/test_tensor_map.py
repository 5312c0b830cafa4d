"""Tensor maps: limits are refused with sizes, and the driver is asked for what was meant."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilecore.errors import LaunchError, UnsupportedError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float4_e2m1fn, float16, float32
from tilecore.ir.expr import Var, binary, const
from tilecore.ir.windows import Windows
from tilecore_backend_cuda_hopper.tensor_map import TensorMap
from tilecore_backend_cuda_hopper.window_map import over_limit

M, K = Var("M"), Var("K")
STAND_IN = Path(__file__).parents[2] / "cuda_ampere" / "tests" / "native" / "fake_libcuda.c"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def tensor_map(**changes: Any) -> TensorMap:
    facts: dict[str, Any] = {
        "buffer": "A", "dtype": float16, "shape": (M, K), "strides": (K, const(1)),
        "box": (128, 64),
    }  # fmt: skip
    return TensorMap(**{**facts, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"box": (128, 64, 1)}, "rank; expected 1 to 5, the same for all"),
        ({"box": (257, 64)}, r"box; expected 1 to 256 along each axis, got \(257, 64\)"),
        ({"box": (0, 64)}, "box; expected 1 to 256"),
        ({"box": (128, 4)}, "row of the box; expected a multiple of 16 bytes, got 8"),
        ({"box": (128, 128)}, "row of the box; expected at most the swizzle's 128 bytes, got 256"),
        (
            {"dtype": float32, "swizzle_bytes": 64, "box": (8, 32)},
            "row of the box; expected at most the swizzle's 64 bytes, got 128",
        ),
        ({"swizzle_bytes": 16}, "swizzle; expected one of"),
        ({"dtype": float4_e2m1fn}, "dtype; expected one of uint8"),
    ],
)
def test_static_limits(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"no tensor map of A has this {message}"):
        tensor_map(**changes)


@pytest.mark.parametrize(
    ("address", "sizes", "message"),
    [
        (4104, {"M": 64, "K": 64}, "A is misaligned for bulk copies; .* got 0x1008"),
        (4096, {"M": 64, "K": 60}, r"rows of A are misaligned .* got \(120,\) bytes"),
        (4096, {"M": 2**33, "K": 64}, "A is too large for bulk copies"),
    ],
)
def test_limits_of_a_call(address: int, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        tensor_map().encode(address, sizes)


def test_empty_tensor_has_no_map() -> None:
    assert tensor_map().encode(4096, {"M": 64, "K": 0}) == bytes(128)


PROGRAM = """
import sys
from tilecore.ir.dtypes import float16, float8_e4m3fn
from tilecore.ir.expr import Var, binary, const
from tilecore_backend_cuda_hopper.tensor_map import TensorMap
M, K = Var("M"), Var("K")
two = TensorMap("A", float16, (M, K), (K, const(1)), (128, 64))
print(two.encode(4096, {"M": 100, "K": 72, "N": 5}).hex())
strides = (binary("mul", M, K), K, const(1))
three = TensorMap("A", float8_e4m3fn, (const(7), M, K), strides, (1, 64, 32), 32, 0)
print(three.encode(8192, {"M": 100, "K": 80}).hex())
for address, columns in ((4096, 128), (4096 + 128, 128), (4096, 64)):
    print(two.encode(address, {"M": 100, "K": columns}).hex())
"""


WINDOWS = """
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float16
from tilecore.ir.expr import Var, const
from tilecore.ir.windows import Windows
from tilecore_backend_cuda_hopper.window_map import window_map
H = Var("H")
image = Buffer("X", (const(3), H, const(50), const(96)), float16, Scope.GLOBAL)
one = window_map(Windows(image, 5, 2, 3, 4), 128, 32, 64)
print(one.encode(4096, {"H": 70}).hex())
assert one.encode(4096, {"H": 4}) == bytes(128)  # no window fits
assert one.encode(4096, {"H": 0}) == bytes(128)
"""


def encoded(program: str, tmp_path: Path) -> list[tuple[int, ...]]:
    """The words of the maps that a program prints; the stand-in for the driver's library writes
    its arguments into them."""
    library = tmp_path / "libcuda.so.1"
    assert COMPILER is not None
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([COMPILER, *flags, "-o", library, STAND_IN, "-ldl"], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(library)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return [struct.unpack("<16Q", bytes.fromhex(line)) for line in result.stdout.split()]


@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="no C compiler on Linux")
def test_driver_is_asked_for_what_was_meant(tmp_path: Path) -> None:
    two, three, *others = encoded(PROGRAM, tmp_path)
    step = 1 << 32
    # cuda.h: FLOAT16 is 6, UINT8 is 0; SWIZZLE_128B is 3, 32B is 1; L2_128B is 2, L2_256B is 3.
    assert two[:7] == (6 | 2 << 8 | 3 << 16 | 2 << 24, 4096, 72, 100, 144, 64 | step, 128 | step)
    assert [other[0] >> 24 for other in others] == [3, 2, 2]  # two lines where all rows begin so
    assert three[:10] == (
        0 | 3 << 8 | 1 << 16, 8192, 80, 100, 7, 80, 8000, 32 | step, 64 | step, 1 | step,
    )  # fmt: skip


@pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="no C compiler on Linux")
def test_driver_is_asked_for_windows(tmp_path: Path) -> None:
    """First pixels from -4 to 8 short of the last one; rows of 64 bytes (swizzle 64B is 2); rows
    begin at multiples of 128 bytes but not of 256 (L2_128B is 2)."""
    ((facts, address, *rest),) = encoded(WINDOWS, tmp_path)
    assert (facts, address) == (6 | 4 << 8 | 2 << 16 | 2 << 24, 4096)
    assert rest[:7] == [96, 50, 70, 3, 192, 192 * 50, 192 * 50 * 70]
    corners = (-4 & 0xFFFFFFFF) | (-8 & 0xFFFFFFFF) << 32
    assert rest[7:9] == [corners, corners]
    assert rest[9:11] == [32 | 128 << 32, 1 | 2 << 8 | 2 << 16 | 1 << 24]


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ((3, 8, 1, 1), ""),
        ((3, 9, 1, 1), "a stride of 9 pixels, at most 8"),
        ((2, 1, 255, 128), ""),
        ((2, 1, 256, 128), "a window of 257 pixels, at most 256"),
        ((2, 1, 129, 0), "a corner of -129 pixels, -128 to 127"),
        ((1, 1, 1, 128), "a corner of 128 pixels, -128 to 127"),
    ],
)
def test_limits_of_windows(facts: tuple[int, int, int, int], limit: str) -> None:
    image = Buffer("X", tuple(map(const, (1, 300, 300, 64))), float16, Scope.GLOBAL)
    assert over_limit(Windows(image, *facts)) == limit


def test_fits_the_launch_path() -> None:
    """A launch takes any record with these two members; this is one."""
    made = tensor_map(shape=(M, binary("mul", K, const(2))))
    assert made.buffer == "A"
    assert callable(made.encode)
