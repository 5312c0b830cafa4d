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
        "none of its kernels writes; as it is written a layout of 134 million coordinates is "
        "refused"
    ),
    "examples/flash_attention/example_gqa_bwd.py": (
        "with smaller sizes it has less heads than a group, and divides by none; as it is written "
        "a layout of over 33 million coordinates is refused"
    ),
    "examples/flash_decoding/example_gqa_decode_varlen_logits.py": _OWN_READ,
    "examples/flash_decoding/test_example_flash_decoding.py": _OWN_READ,
    "examples/block_causal_attention/block_causal_attention_varlen.py": _COMPILES,
    "examples/block_causal_attention/test_block_causal_attention.py": _COMPILES,
    "testing/python/debug/test_tilelang_debug_print.py": (
        "it prints shared memory that nobody wrote, which the emulator reports"
    ),
    "testing/python/cpu/test_tilelang_cpu_gemm.py": _ONE_LANE,
    "testing/python/language/test_tilelang_language_composable_index.py": (
        "measured when each lane held the whole of its flat fragment of 18432 elements; spread "
        "over lanes since, it passes in the emulators of these backends in 8 seconds"
    ),
    "testing/python/cuda/test_cuda_f32x2_intrinsics.py": (
        "measured before T.Ramp and T.add2 were there; tests of these pass in the emulators of "
        "these backends since"
    ),
    "testing/python/issue/test_tilelang_issue_1237.py": (
        "measured before a slice whose length the call tells went with a tile of constant size; "
        "tests of such copies pass in the emulators of these backends since"
    ),
    "testing/python/target/test_tilelang_alloc_barrier_target_guard.py": (
        "measured before barriers that nobody uses were left away; a test of one passes in the "
        "emulator of this backend since"
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
