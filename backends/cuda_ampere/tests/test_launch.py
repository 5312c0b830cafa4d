"""Launching against a recorded driver: what the driver would read is what was meant."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cuda_ampere.tests.fake_driver import FakeDriver, value_of
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint64,
)
from tilecore.ir.expr import Var, binary, const
from tilecore.ir.program import Kernel, Program
from tilecore_backend_cuda_ampere import streams
from tilecore_backend_cuda_ampere.launch import CudaLauncher
from tilecore_backend_cuda_ampere.target import make_target

M, N = Var("M"), Var("N")
A = Buffer("A", (M, N), float32, Scope.GLOBAL)
C = Buffer("C", (M,), float32, Scope.GLOBAL)
SCALE = Var("scale", float32)
PROGRAM = Program("demo", (A, SCALE, C), (), (M, N))
GRID = (binary("floordiv", binary("add", M, const(15)), const(16)), N)


def kernel(name: str = "k", **changes: Any) -> KernelSource:
    facts: dict[str, Any] = {
        "arguments": (A, SCALE, C, M, N), "grid": GRID, "threads": 128, "smem_bytes": 1024,
    }  # fmt: skip
    return KernelSource(name, **{**facts, **changes})


def launcher(
    driver: FakeDriver, *kernels: KernelSource, program: Program = PROGRAM, arch: str = "sm_80"
) -> CudaLauncher:
    source = Source("", "c++", kernels or (kernel(),))
    target = dataclasses.replace(make_target("sm_80"), arch=arch)
    return CudaLauncher(program, source, Artifact(b"cubin", "cubin"), target, driver)


def driver(*names: str, **facts: Any) -> FakeDriver:
    return FakeDriver({name: [8, 4, 8, 4, 4] for name in names or ("k",)}, **facts)


def packed(a: int, scale: float, c: int, m: int, n: int) -> tuple[bytes, ...]:
    return tuple(
        struct.pack(form, value)
        for form, value in zip(["<Q", "<f", "<Q", "<i", "<i"], (a, scale, c, m, n), strict=True)
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 2**48), st.floats(width=32, allow_nan=False),
                  st.integers(0, 2**48), st.integers(1, 100), st.integers(1, 100)),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_each_launch_reads_its_own_values(calls: list[Any]) -> None:
    fake = driver()
    loaded = launcher(fake)
    for a, scale, c, m, n in calls:
        loaded.bind((m, n), 0)(a, scale, c)
        launch = fake.launches[-1]
        assert launch.params == packed(a, scale, c, m, n)
        assert launch.grid == (-(-m // 16), n, 1)
        assert launch.block == (128, 1, 1)
        assert launch.smem_bytes == 1024
        assert launch.attributes == ()
    assert fake.loaded == [(0, b"cubin")], "machine code is loaded once"


@pytest.mark.parametrize(
    ("dtype", "value", "size"),
    [
        (int32, -5, 4), (int64, -(2**40), 8), (int8, -7, 1), (uint64, 2**64 - 1, 8),
        (float32, 1.5, 4), (float64, -0.1, 8), (float16, 0.1, 2), (bfloat16, 3.140625, 2),
    ],
)  # fmt: skip
def test_scalars_have_the_bits_of_their_dtype(dtype: DType, value: float, size: int) -> None:
    from tilecore.ir.dtypes import numpy_dtype

    scalar = Var("s", dtype)
    fake = FakeDriver({"k": [size]})
    program = Program("demo", (scalar,), ())
    launcher(fake, kernel(arguments=(scalar,), grid=(const(1),)), program=program).bind((), 0)(
        value
    )
    assert fake.launches[0].params == (np.array(value).astype(numpy_dtype(dtype)).tobytes(),)


def test_configuration_is_laid_out_as_the_driver_declares_it() -> None:
    """Against the structure of cuda.bindings, which is generated from cuda.h."""
    api = pytest.importorskip("cuda.bindings.driver")
    fake = driver()
    seen: list[bytes] = []
    original = fake.launch_kernel_ex

    def spy(config: Any, *rest: Any) -> int:
        seen.append(ctypes.string_at(value_of(config), 56))
        return original(config, *rest)

    fake.launch_kernel_ex = spy
    launcher(fake, kernel(cluster=(2, 1, 1))).bind((20, 7), 0)(64, 1.0, 128)
    theirs = api.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 2, 7, 1
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 128, 1, 1
    theirs.sharedMemBytes = 1024
    attribute = api.CUlaunchAttribute()
    attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = 2
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    theirs.attrs, theirs.numAttrs = [attribute], 1
    expected = ctypes.string_at(theirs.getPtr(), 56)
    assert seen[0][:40] == expected[:40]
    assert seen[0][48:52] == expected[48:52]
    (mine,) = fake.launches[0].attributes
    assert mine[:4] == ctypes.string_at(attribute.getPtr(), 4)
    assert mine[8:20] == ctypes.string_at(attribute.getPtr(), 20)[8:]


def test_attributes_of_cluster_and_overlap() -> None:
    fake = driver()
    grid = (*GRID, const(4))
    facts = {"cluster": (2, 2, 4), "grid": grid, "extra": (("overlap", True),)}
    launcher(fake, kernel(**facts)).bind((20, 8), 0)(0, 1.0, 0)
    cluster, overlap = fake.launches[0].attributes
    assert struct.unpack_from("<I4x3I", cluster) == (4, 2, 2, 4)
    assert struct.unpack_from("<I4xi", overlap) == (6, 1)
    assert (1000, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1) in fake.set_attributes


def test_empty_grids_launch_nothing() -> None:
    fake = driver("first", "second")
    loaded = launcher(fake, kernel("first"), kernel("second", grid=(const(3),)))
    loaded.bind((0, 5), 0)(64, 1.0, 64)
    loaded.bind((4, 0), 0)(64, 1.0, 64)
    assert [launch.function for launch in fake.launches] == [1001, 1001]
    launcher(driver(), kernel()).bind((0, 0), 0)(0, 1.0, 0)


def test_kernels_of_a_program_run_in_order_with_their_own_arguments() -> None:
    workspace = Buffer("W", (M,), float32, Scope.GLOBAL)
    program = Program("demo", (A, SCALE, C), (), (M, N), workspaces=(workspace,))
    fake = FakeDriver({"one": [8, 8], "two": [8, 4, 4]})
    loaded = launcher(
        fake,
        kernel("one", arguments=(A, workspace)),
        kernel("two", arguments=(workspace, SCALE, N)),
        program=program,
    )
    loaded.bind((20, 7), 0)(111, 2.5, 222, 333)
    one, two = fake.launches
    assert one.params == (struct.pack("<Q", 111), struct.pack("<Q", 333))
    assert two.params == (struct.pack("<Q", 333), struct.pack("<f", 2.5), struct.pack("<i", 7))


def test_each_device_has_its_module_and_its_context() -> None:
    fake = driver(devices=2)
    loaded = launcher(fake)
    on_first, on_second = loaded.bind((16, 1), 0), loaded.bind((16, 1), 1)
    on_first(1, 1.0, 1)
    on_second(2, 1.0, 2)
    on_first(3, 1.0, 3)
    assert [(launch.function, launch.device) for launch in fake.launches] == [
        (1000, 0), (2000, 1), (1000, 0),
    ]  # fmt: skip
    assert [ordinal for ordinal, _ in fake.loaded] == [0, 1]
    assert fake.context == [0], "the thread's context is as it was"


def test_thread_without_a_context_gets_one() -> None:
    fake = driver(statuses=[201])
    launcher(fake).bind((16, 1), 0)(64, 1.0, 64)
    assert fake.made_current == [0]
    assert len(fake.launches) == 1


@dataclass(frozen=True)
class Map:
    """A descriptor that says what it was encoded from."""

    buffer: str
    number: int

    def encode(self, address: int, sizes: dict[str, int]) -> bytes:
        ENCODED.append((self.buffer, address))
        words = (address, self.number, sizes["M"], sizes["N"])
        return struct.pack("<4Q", *words) + bytes(96)


ENCODED: list[tuple[str, int]] = []


def test_descriptors_follow_the_parameters_and_are_encoded_once_per_address() -> None:
    fake = FakeDriver({"k": [8, 4, 128, 128]})
    maps = (("descriptors", (Map("A", 0), Map("C", 1))),)
    loaded = launcher(fake, kernel(arguments=(A, M), extra=maps))
    ENCODED.clear()
    launch = loaded.bind((20, 7), 0)
    for a, c in [(64, 128), (64, 128), (256, 128), (64, 128)]:
        launch(a, 1.0, c)
        assert fake.launches[-1].params == (
            struct.pack("<Q", a),
            struct.pack("<i", 20),
            struct.pack("<4Q", a, 0, 20, 7) + bytes(96),
            struct.pack("<4Q", c, 1, 20, 7) + bytes(96),
        )
    assert ENCODED == [("A", 64), ("C", 128), ("A", 256)]


def test_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilecore_backend_cuda_ampere import launch as launch_module

    current = {0: 7}
    monkeypatch.setattr(launch_module, "stream_getter", lambda device: current.__getitem__)
    fake = driver()
    loaded = launcher(fake)
    bound = loaded.bind((16, 1), 0)
    bound(64, 1.0, 64)
    current[0] = 8
    bound(64, 1.0, 64)
    loaded((64, 1.0, 64, 16, 1))
    loaded((64, 1.0, 64, 16, 1), stream=99)
    loaded((64, 1.0, 64, 16, 1))
    assert [launch.stream for launch in fake.launches] == [7, 8, 8, 99, 8]
    assert fake.launches[2].params == packed(64, 1.0, 64, 16, 1)


def test_without_a_device_library_the_default_stream_is_taken() -> None:
    assert streams.stream_getter(0)(0) == 0


def test_threads_launch_at_once_without_mixing_values() -> None:
    fake = driver()
    launch = launcher(fake).bind((16, 1), 0)

    def work(base: int) -> None:
        for i in range(200):
            launch(base + i, 1.0, base + i)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.launches) == 800
    assert all(launch.params[0] == launch.params[2] for launch in fake.launches)
    assert len({launch.params[0] for launch in fake.launches}) == 800


def test_a_grid_that_a_scalar_decides_follows_each_call() -> None:
    count = Var("count")
    body = Kernel("k", (Var("bx"),), (count,), 128, ())
    program = Program("demo", (A, count, C), (body,), (M, N))
    fake = FakeDriver({"k": [8, 8, 4, 4]})
    loaded = launcher(fake, kernel(arguments=(A, C, M, N), grid=(count,)), program=program)
    assert loaded.scalars == (1,)
    for number in (3, 9, 3):
        loaded.bind((20, 7, number), 0)(64, number, 128)
        assert fake.launches[-1].grid == (number, 1, 1)
    loaded((64, 2, 128, 20, 7))
    assert fake.launches[-1].grid == (2, 1, 1)
    for number in (0, -4):
        loaded((64, number, 128, 20, 7))
    assert len(fake.launches) == 4, "an empty grid launches nothing"
