"""What the compiler makes of gemm and attention: instructions, widths, registers, occupancy."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest

import tilecore
from tilecore.hooks.manager import targets_of
from tilecore.hooks.records import CompileOptions
from tilecore_backend_rocm.compilers import Compiler
from tilecore_backend_rocm.resources import Figures, read_figures, waves_per_simd
from tilecore_backend_rocm.toolchain import assembly_of

gemms = pytest.importorskip("tilecore_kernels.gemm")
attentions = pytest.importorskip("tilecore_kernels.flash_attention")

(TARGET,) = targets_of("rocm_cdna3")
BIG = gemms.GemmProblem(8192, 8192, 8192, "bfloat16", transpose_b=True)
LONG = attentions.AttentionProblem(1, 16, 16384, 128, "bfloat16")


@dataclass(frozen=True)
class Compiled:
    """A kernel's assembly and what is read from it."""

    text: str
    used: Counter[str]
    figures: Figures
    waves: int
    source: str

    def loop(self) -> str:
        """The blocks of the innermost loop with the most matrix instructions, by the comments that
        the compiler puts at their labels."""
        blocks = re.split(r"^(?=\.LBB\d+_\d+:|; %bb\.\d+:)", self.text, flags=re.M)
        loops: dict[str, str] = {}
        for block in blocks:
            own = re.match(r"\.L(BB\d+_\d+):.*Inner Loop Header", block)
            part = re.match(r".*in Loop: Header=(BB\d+_\d+)", block)
            if own or part:
                name = own[1] if own else part[1]  # type: ignore[index]
                loops[name] = loops.get(name, "") + block
        return max(loops.values(), key=lambda text: text.count("v_mfma"))


IN_STEP = CompileOptions(extra=(("stagger", False),))


def compiled(function: object, options: CompileOptions | None = None) -> Compiled:
    lowered = tilecore.lower(function, target=TARGET, options=options)
    text = assembly_of(lowered.source, TARGET)
    (kernel,) = lowered.source.kernels
    figures = read_figures(text)[kernel.name]
    waves = waves_per_simd(figures, kernel.threads, kernel.smem_bytes)
    used = Counter(re.findall(r"^\s+([a-z]\w+)", text, re.M))
    return Compiled(text, used, figures, waves, lowered.source.text)


def expect_clean(kernel: Compiled) -> None:
    """Nothing spilled, nothing in scratch, global memory only by buffer accesses."""
    assert (kernel.figures.spilled, kernel.figures.scratch_bytes) == (0, 0)
    bad = [
        n for n in kernel.used if n.startswith(("scratch_", "flat_", "global_load", "ds_read_u"))
    ]
    assert not bad, bad


def planned_waves(kernel: Compiled) -> int:
    """Wavefronts a SIMD for which the text asks the compiler."""
    found = re.search(r"TC_KERNEL\((\d+), (\d+)\)", kernel.source)
    assert found is not None
    return int(found[1]) // 64 * int(found[2]) // 4


def test_gemm(compiler: Compiler) -> None:
    config = gemms.configs(BIG, TARGET)[0]
    assert (config.block_m, config.block_n, config.block_k, config.threads) == (256, 256, 32, 512)
    kernel = compiled(gemms.gemm(BIG, config))
    expect_clean(kernel)
    # 8 wavefronts have 128 x 64 of C each: 4 x 2 tiles, 32 / 8 steps of k; 16 bytes feed two steps
    assert kernel.used["v_mfma_f32_32x32x8_bf16"] == 4 * 2 * 4
    assert kernel.used["ds_read_b128"] == (4 + 2) * 2
    # a lane moves 4 times 16 bytes; two steps are loaded, one is stored before the loop
    assert kernel.used["buffer_load_dwordx4"] == 3 * 4 and kernel.used["ds_write_b128"] == 2 * 4
    assert kernel.waves == planned_waves(kernel) == 2


