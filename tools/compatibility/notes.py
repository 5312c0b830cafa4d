"""What was found out about a failure, by hand."""

from __future__ import annotations

_OWN_READ = (
    "the program's own: it scales a whole tile of `S_shared`, of which it wrote only the columns "
    "of the sequence's own blocks"
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
    "examples/flash_decoding/example_gqa_decode_varlen_logits.py": _OWN_READ,
    "examples/flash_decoding/test_example_flash_decoding.py": _OWN_READ,
    "testing/python/language/test_tilelang_language_ptr.py": (
        "addresses in tensors: no extents come with them, so no access could be guarded"
    ),
    "testing/python/language/test_tilelang_language_copy.py": (
        "a copy between tiles of different constant shapes: refused with both shapes"
    ),
}
"""By the file's path; shown where the file does not pass."""
