"""Every word of C++ and every builtin of the devices' languages is a name that an author may use.

One program names a tensor, a shared tile, a fragment and a loop variable by each word; its text is
run in the emulator and compiled by each toolchain that is installed.
"""

from __future__ import annotations

import dataclasses
import linecache
from typing import Any

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.codegen.simt.spelling import _names_in, _Renamer
from tilecore.hooks.manager import hooks_of
from tilecore.ir.program import Program
from tilecore.targets import choose_target

# ISO C++20, [lex.key] tables 5 and 6, and [lex.name] table 4.
KEYWORDS_TEXT = """
alignas alignof asm auto bool break case catch char char8_t char16_t char32_t class concept const
consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
int long mutable namespace new noexcept nullptr operator private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true try typedef typeid typename union unsigned using virtual void
volatile wchar_t while and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq final import
module override
"""
VECTORS = [
    f"{kind}{n}"
    for kind in ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong",
                 "ulonglong", "float", "double")
    for n in (1, 2, 3, 4)
]  # fmt: skip
BUILTINS_TEXT = """
NULL EOF NAN INFINITY INT_MAX FLT_MAX M_PI assert errno threadIdx blockIdx blockDim gridDim warpSize
dim3 half half2 bfloat16 nv_bfloat16 nv_bfloat162 uint uchar ushort ulong size_t int8_t uint64_t
clock clock64 norm erfinv rsqrt sinf expf fmaf llmax labs min max abs
exp pow printf malloc free atomicAdd hypot y0 j1 index main std tc smem
ampere hopper cdna3 lane store_pair tile_counter dealt block_id panel_first i_left x_registers A_map
linux unix __shared__ __global__ _A
"""
WORDS = [*KEYWORDS_TEXT.split(), *VECTORS, *BUILTINS_TEXT.split()]
FEW_TEXT = """
new char template and NULL float4 threadIdx half lane this switch int3 double2 std min smem i_left
_A tile_counter x_registers
"""
FEW = FEW_TEXT.split()
ROWS = 8


def program_text(count: int) -> str:
    """A program over `count` names of each sort: tensors, shared tiles, fragments, variables."""
    tensors = ", ".join(f't{i}: T.Tensor(({ROWS},), "float32")' for i in range(count))
    lines = ["@T.prim_func", f"def named({tensors}):", "    with T.Kernel(1, threads=32) as block:"]
    for i in range(count):
        lines += [
            f'        s{i} = T.alloc_shared(({ROWS},), "float32")',
            f'        f{i} = T.alloc_fragment(({ROWS},), "float32")',
            f"        T.copy(t{i}, s{i})",
            f"        T.copy(s{i}, f{i})",
            f"        for v{i} in T.Parallel({ROWS}):",
            f"            f{i}[v{i}] = f{i}[v{i}] + T.cast(v{i}, 'float32')",
            f"        T.copy(f{i}, t{i})",
        ]
    return "\n".join(lines) + "\n"


def program_named_by(words: list[str], turn: int) -> Program:
    """The program with the words for names; `turn` decides which word names which sort."""
    count = -(-len(words) // 4)
    text, file = program_text(count), f"<words {turn} {len(words)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"T": T}
    exec(compile(text, file, "exec"), scope)
    program: Program = scope["named"].program
    places = [f"{'tsfv'[(i + turn) % 4]}{i // 4}" for i in range(len(words))]
    return _Renamer(dict(zip(places, words, strict=True))).of(program)


BACKENDS = {"cuda_ampere": "sm_80", "cuda_hopper": "sm_90a", "rocm_cdna3": "gfx942"}
SETS = {"few": FEW, "all": WORDS}
CASES = [
    pytest.param(backend, which, turn, marks=(pytest.mark.slow,) if which == "all" else ())
    for which in SETS
    for i, backend in enumerate(BACKENDS)
    for turn in range(4)
    if which == "all" or turn in (i, i + 1)
]


def needs_toolchain(backend: str) -> None:
    target = choose_target(backend, BACKENDS[backend], "emulator")
    info = hooks_of(backend).call("tilecore_probe_toolchain", target=target)
    if info is None or not info.version:
        pytest.skip(f"no toolchain of {backend} is installed")


@pytest.mark.parametrize(("backend", "which", "turn"), CASES)
def test_emulated(backend: str, which: str, turn: int) -> None:
    program = program_named_by(SETS[which], turn)
    rng = np.random.default_rng(0)
    tensors = [rng.integers(-9, 9, ROWS).astype(np.float32) for _ in program.params]
    want = [tensor + np.arange(ROWS, dtype=np.float32) for tensor in tensors]
    tilecore.compile(program, backend=backend, device="emulator")(*tensors)
    for parameter, tensor, right in zip(program.params, tensors, want, strict=True):
        assert np.array_equal(tensor, right), parameter.name


@pytest.mark.parametrize(("backend", "which", "turn"), CASES)
def test_compiled(backend: str, which: str, turn: int) -> None:
    needs_toolchain(backend)
    program = program_named_by(SETS[which], turn)
    kernel = tilecore.compile(program, backend=backend, arch=BACKENDS[backend])
    assert kernel.artifact is not None and kernel.artifact.data


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels(backend: str) -> None:
    """A kernel by each name, in one source."""
    needs_toolchain(backend)
    program = program_named_by(["A", "B", "C", "D"], 0)
    (kernel,) = program.kernels
    own = _names_in(kernel) - {parameter.name for parameter in program.params}
    kernels = tuple(
        dataclasses.replace(_Renamer({name: f"{name}{i}" for name in own}).of(kernel), name=word)
        for i, word in enumerate(WORDS)
    )
    many = dataclasses.replace(program, kernels=kernels)
    assert tilecore.compile(many, backend=backend, arch=BACKENDS[backend]).artifact is not None
