"""The kernel instances that the benchmark builds: named points of the schedule space."""

from __future__ import annotations

from build import Variant, wgmma_source

ELEMENT_TYPES = {"float16": ("Float16", "f32_f16"), "bfloat16": ("BFloat16", "f32_bf16")}


def gemm_variant(dtype: str = "float16", tile_n: int = 256, **options: int | str) -> Variant:
    """One GEMM instance; `options` are the upper-case definitions of gemm_fp16.cu."""
    element, kind = ELEMENT_TYPES[dtype]
    instruction = wgmma_source.WgmmaInstruction(kind, tile_n)
    defines = {"ELEMENT": element, "TILE_N": tile_n, "WGMMA": instruction.function_name, **options}
    label = "".join(f"_{key.lower()}{value}" for key, value in options.items())
    name = f"gemm_{dtype}_n{tile_n}{label}"
    pairs = tuple((key, str(value)) for key, value in defines.items())
    return Variant(name, "gemm_fp16.cu", "gemm", pairs, (instruction,))


def attention_variant(
    head_dim: int, tile_n: int, causal: bool, dtype: str = "float16", **options: int | str
) -> Variant:
    """One attention instance; `options` are the upper-case definitions of attention_fwd.cu."""
    element, kind = ELEMENT_TYPES[dtype]
    scores = wgmma_source.WgmmaInstruction(kind, tile_n)
    values = wgmma_source.WgmmaInstruction(kind, head_dim, True)
    defines = {
        "ELEMENT": element, "HEAD_DIM": head_dim, "TILE_N": tile_n, "CAUSAL": int(causal),
        "WGMMA_QK": scores.function_name, "WGMMA_PV": values.function_name, **options,
    }
    label = "".join(f"_{key.lower()}{value}" for key, value in options.items())
    name = f"attention_{dtype}_d{head_dim}_n{tile_n}_{'causal' if causal else 'full'}{label}"
    pairs = tuple((key, str(value)) for key, value in defines.items())
    return Variant(name, "attention_fwd.cu", "attention", pairs, (scores, values), allow_spills=True)


GEMM = [gemm_variant(STORE_PANELS=1), gemm_variant()]
GEMM_MN = [gemm_variant(STORE_PANELS=1, B_MN_MAJOR=1)]
GEMM_BF16 = [gemm_variant("bfloat16", STORE_PANELS=1)]

THREE = {"LAZY_RESCALE": 1, "WARPGROUPS": 3, "PINGPONG": 0}
FULL_128 = [
    attention_variant(128, 80, False, **THREE),
    attention_variant(128, 80, False, **THREE, KV_STAGES=3),
    attention_variant(128, 80, False, **THREE, CLUSTER=2),
    attention_variant(128, 80, False, **THREE, CLUSTER=2, KV_STAGES=3),
    attention_variant(128, 80, False, **{**THREE, "PINGPONG": 1}, CLUSTER=2, KV_STAGES=3),
    attention_variant(128, 80, False, **{**THREE, "LAZY_RESCALE": 0}, CLUSTER=2, KV_STAGES=3),
    attention_variant(128, 160, False, LAZY_RESCALE=1, CLUSTER=2),
]
CAUSAL_128 = [
    attention_variant(128, 128, True, LAZY_RESCALE=1),
    attention_variant(128, 80, True, **THREE),
    attention_variant(128, 80, True, **THREE, KV_STAGES=3),
    attention_variant(128, 80, True, **THREE, KV_STAGES=3, CLUSTER=2),
    attention_variant(128, 64, True, **THREE, KV_STAGES=3),
]
FULL_64 = [
    attention_variant(64, 128, False, **THREE),
    attention_variant(64, 128, False, **THREE, KV_STAGES=4),
    attention_variant(64, 112, False, **THREE, KV_STAGES=4),
    attention_variant(64, 128, False, **{**THREE, "PINGPONG": 1}, KV_STAGES=4),
    attention_variant(64, 192, False, LAZY_RESCALE=1, KV_STAGES=2),
]
CAUSAL_64 = [
    attention_variant(64, 128, True, **THREE, KV_STAGES=4),
    attention_variant(64, 112, True, **THREE, KV_STAGES=4),
    attention_variant(64, 128, True, LAZY_RESCALE=1, KV_STAGES=4),
]
TWO = {"LAZY_RESCALE": 1, "Q_STAGES": 1}
FULL_256 = [
    attention_variant(256, 80, False, **TWO),
    attention_variant(256, 80, False, **TWO, PINGPONG=0),
    attention_variant(256, 80, False, **TWO, PINGPONG=0, CLUSTER=2),
    attention_variant(256, 80, False, **TWO, CLUSTER=2),
]
CAUSAL_256 = [
    attention_variant(256, 80, True, **TWO),
    attention_variant(256, 80, True, **TWO, PINGPONG=0),
    attention_variant(256, 64, True, **TWO, PINGPONG=0),
]
ALL = [
    *GEMM, *GEMM_MN, *GEMM_BF16, *FULL_128, *CAUSAL_128, *FULL_64, *CAUSAL_64, *FULL_256, *CAUSAL_256,
]
