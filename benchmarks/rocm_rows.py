"""What is measured on an MI300X, and a table of what it is compiled to, without a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilecore.compiler import Lowered, lower
from tilecore.hooks.manager import hooks_of, targets_of
from tilecore.hooks.records import CompileOptions
from tilecore_backend_rocm.resources import Figures, read_figures, waves_per_simd
from tilecore_backend_rocm.toolchain import assembly_of
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.decode_problem import DecodeProblem
from tilecore_kernels.family import Family
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.flash_decode import FLASH_DECODE
from tilecore_kernels.gemm import GEMM, GemmProblem
from tilecore_kernels.gemm_scaled import SCALED_GEMM, ScaledGemmProblem
from tilecore_kernels.mla_decode import MLA_DECODE, latent_problem

BACKEND = "rocm_cdna3"
GROUPS = ("gemm", "fp8", "scaled", "attention", "decode", "mla")
VARIANTS = {
    "": CompileOptions(),
    "in step": CompileOptions(extra=(("stagger", False),)),
    "direct to LDS": CompileOptions(extra=(("direct_to_lds", True),)),
}
"""Schedules of one configuration; those that change nothing of it are left out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem of a group."""

    group: str
    family: Family
    problem: Any

    @property
    def label(self) -> str:
        """What is computed, in a few words."""
        p = self.problem
        if isinstance(p, GemmProblem):
            return f"gemm {p.dtype} {p.m}x{p.n}x{p.k} {'NT' if p.transpose_b else 'NN'}"
        if isinstance(p, ScaledGemmProblem):
            return f"gemm {p.dtype} {p.m}x{p.n}x{p.k} scaled by {p.scaling}"
        if isinstance(p, DecodeProblem):
            page = f" pages of {p.page_size}" if p.page_size else ""
            return f"{self.group} {p.dtype} b{p.batch} h{p.heads}/{p.kv_heads} s{p.kv_len}{page}"
        mask = "causal" if p.right is not None else "full"
        return f"attention {p.dtype} b{p.batch} h{p.heads}/{p.kv_heads} s{p.q_len} d{p.dim} {mask}"


def rows(groups: list[str]) -> Iterator[Row]:
    """All problems of some groups, the two of the static model first in theirs."""
    return (row for row in _all_rows() if row.group in groups)


def _all_rows() -> Iterator[Row]:
    for size in (8192, 4096, 16384):
        for transpose_b in (True, False):
            problem = GemmProblem(size, size, size, "bfloat16", transpose_b=transpose_b)
            yield Row("gemm", GEMM, problem)
    for size in (8192, 4096):
        fnuz = GemmProblem(size, size, size, "float8_e4m3fnuz", "bfloat16", transpose_b=True)
        yield Row("fp8", GEMM, fnuz)
    for scaling, dtype in (
        ("tensor", "float8_e4m3fnuz"), ("tensor", "float8_e4m3fn"), ("block", "float8_e4m3fnuz"),
    ):  # fmt: skip
        yield Row("scaled", SCALED_GEMM, ScaledGemmProblem(4096, 4096, 4096, scaling, dtype))
    for batch, heads, kv_heads, length, dim in (
        (1, 16, 16, 16384, 128), (4, 48, 48, 4096, 128), (2, 64, 8, 8192, 128),
        (1, 32, 32, 16384, 64),
    ):  # fmt: skip
        for right in (None, 0):
            attention = AttentionProblem(
                batch, heads, length, dim, "bfloat16", kv_heads=kv_heads, right=right
            )
            yield Row("attention", FLASH_ATTENTION, attention)
    for page in (0, 64):
        cache = DecodeProblem(16, 32, 8192, 128, "bfloat16", kv_heads=8, page_size=page,
                              heads_inside=page > 0)  # fmt: skip
        yield Row("decode", FLASH_DECODE, cache)
        yield Row("mla", MLA_DECODE, latent_problem(16, 8192, dtype="bfloat16", page_size=page))


def variants_of(row: Row, config: Any) -> dict[str, Lowered]:
    """The schedules that make different code of one configuration, and what they make."""
    found: dict[str, tuple[str, Lowered]] = {}
    program = row.family.program(row.problem, config)
    for variant, options in VARIANTS.items():
        made = lower(program, BACKEND, options=options)
        found.setdefault(made.source.text, (variant, made))
    return dict(found.values())


def predicted(row: Row, made: Lowered) -> float:
    """Seconds by the static model; 0 without one."""
    found = hooks_of(BACKEND).call(
        "tilecore_model", program=made.stages[-1][1], target=made.target, options=made.options
    )
    return sum(kernel.seconds for kernel in found.kernels) if found else 0.0


def rate(row: Row, seconds: float) -> str:
    """Useful work a second: operations, or bytes where these bound it."""
    if seconds <= 0:
        return "-"
    if row.group in ("decode", "mla"):
        return f"{row.family.bytes_moved(row.problem) / seconds / 1e9:.0f} GB/s"
    return f"{row.family.flops(row.problem) / seconds / 1e12:.0f} TFLOP/s"


HEADINGS = ("kernel", "configuration", "schedule", "VGPR", "AGPR", "LDS", "spilled", "scratch",
            "waves", "planned", "predicted")  # fmt: skip


def table_rows(
    row: Row, config: Any, variant: str, made: Lowered
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """(cells, whether nothing spilled and the occupancy is as planned) of each kernel."""
    figures = read_figures(assembly_of(made.source, made.target, made.options))
    speed = rate(row, predicted(row, made))
    for number, kernel in enumerate(made.source.kernels):
        found = figures[kernel.name]
        waves = waves_per_simd(found, kernel.threads, kernel.smem_bytes)
        planned = _planned(made.source.text, kernel.name, kernel.threads)
        good = not found.spilled and not found.scratch_bytes and waves >= planned
        name = row.label if number == 0 else f"  {kernel.name}"
        yield (name, short(config), variant or "default", *_cells(found, kernel.smem_bytes),
               str(waves), str(planned or "-"), "" if number else speed), good  # fmt: skip


def _cells(found: Figures, dynamic: int) -> tuple[str, ...]:
    return (str(found.vector), str(found.accumulation), str(found.lds_bytes + dynamic),
            str(found.spilled), str(found.scratch_bytes))  # fmt: skip


def _planned(text: str, name: str, threads: int) -> int:
    """Wavefronts a SIMD that the kernel was compiled for; 0 where it made no wish."""
    found = re.search(rf"TC_KERNEL\(\d+, (\d+)\) {name}\(", text)
    blocks = int(found[1]) if found else 0
    return -(-blocks * -(-threads // 64) // 4)


def short(config: Any) -> str:
    """A configuration's values, without their names."""
    values = [getattr(config, name) for name in type(config).__dataclass_fields__]
    return "x".join(str(getattr(v, "name", v)) for v in values if v not in (None, False))


def print_table(chosen: list[Row], count: int) -> bool:
    """Compile what would be run and print what comes out; True when nothing is amiss."""
    (target,) = targets_of(BACKEND)
    print("| " + " | ".join(HEADINGS) + " |\n" + "|---" * len(HEADINGS) + "|", flush=True)
    all_good = True
    for row in chosen:
        for config in list(row.family.configs(row.problem, target))[:count]:
            for variant, made in variants_of(row, config).items():
                for cells, good in table_rows(row, config, variant, made):
                    note = "" if good else " NOT AS PLANNED"
                    print("| " + " | ".join(cells) + " |" + note, flush=True)
                    all_good = all_good and good
    return all_good
