from __future__ import annotations

import pytest

from tilecore_backend_rocm.compilers import Compiler, find_compiler


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    """A clang for gfx942; tests that need one are skipped without."""
    found = find_compiler()
    if found is None:
        pytest.skip("no clang with the AMDGPU target (pip install ziglang)")
    return found
