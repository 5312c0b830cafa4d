"""Caches as an enemy leaves them: cut off, unwritable, deleted meanwhile, full; killed writers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.emulator import build
from tilecore.errors import CacheWarning, ToolchainError
from tilecore.runtime import cache as cache_module
from tilecore.runtime.cache import KernelCache
from tilecore.runtime.entry import CacheEntry

KEY = "ab" + "0" * 62
ENTRY = CacheEntry({"binary": b"code"})


def program(factor: float):
    @T.prim_func
    def scale(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] * factor

    return scale


def fresh_factor() -> float:
    """One that no kernel was compiled with before."""
    return float(uuid.uuid4().int % 2**20) / 8


def kernel(factor: float, device: str = "native"):
    backend = "cpu_llvm" if device == "native" else "cuda_ampere"
    return tilecore.compile(program(factor), backend, device=device)


def is_right(run, factor: float) -> bool:
    a, b = np.ones(64, np.float32), np.zeros(64, np.float32)
    run(a, b)
    return bool((b == np.float32(factor)).all())


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.9])
def test_what_the_emulator_built_is_cut_off(share: float) -> None:
    """Each kind of its files, at some lengths: noticed, and built again."""
    pytest.importorskip("tilecore_backend_cuda_ampere")
    from tilecore_backend_cuda_ampere.emulation import SUPPORT

    text = f"TC_KERNEL(32, 1) k(float* B) {{ tc::store_global(B, 1.0f); }}  // {uuid.uuid4()}"
    library = build.build_kernel(text, "k", SUPPORT).library
    whole = library.read_bytes()
    for path in (library, build._checksum_of(library)):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        assert not build._is_whole(library)
        assert build.build_kernel(text, "k", SUPPORT).library == library
        assert build._is_whole(library) and library.read_bytes() == whole


def test_files_of_the_emulator_that_vanish_before_the_launch() -> None:
    factor = fresh_factor()
    run = kernel(factor, "emulator")
    for _, built in run.caller.launcher._kernels:  # built, not loaded
        built.library.unlink()
    assert is_right(run, factor)


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path below a file: nobody can write there, not even the system's owner."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILECORE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    factor = fresh_factor()
    with pytest.warns(CacheWarning):
        assert is_right(kernel(factor), factor)
    with pytest.warns(CacheWarning, match="is not cached"):
        assert is_right(kernel(factor, "emulator"), factor)
    again = fresh_factor()  # with the engine and the header that this process has elsewhere
    with pytest.warns(CacheWarning, match="kernel scale") as caught:
        assert is_right(kernel(again, "emulator"), again)
    assert len(caught) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_no_place_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILECORE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(build, "_own_folder", lambda _: tmp_path / "file" / "own")
    monkeypatch.setattr(build, "_elsewhere", {})
    with pytest.raises(ToolchainError, match=r"cannot be written .*, nor "):
        is_right(kernel(1.5, "emulator"), 1.5)


def test_a_cache_that_is_deleted_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are right; at most a warning tells that one is not kept."""
    monkeypatch.setenv("TILECORE_CACHE_DIR", str(tmp_path / "cache"))
    done = threading.Event()

    def delete() -> None:
        while not done.is_set():
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", CacheWarning)
            for _ in range(12):
                factor = fresh_factor()
                assert is_right(kernel(factor), factor)
    finally:
        done.set()
        thread.join()


FULL_DISK = """
import resource, signal, sys, warnings
sys.path.insert(0, {folder!r})
from test_hostile_cache import CacheWarning, ToolchainError, is_right, kernel
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert is_right(kernel(2.5), 2.5)
assert any(issubclass(one.category, CacheWarning) for one in caught)
try:
    kernel(2.5, "emulator").caller
except ToolchainError as error:
    print("refused", error)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit of files here")
def test_a_full_disk(tmp_path: Path) -> None:
    """No byte goes to any file: the host's kernels run, the emulator says that it cannot."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", FULL_DISK.format(folder=str(Path(__file__).parent))],
        env={**os.environ, "TILECORE_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("refused"), done.stderr


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize("signalled", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_no_file_and_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signalled: type[BaseException]
) -> None:
    cache = KernelCache(tmp_path)

    def interrupted(*_: object) -> CacheEntry:
        raise signalled

    with pytest.raises(signalled):
        cache.get_or_create(KEY, interrupted)
    with monkeypatch.context() as patched:
        patched.setattr(cache_module.os, "replace", interrupted)
        with pytest.raises(signalled):
            cache.get_or_create(KEY, lambda: ENTRY)
    assert leftovers(tmp_path) == []
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get_or_create(KEY, lambda: ENTRY) == ENTRY


HELD = """
import signal, sys, time
from pathlib import Path
from tilecore.runtime.cache import KernelCache
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
signal.signal(signal.SIGTERM, signal.SIG_DFL)
def create():
    print("inside", flush=True)
    time.sleep(600)
KernelCache(Path(sys.argv[1])).get_or_create(sys.argv[2], create)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(tmp_path), KEY],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "inside\n"
    process.send_signal(how)
    process.communicate()
    assert process.returncode != 0 and leftovers(tmp_path) == []
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(tmp_path).get_or_create(KEY, lambda: ENTRY) == ENTRY


def test_what_killed_writers_left_goes_when_it_is_old(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=100)
    (tmp_path / KEY[:2]).mkdir()
    old, new = (tmp_path / KEY[:2] / f".new-{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    cache.put(KEY, CacheEntry({"binary": bytes(200)}))  # over the bound
    assert not old.exists() and new.exists()


def test_an_interrupted_build_of_the_emulator_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build._publish(tmp_path / "k.so", ["compiler"], "", what="kernel k")
    assert list(tmp_path.iterdir()) == []
