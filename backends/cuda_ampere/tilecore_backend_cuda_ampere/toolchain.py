"""Source text to cubin, by NVRTC in this process.

NVRTC is asked for machine code directly. The way through PTX and a linker gives other code: the
assembler then ignores ``setmaxnreg`` (its message C7504), because it must stay compatible across
compilation units. No driver and no device is needed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilecore.emulator import header_directory
from tilecore.errors import ResourceError, ToolchainError
from tilecore.forking import no_fork
from tilecore.hooks.records import Artifact, CompileOptions, Source, ToolchainInfo
from tilecore.runtime.fingerprint import package_fingerprint
from tilecore.runtime.kept import keep_source
from tilecore.target import Target
from tilecore_backend_cuda_ampere.assembler_log import parse_log
from tilecore_backend_cuda_ampere.convergence import parked_barriers

FORMAT = "cubin"
REGISTER_USAGE_LEVELS = (7, 2)
"""Other values of ptxas' ``--register-usage-level`` (0 to 10, 5 by default) for kernels that spill:
its scheduler fills all registers with loads issued early, and which level leaves enough differs
from kernel to kernel."""
HEADERS = Path(__file__).parent / "headers"
# tc_common.h, the part of the kernel vocabulary that is the same on every device.
COMMON_HEADERS = header_directory()


@dataclass(frozen=True, slots=True)
class HeaderSet:
    """The device header of a backend.

    Attributes:
        name: the file that generated text is compiled behind.
        folders: where to look for it and for what it includes.
        packages: whose content decides the binary besides the source: part of the cache key.
    """

    name: str
    folders: tuple[Path, ...]
    packages: tuple[str, ...]


AMPERE_HEADERS = HeaderSet(
    "ampere.cuh", (HEADERS, COMMON_HEADERS), ("tilecore_backend_cuda_ampere", "tilecore.emulator")
)


def compile_cubin(
    source: Source, target: Target, options: CompileOptions, headers: HeaderSet = AMPERE_HEADERS
) -> Artifact:
    """Compile generated text to a cubin for `target.arch` (such as ``"sm_80"`` or ``"sm_90a"``).

    Raises:
        ToolchainError: NVRTC is missing or refused the text, with its log and the kept text.
        ResourceError: the assembler found that a kernel does not fit, or makes no right code of it.
    """
    text = f'#include "{headers.name}"\n#line 1 "{source.kernels[0].name}.cu"\n{source.text}'
    arguments = (*nvrtc_arguments(target.arch, options, headers.folders), *_without_cache())
    best = _compile(source, text, arguments)
    for level in REGISTER_USAGE_LEVELS:
        if not _spilled(best):
            break
        other = (*arguments, f"--ptxas-options=--register-usage-level={level}")
        best = min(best, _compile(source, text, other), key=_spilled)
    return best if not parked_barriers(best.data) else _unparked(source, text, arguments)


def _unparked(source: Source, text: str, arguments: Sequence[str]) -> Artifact:
    """Slower code in which lanes meet where they must: `convergence.py`.

    Raises:
        ResourceError: the assembler has no such code either.
    """
    plain = _compile(source, text, (*arguments, "--ptxas-options=-O0"))
    moves = parked_barriers(plain.data)
    if moves:
        raise ResourceError(
            "the kernel does not fit: more nested conditions than a warp has barriers to meet at",
            expected="convergence barriers that are not moved to registers",
            got=f"{moves} moves in {source.kernels[0].name}",
            hint="more threads, a smaller tile, or extents that vectors divide",
        )
    return plain


@functools.lru_cache(maxsize=1)
def _without_cache() -> tuple[str, ...]:
    """NVRTC keeps a cache of its own where a driver is, and code from it comes without the
    assembler's log: registers and spills would be unknown. Ours keeps both."""
    _, major, _ = _nvrtc().nvrtcVersion()
    return ("--no-cache",) if major >= 13 else ()


def _spilled(artifact: Artifact) -> int:
    return sum(one.spill_bytes or 0 for one in artifact.resources)  # None: the log has no line


def _compile(source: Source, text: str, arguments: Sequence[str]) -> Artifact:
    """One run of NVRTC."""
    with no_fork():
        return _run_nvrtc(source, text, arguments)


def _run_nvrtc(source: Source, text: str, arguments: Sequence[str]) -> Artifact:
    nvrtc = _nvrtc()
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            text.encode(),
            f"{source.kernels[0].name}.cu".encode(),
            len(source.headers),
            [body.encode() for _, body in source.headers],
            [name.encode() for name, _ in source.headers],
        )
    )
    try:
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(arguments), [argument.encode() for argument in arguments]
        )
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        report = log.decode(errors="replace").replace("\0", "\n").strip()
        if int(status) != 0:
            raise _failure(status.name, report, arguments, text)
        cubin = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Artifact(cubin, FORMAT, parse_log(report, source.kernels), report)


