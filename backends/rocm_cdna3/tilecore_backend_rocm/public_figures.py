"""Figures of an MI300X that AMD published, and of libraries that others measured on it.

Each with its source and how sure it is: S was read in the source, M is quoted from memory of it and
wants to be looked up before anyone relies on it. Of the hardware's own figures only the cycles of
matrix instructions were read in a source (AMD's matrix instruction calculator). No library's speed
on an MI300X enters a prediction: these stand beside it.
"""

from __future__ import annotations

from tilecore.hooks.model import PublicFigure

COMPUTE_UNITS = 304
SIMDS = 4
PEAK_CLOCK_HZ = 2.1e9
LDS_BYTES_A_CYCLE = 128
L1_BYTES_A_CYCLE = 64
L2_BYTES_A_CYCLE = 2048  # of one XCD: 16 channels of 128 bytes
XCDS = 8
INFINITY_CACHE_BYTES_A_SECOND = 17.2e12
HBM_BYTES_A_SECOND = 5.3e12
BOARD_WATTS = 750.0
JOULES_AN_OPERATION = 700.0 / 665e12
"""Of 16-bit matrix operations, whole board: an H200 at its limit of 700 W did 661 to 682e12 a
second (docs/performance-log.md, sustained fp16 and bf16 products 8192^3)."""
OPERATIONS_A_CYCLE = 512.0
"""Of one SIMD with 16-bit operands: 16 * 16 * 16 * 2 in 16 cycles. Others take as much power."""

HARDWARE = (
    "MI300X: 304 compute units of 4 SIMDs, 2.1 GHz, 5.3 TB/s of HBM3, 17.2 TB/s of Infinity Cache, "
    "8 XCDs with 2 KiB a cycle of L2 each (AMD, CDNA 3 white paper and data sheet; M)",
    "LDS serves 128 bytes a cycle and compute unit, L1 64 bytes (AMD, CDNA 3 ISA and white paper; "
    "M)",
    "the power limit: a board of 750 W (AMD, data sheet; M) at 1.05 pJ an operation of 16 bits, "
    "which an H200 takes that this project measured at its own limit of 700 W, memory and all else "
    "of the board included (S); other types by the time that they keep a matrix unit busy, as "
    "8-bit products on that H200 do (1350e12 a second; S). That two devices of one process "
    "generation (TSMC N5, 4N) spend alike is an assumption, good to 20 % perhaps: 713 TFLOP/s at "
    "16 bits",
    "S: read in the source; M: from memory of it, unverified",
)

GEMM_BFLOAT16 = (
    PublicFigure("hipBLASLt, largest achievable bf16 product, MI300X", 708,
                 "AMD ROCm blogs, Max-Achievable FLOPs part 2; M"),
    PublicFigure("hipBLASLt through PyTorch, bf16 8192^3, MI325X", 785,
                 "HipKittens, mi325x_bf16_gemm.json; S"),
    PublicFigure("HipKittens, bf16 8192^3, MI325X", 749, "the same file; S"),
)  # fmt: skip
ATTENTION_BFLOAT16 = (
    PublicFigure("FlyDSL, attention forward, best of its shapes, MI325X", 440,
                 "FlyDSL pull request 225; S. Its causal average is 61.8 % of AITER's assembly"),
)  # fmt: skip
POWER_BOUND = (
    "bound by power means: operations times energy over board power, as above. It depends on no "
    "kernel; what the model says of this kernel is the time were power and memory without limits"
)
NO_AITER_FIGURE = (
    "AITER's attention on an MI300X is published as ratios only (1.18 to 1.62 times Triton: "
    "attn-dsl-bench; 0.85 to 0.93 of MoonMath's HIP kernel: moonmath.ai/cdna3attention)"
)
