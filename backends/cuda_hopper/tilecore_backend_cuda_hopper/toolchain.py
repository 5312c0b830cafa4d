"""Source text to cubin: the base backend's way, behind this backend's header."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tilecore.hooks.records import Artifact, CompileOptions, Source
from tilecore.target import Target
from tilecore_backend_cuda_ampere import toolchain as base

HEADERS = base.HeaderSet(
    "hopper_kernel.cuh",
    (Path(__file__).parent / "headers", *base.AMPERE_HEADERS.folders),
    ("tilecore_backend_cuda_hopper", *base.AMPERE_HEADERS.packages),
)


def compile_cubin(source: Source, target: Target, options: CompileOptions) -> Artifact:
    """Compile generated text to a cubin.

    Raises:
        ToolchainError: NVRTC is missing or refused the text.
        ResourceError: a kernel does not fit.
    """
    includes = "".join(f'#include "{name}"\n' for name, _ in source.headers)
    if includes:
        name = source.kernels[0].name
        text = f'{includes}#line 1 "{name}.cu"\n{source.text}'
        source = dataclasses.replace(source, text=text)
    return base.compile_cubin(source, target, options, HEADERS)


def toolchain_fingerprint() -> str:
    """NVRTC's exact version and the content of all headers."""
    return base.toolchain_fingerprint(HEADERS)
