"""A static performance model: cycles of matrix units, vector units, LDS and memory, by counting.

`tilecore.codegen.simt.count_work` tells what one lane does between barriers. Here that becomes
cycles of a compute unit's parts. A segment takes as long as its busiest part, and matrix and vector
work of one wavefront follow one another, so that only other wavefronts of the SIMD hide the lesser
of the two; segments of one block add up, blocks that share a compute unit overlap.
"""

from __future__ import annotations

import math

from tilecore.codegen.simt.count_work import Segment, count_work
from tilecore.hooks.model import KernelModel, PerformanceModel, PublicFigure
from tilecore.ir.expr import Const
from tilecore.ir.program import Kernel, Level, Program

from . import public_figures as public
from .mma import ATOMS, INSTRUCTIONS
from .occupancy import planned_blocks

LANES = 64
VECTOR_CYCLES = 4  # of one instruction: 64 lanes on 16
SPECIAL_CYCLES = 16  # transcendental functions run at a quarter of that rate
CONVERT_CYCLES = {"bf16": 18, "f16": 6}
LDS_LATENCY, BARRIER_CYCLES = 128, 40
START_SECONDS, FILL_CYCLES = 4e-6, 2000

ASSUMPTIONS = (
    *public.HARDWARE,
    "an MFMA keeps its SIMD for the cycles of AMD's matrix instruction calculator; a vector "
    f"instruction for {VECTOR_CYCLES}, an exponential for {SPECIAL_CYCLES} (M), the rounding of "
    f"one element to bfloat16 for {CONVERT_CYCLES['bf16']}, to float16 for "
    f"{CONVERT_CYCLES['f16']} (instructions counted in generated code)",
    "LDS accesses have no bank conflicts; the first answer after a barrier takes "
    f"{LDS_LATENCY} cycles, a barrier {BARRIER_CYCLES} (guesses)",
    "a SIMD's wavefronts hide the lesser of matrix and vector work but for one wavefront's share; "
    "addresses and control cost nothing",
    "loads that run ahead arrive in time; HBM moves every tensor once, each XCD reads every tensor "
    "once from the Infinity Cache",
    f"{1e6 * START_SECONDS:.0f} us to start a launch, {FILL_CYCLES} cycles to start a block "
    "(guesses)",
    "never compared with hardware",
)


def model(program: Program) -> PerformanceModel | None:
    """The model of a lane-level program; None at other levels."""
    if program.level is not Level.LANE:
        return None
    made = (_kernel(program, kernel) for kernel in program.kernels)
    kernels = tuple(kernel for kernel in made if kernel is not None)
    notes = _notes(program)
    if any(kernel.bound == "power" for kernel in kernels):
        notes = (public.POWER_BOUND, *notes)
    return PerformanceModel(kernels, ASSUMPTIONS + notes, _figures(program))


