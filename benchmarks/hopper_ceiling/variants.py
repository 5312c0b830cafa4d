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
    return Variant(name, "attention_fwd.cu", "attention", pairs, (scores, values))


GEMM = [
    gemm_variant(),
    gemm_variant(GRID=128),
    gemm_variant(A_POLICY="kEvictLast", B_POLICY="kEvictFirst"),
    gemm_variant(A_POLICY="kEvictFirst", B_POLICY="kEvictLast"),
    gemm_variant(A_POLICY="kEvictLast", B_POLICY="kEvictLast"),
    gemm_variant(CLUSTER=4, RASTER_ROWS=4, GRID=128),
    gemm_variant(CLUSTER=4, RASTER_ROWS=4, GRID=128, A_POLICY="kEvictLast", B_POLICY="kEvictFirst"),
]
GEMM_MN = [gemm_variant(B_MN_MAJOR=1)]
GEMM_BF16 = [gemm_variant("bfloat16")]

FULL_128 = [
    attention_variant(128, 128, False, LAZY_RESCALE=1),
    attention_variant(128, 128, False, LAZY_RESCALE=1, SECTIONED=1),
    attention_variant(128, 128, False, LAZY_RESCALE=1, SECTIONED=1, DYNAMIC=1),
    attention_variant(128, 128, False, LAZY_RESCALE=1, DYNAMIC=1),
    attention_variant(128, 160, False, LAZY_RESCALE=1, SECTIONED=1, DYNAMIC=1),
    attention_variant(128, 160, False, LAZY_RESCALE=0, SECTIONED=1, DYNAMIC=1),
]
CAUSAL_128 = [
    attention_variant(128, 128, True),
    attention_variant(128, 128, True, LAZY_RESCALE=1),
]
ALL = [*GEMM, *GEMM_MN, *GEMM_BF16, *FULL_128, *CAUSAL_128]
