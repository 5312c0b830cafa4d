"""Bad input, one list: each entry is refused with its own error, or gives the right result.

For every installed backend: the CPU runs its kernels, the others run on the emulator. A test that
ends at all shows that the process lives; each also calls the kernel rightly afterwards.
"""

# Annotations are values of the tile language here, so they are not postponed.

import importlib.util
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.errors import ArgumentError, BackendError, ResourceError, UnsupportedError
from tilecore.hooks import manager
from tilecore.hooks.specs import hookimpl
from tilecore.language.refused import refused_names

ROWS, COLS = 33, 65
DEVICES = {
    "cpu_llvm": "native",
    "cuda_ampere": "emulator",
    "cuda_hopper": "emulator",
    "rocm_cdna3": "emulator",
}
PACKAGES = {name: f"tilecore_backend_{name}" for name in ("cuda_ampere", "cuda_hopper")}
PACKAGES |= {"cpu_llvm": "tilecore_backend_cpu", "rocm_cdna3": "tilecore_backend_rocm"}
INSTALLED = [name for name in DEVICES if importlib.util.find_spec(PACKAGES[name])]


def doubled() -> Any:
    @T.prim_func
    def double(
        X: T.Tensor((ROWS, COLS), "float32"), count: T.int32, Y: T.Tensor((ROWS, COLS), "float32")
    ):
        with T.Kernel(ROWS, threads=64) as bx:
            for j in T.Parallel(COLS):
                Y[bx, j] = T.if_then_else(j < count, X[bx, j] * 2.0, 0.0)

    return double


def make(backend: str) -> Any:
    return tilecore.compile(doubled(), backend, device=DEVICES[backend])


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape or (ROWS, COLS), dtype)


Call = Callable[[np.ndarray, np.ndarray], tuple[Any, ...]]
WRONG: dict[str, tuple[Call, tuple[str, ...]]] = {
    "dtype": (lambda x, y: (ones(dtype="float64"), 3, y), ("float32", "float64")),
    "rank": (lambda x, y: (ones(ROWS * COLS), 3, y), ("(33, 65)", "rank 1")),
    "shape": (lambda x, y: (ones(ROWS, COLS + 1), 3, y), (str(COLS), str(COLS + 1))),
    "stride": (lambda x, y: (ones(ROWS, 2 * COLS)[:, ::2], 3, y), ("(65, 1)", "(130, 2)")),
    "order": (lambda x, y: (ones(COLS, ROWS).T, 3, y), ("(65, 1)", "(1, 33)")),
    "missing argument": (lambda x, y: (x, 3), ("missing argument Y", "X, count, Y")),
    "one argument more": (lambda x, y: (x, 3, y, y), ("3", "4")),
    "number for a tensor": (lambda x, y: (1.0, 3, y), ("X", "float")),
    "nothing": (lambda x, y: (None, 3, y), ("X", "NoneType")),
}
"""What is passed, and words that the message must have: expected, got."""


@pytest.mark.parametrize("backend", INSTALLED)
def test_wrong_arguments(backend: str) -> None:
    kernel = make(backend)
    for name, (call, words) in WRONG.items():
        x, y = ones(), ones()
        with pytest.raises(ArgumentError) as caught:
            kernel(*call(x, y))
        message = str(caught.value)
        assert "\n" not in message, name
        assert all(word in message for word in words), f"{name}: {message}"
        assert (y == 1).all(), name
    kernel(x, COLS, y)
    assert (y == 2).all()


@pytest.mark.parametrize("backend", INSTALLED)
def test_wrong_device(backend: str) -> None:
    torch = pytest.importorskip("torch")
    kernel, y = make(backend), ones()
    with pytest.raises(ArgumentError, match="meta"):
        kernel(torch.empty((ROWS, COLS), device="meta"), 3, y)
    assert (y == 1).all()


def without_memory() -> "dict[str, Any]":
    """Tensors that torch makes, of the right type, shape and strides, with nothing behind them."""
    torch = pytest.importorskip("torch")
    fakes = pytest.importorskip("torch._subclasses.fake_tensor")
    with fakes.FakeTensorMode():
        fake = torch.ones(ROWS, COLS)
    freed = torch.ones(ROWS, COLS)
    freed.untyped_storage().resize_(0)
    return {"fake": fake, "freed": freed}


