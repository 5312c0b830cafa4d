"""hiprtc, ROCm's compiler in the process, for installations that have it and no clang.

Written to HIP's documentation ("HIP RTC"); not run on a machine with ROCm so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilecore.errors import ToolchainError
from tilecore.forking import no_fork

from .compilers import MISSING


def version() -> str | None:
    """``"hiprtc 9.0"`` when the library can be loaded; None otherwise. Never raises."""
    hiprtc = _library()
    if hiprtc is None:
        return None
    try:
        status, major, minor = hiprtc.hiprtcVersion()
    except RuntimeError:  # the binding's error for a library that cannot be loaded
        return None
    return f"hiprtc {major}.{minor}" if int(status) == 0 else None


def compile_text(
    text: str, arch: str, flags: Sequence[str], folders: Sequence[Path]
) -> tuple[bytes, str]:
    """(code object, log) of a text.

    Raises:
        ToolchainError: hiprtc is missing, or refused the text.
    """
    hiprtc = _library()
    if hiprtc is None or version() is None:
        raise ToolchainError(MISSING)
    program = _checked(hiprtc.hiprtcCreateProgram(text.encode(), b"kernel.hip", 0, None, None))
    options = [f"--offload-arch={arch}", *flags, *(f"-I{folder}" for folder in folders)]
    encoded = [option.encode() for option in options]
    with no_fork():
        (status,) = hiprtc.hiprtcCompileProgram(program, len(encoded), encoded)
    log = _read(hiprtc.hiprtcGetProgramLogSize, hiprtc.hiprtcGetProgramLog, program)
    report = log.decode(errors="replace").rstrip("\0").strip()
    if int(status) != 0:
        raise ToolchainError(f"hiprtc refused the generated source\n{report}")
    code = _read(hiprtc.hiprtcGetCodeSize, hiprtc.hiprtcGetCode, program)
    hiprtc.hiprtcDestroyProgram(program.createRef())
    return code, report


def _library() -> Any:
    try:
        from hip import hiprtc
    except ImportError:
        return None
    return hiprtc


def _checked(answer: tuple[Any, ...]) -> Any:
    status, value = answer
    if int(status) != 0:
        raise ToolchainError(f"hiprtc failed: {status}")
    return value


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    """What hiprtc gives by a size query and a copy."""
    buffer = bytearray(int(_checked(size_of(program))))
    (status,) = read(program, buffer)
    if int(status) != 0:
        raise ToolchainError(f"hiprtc failed: {status}")
    return bytes(buffer)
