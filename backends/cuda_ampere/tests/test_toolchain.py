"""NVRTC in this process: cubins, what the assembler says about them, and refusals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tilecore.errors import ResourceError, ToolchainError
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore.target import Target
from tilecore_backend_cuda_ampere import toolchain
from tilecore_backend_cuda_ampere.assembler_log import parse_log
from tilecore_backend_cuda_ampere.toolchain import compile_cubin

TARGET = Target("cuda_ampere", "sm_80")
DOUBLE = "TC_KERNEL(128, 0) k(float* x) { x[tc::lane_in_block()] *= 2.0f; }\n"


def source(text: str, *names: str, smem_bytes: int = 0) -> Source:
    kernels = tuple(KernelSource(n, (), (), 128, smem_bytes) for n in (names or ("k",)))
    return Source(text, "c++", kernels)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_cubin_for_every_architecture(arch: str) -> None:
    made = compile_cubin(
        source(DOUBLE, smem_bytes=512), replace(TARGET, arch=arch), CompileOptions()
    )
    assert made.data[:4] == b"\x7fELF"
    assert made.format == "cubin"
    (used,) = made.resources
    assert 0 < used.registers < 40
    assert (used.stack_bytes, used.spill_bytes, used.smem_bytes) == (0, 0, 512)
    assert used.notes == ()


def test_same_source_gives_the_same_bytes() -> None:
    first, second = (compile_cubin(source(DOUBLE), TARGET, CompileOptions()) for _ in range(2))
    assert first.data == second.data


SPILLING = """
TC_KERNEL(128, 0) k(const float* x, float* y) {
  TC_FRAGMENT(float, v, 64);
  TC_UNROLL for (int i = 0; i < 64; ++i) v[i] = x[i * 128 + tc::lane_in_block()];
  for (int round = 0; round < 9; ++round) {
    TC_UNROLL for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 17) % 64] + v[(i + 5) % 64];
  }
  TC_UNROLL for (int i = 0; i < 64; ++i) y[i * 128 + tc::lane_in_block()] = v[i];
}
"""


def test_spills_are_reported() -> None:
    free = compile_cubin(source(SPILLING), TARGET, CompileOptions()).resources[0]
    assert free.spill_bytes == 0
    crowded = SPILLING.replace("TC_KERNEL(128, 0)", "TC_KERNEL(128, 16)")
    used = compile_cubin(source(crowded), TARGET, CompileOptions()).resources[0]
    assert used.registers <= 32 < free.registers
    assert used.spill_bytes > 0
    assert any("spills" in note for note in used.notes)


def test_static_shared_memory_is_counted_with_the_dynamic() -> None:
    text = """
TC_KERNEL(128, 0) one(float* x) {
  __shared__ float s[64];
  s[tc::lane_in_block() % 64] = x[0];
  __syncthreads();
  x[tc::lane_in_block()] = s[63 - tc::lane_in_block() % 64];
}
TC_KERNEL(128, 0) two(float* x) { x[0] = 1.0f; }
"""
    one, two = compile_cubin(
        source(text, "one", "two", smem_bytes=100), TARGET, CompileOptions()
    ).resources
    assert (one.name, one.smem_bytes) == ("one", 356)
    assert (two.name, two.smem_bytes) == ("two", 100)


def test_refused_source_comes_with_log_line_and_kept_text() -> None:
    with pytest.raises(ToolchainError) as caught:
        compile_cubin(source("TC_KERNEL(1, 0) k() {\n  nonsense;\n}\n"), TARGET, CompileOptions())
    text = str(caught.value)
    assert 'k.cu(2): error: identifier "nonsense" is undefined' in text
    kept = text.rpartition("source kept in ")[2]
    with open(kept) as file:
        assert "nonsense;" in file.read()


def test_refused_source_names_the_authors_line() -> None:
    text = (
        "TC_KERNEL(128, 0) k(float* x) {\n  // mine.py:7: x[i] = 1\n  x[0] = 1.0f;\n"
        "  // mine.py:8: x[i] = nonsense\n  x[0] = nonsense;\n  // mine.py:9: x[i] = 2\n}\n"
    )
    with pytest.raises(ToolchainError, match="generated for mine.py:8: x"):
        compile_cubin(source(text), TARGET, CompileOptions())


def test_static_shared_memory_over_the_limit_does_not_fit() -> None:
    text = """
