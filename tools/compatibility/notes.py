"""What was found out about a failure, by hand."""

from __future__ import annotations

_OWN_READ = (
    "the program's own: it scales a whole tile of `S_shared`, of which it wrote only the columns "
    "of the sequence's own blocks"
)

_COMPILES = "its reference is compiled by torch, which takes the time"
_ONE_LANE = (
    "written for a host: every lane of a block computes the whole product, 268 million steps each"
)

NOTES = {
    "examples/attention_sink/test_example_attention_sink.py": (
        "the forward kernels write a fragment of `heads` = 1 elements at every row; writes beyond "
        "the end are dropped here, and with a fragment of `block_M` elements the program passes"
    ),
    "examples/attention_sink/example_gqa_sink_bwd_varlen.py": (
        "with smaller sizes its backward kernel reads `Delta` behind the end of a sequence, which "
        "none of its kernels writes; as it is written a host takes longer"
    ),
    "examples/flash_decoding/example_gqa_decode_varlen_logits.py": _OWN_READ,
    "examples/flash_decoding/test_example_flash_decoding.py": _OWN_READ,
    "examples/block_causal_attention/block_causal_attention_varlen.py": _COMPILES,
    "examples/block_causal_attention/test_block_causal_attention.py": _COMPILES,
    "testing/python/debug/test_tilelang_debug_print.py": (
        "it prints shared memory that nobody wrote, which the emulator reports"
    ),
    "testing/python/cpu/test_tilelang_cpu_gemm.py": _ONE_LANE,
    "testing/python/issue/test_tilelang_issue_814.py": (
        "measured when a place that a name stands for was taken for the same in all iterations; "
        "it passes on the host and in the emulator of this backend since"
    ),
    "testing/python/language/test_tilelang_language_copy.py": (
        "a copy between tiles of different constant shapes: refused with both shapes"
    ),
    "testing/python/runtime/test_tilelang_runtime_dynamic_shared_memory.py": (
        "shared memory of an extent that only the call tells, which is read and never written"
    ),
    "testing/python/amd/test_tilelang_hip_codegen.py": (
        "one lane changes a variable of its own and all read theirs in a loop of the block: "
        "refused on every target"
    ),
    "testing/python/transform/test_tilelang_transform_materialize_ws_schedule.py": (
        "objects that annotate a schedule of another compiler's intermediate form"
    ),
}
"""By the file's path; shown where the file does not pass."""
