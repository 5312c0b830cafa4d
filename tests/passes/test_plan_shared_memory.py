"""Byte offsets of shared buffers: living buffers never overlap, dead ones are reused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passes_support import kernel_of, run

import tilecore.language as T
from tilecore.errors import ResourceError
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float32
from tilecore.passes.plan_shared_memory import ALIGNMENT, UNSHARED_BYTES, Lifetime, place


@st.composite
def lifetimes(draw):
    found = []
    for k in range(draw(st.integers(1, 8))):
        first = draw(st.integers(0, 20))
        last = draw(st.integers(first, 22))
        size = draw(st.integers(1, 6000))
        found.append(Lifetime(Buffer(f"b{k}", (), float32, Scope.SHARED), first, last, size))
    return found


@settings(max_examples=200, deadline=None)
@given(lifetimes())
def test_living_buffers_do_not_overlap(found):
    offsets = place(found)
    for a in found:
        assert offsets[a.buffer.name] % ALIGNMENT == 0
        for b in found:
            if a is b or a.last < b.first or b.last < a.first:
                continue
            start_a, start_b = offsets[a.buffer.name], offsets[b.buffer.name]
            assert start_a + a.size <= start_b or start_b + b.size <= start_a


def test_dead_memory_is_reused():
    big = UNSHARED_BYTES
    found = [
        Lifetime(Buffer("early", (), float32, Scope.SHARED), 0, 1, big),
        Lifetime(Buffer("late", (), float32, Scope.SHARED), 2, 3, big),
    ]
    assert set(place(found).values()) == {0}


def test_too_much_memory_names_every_buffer():
    @T.prim_func
    def program(A: T.Tensor((256, 256), "float32"), B: T.Tensor((256, 256), "float32")):
        with T.Kernel(1, threads=128) as _:
            large = T.alloc_shared((256, 256), "float32")
            small = T.alloc_shared((16, 256), "float32")
            T.copy(A, large)
            T.copy(A[0:16, :], small)
            for i, j in T.Parallel(256, 256):
                B[i, j] = large[i, j] + small[i % 16, j]

    with pytest.raises(ResourceError) as caught:
        run(program)
    text = str(caught.value)
    assert "large: 262144 bytes" in text
    assert "small: 16384 bytes" in text
    assert "278528 bytes" in text
    assert "166912" in text  # the limit


def test_the_total_is_in_the_hints():
    @T.prim_func
    def program(A: T.Tensor((16, 256), "float32"), B: T.Tensor((16, 256), "float32")):
        with T.Kernel(1, threads=128) as _:
            s = T.alloc_shared((16, 256), "float32")
            T.copy(A, s)
            for i, j in T.Parallel(16, 256):
                B[i, j] = s[i, 255 - j]

    hints = dict(kernel_of(run(program)).hints)
    assert hints["smem_bytes"] == hints["smem_size.s"] == 16 * 256 * 4
    assert hints["smem.s"] == 0
