"""From calls with tensors to what the driver reads, through the fast and the careful way."""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cuda_ampere.tests.fake_driver import FakeDriver
from backends.cuda_ampere.tests.test_launch import GRID, SCALE, A, C, M, N, kernel, packed
from tilecore.hooks.records import Artifact, Source
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import binary, const
from tilecore.ir.program import Program
from tilecore.runtime.caller import KernelCaller
from tilecore.target import Target
from tilecore_backend_cuda_ampere.launch import CudaLauncher


class OnHost(CudaLauncher):
    """Takes host tensors, so that the whole path from a call to the driver can run here."""

    device_kind = "cpu"


OUTPUT = Buffer("D", (N,), float32, Scope.GLOBAL)
WORKSPACE = Buffer("W", (M,), float32, Scope.GLOBAL)


@given(
    st.lists(
        st.tuples(st.sampled_from(["numpy", "torch"]), st.integers(0, 3), st.integers(0, 2),
                  st.floats(-1, 1, width=32)),
        min_size=1, max_size=10,
    ),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0), (2, 1)]),
)  # fmt: skip
def test_from_a_call_to_what_the_driver_reads(
    calls: list[Any], has_cluster: bool, devices_and_current: tuple[int, int]
) -> None:
    """Sequences of calls with different sizes and libraries, through fast and careful ways,
    where one device is and where another one of two is current."""
    torch = pytest.importorskip("torch")
    program = Program(
        "demo", (A, SCALE, C, OUTPUT), (), (M, N), workspaces=(WORKSPACE,), outputs=(3,)
    )
    arguments = (A, SCALE, C, OUTPUT, WORKSPACE, M, N)
    cluster = (2, 1, 1) if has_cluster else (1, 1, 1)
    twice = binary("mul", GRID[0], const(2))
    devices, current = devices_and_current
    fake = FakeDriver({"k": [8, 4, 8, 8, 8, 4, 4], "two": [8, 4]}, devices=devices)
    fake.context = [current]
    source = Source(
        "", "c++",
        (
            kernel(arguments=arguments, cluster=cluster, grid=(twice, GRID[1])),
            kernel("two", arguments=(OUTPUT, N)),
        ),
    )  # fmt: skip
    target = Target("cuda_ampere", "sm_80")
    call = KernelCaller(program, OnHost(program, source, Artifact(b"", "cubin"), target, fake))
    for library, m, n, scale in calls * 3:
        make = np.ones if library == "numpy" else torch.ones
        kind = np.float32 if library == "numpy" else torch.float32
        a, c = make((m, n), dtype=kind), make((m,), dtype=kind)
        before = len(fake.launches)
        d = call(a, scale, c)
        assert tuple(d.shape) == (n,)
        made = fake.launches[before:]
        assert len(made) == (2 if m and n else 0)
        assert all(launch.device == 0 for launch in made)
        assert fake.context == [current]
        if not made:
            continue
        address = (lambda x: x.ctypes.data) if library == "numpy" else (lambda x: x.data_ptr())
        one, two = (launch.params for launch in made)
        assert one[:4] == (
            *packed(address(a), scale, address(c), m, n)[:3], struct.pack("<Q", address(d)),
        )  # fmt: skip
        assert one[5:] == (struct.pack("<i", m), struct.pack("<i", n))
        assert two == (struct.pack("<Q", address(d)), struct.pack("<i", n))
        assert made[0].grid == (2 * -(-m // 16), n, 1)
        assert len(made[0].attributes) == has_cluster


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([0, 7])), max_size=20)
)
def test_what_was_packed_before_is_packed_again_where_it_changed(
    calls: list[tuple[int, int, int]],
) -> None:
    """Tensors at few places on two streams: each launch has this call's addresses and stream."""
    torch = pytest.importorskip("torch")
    call, fake, stream = tensors_only()
    tensors = [torch.ones(16, 2) for _ in range(3)]
    for a, c, stream[0] in calls * 2:
        call(tensors[a], tensors[c])
        made = fake.launches[-1]
        assert made.stream == stream[0]
        assert [struct.unpack("<Q", one)[0] for one in made.params] == [
            tensors[a].data_ptr(), tensors[c].data_ptr(),
        ]  # fmt: skip
    assert len(fake.launches) == 2 * len(calls)


def test_threads_pack_their_own_values() -> None:
    """What one thread finds packed is never what another one needs."""
    torch = pytest.importorskip("torch")
    call, fake, _ = tensors_only()
    pairs = [(torch.ones(16, 2), torch.ones(16, 2)) for _ in range(4)]
    for pair in pairs:
        call(*pair)
    del fake.launches[:]

    def repeat(pair: Any) -> None:
        for _ in range(300):
            call(*pair)

    threads = [threading.Thread(target=repeat, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [tuple(struct.unpack("<Q", one)[0] for one in made.params) for made in fake.launches]
    assert len(seen) == 1200
    for a, c in pairs:
        assert seen.count((a.data_ptr(), c.data_ptr())) == 300


def tensors_only() -> tuple[KernelCaller, FakeDriver, list[int]]:
    """A kernel of two tensors on the host, its driver, and where its stream is read from."""
    arguments = tuple(
        Buffer(name, (const(16), const(2)), float32, Scope.GLOBAL) for name in ("P", "Q")
    )
    stream = [0]

    class OnStream(OnHost):
        def bind(self, sizes: Any, device: int) -> Any:
            return self._make(sizes, device, lambda ordinal: stream[0])

    fake = FakeDriver({"k": [8, 8]})
    source = Source("", "c++", (kernel(arguments=arguments, grid=(const(1),)),))
    program = Program("pair", arguments, ())
    target = Target("cuda_ampere", "sm_80")
    launcher = OnStream(program, source, Artifact(b"", "cubin"), target, fake)
    return KernelCaller(program, launcher), fake, stream
