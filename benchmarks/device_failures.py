"""What a failing kernel does to the process and the device: run on a machine with a CUDA device.

    python benchmarks/device_failures.py [--only "trap,shared memory"]

Each fault happens in a process of its own, which must get a tilecore error that names it; the
next process must find the device usable.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PREAMBLE = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "backends" / "cuda_ampere")!r}]
import torch
from tilecore.errors import TilecoreError
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import const
from tilecore.ir.program import Program
from tilecore.runtime.caller import KernelCaller
from tilecore_backend_cuda_ampere.launch import CudaLauncher, synchronize
from tilecore_backend_cuda_ampere.target import make_target
from tilecore_backend_cuda_ampere.toolchain import compile_cubin

def run(body, threads=128, smem_bytes=0, tensor=None):
    c = Buffer("c", (const(1024),), float32, Scope.GLOBAL)
    program = Program("faulty", (c,), ())
    text = "TC_KERNEL(" + str(threads) + ", 0) faulty(float* c) {{ " + body + " }}"
    source = Source(text, "c++", (KernelSource("faulty", (c,), (const(1),), threads, smem_bytes),))
    target = make_target("sm_%d%d" % torch.cuda.get_device_capability())
    artifact = compile_cubin(source, target, CompileOptions())
    call = KernelCaller(program, CudaLauncher(program, source, artifact, target))
    call(torch.zeros(1024, device="cuda") if tensor is None else tensor)
    synchronize()
"""

# name -> (statement, text that the error must hold)
FAULTS = {
    "trap": ('run("asm volatile(\\"trap;\\");")', "a kernel trapped"),
    "unmapped address": ('run("*(volatile float*)0x10 = 1.0f;")', "not mapped"),
    "misaligned address": ('run("*(volatile float*)((char*)c + 1) = 1.0f;")', "misaligned address"),
    "shared memory": ('run("c[0] = 1.0f;", smem_bytes=300000)', "more shared memory"),
    "other device": ('run("c[0] = 1.0f;", tensor=torch.zeros(1024))', "wrong device"),
}
HEALTHY = 'run("c[tc::lane_in_block()] = 1.0f;"); print("healthy")'


def in_process(statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement after the preamble."""
    program = (
        f"{PREAMBLE}\ntry:\n    {statement}\nexcept TilecoreError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def main() -> int:
    """Provoke every fault, and look at the device after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(FAULTS), help="names of faults")
    failed = 0
    for name in parser.parse_args().only.split(","):
        statement, expected = FAULTS[name]
        fault, after = in_process(statement), in_process(HEALTHY)
        passed = expected in fault.stdout and fault.returncode == 0 and "healthy" in after.stdout
        failed += not passed
        print(f"{'ok   ' if passed else 'WRONG'} {name}: {fault.stdout.strip()}")
        if not passed:
            print(fault.stderr[-2000:], after.stdout, after.stderr[-2000:], sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
