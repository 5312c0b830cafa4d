"""The static model: what it counts, what it predicts for the two named workloads, what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tilecore
from tilecore.cli.main import main
from tilecore.hooks.manager import hooks_of, targets_of
from tilecore.hooks.model import KernelModel, PerformanceModel
from tilecore.hooks.records import CompileOptions
from tilecore_backend_rocm import public_figures as public
from tilecore_backend_rocm.mma import ATOMS
from tilecore_backend_rocm.model import _instruction

gemms = pytest.importorskip("tilecore_kernels.gemm")
attentions = pytest.importorskip("tilecore_kernels.flash_attention")

(TARGET,) = targets_of("rocm_cdna3")


def model_of(function: object, options: CompileOptions | None = None) -> PerformanceModel:
    program = tilecore.lower(function, target=TARGET, options=options).stages[-1][1]
    found = hooks_of("rocm_cdna3").call(
        "tilecore_model", program=program, target=TARGET, options=CompileOptions()
    )
    assert isinstance(found, PerformanceModel)
    return found


def gemm(size: int, depth: int, transpose_b: bool = True) -> KernelModel:
    problem = gemms.GemmProblem(size, size, size, "bfloat16", transpose_b=transpose_b)
    (kernel,) = model_of(gemms.gemm(problem, gemms.GemmConfig(256, 256, depth, 2, 512, 8))).kernels
    return kernel


def test_gemm_counts_are_the_arithmetic_of_its_tiles() -> None:
    kernel = gemm(8192, 32)
    assert kernel.operations == 2 * 8192**3 and kernel.rounds == 4 and kernel.resident == 1
    parts = dict(kernel.parts)
    # 256 x 256 x 8192 on 2048 operations a cycle
    assert parts["matrix units"] == 2 * 256 * 256 * 8192 / 2048
    # operands go to LDS once; 8 wavefronts of 128 x 64 read theirs
    lines = (512 + 8 * (128 + 64)) * 8192 * 2 / 128
    assert parts["LDS"] == pytest.approx(lines, rel=0.01)
    # every block loads two panels of 256 x 8192 and writes 256 x 256 results
    moved = 32 * 32 * (2 * 256 * 8192 + 256 * 256) * 2
    assert kernel.bytes_moved == pytest.approx(moved, rel=0.01)


def test_a_gemm_is_held_by_power_and_no_librarys_speed_enters() -> None:
    kernel = gemm(8192, 32)
    assert kernel.bound == "power" and kernel.unlimited_seconds < kernel.seconds
    # energy of an operation on another device at its limit, against this board's power
    limit = 750 / (700 / 665e12) / 1e12
    assert kernel.teraflops == pytest.approx(limit, rel=0.01)
    assert limit not in [f.teraflops for f in public.GEMM_BFLOAT16]


def test_eight_bits_take_half_the_energy() -> None:
    found = []
    for dtype in ("bfloat16", "float8_e4m3fnuz"):
        problem = gemms.GemmProblem(4096, 4096, 4096, dtype, "bfloat16", transpose_b=True)
        depth = 32 if dtype == "bfloat16" else 64
        (kernel,) = model_of(gemms.gemm(problem, gemms.GemmConfig(256, 256, depth, 2, 512))).kernels
        assert kernel.bound == "power"
        found.append(kernel.seconds - 4e-6)
    assert found[0] == pytest.approx(2 * found[1], rel=0.01)


def test_wavefronts_a_phase_apart_hide_barriers_and_the_lesser_work() -> None:
    problem = attentions.AttentionProblem(1, 16, 16384, 128, "bfloat16")
    programs = [
        gemms.gemm(gemms.GemmProblem(8192, 8192, 8192, "bfloat16", transpose_b=True),
                   gemms.GemmConfig(256, 256, 32, 2, 512, 8)),
        attentions.flash_attention(problem, attentions.AttentionConfig(256, 32, 2, 512)),
    ]  # fmt: skip
    gains = []
    for program in programs:
        times = []
        for staggered in (True, False):
            options = CompileOptions(extra=(("stagger", staggered),))
            (kernel,) = model_of(program, options).kernels
            parts = dict(kernel.parts)
            assert kernel.block_cycles > max(parts.values())  # no part does more than it can
            times.append(kernel.unlimited_seconds)
        gains.append(times[1] / times[0])
    assert 1.0 < gains[0] < 1.1 and 1.3 < gains[1] < 2.0


def test_a_second_slot_hides_what_one_shows() -> None:
    two, one = gemm(8192, 32), gemm(8192, 64)
    assert two.unlimited_seconds < 0.9 * one.unlimited_seconds
    busy = [dict(k.parts)["matrix units"] / k.block_cycles for k in (two, one)]
    assert busy[0] > 0.9 > 0.8 > busy[1]


def test_attention_at_16k() -> None:
    problem = attentions.AttentionProblem(1, 16, 16384, 128, "bfloat16")
    config = attentions.FLASH_ATTENTION.configs(problem, TARGET)[0]
    found = model_of(attentions.flash_attention(problem, config))
    (kernel,) = found.kernels
    assert kernel.operations == 4 * 16 * 16384**2 * 128
    parts = dict(kernel.parts)
    assert parts["matrix units"] > parts["vector units"] > 0.5 * parts["matrix units"]
    assert 400 < kernel.teraflops < 708
    assert found.figures == public.ATTENTION_BFLOAT16
    assert any("AITER" in text for text in found.assumptions)


def test_a_causal_mask_halves_the_work() -> None:
    found = []
    for right in (None, 0):
        problem = attentions.AttentionProblem(1, 16, 8192, 128, "bfloat16", right=right)
        config = attentions.FLASH_ATTENTION.configs(problem, TARGET)[0]
        found += model_of(attentions.flash_attention(problem, config)).kernels
    full, causal = found
    assert causal.operations == pytest.approx(0.5 * full.operations, rel=0.15)


@pytest.mark.parametrize("atom", ATOMS, ids=lambda a: f"{a.name}-{a.a_dtype}-{a.b_dtype}")
def test_every_atom_has_its_instruction(atom: object) -> None:
    times, cycles, operations = _instruction(f"mma.{atom.name}")  # type: ignore[attr-defined]
    m, n, k = atom.m, atom.n, atom.k  # type: ignore[attr-defined]
    assert times * operations == 2 * m * n * k and cycles in (16, 32, 64)


def test_the_command_prints_prediction_figures_and_assumptions(tmp_path: Path) -> None:
    file = tmp_path / "programs.py"
    file.write_text(
        "from tilecore_kernels.gemm import GemmConfig, GemmProblem, gemm\n"
        "big = gemm(GemmProblem(8192, 8192, 8192, 'bfloat16', transpose_b=True),\n"
        "           GemmConfig(256, 256, 32, 2, 512, 8))\n"
    )
    result = CliRunner().invoke(
        main, ["inspect", f"{file}:big", "--backend", "rocm_cdna3", "--stage", "model"]
    )
    assert result.exit_code == 0, result.output
    for text in ("predicted, bound by power", "matrix units:", "hipBLASLt", "assumptions:",
                 "pJ an operation", "never compared with hardware"):  # fmt: skip
        assert text in result.output


def test_a_backend_without_a_model_says_so(tmp_path: Path) -> None:
    file = tmp_path / "programs.py"
    file.write_text(
        "from tilecore_kernels.gemm import GemmConfig, GemmProblem, gemm\n"
        "small = gemm(GemmProblem(64, 64, 64, 'float32'), GemmConfig(64, 64, 64, 1, 128))\n"
    )
    result = CliRunner().invoke(
        main, ["inspect", f"{file}:small", "--backend", "cpu_llvm", "--stage", "model"]
    )
    assert result.exit_code == 0 and "has no performance model" in result.output
