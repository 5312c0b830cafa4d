"""The kernel instances that the benchmark builds: named points of the schedule space.

The first of each list is the schedule to reproduce; the others each take one feature away or trade
it, so that one run shows what every feature is worth.
"""

from __future__ import annotations

from build import Variant, wgmma_source

ELEMENT_TYPES = {"float16": ("Float16", "f32_f16"), "bfloat16": ("BFloat16", "f32_bf16")}


def gemm_variant(name: str, dtype: str = "float16", **options: int | str) -> Variant:
    """One GEMM instance; `options` are the upper-case definitions of gemm_fp16.cu."""
    element, kind = ELEMENT_TYPES[dtype]
    tile_n = int(options.pop("TILE_N", 256))
    instruction = wgmma_source.WgmmaInstruction(kind, tile_n)
    defines = {"ELEMENT": element, "TILE_N": tile_n, "WGMMA": instruction.function_name, **options}
    pairs = tuple((key, str(value)) for key, value in defines.items())
    return Variant(f"gemm {dtype} {name}", "gemm_fp16.cu", "gemm", pairs, (instruction,))


def attention_variant(
    name: str, head_dim: int, tile_n: int, causal: bool, dtype: str = "float16", **options: int
) -> Variant:
    """One attention instance; `options` are the upper-case definitions of attention_fwd.cu."""
    element, kind = ELEMENT_TYPES[dtype]
    scores = wgmma_source.WgmmaInstruction(kind, tile_n)
    values = wgmma_source.WgmmaInstruction(kind, head_dim, True)
    defines = {
        "ELEMENT": element,
        "HEAD_DIM": head_dim,
        "TILE_N": tile_n,
        "CAUSAL": int(causal),
        "WGMMA_QK": scores.function_name,
        "WGMMA_PV": values.function_name,
        **options,
    }
    full_name = f"attention {dtype} d{head_dim} {'causal' if causal else 'full'} {name}"
    pairs = tuple((key, str(value)) for key, value in defines.items())
    return Variant(full_name, "attention_fwd.cu", "attention", pairs, (scores, values))


def latent_variant(name: str, **options: int) -> Variant:
    """One schedule of latent decoding."""
    instructions = tuple(
        wgmma_source.WgmmaInstruction("f32_f16", n, in_registers)
        for n, in_registers in ((48, True), (48, False), (128, False))
    )
    pairs = tuple((key, str(value)) for key, value in options.items())
    return Variant(f"latent {name}", "latent_decode.cu", "latent_decode", pairs, instructions)


GEMM = [
    gemm_variant("128x256x64 c2", STORE_PANELS=1),
    gemm_variant("snake raster", STORE_PANELS=1, RASTER_SNAKE=1),
    gemm_variant("store not deferred", STORE_PANELS=1, DEFER_STORE=0),
    gemm_variant("no cluster", STORE_PANELS=1, CLUSTER=1, RASTER_ROWS=16),
]
GEMM_MN = [gemm_variant("128x256x64 c2 B[K,N]", STORE_PANELS=1, B_MN_MAJOR=1)]
GEMM_BF16 = [gemm_variant("128x256x64 c2", "bfloat16", STORE_PANELS=1)]

THREE = {"LAZY_RESCALE": 1, "WARPGROUPS": 3, "PINGPONG": 0, "KV_STAGES": 3}
SERIAL = {"INTRA_OVERLAP": 0, "PINGPONG": 0}
PAIRED = {**THREE, "KV_STAGES": 4, "Q_STAGES": 1, "CLUSTER": 2}
FULL_128 = [
    attention_variant("192x80 c2", 128, 80, False, **PAIRED),
    attention_variant("192x80 c2 kv3 q2", 128, 80, False, **THREE, CLUSTER=2),
    attention_variant("192x80", 128, 80, False, **THREE),
    attention_variant("192x80 rescale always", 128, 80, False, **{**THREE, "LAZY_RESCALE": 0}),
    attention_variant("192x128 serial, rescale always", 128, 128, False, **SERIAL, WARPGROUPS=3),
    attention_variant("128x128 serial, rescale always", 128, 128, False, **SERIAL),
    attention_variant("128x128 overlap, rescale always", 128, 128, False, PINGPONG=0),
    attention_variant("128x128 overlap pingpong, rescale always", 128, 128, False),
    attention_variant("128x128 overlap pingpong", 128, 128, False, LAZY_RESCALE=1),
]
CAUSAL_128 = [
    attention_variant("192x80", 128, 80, True, **THREE),
    attention_variant("192x80 no L2 sections", 128, 80, True, **THREE, SECTIONED=0),
    attention_variant("192x80 static order", 128, 80, True, **THREE, DYNAMIC=0),
    attention_variant("128x128 overlap pingpong, rescale always", 128, 128, True),
]
FULL_64 = [attention_variant("192x128", 64, 128, False, **{**THREE, "KV_STAGES": 4})]
CAUSAL_64 = [attention_variant("192x128", 64, 128, True, **{**THREE, "KV_STAGES": 4})]
TWO = {"LAZY_RESCALE": 1, "Q_STAGES": 1, "PINGPONG": 0}
FULL_256 = [attention_variant("128x80 c2", 256, 80, False, **TWO, CLUSTER=2)]
CAUSAL_256 = [attention_variant("128x80", 256, 80, True, **TWO)]
BF16_128 = [
    attention_variant("192x80 c2", 128, 80, False, "bfloat16", **PAIRED),
]
LATENT = [
    latent_variant("4 panels of Q held", HELD=4),
    latent_variant("5 panels of Q held", HELD=5),
    latent_variant("added at once", HELD=4, DELAYED=0),
]
ALL = [
    *LATENT,
    *GEMM, *GEMM_MN, *GEMM_BF16, *FULL_128, *CAUSAL_128, *BF16_128,
    *FULL_64, *CAUSAL_64, *FULL_256, *CAUSAL_256,
]  # fmt: skip
