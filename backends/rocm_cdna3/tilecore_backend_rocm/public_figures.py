"""Figures of an MI300X that AMD published, and of libraries that others measured on it.

Each with its source and how sure it is: S was read in the source, M is quoted from memory of it and
wants to be looked up before anyone relies on it. Of the hardware's own figures only the cycles of
matrix instructions were read in a source (AMD's matrix instruction calculator).
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
MOST_ACHIEVABLE = 708e12 / 1307e12
"""Share of the peak that the power limit leaves to bfloat16 products, as AMD measured."""

HARDWARE = (
    "MI300X: 304 compute units of 4 SIMDs, 2.1 GHz, 5.3 TB/s of HBM3, 17.2 TB/s of Infinity Cache, "
    "8 XCDs with 2 KiB a cycle of L2 each (AMD, CDNA 3 white paper and data sheet; M)",
    "LDS serves 128 bytes a cycle and compute unit, L1 64 bytes (AMD, CDNA 3 ISA and white paper; "
    "M)",
    "the power limit holds bfloat16 products to 54 % of the peak, 708 of 1307 TFLOP/s (AMD ROCm "
    "blogs, Measuring Max-Achievable FLOPs part 2; M), and other types to the same share, which is "
    "a guess",
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
CIRCULAR = (
    "bound by power means: the limit above, which is hipBLASLt's own best figure, divided into the "
    "operations. Such a prediction agrees with hipBLASLt by construction and confirms nothing; "
    "what the model itself says is the time were power and memory without limits"
)
NO_AITER_FIGURE = (
    "AITER's attention on an MI300X is published as ratios only (1.18 to 1.62 times Triton: "
    "attn-dsl-bench; 0.85 to 0.93 of MoonMath's HIP kernel: moonmath.ai/cdna3attention)"
)
