"""The device headers compile: an instruction an access, and no calls into libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilecore.emulator import build_kernel
from tilecore.hooks.records import CompileOptions
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.emulation import SUPPORT
from tilecore_backend_rocm.mma import ATOMS
from tilecore_backend_rocm.resources import read_figures
from tilecore_backend_rocm.toolchain import Built, build

KERNELS = Path(__file__).parent / "kernels"


def compiled(compiler: Compiler, text: str) -> Built:
    return build(compiler, f'#include "cdna3.h"\n#line 1\n{text}', "gfx942", CompileOptions())


def test_whole_vocabulary(compiler: Compiler) -> None:
    built = compiled(compiler, (KERNELS / "vocabulary.hip").read_text())  # links: nothing undefined
    assert built.code_object.startswith(b"\x7fELF")
    assert not re.search(r"s_swappc|\bflat_|scratch_", built.assembly)
    figures = read_figures(built.assembly)["vocabulary"]
    assert (figures.scratch_bytes, figures.spilled) == (0, 0)


def test_whole_vocabulary_in_the_emulator() -> None:
    build_kernel((KERNELS / "vocabulary.hip").read_text(), "vocabulary", SUPPORT)


def test_the_text_uses_all_of_the_page() -> None:
    text = (KERNELS / "vocabulary.hip").read_text()
    core = Path(build_kernel.__code__.co_filename).parent / "README.md"
    page = core.read_text().split("## 6.")[0]
    names = set(re.findall(r"`(?:[a-z]\w* )?(?:auto p = )?tc::(\w+)", page))
    names -= {"half", "bfloat16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "dot4"}
    names -= {"named_barrier", "named_barrier_arrive"}  # words of memory: cdna3::meet
    names = {name.replace("_SPACE", "_global") for name in names}
    assert not {name for name in names if not re.search(rf"\b{name}\b", text)}


@pytest.mark.parametrize("suffix", ["", "_readonly", "_streaming"])
def test_accesses_are_one_instruction(compiler: Compiler, suffix: str) -> None:
    text = f"""
TC_KERNEL(128, 1) k(const tc::half* A, float* B) {{
  TC_SHARED_MEMORY(smem);
  auto S = tc::shared_buffer<float>(smem, 0, 1024);
  TC_FRAGMENT(tc::half, r, 8);
  const int i = tc::lane_in_block();
  tc::load_global{suffix}<8>(r, A + i * 8);
  TC_FRAGMENT(float, f, 8);
  TC_UNROLL for (int j = 0; j < 8; ++j) f[j] = tc::convert<float>(r[j]);
  tc::store_shared<4>(S + i * 8, f);
  tc::barrier();
  tc::load_shared<4>(f, S + (1020 - i * 8));
  tc::store_global{suffix.replace("_readonly", "")}<4>(B + i * 8, f);
}}
"""
    assembly = compiled(compiler, text).assembly
    for instruction in ("global_load_dwordx4", "ds_write_b128", "ds_read_b128"):
        assert len(re.findall(rf"\b{instruction}\b", assembly)) == 1, instruction
    assert len(re.findall(r"\bglobal_(?:load|store)\w*", assembly)) == 2


def test_every_atom_is_its_instructions(compiler: Compiler) -> None:
    """All atoms in one kernel: as many v_mfma of each kind as the table says, and no spill."""
    wanted: dict[str, int] = {}
    body = ["  const int lane = tc::lane_in_block();"]
    table = (Path(SUPPORT.include_directories[0]) / "cdna3_mfma.h").read_text()
    pattern = r"^CDNA3_ATOM\((\d+), (\d+), (\w+), ([^,]+), ([^,]+), ([^,]+), (\d+), (\w+),"
    lines = re.findall(pattern, table, re.M)
    assert len(lines) == len({atom.name for atom in ATOMS})
    for side, k, suffix, d, a, b, count, builtin in lines:
        results = int(side) ** 2 // 64
        name = f"mfma_{side}x{side}x{k}_{suffix}"
        body.append(
            f"  {{ TC_FRAGMENT({d}, d, {results}); TC_FRAGMENT({a}, a, {count});"
            f" TC_FRAGMENT({b}, b, {count});\n    const {a}* A = ({a}*)P; const {b}* B = ({b}*)P;"
            f" {d}* D = ({d}*)Q;\n    TC_UNROLL for (int i = 0; i < {results}; ++i)"
            f" d[i] = D[lane * {results} + i];\n    TC_UNROLL for (int i = 0; i < {count}; ++i)"
            f" {{ a[i] = A[lane * {count} + i]; b[i] = B[lane * {count} + i + 64]; }}\n"
            f"    cdna3::{name}(d, a, b);\n    TC_UNROLL for (int i = 0; i < {results}; ++i)"
            f" D[lane * {results} + i] = d[i]; }}"
        )
        depth = int(re.findall(r"\d+x\d+x(\d+)", builtin)[0])
        key = re.sub(r"\W|_1k|_", "", builtin.removeprefix("mfma"))
        wanted[key] = wanted.get(key, 0) + int(k) // depth
    text = "TC_KERNEL(64, 0) all(const char* P, char* Q) {\n" + "\n".join(body) + "\n}\n"
    assembly = compiled(compiler, text).assembly
    found: dict[str, int] = {}
    for mnemonic in re.findall(r"^\s+v_mfma_(\w+)", assembly, re.M):
        key = mnemonic.replace("_", "")
        found[key] = found.get(key, 0) + 1
    assert found == wanted
    assert read_figures(assembly)["all"].spilled == 0