TC_KERNEL(128, 0) k(float* x) {
  __shared__ float s[20000];
  s[tc::lane_in_block()] = x[0];
  __syncthreads();
  x[0] = s[5];
}
"""
    with pytest.raises(ResourceError, match="uses too much shared data"):
        compile_cubin(source(text), TARGET, CompileOptions())


def test_unknown_architecture_is_refused() -> None:
    with pytest.raises(ToolchainError, match="invalid value for --gpu-architecture"):
        compile_cubin(source(DOUBLE), replace(TARGET, arch="sm_12"), CompileOptions())


def test_options_reach_the_compiler() -> None:
    arguments = toolchain.nvrtc_arguments("sm_90a", CompileOptions(fast_math=True), ())
    assert "--use_fast_math" in arguments
    assert "--generate-line-info" in arguments
    assert "--gpu-architecture=sm_90a" in arguments
    plain = toolchain.nvrtc_arguments("sm_90a", CompileOptions(line_info=False), ())
    assert not {"--use_fast_math", "--generate-line-info"} & set(plain)


def test_fingerprint_has_version_and_headers() -> None:
    fingerprint = toolchain.toolchain_fingerprint()
    assert toolchain.nvrtc_version() in fingerprint
    other = toolchain.HeaderSet("x", (), ("tilecore_backend_cuda_ampere",))
    assert toolchain.toolchain_fingerprint(other) != fingerprint


def test_probe_names_version() -> None:
    found = toolchain.probe_toolchain()
    assert (found.name, found.missing) == ("NVRTC", "")
    assert found.version == toolchain.nvrtc_version()
    assert toolchain.supports_arch("sm_90a")
    assert not toolchain.supports_arch("sm_60")


@pytest.mark.parametrize("broken", ["cuda.bindings", "library"])
def test_missing_toolchain_says_what_to_install(broken: str) -> None:
    """In a process of its own, where the import or the loading of the library fails."""
    hide = (
        "sys.modules['cuda.bindings'] = None"
        if broken == "cuda.bindings"
        else "import cuda.bindings.nvrtc as n\n"
        "def gone(): raise RuntimeError('Failure finding libnvrtc.so.13')\n"
        "n.nvrtcVersion = gone"
    )
    program = f"""
import sys
{hide}
from tilecore.errors import ToolchainError
from tilecore_backend_cuda_ampere import toolchain
print(toolchain.probe_toolchain().missing)
try:
    toolchain.toolchain_fingerprint()
except ToolchainError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install cuda-bindings nvidia-cuda-nvrtc" in line for line in lines)


LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to insufficient register resources for the wgmma pipeline in the function 'second'
ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    16 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 16 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 90 registers, used 1 barriers
"""


def test_log_is_read_per_kernel_with_its_remarks() -> None:
    kernels = source("", "first", "second", "absent", smem_bytes=1000).kernels
    first, second, absent = parse_log(LOG, kernels)
    assert (first.registers, first.stack_bytes, first.spill_bytes, first.smem_bytes) == (
        168, 16, 64, 1400,
    )  # fmt: skip
    assert (second.registers, second.spill_bytes, second.smem_bytes) == (90, 0, 1000)
    assert any("serialized" in note for note in second.notes)
    assert not any("serialized" in note for note in first.notes)
    assert all(any("setmaxnreg" in note for note in k.notes) for k in (first, second))
    assert any("spills 64 bytes" in note for note in first.notes)
    assert absent.registers is None


def test_a_kernel_made_before_still_tells_its_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC's own cache gives code without the assembler's log, so it is not asked."""
    passed: list[bytes] = []
    nvrtc = toolchain._nvrtc()
    compile_once = nvrtc.nvrtcCompileProgram

    def note(program: object, count: int, arguments: list[bytes]) -> object:
        passed.extend(arguments)
        return compile_once(program, count, arguments)

    monkeypatch.setattr(nvrtc, "nvrtcCompileProgram", note)
    for _ in range(2):
        made = compile_cubin(source(SPILLING), TARGET, CompileOptions())
        assert made.resources[0].registers is not None
    _, major, _ = nvrtc.nvrtcVersion()
    assert (b"--no-cache" in passed) == (major >= 13)


def test_a_log_without_a_line_on_spills_is_no_reason_to_compile_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another NVRTC, or one whose code was made before, says nothing of registers."""
    runs = []
    compile_once = toolchain._compile

    def silent(*arguments: object) -> object:
        runs.append(arguments)
        made = compile_once(*arguments)
        unknown = tuple(replace(one, registers=None, spill_bytes=None) for one in made.resources)
        return replace(made, resources=unknown)

    monkeypatch.setattr(toolchain, "_compile", silent)
    made = compile_cubin(source(SPILLING), TARGET, CompileOptions())
    assert made.resources[0].spill_bytes is None
    assert len(runs) == 1
