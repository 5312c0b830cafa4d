"""The disk cache: right under damage, under several processes, and within its bound."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecore.runtime.cache import CacheWarning, KernelCache
from tilecore.runtime.entry import CacheEntry, CorruptEntry

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62

records = st.dictionaries(
    st.text(max_size=8),
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    max_size=4,
)
entries = st.builds(
    CacheEntry, st.dictionaries(st.text(max_size=8), st.binary(max_size=64), max_size=4), records
)


@given(entries)
def test_entry_round_trips(entry: CacheEntry) -> None:
    assert CacheEntry.from_bytes(entry.to_bytes()) == entry


@given(entries, st.data())
def test_any_flipped_bit_is_noticed(entry: CacheEntry, data: st.DataObject) -> None:
    content = bytearray(entry.to_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    with pytest.raises(CorruptEntry):
        CacheEntry.from_bytes(bytes(content))


@given(entries, st.data())
def test_any_truncation_is_noticed(entry: CacheEntry, data: st.DataObject) -> None:
    content = entry.to_bytes()
    with pytest.raises(CorruptEntry):
        CacheEntry.from_bytes(content[: data.draw(st.integers(0, len(content) - 1))])


def make(text: bytes = b"code", size: int = 0) -> CacheEntry:
    return CacheEntry({"binary": text + b"\0" * size}, {"registers": 7})


def entry_file(root: Path) -> Path:
    (path,) = root.glob("??/*.kernel")
    return path


def test_created_once_then_found(tmp_path: Path) -> None:
    calls = []
    cache = KernelCache(tmp_path)
    for _ in range(3):
        entry = cache.get_or_create(KEY, lambda: calls.append(1) or make())
        assert entry == make()
    assert len(calls) == 1
    assert KernelCache(tmp_path).get(KEY) == make(), "another process would not find it"
    assert cache.get(OTHER) is None


@pytest.mark.parametrize("damage", ["truncate", "overwrite", "empty", "other_file"])
def test_damaged_entry_is_reported_and_compiled_again(tmp_path: Path, damage: str) -> None:
    cache = KernelCache(tmp_path)
    cache.put(KEY, make())
    path = entry_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(
        {
            "truncate": content[:-1],
            "overwrite": content[:-1] + bytes([content[-1] ^ 0xFF]),
            "empty": b"",
            "other_file": b"\x7fELF" + bytes(100),
        }[damage]
    )
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.get_or_create(KEY, lambda: make(b"again")) == make(b"again")
    assert cache.get(KEY) == make(b"again")


def test_failed_creation_leaves_nothing_and_the_next_one_tries(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)

    def fail() -> CacheEntry:
        raise ValueError("compiler said no")

    with pytest.raises(ValueError, match="compiler said no"):
        cache.get_or_create(KEY, fail)
    assert list(tmp_path.glob("??/*")) == []
    assert cache.get_or_create(KEY, make) == make()


def test_disabled_cache_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILECORE_DISABLE_CACHE", "1")
    monkeypatch.setenv("TILECORE_CACHE_DIR", str(tmp_path / "cache"))
    cache = KernelCache()
    cache.put(KEY, make())
    assert cache.get(KEY) is None
    assert cache.get_or_create(KEY, make) == make()
    assert not (tmp_path / "cache").exists()
    monkeypatch.setenv("TILECORE_DISABLE_CACHE", "0")
    cache.put(KEY, make())
    assert entry_file(tmp_path / "cache").exists()


@pytest.mark.skipif(os.name != "posix", reason="a path below a file is the portable unwritable one")
def test_unwritable_directory_is_reported_and_compiles(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = KernelCache(tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning):
        assert cache.get_or_create(KEY, make) == make()


def test_eviction_removes_least_recently_used_and_keeps_the_bound(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=40_000)
    keys = [f"{i:02x}" * 32 for i in range(12)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, make(size=10_000))
        os.utime(cache._path(key), (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # now the most recently used
    cache.put(keys[3], make(size=10_000))
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[3]) is not None
    assert cache.get(keys[1]) is None
    for key in keys[4:]:
        cache.put(key, make(size=10_000))
        assert cache.size_bytes() <= 40_000
        assert cache.get(key) is not None


def test_entry_bigger_than_the_bound_is_kept_while_it_is_the_newest(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, max_bytes=1000)
    cache.put(KEY, make(size=5000))
    assert cache.get(KEY) is not None


def test_threads_that_want_one_key_compile_it_once(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    calls: list[int] = []
    results: list[CacheEntry] = []

    def create() -> CacheEntry:
        calls.append(1)
        time.sleep(0.1)
        return make()

    workers = [
        threading.Thread(target=lambda: results.append(cache.get_or_create(KEY, create)))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(calls) == 1
    assert results == [make()] * 4


PROGRAM = """
import sys, time
from pathlib import Path
from tilecore.runtime.cache import KernelCache
from tilecore.runtime.entry import CacheEntry
root, log, key = sys.argv[1:]
def create():
    with open(log, "a") as file:
        file.write("x")
    time.sleep(0.3)
    return CacheEntry({"binary": b"from one of them"})
entry = KernelCache(Path(root)).get_or_create(key, create)
assert entry.parts["binary"] == b"from one of them"
"""


def test_processes_that_want_one_key_compile_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "cache"), str(log), KEY]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(timeout=500) for process in processes] == [0] * 4
    assert log.read_text() == "x"


def test_a_killed_writer_leaves_no_entry(tmp_path: Path) -> None:
    """Until the rename there is only a temporary file, which no reader takes for an entry."""
    cache = KernelCache(tmp_path)
    directory = tmp_path / KEY[:2]
    directory.mkdir()
    (directory / ".new-abc").write_bytes(make().to_bytes()[:50])
    assert cache.get(KEY) is None
    assert cache.size_bytes() == 0
