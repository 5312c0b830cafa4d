"""Every function of the vocabulary and every intrinsic compiles for the devices (NVRTC, no GPU)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilecore.emulator import build_kernel
from tilecore_backend_cuda_ampere.emulation import SUPPORT
from tilecore_backend_cuda_ampere.toolchain import AMPERE_HEADERS, HeaderSet

KERNELS = Path(__file__).parent / "kernels"


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_whole_vocabulary(compile_text, arch):
    cubin, log = compile_text((KERNELS / "vocabulary.cu").read_text(), arch)
    assert cubin.startswith(b"\x7fELF")
    assert "0 bytes spill stores" in log


def test_whole_vocabulary_in_the_emulator():
    build_kernel((KERNELS / "vocabulary.cu").read_text(), "vocabulary", SUPPORT)


def test_the_text_uses_all_of_the_page():
    """vocabulary.cu calls each function that the two pages list."""
    text = (KERNELS / "vocabulary.cu").read_text()
    core = Path(build_kernel.__code__.co_filename).parent / "README.md"
    pages = (
        core.read_text().split("## 6.")[0]
        + (
            KERNELS.parent.parent / "tilecore_backend_cuda_ampere" / "headers" / "README.md"
        ).read_text()
    )
    names = set(re.findall(r"`(?:[a-z]\w* )?(?:auto p = )?tc::(\w+)", pages))
    names |= set(re.findall(r"`(?:float )?(mma_\w+|ldmatrix\w*|stmatrix\w*|to_tf32)", pages))
    names -= {"half", "bfloat16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "dot4"}
    names = {name.replace("_SPACE", "_global") for name in names}
    missing = {name for name in names if not re.search(rf"\b{name}\b", text)}
    assert not missing


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("suffix", ["", "_readonly", "_streaming"])
def test_accesses_are_one_instruction(compile_text, disassemble, suffix, arch):
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
  tc::store_shared<4>(S + (i * 8 + 4), f + 4);
  tc::barrier();
  tc::load_shared<4>(f, S + (1020 - i * 8));
  tc::load_shared<2>(f + 4, S + i * 2);
  tc::store_global{suffix.replace("_readonly", "")}<4>(B + i * 8, f);
  tc::store_global<2>(B + i * 8 + 4, f + 4);
}}
"""
    sass = disassemble(compile_text(text, arch)[0])
    assert len(re.findall(r"LDG\.E[.\w]*128", sass)) == 1
    assert len(re.findall(r"LDG", sass)) == 1
    assert [len(re.findall(rf"STS\.{w}", sass)) for w in (128, 64)] == [2, 0]
    assert [len(re.findall(rf"LDS\.{w}", sass)) for w in (128, 64)] == [1, 1]
    assert len(re.findall(r"STG", sass)) == 2
    assert not re.search(r"LDL|STL", sass)


def test_matmul_instructions(compile_text, disassemble, matmul_text):
    sass = disassemble(compile_text(matmul_text, "sm_80")[0])
    assert len(re.findall(r"HMMA\.16816\.F32", sass)) == 2 * 32
    assert len(re.findall(r"LDSM\.16\.M88\.4", sass)) == 2 * 4
    assert len(re.findall(r"LDSM\.16\.MT88\.4", sass)) == 2 * 4
    assert re.search(r"LDGSTS\.E\.BYPASS\.LTC128B\.128", sass)
    assert "LDL" not in sass


def read_headers(headers: HeaderSet) -> dict[str, str]:
    """The texts that a kernel is compiled behind, by name.

    Raises:
        FileNotFoundError: one is not in the backend's folders.
    """
    found: dict[str, str] = {}
    pending = [headers.name]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        places = [folder / name for folder in headers.folders if (folder / name).exists()]
        if not places:
            raise FileNotFoundError(name)
        text = places[0].read_text()
        found[name] = text = text.replace(
            "#else\n#include <stdint.h>\n#endif", "#endif"
        )  # not NVRTC
        pending += re.findall(r"#include\s*[<\"]([^>\"]+)", text)
    return found


def test_no_header_of_a_toolkit_is_read():
    """Those of half precision alone take NVRTC as long as all of ours."""
    texts = read_headers(AMPERE_HEADERS)
    assert set(texts) > {"ampere.cuh", "tc_common.h", "tc_math.h"}
    assert sum(map(len, texts.values())) < 64 * 1024