@pytest.mark.parametrize("backend", INSTALLED)
@pytest.mark.parametrize("kind", ["fake", "freed"])
@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_tensors_without_memory(backend: str, kind: str) -> None:
    """Refused at a first call, and at one with facts that were met before."""
    torch = pytest.importorskip("torch")
    bad = without_memory()[kind]
    for calls_before in (0, 1, 3):
        kernel, x = make(backend), torch.ones(ROWS, COLS)
        y = torch.ones(ROWS, COLS)
        for _ in range(calls_before):
            kernel(x, COLS, y)
        for wrong in ((bad, COLS, y), (x, COLS, bad)):
            with pytest.raises(ArgumentError, match="has no memory"):
                kernel(*wrong)
        kernel(x, COLS, y)
        assert (y == 2).all()


@pytest.mark.parametrize("compiled_guard", [True, False])
def test_outputs_that_require_a_gradient(compiled_guard: bool, monkeypatch: Any) -> None:
    """Autograd would not see the write: refused while it records, whatever was called before."""
    torch = pytest.importorskip("torch")
    if not compiled_guard:
        monkeypatch.setattr("tilecore.runtime.guards._compiled_guard_works", lambda: False)
    kernel, x = make("cpu_llvm"), torch.ones(ROWS, COLS, requires_grad=True)
    plain, leaf = torch.ones(ROWS, COLS), torch.ones(ROWS, COLS, requires_grad=True)
    for _ in range(4):
        kernel(x, COLS, plain)  # what is only read may require one
        with pytest.raises(ArgumentError, match="Y requires a gradient, and this kernel writes it"):
            kernel(x, COLS, leaf)
        assert (plain == 2).all() and (leaf == 1).all()
        with torch.no_grad():
            for _ in range(3):
                kernel(x, COLS, leaf)
            assert (leaf == 2).all()
            leaf.fill_(1)
        kernel(x, COLS, leaf.detach())
        leaf.detach().fill_(1)


def test_tensors_of_a_transformation() -> None:
    torch = pytest.importorskip("torch")
    kernel, y = make("cpu_llvm"), ones()
    with pytest.raises(ArgumentError, match="no memory of its own"):
        torch.vmap(lambda x: kernel(x, COLS, y) or x)(torch.ones(2, ROWS, COLS))


def test_empty_tensors_between_others() -> None:
    """They may have no address at all; calls around them are as ever."""
    torch = pytest.importorskip("torch")
    n = T.dynamic("n")

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = X[bx * 32 + i] + 1.0

    kernel = tilecore.compile(main, "cpu_llvm")
    for size in (0, 0, 0, 40, 0, 40, 40, 0, 7):
        x, y = torch.ones(size), torch.ones(size)
        kernel(x, y)
        kernel(x.numpy(), y.numpy())
        assert (y == 2).all()


@pytest.mark.parametrize("backend", INSTALLED)
def test_tile_too_large(backend: str) -> None:
    """With the limit, what was asked for, and the buffer's name."""
    rows = 1 << 20

    @T.prim_func
    def large(X: T.Tensor((rows, 512), "float32"), Y: T.Tensor((rows, 512), "float32")):
        with T.Kernel(1, threads=128) as _:
            whole = T.alloc_shared((rows, 512), "float32")
            T.copy(X, whole)
            for i, j in T.Parallel(rows, 512):
                Y[i, j] = whole[rows - 1 - i, j]

    with pytest.raises(ResourceError) as caught:
        tilecore.compile(large, backend, device=DEVICES[backend])
    error = caught.value
    assert error.expected is not None and error.got is not None
    assert "whole" in str(error)


@pytest.mark.parametrize("name", [name for name, _ in refused_names() if "*" not in name][:8])
def test_unsupported_operation(name: str) -> None:
    """An operation that belongs to one vendor is named, with the reason and the author's line."""
    with pytest.raises(UnsupportedError) as caught:
        getattr(T, name)
    assert f"T.{name}" in str(caught.value)
    assert "test_bad_input.py" in str(caught.value)


