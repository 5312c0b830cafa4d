"""The real binding and the real launch call against a stand-in for the driver's library.

The stand-in is a C library built here; programs run in processes that find it in place of the
driver. So the argument lists of every driver call, and the memory of a launch, are put to the test
without a device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "native" / "fake_libcuda.c"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="replaces a Linux library"),
]

PREAMBLE = """
import ctypes, threading
import numpy as np
from tilecore.errors import LaunchError
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import Var, binary, const
from tilecore.ir.program import Program
from tilecore.runtime.caller import KernelCaller
from tilecore.target import Target
from tilecore_backend_cuda_ampere import device, driver, launch

n = Var("n")
a, b, c = (Buffer(name, (n,), float32, Scope.GLOBAL) for name in "abc")
program = Program("add", (a, b, c), (), (n,))
grid = (binary("floordiv", binary("add", n, const(127)), const(128)),)

def make_caller(name="add", image=b"\\177ELF", arch="sm_80"):
    source = Source("", "c++", (KernelSource(name, (a, b, c, n), grid, 128, 60000),))
    target = Target("cuda_ampere", arch)
    loaded = launch.CudaLauncher(program, source, Artifact(image, "cubin"), target)
    return KernelCaller(program, loaded)

class OnDevice:
    def __init__(self, values, ordinal=0):
        self.values = np.array(values, np.float32)
        self.ordinal = ordinal
        self.__cuda_array_interface__ = {
            "shape": self.values.shape, "typestr": "<f4", "version": 3,
            "data": (self.values.ctypes.data, False),
        }
    def __dlpack_device__(self):
        return 2, self.ordinal
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs statements after the preamble with the stand-in; returns what they print."""
    folder = tmp_path_factory.mktemp("stand_in")
    library = folder / "libcuda.so.1"
    assert COMPILER is not None
    flags = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([COMPILER, *flags, "-o", library, SOURCE, "-ldl"], check=True)
    # The binding's lookup goes by symbols that are visible to the whole process.
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(library),
    }

    def execute(statements: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(statements)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return execute


def test_devices_are_described(run: Callable[[str], str]) -> None:
    output = run("""
        from tilecore.hooks.manager import hooks_of, targets_of
        hooks = hooks_of("cuda_ampere")
        for target in targets_of("cuda_ampere"):
            print(target.arch, hooks.call("tilecore_probe_device", target=target))
        print(driver.get_driver().driver_version())
        assert hooks.call("tilecore_synchronize", target=target)
    """)
    lines = output.splitlines()
    (present,) = [line for line in lines if "Stand-in 0" in line]
    assert present.startswith("sm_80 ")
    assert "processors=108" in present
    assert "166912 bytes" in present
    assert lines[-1] == "13.0"


def test_launches_compute_on_each_device_and_in_each_thread(run: Callable[[str], str]) -> None:
    output = run("""
        call = make_caller()
        def check(size, ordinal):
            x, y, z = (OnDevice(np.random.rand(size), ordinal) for _ in range(3))
            for _ in range(3):
                z.values[:] = -1
                call(x, y, z)
                assert np.array_equal(z.values, x.values + y.values), (size, ordinal)
        for size in (1000, 1, 0, 128, 4097):
            for ordinal in (0, 1, 0):
                check(size, ordinal)
        threads = [threading.Thread(target=check, args=(500 + i, i % 2)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print("all", driver.get_driver().current_device())
    """)
    assert output.split()[0] == "all"


def test_explicit_stream_and_flat_arguments(run: Callable[[str], str]) -> None:
    run("""
        caller = make_caller()
        x, y, z = (OnDevice([1.0, 2.0, 3.0]) for _ in range(3))
        caller.launch((x, y, z), {}, stream=1234)
        assert z.values.tolist() == [2.0, 4.0, 6.0]
    """)


def test_failures_of_the_driver_are_tilecore_errors(run: Callable[[str], str]) -> None:
    output = run("""
        tensors = [OnDevice([1.0]) for _ in range(3)]
        for options in ({"image": b"text"}, {"name": "absent"}, {"arch": "sm_90"}):
            try:
                make_caller(**options)(*tensors)
            except LaunchError as error:
                print(str(error).replace("\\n", " "))
    """)
    image, name, arch = output.splitlines()
    assert "cuModuleLoadData failed: CUDA_ERROR_INVALID_IMAGE (said the stand-in)" in image
    assert "cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND" in name
    assert "compiled for another device; expected sm_90" in arch


def test_errors_in_a_forked_process_say_that_it_is_one(run: Callable[[str], str]) -> None:
    output = run("""
        import os
        used = driver.get_driver()
        print("parent:", used.error_text(3), flush=True)
        if os.fork() == 0:
            print("child:", used.error_text(3), flush=True)
            os._exit(0)
        os.wait()
    """)
    parent, child = output.splitlines()
    assert parent.startswith("parent: ") and "CUDA_ERROR_NOT_INITIALIZED" in parent
    assert "forked" not in parent
    assert child.startswith("child: ") and "was forked from one that used the device" in child
