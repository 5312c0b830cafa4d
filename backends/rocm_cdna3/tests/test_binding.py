"""hip-python itself, above stand-ins of the libraries that it loads: what arrives there.

The other tests replace hip-python; these show that it is called as it wants to be called.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hip", reason="hip-python is not installed")

SOURCE = Path(__file__).parent / "native" / "fake_hip.c"
# The place of a text in the device's properties is the binding's secret: a struct that is filled
# with its own offsets tells it.
PREPARE = """
import ctypes
from hip import hip
library = ctypes.CDLL("libamdhip64.so")
library.fake_properties.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
struct = hip.hipDeviceProp_t()
size, address = struct.c_sizeof(), struct.as_c_void_p().value
def fill(arch):
    offsets = b"".join(b"%04x" % at for at in range(0, size // 4 * 4, 4))
    ctypes.memmove(address, offsets, len(offsets))
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    places = {name: int(text(getattr(struct, name))[:4], 16) for name in ("name", "gcnArchName")}
    ctypes.memset(address, 0, size)
    for name, value in (("name", b"Fake Instinct"), ("gcnArchName", arch)):
        ctypes.memmove(address + places[name], value, len(value))
    struct.multiProcessorCount = 304
    library.fake_properties(address, size)
fill(b"gfx942:sramecc+:xnack-")
from tilecore.hooks.manager import hooks_of, targets_of
(target,) = targets_of("rocm_cdna3")
"""
LAUNCH = """
import dataclasses
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float32, int32
from tilecore.ir.expr import Var, const
from tilecore.ir.program import Kernel, Program
from tilecore.ir.signature import kernel_arguments
from tilecore.ir.stmts import Copy
from tilecore_backend_rocm.launch import HipLauncher, synchronize
n = Var("n", int32)
a, b = (Buffer(name, (n,), float32, Scope.GLOBAL) for name in "AB")
body = (Copy(*(Region(x, (const(0),), (n,)) for x in (a, b))),)
kernel = Kernel("copy_all", (Var("bx"),), (n,), 64, body)
program = Program("copy_all", (a, b), (kernel,), symbols=(n,))
arguments = kernel_arguments(program, kernel)
source = Source("", "c++", (KernelSource("copy_all", arguments, (n,), 64, 4096),))
launcher = HipLauncher(program, source, Artifact(b"code object", "hsaco"), target)
for device in (1, 0, 1):
    launcher.bind((7,), device)(0xabc0, 0xdef0)
launcher((0x10, 0x20, 3), stream=0x99)
synchronize()
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("hip")
    for name in ("libamdhip64.so", "libhiprtc.so"):
        command = [compiler, "-shared", "-fPIC", str(SOURCE), "-o", str(folder / name)]
        subprocess.run(command, check=True)
    return folder


def run(libraries: Path, program: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "FAKE_DEVICES": "2",
        "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "PYTHONPATH": os.pathsep.join(sys.path), **more,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-u", "-c", program], env=environment, capture_output=True, text=True,
        check=False, timeout=500,
    )  # fmt: skip


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_device_is_found(libraries: Path) -> None:
    program = PREPARE + "print(hooks_of('rocm_cdna3').call('tilecore_probe_device', target=target))"
    (text,) = lines(run(libraries, program))
    assert "name='Fake Instinct', arch='gfx942', processors=304" in text
    assert "sramecc+ xnack-" in text


def test_another_architecture_is_told_from_it(libraries: Path) -> None:
    hooks = "hooks_of('rocm_cdna3').call"
    program = PREPARE + (
        "fill(b'gfx90a:xnack-')\n"
        f"print({hooks}('tilecore_probe_device', target=target))\n"
        f"print({hooks}('tilecore_explain_absence', target=target))\n"
    )
    assert lines(run(libraries, program)) == [
        "None", "2 ROCm devices, none of this architecture"
    ]  # fmt: skip


def test_launches_on_two_devices(libraries: Path) -> None:
    found = lines(run(libraries, PREPARE + LAUNCH, FAKE_PARAMETERS="2"))
    shape = "grid 7 1 1 block 64 1 1 lds 4096 stream 0 extra 0: abc0 def0"
    assert found == [
        "set 1", "load code on 1", "function copy_all of 101", "set 0",
        "set 1", f"launch 1101 {shape}", "set 0",
        "load code on 0", "function copy_all of 100", f"launch 1100 {shape}",
        "set 1", f"launch 1101 {shape}", "set 0",
        "launch 1100 grid 3 1 1 block 64 1 1 lds 4096 stream 99 extra 0: 10 20",
        "synchronize 0", "set 1", "synchronize 1", "set 0",
    ]  # fmt: skip


def test_a_failed_launch_is_an_error_with_its_name(libraries: Path) -> None:
    done = run(libraries, PREPARE + LAUNCH, FAKE_PARAMETERS="2", FAKE_STATUS="719")
    assert done.returncode != 0
    assert "HipError: hipModuleLaunchKernel failed: hipErrorLaunchFailure" in done.stderr


COMPILE = """
from pathlib import Path
from tilecore_backend_rocm import runtime_compiler
print(runtime_compiler.version())
print(runtime_compiler.compile_text("text", "gfx942", ("-O3",), (Path("/headers"),)))
"""


def test_the_runtime_compiler(libraries: Path) -> None:
    assert lines(run(libraries, COMPILE)) == [
        "hiprtc 9.1", "program kernel.hip: 4 characters, 0 headers 0",
        "compile 77: --offload-arch=gfx942 -O3 -I/headers", "destroy 77",
        r"(b'\x7fELF', 'remarks')",
    ]  # fmt: skip


def test_text_that_the_runtime_compiler_refuses(libraries: Path) -> None:
    done = run(libraries, COMPILE, FAKE_STATUS="6")
    assert "ToolchainError: hiprtc refused the generated source\nremarks" in done.stderr
