"""LLVM IR text to optimised object code, and object code to callable addresses."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tilecore.forking import FreshLock, hold_around_forks, no_fork

from .host import HostCpu, detect_host

_lock = FreshLock()
_library_numbers = itertools.count()

# LLVM's binding takes its own lock around every call, also for what is disposed of at any time. The
# lock is not public: a version without it compiles all the same, and tests/test_forking.py tells.
_llvm_lock: Any = getattr(llvm.ffi.lib, "_lock", None)
if _llvm_lock is not None:
    hold_around_forks(_llvm_lock.__enter__, lambda: _llvm_lock.__exit__(None, None, None))


@lru_cache(maxsize=1)
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=1)
def _initialize_native() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def native_triple() -> str:
    """Target triple of this process."""
    return llvm.get_process_triple()


@lru_cache(maxsize=16)
def target_machine(cpu: HostCpu, triple: str | None = None) -> Any:
    """The code generator for `cpu`; another CPU's triple gives a cross compiler."""
    if triple is None:
        _initialize_native()
    else:
        _initialize_all()
    target = llvm.Target.from_triple(triple or native_triple())
    return target.create_target_machine(
        cpu=cpu.name, features=cpu.feature_string, opt=3, reloc="pic", codemodel="small"
    )


def _optimise(text: str, machine: Any) -> Any:
    """Parse, verify and run the middle-end pipeline.

    The emitter has vectorised already, so LLVM's own vectorisers and unroller are off: they would
    cost compile time and undo the chosen register blocking.
    """
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(text: str, cpu: HostCpu | None = None, triple: str | None = None) -> bytes:
    """Compile a module to position-independent object code (bytes fit for a disk cache)."""
    machine = target_machine(cpu or detect_host(), triple)
    with no_fork(), _lock:
        return machine.emit_object(_optimise(text, machine))


def compile_assembly(text: str, cpu: HostCpu | None = None, triple: str | None = None) -> str:
    """Compile a module to assembly text, for reading and for tests of other CPUs."""
    machine = target_machine(cpu or detect_host(), triple)
    with no_fork(), _lock:
        return machine.emit_assembly(_optimise(text, machine))


def toolchain_fingerprint() -> str:
    """What outside the source decides the object code."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"llvmlite {llvmlite.__version__} llvm {version}"


@lru_cache(maxsize=1)
def _jit() -> Any:
    _initialize_native()
    return llvm.create_lljit_compiler(target_machine(detect_host()), use_jit_link=True)


@dataclass(slots=True)
class LoadedCode:
    """Object code in memory; the addresses hold as long as this record lives."""

    tracker: Any
    addresses: dict[str, int]

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A ctypes function of the given C types (the GIL is released during calls)."""
        call = ctypes.CFUNCTYPE(result, *arguments)(self.addresses[name])
        call.code = self  # type: ignore[attr-defined]  (code lives as long as its callers)
        return call


def load_object(
    code: bytes, exports: Sequence[str], imports: dict[str, int] | None = None
) -> LoadedCode:
    """Link object code into the process. `imports` binds undefined symbols to addresses."""
    with no_fork(), _lock:
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in (imports or {}).items():
            library.import_symbol(name, address)
        for name in exports:
            library.export_symbol(name)
        tracker = library.link(_jit(), f"tilecore{next(_library_numbers)}")
    return LoadedCode(tracker, {name: tracker[name] for name in exports})
