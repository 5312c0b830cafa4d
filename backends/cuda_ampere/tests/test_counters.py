"""No two launches that could run at the same time share a counter."""

from __future__ import annotations

import threading

import pytest

from backends.cuda_ampere.tests.fake_driver import FakeDriver
from tilecore.errors import LaunchError
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.expr import const
from tilecore.ir.program import Program
from tilecore.target import Target
from tilecore_backend_cuda_ampere import counters
from tilecore_backend_cuda_ampere.counters import PER_THREAD_STREAM, WORD_BYTES, TileCounters
from tilecore_backend_cuda_ampere.launch import CudaLauncher


def test_a_stream_keeps_its_counter_and_shares_it_with_no_other() -> None:
    held = TileCounters(FakeDriver({}), 0)
    assert held.of(7) == held.of(7)
    assert len({held.of(stream) for stream in (0, 1, 7, 9)}) == 4


def test_every_captured_launch_has_its_own() -> None:
    driver = FakeDriver({})
    held = TileCounters(driver, 0)
    plain = held.of(5)
    driver.capturing = {5}
    captured = [held.of(5) for _ in range(3)]
    driver.capturing = set()
    assert len({plain, *captured}) == 4
    assert held.of(5) == plain


def test_the_per_thread_stream_is_another_in_each_thread() -> None:
    held = TileCounters(FakeDriver({}), 0)
    found = [held.of(PER_THREAD_STREAM), held.of(PER_THREAD_STREAM)]
    thread = threading.Thread(target=lambda: found.append(held.of(PER_THREAD_STREAM)))
    thread.start()
    thread.join()
    assert found[0] == found[1] != found[2]


def test_a_used_page_is_followed_by_another_but_not_in_a_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "PAGE_WORDS", 2)
    driver = FakeDriver({})
    held = TileCounters(driver, 0)
    first = [held.of(stream) for stream in (10, 11, 12)]
    assert len(set(first)) == 3 and len(driver.pages) == 2
    for address in first:
        assert any(low <= address <= high - WORD_BYTES for low, high in driver.pages)
    driver.capturing = {13}
    held.of(13)
    with pytest.raises(LaunchError, match="capture holds too many launches"):
        held.of(13)


def _launcher(driver: FakeDriver) -> CudaLauncher:
    """Of a program whose one kernel takes a counter and nothing else."""
    extra = (("counter", True),)
    kernel = KernelSource("k", (), (const(4),), 128, 0, (1, 1, 1), extra)
    target = Target("cuda_ampere", "sm_80")
    source = Source("", "c++", (kernel,))
    return CudaLauncher(Program("p", (), ()), source, Artifact(b"", "cubin"), target, driver)


def test_launches_bound_again_take_no_further_memory() -> None:
    driver = FakeDriver({"k": [8]})
    launch = _launcher(driver)
    for _ in range(3):
        launch.bind((), 0)
    assert len(driver.pages) == 1


def test_the_counter_is_the_last_parameter() -> None:
    driver = FakeDriver({"k": [8]})
    launch = _launcher(driver)
    for stream in (3, 4, 3):
        launch((), stream)
    seen = [int.from_bytes(one.params[0], "little") for one in driver.launches]
    low, high = driver.pages[0]
    assert seen[0] == seen[2] != seen[1]
    assert all(low <= address < high for address in seen)
