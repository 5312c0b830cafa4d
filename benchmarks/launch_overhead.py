"""Host time of one cached launch on a CUDA device, ours beside the raw driver call and peers.

    python benchmarks/launch_overhead.py [--calls 20000] [--json FILE]

Every row launches the same work: c = a + b over 1,024 floats, outputs given; one row passes other
tensors at every call, so that their addresses are packed anew. Rows are measured in turns, round
after round, and the median round counts, so that a change of clocks meets all alike. The queue is
drained between rounds: what is timed is the host, not the device.

Exit status 1 when a result is wrong or our launch is more than 1.5 microseconds above the raw one.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backends" / "cuda_ampere")]  # runs without installation

import torch  # noqa: E402

from tilecore.compiler import Lowered  # noqa: E402
from tilecore.errors import ArgumentError  # noqa: E402
from tilecore.hooks.records import CompileOptions, KernelSource, Source  # noqa: E402
from tilecore.ir.buffers import Buffer, Scope  # noqa: E402
from tilecore.ir.dtypes import float32  # noqa: E402
from tilecore.ir.expr import Var, binary, const  # noqa: E402
from tilecore.ir.program import Program  # noqa: E402
from tilecore.kernel import CompiledKernel  # noqa: E402
from tilecore_backend_cuda_ampere.launch import CudaLauncher  # noqa: E402
from tilecore_backend_cuda_ampere.target import make_target  # noqa: E402
from tilecore_backend_cuda_ampere.toolchain import compile_cubin  # noqa: E402

LIMIT_US = 1.5
SIZE = 1024
ROUND = 400  # calls between two drains; the driver queues about a thousand launches
TEXT = """
TC_KERNEL(128, 0) add(const float* TC_RESTRICT a, const float* TC_RESTRICT b,
                      float* TC_RESTRICT c, int n) {
  int i = tc::block_x() * 128 + tc::lane_in_block();
  if (i < n) tc::store_global(c + i, tc::load_global(a + i) + tc::load_global(b + i));
}
"""


def make_kernel() -> tuple[CompiledKernel, CudaLauncher]:
    """A kernel as `tilecore.compile` makes it, over hand-written source: the runtime alone."""
    n = Var("n")
    a, b, c = (Buffer(name, (n,), float32, Scope.GLOBAL) for name in "abc")
    program = Program("add", (a, b, c), (), (n,))
    grid = (binary("floordiv", binary("add", n, const(127)), const(128)),)
    source = Source(TEXT, "c++", (KernelSource("add", (a, b, c, n), grid, 128),))
    major, minor = torch.cuda.get_device_capability()
    target = make_target(f"sm_{major}{minor}")
    artifact = compile_cubin(source, target, CompileOptions())
    launcher = CudaLauncher(program, source, artifact, target)
    lowered = Lowered(target, CompileOptions(), (("tile", program),), source)
    return CompiledKernel(lowered, artifact, lambda: launcher), launcher


def raw_launches(
    launcher: CudaLauncher, tensors: list[torch.Tensor]
) -> dict[str, Callable[[], None]]:
    """The driver's own calls with everything packed before: what no launch can be faster than."""
    from cuda.bindings import driver

    (handle,) = launcher._load(0)
    slots = (ctypes.c_uint64 * 4)(*(t.data_ptr() for t in tensors), SIZE)
    base = ctypes.addressof(slots)
    params = (ctypes.c_void_p * 4)(*(base + 8 * i for i in range(4)))
    stream_handle = torch._C._cuda_getCurrentRawStream(0)
    function, stream = driver.CUfunction(handle), driver.CUstream(stream_handle)
    address, launch = ctypes.addressof(params), driver.cuLaunchKernel
    config = (ctypes.c_uint64 * 7)()
    struct.pack_into("<7I4xQQI", config, 0, SIZE // 128, 1, 1, 128, 1, 1, 0, stream_handle, 0, 0)
    start = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    config_at, params_at = ctypes.byref(config), ctypes.byref(params)
    function_at = ctypes.c_void_p.from_param(handle)
    keep = (slots, params, config)

    def by_bindings() -> None:
        launch(function, SIZE // 128, 1, 1, 128, 1, 1, 0, stream, address, 0)

    def by_ctypes() -> None:
        start(config_at, function_at, params_at, None)
        _ = keep

    return {"raw cuda.bindings": by_bindings, "raw ctypes": by_ctypes}


def triton_launch(a: Any, b: Any, c: Any) -> Callable[[], None] | None:
    """The same kernel in Triton, or None where it is not installed."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None
    globals()["tl"] = tl  # the kernel below reads its module's globals

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)

    def launch() -> None:
        add[(SIZE // 128,)](a, b, c, SIZE, BLOCK=128, num_warps=4)

    return launch


def measure(rows: dict[str, Callable[[], None]], calls: int) -> dict[str, float]:
    """Median microseconds per call of each row."""
    rounds: dict[str, list[float]] = {name: [] for name in rows}
    for launch in rows.values():
        for _ in range(ROUND):
            launch()
        torch.cuda.synchronize()
    for _ in range(max(5, calls // ROUND)):
        for name, launch in rows.items():
            start = time.perf_counter_ns()
            for _ in range(ROUND):
                launch()
            rounds[name].append((time.perf_counter_ns() - start) / ROUND / 1e3)
            torch.cuda.synchronize()
    return {name: statistics.median(values) for name, values in rounds.items()}


class OnlyDlpack:
    """A tensor of a library that offers nothing but DLPack."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


class OnlyArrayInterface:
    """An array as CuPy and Numba present theirs."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._tensor.__cuda_array_interface__

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def _is_refused(call: Callable[..., Any], tensors: list[torch.Tensor], reason: str) -> bool:
    """Whether the call raises our own error, and names the reason."""
    try:
        call(*tensors)
    except ArgumentError as error:
        return reason in str(error)
    return False


def fresh(device: str = "cuda:0") -> list[torch.Tensor]:
    """Two inputs and an output."""
    return [torch.randn(SIZE, device=device) for _ in range(2)] + [torch.zeros(SIZE, device=device)]


def device_checks(call: Callable[..., Any], launcher: CudaLauncher) -> dict[str, bool]:
    """Tensors of each device while the first one is current."""
    done: dict[str, bool] = {}
    for ordinal in range(1, torch.cuda.device_count()):
        a, b, c = fresh(f"cuda:{ordinal}")
        call(a, b, c)
        done[f"cuda:{ordinal} while cuda:0 is current"] = torch.equal(c, a + b)
        done[f"cuda:0 is current after cuda:{ordinal}"] = torch.cuda.current_device() == 0
    devices = torch.cuda.device_count()
    loaded = sorted(launcher._functions) == list(range(devices))
    done[f"one binary, loaded once on each of {devices} devices"] = (
        loaded and len(launcher._modules) == devices
    )
    return done


def checks(call: Callable[..., Any], launcher: CudaLauncher) -> dict[str, bool]:
    """Results on the current stream, on another one, in a graph, in a thread, on other devices."""
    done: dict[str, bool] = {}
    a, b, c = fresh()
    call(a, b, c)
    done["current stream"] = torch.equal(c, a + b)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x = torch.randn(1 << 24, device="cuda")
        for _ in range(20):  # keeps the stream busy: a launch elsewhere would read early
            x = x * 1.0001
        late = x[:SIZE].clone()
        call(late, b, c)
        expected = late + b
    torch.cuda.current_stream().wait_stream(side)
    done["side stream"] = torch.equal(c, expected)

    graph = torch.cuda.CUDAGraph()
    a, b, c = fresh()
    with torch.cuda.graph(graph):
        call(a, b, c)
    a.normal_()
    graph.replay()
    done["graph"] = torch.equal(c, a + b)

    a, b, c = fresh()
    worker = threading.Thread(target=call, args=(a, b, c))
    worker.start()
    worker.join()
    done["another thread"] = torch.equal(c, a + b)

    done |= device_checks(call, launcher)
    for kind in (OnlyDlpack, OnlyArrayInterface):
        a, b, c = fresh()
        for round_ in range(3):  # the third call takes the way that the second one left behind
            a.fill_(round_)
            call(*(kind(tensor) for tensor in (a, b, c)))
            done[f"{kind.__name__}, call {round_ + 1}"] = torch.equal(c, a + b)
    done["host tensors are refused"] = _is_refused(call, [t.cpu() for t in fresh()], "cuda")
    done["a strided tensor is refused"] = _is_refused(
        call, [fresh()[0][::2] for _ in range(3)], "contiguous"
    )
    torch.cuda.synchronize()
    odd = [torch.randn(1000, device="cuda") for _ in range(3)]
    call(*odd)
    done["another size"] = torch.equal(odd[2], odd[0] + odd[1])
    call(*(torch.empty(0, device="cuda") for _ in range(3)))
    done["no elements"] = True
    return done


def main() -> int:
    """Measure, check, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    call, launcher = make_kernel()
    a, b, c = (torch.randn(SIZE, device="cuda") for _ in range(3))
    call(a, b, c)
    rows: dict[str, Callable[[], None]] = raw_launches(launcher, [a, b, c])
    rows["tilecore"] = lambda: call(a, b, c)
    turns = itertools.cycle([(a, b, c), (b, a, torch.zeros_like(c))])
    rows["tilecore, other tensors"] = lambda: call(*next(turns))
    rows["torch.add(out=)"] = lambda: torch.add(a, b, out=c)
    rows["torch in-place add"] = lambda: a.add_(0.0)
    in_triton = triton_launch(a, b, c)
    if in_triton is not None:
        rows["triton"] = in_triton
    times = measure(rows, options.calls)
    above = times["tilecore"] - times["raw cuda.bindings"]
    results = checks(call, launcher)
    print(f"{torch.cuda.get_device_name()}, {options.calls} calls, microseconds per call")
    for name, value in times.items():
        print(f"  {name:24} {value:7.2f}")
    print(f"tilecore above raw cuda.bindings: {above:.2f} (limit {LIMIT_US})")
    for name, passed in results.items():
        print(f"  {'ok   ' if passed else 'WRONG'} {name}")
    if options.json is not None:
        record = {"times_us": times, "above_raw_us": above, "checks": results}
        options.json.write_text(json.dumps(record, indent=2))
    return 0 if all(results.values()) and above <= LIMIT_US else 1


if __name__ == "__main__":
    raise SystemExit(main())
