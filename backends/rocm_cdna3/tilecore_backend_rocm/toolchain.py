"""Source text to a linked code object: by clang (assembly, object, link), or by hiprtc.

clang is preferred even where ROCm's runtime compiler is present: its assembly tells registers and
spills, and it is one step from there to the object. Neither needs device libraries or HIP headers.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilecore.emulator import header_directory
from tilecore.errors import ToolchainError
from tilecore.hooks.records import Artifact, CompileOptions, Source, ToolchainInfo
from tilecore.runtime.fingerprint import package_fingerprint
from tilecore.runtime.kept import keep_source
from tilecore.target import Target

from . import runtime_compiler
from .compilers import MISSING, Compiler, find_compiler
from .emulation import HEADERS
from .resources import describe, read_resources

FORMAT = "hsaco"
HEADER = "cdna3.h"
FOLDERS = (HEADERS, header_directory())
# Contraction within expressions only: maths functions carry rounding errors from one to the next.
# Code object version 5 is understood by ROCm 6 and later.
COMMON_FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=on",
    "-munsafe-fp-atomics",
    "-mcode-object-version=5",
)
# Without a unit id: it would hash the path of the text into the code.
_CLANG_FLAGS = (
    "-x", "hip", "--offload-device-only", "-nogpulib", "-nogpuinc", "-fuse-cuid=none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Built:
    """What clang made of a source.

    Attributes:
        assembly: readable, with the figures of each kernel.
        code_object: linked, loadable by HIP.
        log: the compiler's remarks.
    """

    assembly: str
    code_object: bytes
    log: str


def compile_code_object(source: Source, target: Target, options: CompileOptions) -> Artifact:
    """Compile generated text to a code object for `target.arch`.

    Raises:
        ToolchainError: there is no compiler, or it refused the text (log and kept text).
    """
    compiler = find_compiler()
    text = f'#include "{HEADER}"\n#line 1 "{source.kernels[0].name}.hip"\n{source.text}'
    if compiler is None:
        data, log = runtime_compiler.compile_text(text, target.arch, flags(options), FOLDERS)
        return Artifact(data, FORMAT, (), log)
    built = build(compiler, text, target.arch, options)
    resources = read_resources(built.assembly, source.kernels)
    remarks = [built.log, *describe(built.assembly, source.kernels)]
    if "TC_PRINT(" in source.text:
        remarks.append("prints are left out: they need ROCm's device libraries (hiprtc has them)")
    log = "\n".join(filter(None, remarks))
    return Artifact(built.code_object, FORMAT, resources, log)


def assembly_of(source: Source, target: Target, options: CompileOptions | None = None) -> str:
    """The ISA that clang makes of a source, as text.

    Raises:
        ToolchainError: as `compile_code_object`.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ToolchainError(MISSING)
    text = f'#include "{HEADER}"\n#line 1 "{source.kernels[0].name}.hip"\n{source.text}'
    return build(compiler, text, target.arch, options or CompileOptions(), link=False).assembly


def flags(options: CompileOptions) -> tuple[str, ...]:
    """Flags that clang and hiprtc share."""
    fast = ("-freciprocal-math", "-fno-signed-zeros") if options.fast_math else ()
    return (*COMMON_FLAGS, *fast)


def build(
    compiler: Compiler, text: str, arch: str, options: CompileOptions, link: bool = True
) -> Built:
    """Run the compiler, the assembler and the linker.

    Raises:
        ToolchainError: one of them failed.
    """
    with tempfile.TemporaryDirectory(prefix="tilecore-") as name:
        folder = Path(name)
        kernel, assembly = folder / "kernel.hip", folder / "kernel.s"
        kernel.write_text(text)
        includes = tuple(f"-I{place}" for place in FOLDERS)
        log = _run(
            (*compiler.clang, *_CLANG_FLAGS, f"--offload-arch={arch}", *flags(options), *includes,
             "-S", str(kernel), "-o", str(assembly)),
            text,
        )  # fmt: skip
        listing = assembly.read_text()
        if not link:
            return Built(listing, b"", log)
        made, linked = folder / "kernel.o", folder / "kernel.hsaco"
        machine = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-mcode-object-version=5")
        _run((*compiler.clang, *machine, "-c", str(assembly), "-o", str(made)), text)
        _run(
            (*compiler.linker, "-shared", "--no-undefined", str(made), "-o", str(linked)),
            text,
        )
        return Built(listing, linked.read_bytes(), log)


@functools.lru_cache(maxsize=1)
def toolchain_fingerprint() -> str:
    """The compiler's version, its flags and the content of all headers.

    Raises:
        ToolchainError: there is no compiler.
    """
    compiler = find_compiler()
    version = runtime_compiler.version() if compiler is None else compiler.version
    if version is None:
        raise ToolchainError(MISSING)
    content = package_fingerprint("tilecore_backend_rocm", "tilecore.emulator")
    return f"{version} {' '.join(COMMON_FLAGS)} headers {content}"


def probe_toolchain() -> ToolchainInfo:
    """What compiles here, or what to install. Never raises."""
    compiler = find_compiler()
    if compiler is not None:
        return ToolchainInfo(compiler.name, compiler.version)
    version = runtime_compiler.version()
    if version is not None:
        return ToolchainInfo("hiprtc", version)
    return ToolchainInfo("clang for AMDGPU", "", MISSING)


def _run(command: tuple[str, ...], text: str) -> str:
    """Run one tool; its messages.

    Raises:
        ToolchainError: it failed; the source is kept for whoever wants to look at it.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stderr.strip()
    kept = keep_source(text, ".hip")
    raise ToolchainError(
        f"{Path(command[0]).name} failed on the generated source\n{done.stderr.strip()}\n"
        f"command: {' '.join(command)}\nsource kept in {kept}"
    )