def _kernel(program: Program, kernel: Kernel) -> KernelModel | None:
    """None for grids whose size is only known at a launch."""
    grid = tuple(int(e.value) for e in kernel.grid if isinstance(e, Const))
    if len(grid) != len(kernel.grid):
        return None
    segments = count_work(kernel, grid)
    waves = -(-kernel.threads // LANES)
    per_simd = max(1.0, waves / public.SIMDS)
    narrow = "bf16" if any("bf16" in name for s in segments for name in s) else "f16"
    parts = [_parts(segment, waves, narrow) for segment in segments]
    alone = FILL_CYCLES + _phases(parts, segments)
    alone += sum(
        _time(part, segment, per_simd)
        for part, segment in zip(parts, segments, strict=True) if not segment["phase"]
    )  # fmt: skip
    total = {name: sum(part[name] for part in parts) for name in parts[0]} if parts else {}
    resident = max(1, planned_blocks(kernel) or 1)
    blocks = math.prod(grid)
    rounds = -(-blocks // (public.COMPUTE_UNITS * resident))
    shared = min(resident, -(-blocks // public.COMPUTE_UNITS))
    cycles = rounds * max([alone, *(shared * busy for busy in total.values())])
    operations = blocks * waves * sum(
        n * _operations(name) for s in segments for name, n in s.items() if name.startswith("mma.")
    )  # fmt: skip
    moved = blocks * kernel.threads * sum(s["global_load"] + s["global_store"] for s in segments)
    times = {
        "its blocks": cycles / public.PEAK_CLOCK_HZ,
        "L2": moved / (public.XCDS * public.L2_BYTES_A_CYCLE * public.PEAK_CLOCK_HZ),
        "Infinity Cache": public.XCDS * _tensor_bytes(program)
        / public.INFINITY_CACHE_BYTES_A_SECOND,
        "HBM": _tensor_bytes(program) / public.HBM_BYTES_A_SECOND,
        "power": blocks * waves * _joules(segments) / public.BOARD_WATTS,
    }  # fmt: skip
    bound = max(times, key=times.__getitem__)
    seconds = START_SECONDS + times[bound]
    name = max(total, key=total.__getitem__) if bound == "its blocks" and total else bound
    return KernelModel(
        kernel.name, tuple(sorted(total.items(), key=lambda item: -item[1])), alone, resident,
        rounds, seconds, START_SECONDS + times["its blocks"], operations, moved, name,
    )  # fmt: skip


def _parts(segment: Segment, waves: int, narrow: str) -> dict[str, float]:
    """Cycles that one block keeps each part of a compute unit busy in one segment."""
    matrix = sum(n * _cycles(name) for name, n in segment.items() if name.startswith("mma."))
    vector = (
        VECTOR_CYCLES * (segment["arithmetic"] + 4 * segment["shuffle"])
        + SPECIAL_CYCLES * segment["special"]
        + CONVERT_CYCLES[narrow] * segment["convert"]
    )
    lds = LANES * (segment["shared_load"] + segment["shared_store"]) / public.LDS_BYTES_A_CYCLE
    moved = LANES * (segment["global_load"] + segment["global_store"]) / public.L1_BYTES_A_CYCLE
    share = waves / public.SIMDS
    return {"matrix units": matrix * share, "vector units": vector * share,
            "LDS": lds * waves, "L1": moved * waves}  # fmt: skip


def _time(part: dict[str, float], segment: Segment, per_simd: float) -> float:
    """Cycles of one segment of a block that has its compute unit alone."""
    matrix, vector = part["matrix units"], part["vector units"]
    work = max(matrix, vector) + min(matrix, vector) / per_simd
    waits = BARRIER_CYCLES * segment["barrier"]
    if segment["shared_load"] and segment["barrier"]:
        waits += LDS_LATENCY * segment["barrier"]
    return max(work, part["LDS"], part["L1"]) + waits


def _phases(parts: list[dict[str, float]], segments: list[Segment]) -> float:
    """Cycles of loops whose wavefronts are a phase apart, of a block of two wavefronts a SIMD.

    In every step one half is in one phase and the other half in the phase before it: a part of the
    compute unit does the work of both, and each half its own work in order.
    """
    own = [(p, s) for p, s in zip(parts, segments, strict=True) if s["phase"]]
    total = 0.0
    for (part, segment), (other, _) in zip(own, own[-1:] + own[:-1], strict=True):
        shared = [(part[name] + other[name]) / 2 for name in part]
        alone = [(p["matrix units"] + p["vector units"]) / 2 for p in (part, other)]
        latency = LDS_LATENCY * segment["phase"] if segment["shared_load"] else 0.0
        total += max(*shared, alone[0] + latency, alone[1]) + BARRIER_CYCLES * segment["phase"]
    return total


def _instruction(name: str) -> tuple[int, float, float]:
    """(times, cycles, operations) of the instructions behind an atom."""
    atom = next(a for a in ATOMS if f"mma.{a.name}" == name)
    own = atom.register_dtype or atom.a_dtype
    found = next(
        i for i in INSTRUCTIONS
        if i.side == atom.m and i.a == own and (atom.register_dtype or i.b == atom.b_dtype)
    )  # fmt: skip
    return atom.k // found.k, found.cycles, 2.0 * found.side**2 * found.k


def _cycles(name: str) -> float:
    times, cycles, _ = _instruction(name)
    return times * cycles


def _operations(name: str) -> float:
    times, _, operations = _instruction(name)
    return times * operations


def _joules(segments: list[Segment]) -> float:
    """Energy of one wavefront's matrix work: by the time that it keeps a matrix unit busy."""
    busy = sum(n * _cycles(name) for s in segments for name, n in s.items() if name[:4] == "mma.")
    return busy * public.OPERATIONS_A_CYCLE * public.JOULES_AN_OPERATION


def _tensor_bytes(program: Program) -> float:
    total = 0.0
    for buffer in program.params:
        shape = getattr(buffer, "static_shape", None)
        if shape is not None:
            total += math.prod(shape) * buffer.dtype.bits / 8
    return total


def _kinds(program: Program) -> set[str]:
    text = {str(b.dtype) for b in program.params if getattr(b, "static_shape", None)}
    mma = sum(
        1 for kernel in program.kernels for s in count_work(kernel, (1,) * len(kernel.grid))
        for name in s if name.startswith("mma.")
    )  # fmt: skip
    exponentials = any(
        s["special"] for kernel in program.kernels
        for s in count_work(kernel, (1,) * len(kernel.grid))
    )  # fmt: skip
    return text | ({"attention"} if exponentials and mma else {"gemm"} if mma else set())


def _figures(program: Program) -> tuple[PublicFigure, ...]:
    kinds = _kinds(program)
    if "bfloat16" not in kinds:
        return ()
    if "attention" in kinds:
        return public.ATTENTION_BFLOAT16
    return public.GEMM_BFLOAT16 if "gemm" in kinds else ()


def _notes(program: Program) -> tuple[str, ...]:
    return (public.NO_AITER_FIGURE,) if "attention" in _kinds(program) else ()
