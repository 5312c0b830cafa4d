"""Whole kernels as text: readable, the same every time, and compiled by the emulator elsewhere."""

import tilecore.language as T
from tilecore.compiler import lower
from tilecore.targets import choose_target

TARGET = choose_target("cuda_ampere", "sm_80", "emulator")


def scale():
    @T.prim_func
    def scale(Weights: T.Tensor((64, 64), "float16"), Scaled: T.Tensor((64, 64), "float16")):
        with T.Kernel(2, threads=128) as block:
            staging = T.alloc_shared((32, 64), "float16")
            T.copy(Weights[block * 32, 0], staging)
            for i, j in T.Parallel(32, 64):
                staging[i, j] = staging[i, j] * 2.0
            T.copy(staging, Scaled[block * 32, 0])

    return scale


def text_of(program) -> str:
    return lower(program, target=TARGET).source.text


def test_the_authors_names_and_lines_are_kept():
    text = text_of(scale())
    assert "TC_KERNEL(128, 0) scale(const tc::half* TC_RESTRICT Weights," in text
    assert "tc::half* TC_RESTRICT Scaled)" in text
    assert "const int block = tc::block_x();" in text
    assert "auto staging = tc::shared_buffer<tc::half>(smem, 0, 2048);" in text
    assert "test_kernel_text.py:15: T.copy(Weights[block * 32, 0], staging)" in text
    assert "TC_LINE(15);" in text
    assert "/work" not in text  # no paths of this machine


def test_memory_that_lanes_write_and_read_is_not_restricted():
    """Compilers would read what a lane wrote itself, across a barrier behind which others wrote."""

    @T.prim_func
    def moved(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((8, 8), "float32")
            T.copy(X, tile)
            T.copy(tile, Y)
            T.copy(tile[1:8, :], Y[0:7, :])
            for i, j in T.Parallel(8, 8):
                Y[i, j] = Y[i, j] + tile[i, j]

    @T.prim_func
    def counted(Count: T.Tensor((1,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                Y[i] = T.atomic_add(Count[0], 1, return_prev=True)

    assert "moved(const float* TC_RESTRICT X, float* Y)" in text_of(moved)
    assert "counted(int* Count, int* TC_RESTRICT Y)" in text_of(counted)


def test_accesses_are_vectors_of_16_bytes():
    text = text_of(scale())
    assert "tc::copy_async<8>(staging" in text
    assert "tc::store_global<8>(Scaled" in text


def test_equal_programs_give_equal_texts():
    assert text_of(scale()) == text_of(scale())


def test_braces_are_balanced_and_lines_are_indented():
    text = text_of(scale())
    depth = 0
    for line in text.splitlines():
        depth -= line.startswith(" " * (2 * max(0, depth - 1)) + "}")
        assert not line.strip() or line.startswith("  " * depth), line
        depth += line.endswith("{")
    assert depth == 0


def test_ragged_edges_are_guarded_and_even_ones_are_not():
    def program(rows):
        @T.prim_func
        def copy(A: T.Tensor((rows, 64), "float32"), B: T.Tensor((rows, 64), "float32")):
            with T.Kernel(T.ceildiv(rows, 32), threads=128) as b:
                f = T.alloc_fragment((32, 64), "float32")
                T.copy(A[b * 32, 0], f)
                T.copy(f, B[b * 32, 0])

        return copy

    assert "if (" not in text_of(program(64))
    assert "< 50) {" in text_of(program(50))


def test_large_buffers_have_64_bit_offsets():
    def program(rows):
        @T.prim_func
        def fill(A: T.Tensor((rows, 65536), "int8")):
            with T.Kernel(rows, threads=32) as b:
                for i in T.Parallel(32):
                    A[b, i] = T.cast(1, "int8")

        return fill

    assert "int64_t(b)" in text_of(program(65536))
    assert "int64_t" not in text_of(program(64))
