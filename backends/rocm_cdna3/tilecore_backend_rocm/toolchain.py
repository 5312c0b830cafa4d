"""What compiles for this backend here: hiprtc where ROCm is, a clang with AMDGPU elsewhere."""

from __future__ import annotations

import importlib.metadata
import shutil

from tilecore.hooks.records import ToolchainInfo

_INSTALL = "install ROCm, or pip install 'tilecore-backend-rocm[toolchain]'"


def probe_toolchain() -> ToolchainInfo:
    """The first toolchain that is found. Never raises."""
    return _hiprtc() or _ziglang() or ToolchainInfo("hiprtc or clang", "", _INSTALL)


def _hiprtc() -> ToolchainInfo | None:
    try:
        from hip import hiprtc

        status, major, minor = hiprtc.hiprtcVersion()
    except (ImportError, RuntimeError):  # no binding, or no libhiprtc behind it
        return None
    return ToolchainInfo("hiprtc", f"{major}.{minor}") if int(status) == 0 else None


def _ziglang() -> ToolchainInfo | None:
    """The clang and lld of the ziglang wheel know AMDGPU and HIP."""
    try:
        return ToolchainInfo("clang of ziglang", importlib.metadata.version("ziglang"))
    except importlib.metadata.PackageNotFoundError:
        pass
    clang = shutil.which("amdclang++")
    return None if clang is None else ToolchainInfo("amdclang++", clang)
