"""Programs by what they compute: the families that the page shows one by one."""

from __future__ import annotations

import re

FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(f"^examples/({pattern})")
    for name, pattern in {
        "flash attention, forward": r"flash_attention/(example_\w*fwd_b|regression|test_)",
        "flash attention, backward": r"flash_attention/example_\w*bwd",
        "flash attention, variable lengths": r"flash_attention/example_\w*fwd_varlen",
        "grouped queries": r"(flash_attention|flash_decoding|attention_sink)/example_gqa",
        "flash decoding": r"flash_decoding/(?!example_gqa)",
        "attention sinks, sliding windows": r"attention_sink/(?!example_gqa)",
        "latent attention, decoding": r"deepseek_mla/(?!.*benchmark)",
        "DeepGEMM fp8": r"deepseek_deepgemm/|gemm_fp8/",
        "dynamic shapes": r"dynamic_shape/",
        "dequantised products": r"dequantize_gemm/|gemm_int4/",
        "block-sparse": r"blocksparse|seer_attention/|deepseek_nsa/example_tilelang",
        "2:4 sparse products": r"gemm_sp/",
        "linear attention": r"linear_attention/",
        "convolution": r"convolution/",
    }.items()
}
"""Each family's files, by the beginning of their paths. A file may be in several."""


def in_family(name: str, path: str) -> bool:
    """True for a file of that family."""
    return bool(FAMILIES[name].match(path))
