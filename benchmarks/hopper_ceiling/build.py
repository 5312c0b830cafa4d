"""Compile the kernels of this folder with NVRTC and refuse what the compiler says is slow.

A build fails on serialised or patched wgmma pipelines, an ignored `setmaxnreg`, and spills. Cubins
are cached under `build/hopper_ceiling` by the hash of source and options, so that they can be made
on a machine without a GPU.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BACKEND = ROOT / "backends/cuda_hopper/tilecore_backend_cuda_hopper"
CACHE = ROOT / "build/hopper_ceiling"
FATAL = ("serialized", "is injected", "'setmaxnreg' ignored", "setmaxnreg ignored")
"""Fragments of ptxas messages that mean a slow kernel."""


def _load_wgmma_source():
    spec = importlib.util.spec_from_file_location("wgmma_source", BACKEND / "wgmma_source.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["wgmma_source"] = module
    spec.loader.exec_module(module)
    return module


wgmma_source = _load_wgmma_source()


@dataclass(frozen=True)
class Variant:
    """One kernel instance: file, preprocessor definitions, wgmma shapes."""

    name: str
    source: str
    kernel: str
    defines: tuple[tuple[str, str], ...]
    instructions: tuple = ()

    def define(self, key: str, default: int) -> int:
        """Value of an integer definition."""
        return int(dict(self.defines).get(key, default))


class BuildError(RuntimeError):
    """The compiler failed or reported something that would make the kernel slow."""


def compile_variant(variant: Variant, verbose: bool = True) -> bytes:
    """Return the cubin of `variant` for sm_90a, from the cache when it is there."""
    text = (HERE / variant.source).read_text()
    files = sorted([*(BACKEND / "headers").glob("*.cuh"), *HERE.glob("*.cuh")])
    headers = {path.name: path.read_text() for path in files}
    headers["wgmma.cuh"] = wgmma_source.wgmma_source(variant.instructions)
    options = ["--gpu-architecture=sm_90a", "--std=c++17", "--ptxas-options=-v", "-lineinfo"]
    options += [f"-D{key}={value}" for key, value in variant.defines]
    digest = hashlib.sha256(repr((text, sorted(headers.items()), options)).encode()).hexdigest()[
        :20
    ]
    path = CACHE / f"{variant.kernel}-{digest}.cubin"
    if path.exists():
        return path.read_bytes()
    cubin, log = _nvrtc(text, variant.source, headers, options)
    report = _resource_report(log)
    problems = [line for line in log.splitlines() if any(word in line for word in FATAL)]
    spilled = re.search(r"([1-9]\d*) bytes spill", log)
    if spilled:
        problems.append("spills: " + report)
    if verbose:
        print(f"[build] {variant.name}: {report}", *problems, sep="\n    ", flush=True)
    if problems:
        raise BuildError(f"{variant.name}: " + "; ".join(problems))
    CACHE.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cubin)
    return cubin


def _nvrtc(text: str, name: str, headers: dict[str, str], options: list[str]) -> tuple[bytes, str]:
    from cuda.bindings import nvrtc

    def check(result):
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BuildError(str(result[0]))
        return result[1:] if len(result) > 2 else (result[1] if len(result) == 2 else None)

    program = check(
        nvrtc.nvrtcCreateProgram(
            text.encode(),
            name.encode(),
            len(headers),
            [value.encode() for value in headers.values()],
            [key.encode() for key in headers],
        )
    )
    status = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0]
    log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
    check(nvrtc.nvrtcGetProgramLog(program, log))
    log_text = log.decode(errors="replace")
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"{name}: {status}\n{log_text}")
    cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin, log_text


def _resource_report(log: str) -> str:
    used = re.search(r"Used (\d+) registers", log)
    frame = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    registers = used.group(1) if used else "?"
    return f"{registers} registers, stack/spill {frame.groups() if frame else '?'}"
