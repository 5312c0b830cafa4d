"""Time from a tile program to machine code, nothing of it cached.

    python benchmarks/cold_compile.py [--arch sm_90] [--processes 3] [--rows 0,2] [--json FILE]

Each row is compiled in new processes with an empty disk cache, once as the first thing that a
process compiles (imports of compiler and toolchain included) and once after another kernel. The
fastest process counts: others share this machine, which is why the processor time of all threads
stands beside. Python's own bytecode is there, as it is after an installation. No device is needed.

Exit status 1 when the 128 x 256 x 64 gemm took more than half a second after another kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("", "backends/cuda_ampere", "kernels")
sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]  # runs without installation

LIMIT_SECONDS = 0.5
ROWS = ("gemm 128x256x64", "gemm 128x128x32", "attention 128x64")
LIMITED = ROWS[0]


def programs() -> dict[str, Any]:
    """The tile programs by row; made anew, so that none is remembered."""
    from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
    from tilecore_kernels.flash_attention import FLASH_ATTENTION
    from tilecore_kernels.gemm import GEMM, GemmProblem
    from tilecore_kernels.gemm_configs import GemmConfig

    product = GemmProblem(4096, 4096, 4096, "float16")
    attention = AttentionProblem(8, 32, 4096, 128, "float16")
    return {
        ROWS[0]: lambda: GEMM.program(product, GemmConfig(128, 256, 64, 3, 256, 8)),
        ROWS[1]: lambda: GEMM.program(product, GemmConfig(128, 128, 32, 4, 128, 8)),
        ROWS[2]: lambda: FLASH_ATTENTION.program(attention, AttentionConfig(128, 64, 2, 128)),
        "another": lambda: GEMM.program(
            GemmProblem(256, 256, 256, "float32"), GemmConfig(64, 64, 16, 2, 128, 8)
        ),
    }


def one_process(row: str, arch: str, after_another: bool) -> dict[str, float]:
    """Compile one row here; seconds by part."""
    import tilecore

    make = programs()
    if after_another:
        tilecore.compile(make["another"](), "cuda_ampere", arch=arch)
    times: dict[str, float] = {}
    begin, begin_processor = time.perf_counter(), time.process_time()
    program = make[row]()
    times["trace"] = time.perf_counter() - begin

    from tilecore_backend_cuda_ampere import toolchain

    compile_cubin = toolchain.compile_cubin

    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        made = compile_cubin(*arguments, **named)
        times["nvrtc"] = time.perf_counter() - start
        return made

    toolchain.compile_cubin = timed
    kernel = tilecore.compile(program, "cuda_ampere", arch=arch)
    times["total"] = time.perf_counter() - begin
    times["processor"] = time.process_time() - begin_processor
    times["spill_bytes"] = float(kernel.resources[0].spill_bytes or 0)
    return times


def measure(
    row: str, arch: str, after_another: bool, processes: int, bytecode: str
) -> dict[str, float]:
    """The fastest of several new processes, which find Python's bytecode in a folder."""
    found = []
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, __file__, "--arch", arch, "--row", row]
            done = subprocess.run(
                command + ["--after-another"] * after_another,
                env={**environment, "TILECORE_CACHE_DIR": cache},
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return min(found, key=lambda times: times["total"])


def measure_all(
    rows: Sequence[str], arch: str, processes: int, bytecode: str
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure and print: by row, then by what was compiled before it."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    print(f"cold compile for {arch}, seconds (fastest of {processes} processes)")
    for row in rows:
        results[row] = {}
        for name, after in (("first in its process", False), ("after another", True)):
            times = results[row][name] = measure(row, arch, after, processes, bytecode)
            rest = times["total"] - times["trace"] - times["nvrtc"]
            print(
                f"  {row:18} {name:21} {times['total']:.3f} = trace {times['trace']:.3f}"
                f" + lowering {rest:.3f} + NVRTC {times['nvrtc']:.3f}"
                f"; processor time {times['processor']:.3f}",
                flush=True,
            )
    return results


def main() -> int:
    """Measure all rows, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rows", default="", help="numbers of rows, from 0")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--after-another", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(one_process(options.row, options.arch, options.after_another)))
        return 0
    chosen = [ROWS[int(number)] for number in options.rows.split(",")] if options.rows else ROWS
    with tempfile.TemporaryDirectory() as bytecode:
        measure(chosen[0], options.arch, False, 1, bytecode)  # makes the bytecode
        results = measure_all(chosen, options.arch, options.processes, bytecode)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2))
    limited = results.get(LIMITED)
    return 0 if limited is None or limited["after another"]["total"] <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