@pytest.mark.parametrize("backend", INSTALLED)
def test_names_that_generated_code_reserves(backend: str) -> None:
    """`double`, as the kernel here is called, is a type of C++; the names below are words of it."""

    @T.prim_func
    def switch(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as this:
            for register in T.Parallel(32):
                Y[this * 32 + register] = X[this * 32 + register] + 1.0

    out = np.zeros(64, np.float32)
    tilecore.compile(switch, backend, device=DEVICES[backend])(ones(64), out)
    assert (out == 2).all()


@pytest.mark.parametrize("backend", INSTALLED)
def test_names_beyond_ascii(backend: str) -> None:
    """Python's names may have any letters; here they also differ only in one of them."""

    @T.prim_func
    def größe(é: T.Tensor((64,), "float32"), ê: T.Tensor((64,), "float32"), βάρος: T.float32):
        with T.Kernel(2, threads=32) as блок:
            длина = T.alloc_shared((32,), "float32")
            T.copy(é[блок * 32], длина)
            for 数 in T.Parallel(32):
                T.device_assert(длина[数] < 9, "ça ne va pas")
                ê[блок * 32 + 数] = длина[数] + βάρος

    out = np.zeros(64, np.float32)
    tilecore.compile(größe, backend, device=DEVICES[backend])(ones(64), out, 2.0)
    assert (out == 3).all()


def register(name: str, **members: Any) -> None:
    made = {key: hookimpl(value) for key, value in members.items()}
    manager.register_backend(name, types.SimpleNamespace(**made))


@pytest.fixture
def backend_name() -> Any:
    yield "bad_input_test"
    manager.unregister_backend("bad_input_test")


def test_misspelt_hook(backend_name: str) -> None:
    with pytest.raises(BackendError, match=f"{backend_name}.*tilecore_emitt"):
        register(backend_name, tilecore_emitt=lambda: None)
        manager.hooks_of(backend_name)


def test_broken_plugin(backend_name: str) -> None:
    """A hook that answers nonsense is blamed by its backend's name; so is one that raises."""
    register(backend_name, tilecore_describe_targets=lambda: ["no target"])
    with pytest.raises(BackendError, match=backend_name):
        tilecore.compile(doubled(), backend_name)
    manager.unregister_backend(backend_name)

    def fails() -> Any:
        raise RuntimeError("the driver is upside down")

    register(backend_name, tilecore_describe_targets=fails)
    with pytest.raises((BackendError, RuntimeError), match="upside down"):
        tilecore.compile(doubled(), backend_name)


SCRIPT = """
import numpy as np, sys, warnings
sys.path.insert(0, {folder!r})
warnings.simplefilter("always")
from test_bad_input import COLS, make, ones
y = ones()
make({backend!r})(ones(), COLS, y)
assert (y == 2).all()
"""


def start(backend: str, cache: Path) -> "subprocess.Popen[str]":
    text = SCRIPT.format(folder=str(Path(__file__).parent), backend=backend)
    environment = {**os.environ, "TILECORE_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", text], env=environment, stderr=subprocess.PIPE, text=True
    )


def finish(process: "subprocess.Popen[str]") -> str:
    _, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    return errors


@pytest.mark.parametrize(
    "backend",
    [  # devices start two toolchains each; one of them, always
        pytest.param(b, marks=pytest.mark.slow) if b in ("cuda_hopper", "rocm_cdna3") else b
        for b in INSTALLED
    ],
)
def test_two_processes_compile_the_same_kernel_then_its_entry_is_damaged(
    backend: str, tmp_path: Path
) -> None:
    """Right results, whoever was first; and a damaged entry is made again, not believed."""
    for process in [start(backend, tmp_path) for _ in range(2)]:
        finish(process)
    entries = [path for path in tmp_path.rglob("*.kernel") if path.is_file()]
    for path in entries:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    assert not entries or "damaged" in finish(start(backend, tmp_path))


def test_arguments_of_a_kernel_that_failed_before() -> None:
    """A refused call leaves nothing behind: the next one is as the first."""
    kernel, x, y = make("cpu_llvm"), ones(), ones()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            with pytest.raises(ArgumentError):
                kernel(x, 3)
            kernel(x, COLS, y)
    assert (y == 2).all()
