"""What a refused text says when headers of the program's own stand in front of it."""

from __future__ import annotations

import pytest

from tilecore.errors import ToolchainError
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore_backend_cuda_hopper.target import describe_targets
from tilecore_backend_cuda_hopper.toolchain import compile_cubin


def test_it_names_the_authors_line() -> None:
    text = (
        "TC_KERNEL(128, 0) k(float* x) {\n  // mine.py:7: x[i] = nonsense\n  x[0] = nonsense;\n"
        "  // mine.py:8: x[i] = 1\n  x[0] = 1.0f;\n}\n"
    )
    kernels = (KernelSource("k", (), (), 128, 0),)
    source = Source(text, "c++", kernels, headers=(("own.cuh", "int of_its_own();\n"),))
    (target,) = describe_targets()
    with pytest.raises(ToolchainError, match="generated for mine.py:7: x"):
        compile_cubin(source, target, CompileOptions())