@pytest.mark.parametrize(("depth", "slots"), [(32, 2), (64, 1)])
def test_main_loop_of_gemm_keeps_loads_under_way(
    compiler: Compiler, depth: int, slots: int
) -> None:
    """With all wavefronts in step; those a phase apart: test_stagger.py."""
    config = gemms.GemmConfig(256, 256, depth, 2, 512, 8)
    loop = compiled(gemms.gemm(BIG, config), IN_STEP).loop()
    assert loop.count("v_mfma_f32_32x32x8_bf16") == depth
    assert loop.count("buffer_load_dwordx4") == loop.count("ds_write_b128") == depth // 8
    assert loop.count("s_barrier") == 3 - slots and loop.count("s_setprio 1") == depth // 16
    # what was loaded an iteration ago is waited for piece by piece, by counts
    waits = [int(n) for n in re.findall(r"s_waitcnt vmcnt\((\d+)\)", loop)]
    assert waits == list(range(depth // 8 - 1, -1, -1))
    # operands of the next slice are loaded before the products of this one, which wait by counts
    counted = [int(n) for n in re.findall(r"s_waitcnt lgkmcnt\((\d+)\)\s+v_mfma", loop)]
    assert counted and sum(n > 0 for n in counted) >= len(counted) // 2


def test_ragged_edges_cost_no_branch(compiler: Compiler) -> None:
    config = gemms.GemmConfig(128, 128, 64, 2, 256)
    even, ragged = (
        compiled(gemms.gemm(gemms.GemmProblem(n, n, n, "bfloat16", transpose_b=True), config))
        for n in (1024, 1000)
    )
    for kernel in (even, ragged):
        expect_clean(kernel)
        assert not [name for name in kernel.used if "saveexec" in name]
    for name in ("buffer_load_dwordx4", "ds_write_b128", "ds_read_b128", "v_mfma_f32_32x32x8_bf16"):
        assert even.used[name] == ragged.used[name] > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fnuz", "int8"])
def test_operands_across_rows_are_turned_in_registers(compiler: Compiler, dtype: str) -> None:
    problem = gemms.GemmProblem(2048, 2048, 2048, dtype, out_dtype="float32"
                                if dtype.startswith("float8") else "")  # fmt: skip
    kernel = compiled(gemms.gemm(problem, gemms.GemmConfig(128, 128, 64, 2, 256)))
    expect_clean(kernel)
    narrow = [n for n in kernel.used if n.startswith(("ds_read_i", "ds_write_b8", "ds_write_b16"))]
    assert not narrow and kernel.used["ds_read_b128"] > 0


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_8_bit_gemm_with_scales(compiler: Compiler, dtype: str) -> None:
    """FNUZ at the 8-bit rate; OCP loaded together and widened in registers, at float16's."""
    scaled = pytest.importorskip("tilecore_kernels.gemm_scaled")
    problem = scaled.ScaledGemmProblem(4096, 4096, 4096, "tensor", dtype)
    config = scaled.SCALED_GEMM.configs(problem, TARGET)[0]
    kernel = compiled(scaled.SCALED_GEMM.program(problem, config))
    expect_clean(kernel)
    instruction = "32x32x16_fp8_fp8" if dtype.endswith("fnuz") else "32x32x8_f16"
    assert kernel.used[f"v_mfma_f32_{instruction}"] >= 32
    assert kernel.waves == planned_waves(kernel) == 2


def test_attention(compiler: Compiler) -> None:
    config = attentions.FLASH_ATTENTION.configs(LONG, TARGET)[0]
    assert (config.block_q, config.block_k, config.threads) == (256, 64, 512)
    kernel = compiled(attentions.flash_attention(LONG, config))
    expect_clean(kernel)
    # a wavefront has 32 queries: 32 x 64 scores of depth 128, then 32 x 128 of depth 64
    assert kernel.used["v_mfma_f32_32x32x8_bf16"] == 2 * 16 + 4 * 8
    # queries once (8), keys in every iteration (2 x 8); values 8 bytes a lane: 4 tiles x 8 slices
    loop = kernel.loop()
    assert kernel.used["ds_read_b128"] == 8 + 16 and loop.count("ds_read_b128") == 16
    assert loop.count("ds_read_b64") + 2 * loop.count("ds_read2_b64") == 32
    assert loop.count("s_barrier") == 2
    # P goes from one product to the next in registers; rows are reduced by one exchange each
    assert kernel.used["ds_bpermute_b32"] == 2
    assert kernel.waves == planned_waves(kernel) == 2


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("right", [None, 0], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_no_attention_spills(compiler: Compiler, dim: int, right: int | None, dtype: str) -> None:
    problem = attentions.AttentionProblem(2, 8, 4096, dim, dtype, right=right, kv_heads=2)
    config = attentions.FLASH_ATTENTION.configs(problem, TARGET)[0]
    kernel = compiled(attentions.flash_attention(problem, config))
    assert (kernel.figures.spilled, kernel.figures.scratch_bytes) == (0, 0)
    assert kernel.waves >= planned_waves(kernel)
