"""Building: cache, compilers, errors, the portable stack switch."""

from __future__ import annotations

import resource
import struct
import uuid

import numpy as np
import pytest

from tilecore.emulator import LaunchShape, RunOptions, build, build_kernel, launch
from tilecore.errors import ToolchainError

TEXT = """
TC_KERNEL(64, 1) k(float* B) {
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 64);
  const int i = tc::lane_in_block();
  tc::store_shared(S + i, float(i));
  tc::barrier();
  tc::store_global(B + i, tc::shuffle_xor(tc::load_shared(S + (63 - i)), 1));
}
"""


def test_a_kernel_is_built_once(make_support, tmp_path, monkeypatch):
    support = make_support(32)
    first = build_kernel(TEXT, "k", support)
    file = first.library.stat().st_ino  # a library that is built again replaces its file
    assert build_kernel(TEXT, "k", support) == first
    assert first.library.stat().st_ino == file
    assert build_kernel(TEXT + "\n", "k", support).library != first.library


def test_a_kernel_builds_in_under_a_second(make_support):
    """Of processor time, so that other work on the machine does not count."""
    build.build_engine(make_support(32))
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        build_kernel(f"{TEXT}// {uuid.uuid4()}", "k", make_support(32))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert 0 < min(costs) < 1.0


def test_a_precompiled_header_changes_nothing(make_support, monkeypatch, tmp_path):
    """With it, without it, and with a file that is none: the same library, byte for byte."""
    (tmp_path / "lanes32.h.gch").write_bytes(b"no header")
    given = build._precompiled_header
    text = f"{TEXT}// {uuid.uuid4()}"  # what is deleted here is nobody else's
    made = []
    for options in (None, (), ("-I", str(tmp_path))):
        monkeypatch.setattr(
            build, "_precompiled_header", given if options is None else lambda *_, o=options: o
        )
        kernel = build_kernel(text, "k", make_support(32))
        made.append(kernel.library.read_bytes())
        kernel.library.unlink()
    assert made[0] == made[1] == made[2]


def test_a_refused_text_says_where(make_support):
    text = "TC_KERNEL(32, 1) k(float* A) {\n  tc::no_such_function(A);\n}"
    with pytest.raises(ToolchainError, match=r"k\.generated\.cpp:2:.*no_such_function") as caught:
        build_kernel(text, "k", make_support(32))
    assert "command:" in str(caught.value)


def test_a_frame_as_large_as_a_devices_local_memory_runs(make_support):
    """512 KiB a lane, written at both ends by all lanes, which meet in between."""
    text = """
TC_KERNEL(64, 1) k(float* A) {
  const int i = tc::lane_in_block();
  float big[131072 - 64];
  big[i] = float(i);
  big[131072 - 65 - i] = float(2 * i);
  tc::barrier();
  tc::store_global(A + i, big[i] + big[131072 - 65 - i]);
}
"""
    out = np.zeros(64, np.float32)
    launch(build_kernel(text, "k", make_support(32)), [out], LaunchShape((1, 1, 1), (64, 1, 1)))
    assert out.tolist() == [3.0 * i for i in range(64)]


def test_a_frame_that_overflows_a_stack_is_refused(make_support):
    text = "TC_KERNEL(32, 1) k(float* A) { float big[200000]; big[int(A[0])] = 1; A[1] = big[2]; }"
    with pytest.raises(ToolchainError, match="frame"):
        build_kernel(text, "k", make_support(32))


def test_no_compiler(make_support, monkeypatch, tmp_path):
    build.find_compiler.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(ToolchainError, match="needs a C\\+\\+17 compiler"):
            build_kernel(TEXT, "k", make_support(32))
    finally:
        build.find_compiler.cache_clear()


def test_an_engine_takes_one_word_of_static_thread_storage(make_support):
    """That space is scarce: with more, a process could not load the engines of all backends."""
    image = build.build_engine(make_support(32)).read_bytes()
    if image[:5] != b"\x7fELF\x02":
        pytest.skip("not a 64-bit ELF file")
    headers, size, count = struct.unpack_from("<Q14xHH", image, 32)
    entries = [struct.unpack_from("<II6Q", image, headers + i * size) for i in range(count)]
    thread_segments = [entry for entry in entries if entry[0] == 7]  # PT_TLS
    assert [entry[6] for entry in thread_segments] == [8]  # p_memsz


def test_the_portable_stack_switch_gives_the_same(make_support):
    results = []
    for defines in ((), ("TC_USE_UCONTEXT=1",)):
        out = np.zeros(64, np.float32)
        kernel = build_kernel(TEXT, "k", make_support(32, *defines))
        launch(kernel, [out], LaunchShape((1, 1, 1), (64, 1, 1), 256), RunOptions(seed=3))
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], (63 - np.arange(64)) ^ 1)
