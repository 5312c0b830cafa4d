"""Builds generated kernels for the CPU: the engine once, then one small library a kernel.

Everything is cached by content under the user's cache directory (``TILECORE_CACHE_DIR`` overrides
it): sources, flags, compiler version and CPU make the key, and files appear by atomic rename, so
that many processes may build at once. What was not used for longest goes when the cache is larger
than its bound (`eviction`).
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from tilecore.emulator import eviction
from tilecore.emulator.host_compiler import HostCompiler, cpu_fingerprint, find_compiler
from tilecore.errors import CacheWarning, ToolchainError
from tilecore.hooks.records import EmulatorSupport

_HERE = Path(__file__).parent

# Stacks of lanes have 768 KiB (native/prepare.cpp); a frame may use three quarters: more than
# the 512 KiB of memory of its own that a device gives a lane.
_LARGEST_FRAME_BYTES = 576 * 1024

# A kernel has no constructors and no C++ library: linking those would take longer than all else.
_LINKED = ("-shared", "-nostdlib")
_LIBRARIES = ("-lm", "-lc", "-lgcc")

_NAME_LETTERS = 60  # of a kernel's name in that of its file, for whoever looks there

_LOCK_SECONDS = 600.0  # longer than any compilation; a lock held longer has a hung holder

_whole_headers: set[Path] = set()  # looked at by this process
_elsewhere: dict[Path, Path] = {}  # what this process built outside of a cache it cannot write


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """A kernel compiled for the emulator.

    Attributes:
        name: the kernel's name in the text.
        library: shared library with the entry ``tc_emulator_entry``.
        engine: shared library with the engine and the backend's part.
        support: what it was built with.
        text: the generated text, as given.
    """

    name: str
    library: Path
    engine: Path
    support: EmulatorSupport
    text: str


def header_directory() -> Path:
    """Directory of the vocabulary's own headers, shared by emulated and device headers."""
    return _HERE / "headers"


def cache_directory() -> Path:
    """Where built libraries are kept."""
    root = os.environ.get("TILECORE_CACHE_DIR") or platformdirs.user_cache_dir("tilecore")
    return Path(root) / "emulator"


def build_kernel(text: str, name: str, support: EmulatorSupport) -> EmulatedKernel:
    """Compiles one kernel of a generated text.

    Args:
        text: C++ in the kernel vocabulary, without includes.
        name: the kernel to launch.
        support: the backend's header and sources.

    Raises:
        ToolchainError: no C++ compiler was found, or it refused the text.
    """
    compiler = find_compiler()
    engine = build_engine(support)
    source = (
        f'#include "{support.header}"\n#line 1 "{name}.generated.cpp"\n{text}\n'
        f"TC_EMULATOR_ENTRY({name})\n"
    )
    flags = _kernel_flags(compiler, support)
    key = _digest(source, str(engine), *flags)  # the library names its engine by the whole path
    library = _place(cache_directory() / "kernels" / f"{name[:_NAME_LETTERS]}-{key}.so")
    if not _is_whole(library):
        header = _precompiled_header(compiler, engine, support, flags)
        command = [compiler.command, *header, *flags, *_LINKED, "-x", "c++", "-", "-x", "none"]
        command += [str(engine), *_LIBRARIES]
        library = _publish(library, command, source, what=f"kernel {name}")
    return EmulatedKernel(name, library, engine, support, text)


def build_engine(support: EmulatorSupport) -> Path:
    """The shared library of engine and backend sources; seconds the first time, then cached."""
    compiler = find_compiler()
    native = sorted((_HERE / "native").glob("*.cpp"))
    # With -O3 a shared write is a tenth cheaper, whole kernels are not, and this takes up to twice.
    flags = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", *compiler.flags)
    includes = _include_flags(support)
    sources = [*native, *support.sources]
    contents = [path.read_bytes() for path in (*sources, *_headers(support))]
    key = _digest(compiler.version, cpu_fingerprint(), *flags, *support.defines, *contents)
    library = _place(cache_directory() / f"engine-{key}.so")
    if _is_whole(library):
        return library
    with _locked(library):
        if not _is_whole(library):
            unity = "".join(f'#include "{path}"\n' for path in sources)
            command = [compiler.command, "-shared", *flags, *includes, "-x", "c++", "-", "-pthread"]
            library = _publish(library, command, unity, what="the emulator's engine")
    return library


def _kernel_flags(compiler: HostCompiler, support: EmulatorSupport) -> tuple[str, ...]:
    return (
        "-std=c++17",
        "-Og",  # a third less to compile than -O1, which runs no faster: the engine does the work
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-strict-aliasing",
        "-ffp-contract=off",
        f"-Werror=frame-larger-than={_LARGEST_FRAME_BYTES}",
        *compiler.flags,
        *_include_flags(support),
    )


