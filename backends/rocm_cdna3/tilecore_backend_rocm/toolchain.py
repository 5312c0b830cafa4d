"""What compiles for this backend here: nothing yet, and that is what it reports."""

from __future__ import annotations

from tilecore.hooks.records import ToolchainInfo


def probe_toolchain() -> ToolchainInfo:
    """The state of code generation, as one sentence."""
    return ToolchainInfo(
        "HIP C++",
        "",
        "kernels are emitted as HIP C++ text; this release makes no machine code of it",
    )
