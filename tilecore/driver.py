"""`tilecore.compile`: from a program to a callable kernel, through the caches."""

from __future__ import annotations

import inspect
from typing import Any, Never

from tilecore.compiler import Lowered, depth_bounded, lower, program_of, with_outputs
from tilecore.errors import BackendError, Loc
from tilecore.forking import FreshLock
from tilecore.hooks.manager import Hooks, hooks_of
from tilecore.hooks.records import Artifact, CompileOptions, KernelResources, Launcher
from tilecore.ir.program import Program
from tilecore.kernel import CompiledKernel, missing_device
from tilecore.language.foreign import refuse_options
from tilecore.runtime.cache import KernelCache
from tilecore.runtime.entry import CacheEntry
from tilecore.runtime.fingerprint import cache_key, package_fingerprint
from tilecore.target import Target
from tilecore.targets import choose_target

_memory: dict[tuple[object, ...], CompiledKernel] = {}
_guard = FreshLock()
_disk = KernelCache()
_OPTIONS = ("backend", "arch", "device", "out_idx", "options", "fast_math")
_REMEMBERED = 1024  # kernels kept in memory; beyond it the oldest are forgotten


def compile(
    function: Any,
    backend: str | None = None,
    *,
    arch: str | None = None,
    device: str = "native",
    out_idx: int | list[int] | tuple[int, ...] | None = None,
    options: CompileOptions | None = None,
    fast_math: bool = False,
    **unknown: Never,
) -> CompiledKernel:
    """Compile a tile program.

    Args:
        function: a function decorated with `T.prim_func`, or a `Program`.
        backend: name of an installed backend, such as ``"cpu_llvm"``; None takes the best one
            that finds a device here.
        arch: one of the backend's architectures; None takes the present device's.
        device: ``"native"``, ``"emulator"`` (generated lane code, run and checked on the CPU), or
            ``"reference"`` (the tile program itself, in float64; needs no backend).
        out_idx: parameters that calls leave out: allocated and returned. Negative counts from
            the end.
        options: compile options.
        fast_math: shorthand for ``CompileOptions(fast_math=True)``.

    Raises:
        TilecoreError: with what is wrong, where, and what was expected.
    """
    if unknown:
        frame = inspect.currentframe()
        frame = None if frame is None else frame.f_back
        loc = None if frame is None else Loc(frame.f_code.co_filename, frame.f_lineno)
        refuse_options("tilecore.compile", unknown, _OPTIONS, loc)
    program = with_outputs(program_of(function), out_idx)
    options = options or CompileOptions(fast_math=fast_math)
    with depth_bounded(program):
        if device == "reference":
            return _reference_kernel(program, options)
        return _remembered(program, choose_target(backend, arch, device), options)


def _remembered(program: Program, target: Target, options: CompileOptions) -> CompiledKernel:
    key = (program, _promises(program), target, options)
    found = _memory.get(key)
    if found is None:
        made = _compile(program, target, options)
        with _guard:
            found = _memory.setdefault(key, made)
            while len(_memory) > _REMEMBERED:
                _memory.pop(next(iter(_memory)))
    return found


def _promises(program: Program) -> tuple[object, ...]:
    """What the author promised of dynamic sizes: no part of equality, yet the code relies on it."""
    return tuple((s.name, s.multiple_of, s.lower, s.upper) for s in program.symbols)


def clear_memory_cache() -> None:
    """Forget all kernels of this process; the disk cache stays."""
    with _guard:
        _memory.clear()


def _compile(program: Program, target: Target, options: CompileOptions) -> CompiledKernel:
    hooks = hooks_of(target.backend)
    lowered = lower(program, target=target, options=options)
    if target.device == "emulator":
        return emulated_kernel(lowered, hooks)
    artifact = _artifact(lowered, hooks)
    device = hooks.call("tilecore_probe_device", target=target)
    if device is None:
        return CompiledKernel(lowered, artifact, missing_device(target))

    def load() -> Launcher:
        launcher: Launcher = hooks.call(
            "tilecore_create_launcher",
            program=lowered.stages[-1][1],
            source=lowered.source,
            artifact=artifact,
            target=target,
        )
        return launcher

    return CompiledKernel(lowered, artifact, load)


def _artifact(lowered: Lowered, hooks: Hooks) -> Artifact:
    """The binary, from the disk cache if its source was compiled before."""
    source, target, options = lowered.source, lowered.target, lowered.options
    fingerprint = hooks.call("tilecore_toolchain_fingerprint", target=target)
    text = "\0".join([source.text, *(name + "\0" + body for name, body in source.headers)])
    facts = {"options": options, "kernels": [k.name for k in source.kernels]}
    code = package_fingerprint(*hooks.packages)
    key = cache_key(text, target, fingerprint, facts, code)

    def create() -> CacheEntry:
        made: Artifact = hooks.call(
            "tilecore_compile", source=source, target=target, options=options
        )
        return _to_entry(made)

    return _from_entry(_disk.get_or_create(key, create))


_FIELDS = ("name", "threads", "registers", "smem_bytes", "stack_bytes", "spill_bytes")


def _to_entry(artifact: Artifact) -> CacheEntry:
    resources = [
        {**{field: getattr(one, field) for field in _FIELDS}, "notes": list(one.notes)}
        for one in artifact.resources
    ]
    record = {"format": artifact.format, "log": artifact.log, "resources": resources}
    return CacheEntry({"binary": artifact.data}, record)


def _from_entry(entry: CacheEntry) -> Artifact:
    fields: list[dict[str, Any]] = [
        {**one, "notes": tuple(one["notes"])} for one in entry.record["resources"]
    ]
    resources = tuple(KernelResources(**one) for one in fields)
    return Artifact(entry.parts["binary"], entry.record["format"], resources, entry.record["log"])


def emulated_kernel(lowered: Lowered, hooks: Hooks) -> CompiledKernel:
    """A kernel whose launches run its text in the emulator.

    Raises:
        BackendError: the backend cannot be emulated.
    """
    from tilecore.emulated import EmulatedLauncher

    support = hooks.call("tilecore_emulator_support", target=lowered.target)
    if support is None:
        raise BackendError(f"backend {lowered.target.backend!r} cannot be emulated")
    return CompiledKernel(
        lowered,
        None,
        lambda: EmulatedLauncher(lowered.program, lowered.source, support, lowered.target),
    )


def _reference_kernel(program: Program, options: CompileOptions) -> CompiledKernel:
    from tilecore.hooks.records import Source
    from tilecore.ir.printer import format_program
    from tilecore.ir.verifier import verify
    from tilecore.reference import ReferenceLauncher

    verify(program)
    target = Target("reference", "float64")
    source = Source(format_program(program), "tile", ())
    lowered = Lowered(target, options, (("tile", program),), source)
    return CompiledKernel(lowered, None, lambda: ReferenceLauncher(program))