def nvrtc_arguments(arch: str, options: CompileOptions, folders: Sequence[Path]) -> tuple[str, ...]:
    """The command line of one compilation, by NVRTC's documentation."""
    arguments = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "--ptxas-options=-v",  # registers, stack, spills and shared bytes go to the log
        *(f"--include-path={folder}" for folder in folders),
    ]
    if options.line_info:
        arguments.append("--generate-line-info")
    if options.fast_math:
        arguments.append("--use_fast_math")
    return tuple(arguments)


@functools.lru_cache(maxsize=8)
def toolchain_fingerprint(headers: HeaderSet = AMPERE_HEADERS) -> str:
    """NVRTC's exact version and the content of all headers.

    Raises:
        ToolchainError: NVRTC is missing.
    """
    content = package_fingerprint(*headers.packages)
    return f"nvrtc {nvrtc_version()} headers {content}"


@functools.lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Version of the loaded NVRTC; with the patch level where its distribution tells it.

    Raises:
        ToolchainError: NVRTC is missing.
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    for distribution in (f"nvidia-cuda-nvrtc-cu{major}", "nvidia-cuda-nvrtc"):
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version.startswith(f"{major}.{minor}."):
            return version
    return f"{major}.{minor}"


def probe_toolchain() -> ToolchainInfo:
    """What compiles here, or what to install. Never raises."""
    try:
        return ToolchainInfo("NVRTC", nvrtc_version())
    except ToolchainError as error:
        return ToolchainInfo("NVRTC", "", str(error))


def supports_arch(arch: str) -> bool:
    """Whether this NVRTC generates code for an architecture such as ``"sm_90a"``."""
    _, numbers = _nvrtc().nvrtcGetSupportedArchs()
    return int(arch.removeprefix("sm_").rstrip("af")) in numbers


@functools.lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """The binding, with its library loaded."""
    hint = "pip install cuda-bindings nvidia-cuda-nvrtc"
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolchainError(f"cuda.bindings does not import: {error}", hint=hint) from error
    try:
        status, *_ = nvrtc.nvrtcVersion()
    except Exception as error:  # the binding has one class per way in which a library is missing
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ToolchainError(f"the NVRTC library cannot be loaded: {reason}", hint=hint) from error
    if int(status) != 0:
        raise ToolchainError(f"NVRTC does not answer: {status.name}", hint=hint)
    return nvrtc


def _checked(answer: tuple[Any, Any]) -> Any:
    status, value = answer
    if int(status) != 0:
        raise ToolchainError(f"NVRTC failed: {status.name}")
    return value


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    """What NVRTC gives by a size query and a copy.

    The binding writes into the bytes object. Bytes of length 1 are shared by the whole
    interpreter, so the buffer is longer: an empty log would overwrite every ``b" "`` otherwise.
    """
    size = int(_checked(size_of(program)))
    buffer = bytes(size + 1)
    (status,) = read(program, buffer)
    if int(status) != 0:
        raise ToolchainError(f"NVRTC failed: {status.name}")
    return buffer[:size]


def _failure(
    status: str, report: str, arguments: Sequence[str], text: str
) -> ToolchainError | ResourceError:
    """The error of one failed compilation; the text is kept for whoever wants to look at it."""
    kept = keep_source(text, ".cu")
    for line in report.splitlines():
        if "ptxas error" in line and ("uses too much" in line or "too many resources" in line):
            reason = line.partition(":")[2].strip()
            return ResourceError(
                f"the kernel does not fit: {reason}", hint=f"source kept in {kept}"
            )
    command = " ".join(arguments)
    return ToolchainError(
        f"NVRTC refused the generated source ({status})\n{report}\n"
        f"arguments: {command}\nsource kept in {kept}",
        hint=_author_line(report, text),
    )


def _author_line(report: str, text: str) -> str | None:
    """Which of the author's lines the first refused line of a generated text came from."""
    found = re.search(r"\.cu\((\d+)\): error", report)
    if found is None:
        return None
    lines = text.splitlines()
    # Behind the last #line: other backends put more in front of what was generated.
    first = 1 + max(n for n, line in enumerate(lines) if line.startswith("#line 1 "))
    for line in reversed(lines[first : first + int(found.group(1))]):
        origin = re.match(r"\s*// (\S+:\d+): (.*)", line)
        if origin is not None:
            return f"generated for {origin.group(1)}: {origin.group(2)}"
    return None