def _precompiled_header(
    compiler: HostCompiler, engine: Path, support: EmulatorSupport, flags: tuple[str, ...]
) -> tuple[str, ...]:
    """Options that spare a kernel the parsing of its header: half of what is not its own text.

    A compiler that finds none, or one that does not fit its options, reads the header itself.
    """
    if not compiler.finds_precompiled_headers:
        return ()
    key = _digest(engine.name, compiler.version, *flags)
    header = _place(cache_directory() / "headers" / key / f"{support.header}.gch")
    if header not in _whole_headers:
        if not _is_whole(header):
            source = _find_header(support)
            command = [compiler.command, *flags, "-x", "c++-header", str(source)]
            header = _publish(header, command, "", what=f"header {support.header}")
        _whole_headers.add(header)
    return ("-I", str(header.parent))


def _find_header(support: EmulatorSupport) -> Path:
    directories = (*support.include_directories, header_directory())
    found = (directory / support.header for directory in directories)
    return next((path for path in found if path.exists()), directories[0] / support.header)


def _include_flags(support: EmulatorSupport) -> tuple[str, ...]:
    directories = (*support.include_directories, header_directory())
    return (*(f"-D{name}" for name in support.defines), *(f"-I{path}" for path in directories))


def _headers(support: EmulatorSupport) -> Iterable[Path]:
    for directory in (_HERE / "native", header_directory(), *support.include_directories):
        yield from sorted(directory.glob("*.h"))


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:20]


@contextmanager
def _locked(library: Path) -> Generator[None]:
    """Alone with this library, where the disk can give a lock; else others build it, too."""
    lock = filelock.FileLock(f"{library}.lock", timeout=_LOCK_SECONDS, thread_local=False)
    with suppress(OSError, NotImplementedError):  # filelock's Timeout is an OSError
        library.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _place(path: Path) -> Path:
    """Where this process has what belongs at a path of the cache."""
    return _elsewhere.get(path, path)


def _publish(path: Path, command: Sequence[str], source: str, *, what: str) -> Path:
    """Compile, into the cache or, where that cannot be written, into a folder of this process.

    Raises:
        ToolchainError: the compiler refused the source, or there is no place for its output.
    """
    try:
        _compile(path, command, source, what=what)
        eviction.grow(cache_directory(), path.stat().st_size)
        return path
    except OSError as error:
        reason = f"{path} cannot be written ({error.strerror})"
    folder = cache_directory()
    inside = path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name)
    try:
        found = _own_folder(os.getpid()) / inside
        _compile(found, command, source, what=what)
    except OSError as error:
        raise ToolchainError(f"{reason}, nor {error.filename} ({error.strerror})") from error
    warnings.warn(f"{reason}; {what} is not cached", CacheWarning, stacklevel=4)
    _elsewhere[path] = found
    return found


@functools.cache
def _own_folder(process: int) -> Path:
    """A folder that goes when `process`, this one, ends."""
    folder = Path(tempfile.mkdtemp(prefix="tilecore-emulator-"))
    atexit.register(lambda: os.getpid() == process and shutil.rmtree(folder, ignore_errors=True))
    return folder


def _compile(path: Path, command: Sequence[str], source: str, *, what: str) -> None:
    """Run a compiler that reads `source` from stdin, and rename its output to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        output = Path(scratch) / path.name
        done = subprocess.run(
            [*command, "-o", str(output)], input=source, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not output.exists():
            log = done.stderr.strip() or f"exit status {done.returncode}, no message"
            raise _refused(path.with_suffix(".failed.cpp"), command, source, what, log)
        checksum = Path(scratch) / "checksum"
        checksum.write_text(_digest(output.read_bytes()))
        # The checksum last: a library without its own one is built again.
        os.replace(output, path)
        os.replace(checksum, _checksum_of(path))


def _refused(
    kept: Path, command: Sequence[str], source: str, what: str, log: str
) -> ToolchainError:
    try:
        kept.write_text(source)
    except OSError as error:
        kept = Path(f"(not kept: {error.strerror})")
    return ToolchainError(
        f"the C++ compiler refused {what}:\n{log[:4000]}",
        hint=f"command: {' '.join(command)} < {kept}",
    )


def _checksum_of(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _is_whole(library: Path) -> bool:
    """Whether a library is there, undamaged. Loading a damaged one would end the process."""
    checksum = _checksum_of(library)
    try:
        is_whole = checksum.read_text() == _digest(library.read_bytes())
    except (OSError, UnicodeDecodeError):
        return False
    if is_whole:
        eviction.note_use(library, checksum)
    return is_whole
