"""Authors' names that C++ or a header would read as something else."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore
import tilecore.language as T
from tilecore.codegen.simt.spelling import RESERVED, spelling
from tilecore.compiler import lower
from tilecore.targets import choose_target

TEXT = """
@T.prim_func
def {kernel}({a}: T.Tensor((64, 32), "float32"), {b}: T.Tensor((64, 32), "float32")):
    with T.Kernel(2, threads=32) as {block}:
        {shared} = T.alloc_shared((32, 32), "float32")
        {fragment} = T.alloc_fragment((32, 32), "float32")
        T.copy({a}[{block} * 32, 0], {shared})
        T.copy({shared}, {fragment})
        for {i}, {j} in T.Parallel(32, 32):
            {fragment}[{i}, {j}] = {fragment}[{i}, {j}] + 1.0
        T.copy({fragment}, {b}[{block} * 32, 0])
"""
PLACES = ("kernel", "a", "b", "block", "shared", "fragment", "i", "j")


def program_with(names: dict[str, str], number: list[int] = [0]):  # noqa: B006
    number[0] += 1
    text, file = TEXT.format(**names), f"<names {number[0]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"T": T}
    exec(compile(text, file, "exec"), scope)
    return scope[names["kernel"]]


def check(names: dict[str, str], backend: str) -> None:
    kernel = tilecore.compile(program_with(names), backend=backend, device="emulator")
    a = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    b = np.zeros_like(a)
    kernel(a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize(
    "names",
    [
        ("double", "register", "smem", "blockIdx", "typename", "NAN", "lane", "tc"),
        ("exp", "unix", "TC_LINE", "_X", "__x", "größe", "half", "threadIdx"),
        ("printf", "register_", "register", "int8_t", "errno", "assert_", "store_pair", "char"),
    ],
    ids=["words", "macros", "clashes"],
)
@pytest.mark.parametrize("backend", ["cuda_ampere", "cuda_hopper", "rocm_cdna3"])
def test_reserved_names_compile_and_run(names, backend):
    check(dict(zip(PLACES, names, strict=True)), backend)


def test_tensors_that_copy_engines_read():
    @T.prim_func
    def double(
        register: T.Tensor((64, 64), "float16"),
        smem: T.Tensor((64, 64), "float16"),
        blockIdx: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(register[0, k * 32], a)
                T.copy(smem[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, blockIdx)

    kernel = tilecore.compile(double, backend="cuda_hopper", device="emulator")
    assert "hopper::TensorMap" in kernel.source
    a, b = (np.random.default_rng(0).integers(-2, 3, (2, 64, 64))).astype(np.float16)
    c = np.zeros_like(a)
    kernel(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


IDENTIFIERS = st.one_of(
    st.sampled_from(sorted(word for word in RESERVED if word.isidentifier())),
    st.from_regex(r"[A-Za-z_éß][A-Za-z_0-9é]{0,6}", fullmatch=True),
).filter(lambda name: name.isidentifier())


@settings(max_examples=300, deadline=None)
@given(st.lists(IDENTIFIERS, unique=True, max_size=6), st.booleans())
def test_spellings_are_identifiers_and_distinct(names, is_kernel):
    taken: set[str] = set()
    for name in names:
        made = spelling(name, taken, is_kernel)
        assert made.isascii()
        assert made.isidentifier()
        assert made not in RESERVED
        assert "__" not in made
        assert made not in taken
        taken.add(made)


def test_good_names_are_kept():
    names = dict(zip(PLACES, ("scale_rows", "A", "B", "bx", "a_s", "a_f", "i", "j"), strict=True))
    target = choose_target("cuda_ampere", "sm_80", "emulator")
    text = lower(program_with(names), target=target).source.text
    assert "scale_rows(const float* TC_RESTRICT A, float* TC_RESTRICT B)" in text
    assert "auto a_s = " in text
