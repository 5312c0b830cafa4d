"""Loading a cubin and launching its kernels with as little host work as Python allows.

A launch is prepared in three steps, each done as seldom as it can be: load the machine code once
per device, build a launch function once per set of dynamic sizes (grids, constant parameters and
checks are settled there), and pack addresses once per call.
"""

from __future__ import annotations

import threading
from typing import Any

from tilecore.errors import LaunchError, ResourceError
from tilecore.forking import FreshLock
from tilecore.hooks.records import Artifact, KernelSource, Source
from tilecore.ir.program import Program
from tilecore.ir.signature import program_arguments
from tilecore.runtime.grids import launch_grid
from tilecore.runtime.idle_kernels import idle_kernels
from tilecore.runtime.launcher import BoundLaunch
from tilecore.runtime.scalar_grids import call_sizes, grid_scalars, launch_sizes
from tilecore.runtime.sizes import Sizes, compile_sizes
from tilecore.target import Target
from tilecore_backend_cuda_ampere.device import capability_of, runs_on
from tilecore_backend_cuda_ampere.driver import Driver, DriverError, get_driver
from tilecore_backend_cuda_ampere.packing import KernelCall, LaunchMaker
from tilecore_backend_cuda_ampere.streams import stream_getter

_RESERVED_SMEM_BYTES = 1024  # that the system takes of each block's shared memory, from 8.0 on
_DEFAULT_SMEM_BYTES = 48 * 1024  # what a kernel may use without opting in


class CudaLauncher:
    """A loaded program on NVIDIA devices; see `tilecore.runtime.launcher.BindableLauncher`.

    Args:
        program: the program, for its parameters.
        source: its kernels' launch facts.
        artifact: the cubin.
        target: what it was compiled for.
        driver: the driver, or a stand-in for tests.

    Raises:
        LaunchError: no driver.
    """

    device_kind = "cuda"
    alignment_bytes = 16  # vectorised and asynchronous copies move 16 bytes at once

    def __init__(
        self,
        program: Program,
        source: Source,
        artifact: Artifact,
        target: Target,
        driver: Driver | None = None,
    ) -> None:
        self._driver = get_driver() if driver is None else driver
        self._program = program
        self._source = source
        self._artifact = artifact
        self._target = target
        self._functions: dict[int, tuple[int, ...]] = {}
        self._modules: list[Any] = []
        self._guard = FreshLock()
        self.scalars = grid_scalars(program)
        given = launch_sizes(program)
        self._grids = tuple(compile_sizes(k.grid, given) for k in source.kernels)
        self._is_idle = idle_kernels(program)
        self._on_streams: dict[tuple[Sizes, int], Any] = {}
        arguments = program_arguments(program)
        self._maker = LaunchMaker(
            arguments[: len(arguments) - len(program.symbols)], self._driver, self._explain
        )

    def bind(self, sizes: Sizes, device: int) -> BoundLaunch:
        """A launch with these sizes on the current stream of device `device`.

        Raises:
            ResourceError: a grid, the shared memory or the registers are over the device's limit.
            LaunchError: the machine code does not fit the device.
        """
        return self._make(sizes, device, stream_getter(device))

    def __call__(self, arguments: tuple[int | float, ...], stream: int = 0) -> None:
        """Launch with flat arguments on `stream`, or on the current device's current stream."""
        count = len(self._program.symbols)
        sizes = call_sizes(arguments, count, self.scalars)
        device = max(self._driver.current_device(), 0)
        key = (sizes, device)
        held = self._on_streams.get(key)
        if held is None:
            chosen = threading.local()
            getter = stream_getter(device)
            launch = self._make(sizes, device, lambda _: getattr(chosen, "stream", 0) or getter(_))
            held = self._on_streams[key] = (chosen, launch)
        chosen, launch = held
        chosen.stream = stream
        launch(*arguments[: len(arguments) - count])

    def _make(self, sizes: Sizes, device: int, stream_of: Any) -> BoundLaunch:
        calls: list[KernelCall] = []
        for kernel, function, grid_of in zip(
            self._source.kernels, self._load(device), self._grids, strict=True
        ):
            grid = launch_grid(kernel, grid_of(sizes), self._target)
            if grid is None or self._is_idle(kernel.name, sizes):
                continue
            if dict(kernel.extra).get("persistent"):
                grid = (min(grid[0], self._resident_blocks(kernel, function, device)), 1, 1)
            calls.append(KernelCall(kernel, function, grid))
        symbols = self._program.symbols  # scalars that grids follow come behind their sizes
        named = {s.name: size for s, size in zip(symbols, sizes, strict=False)}
        return self._maker.make(calls, named, device, stream_of)

    def _load(self, device: int) -> tuple[int, ...]:
        """Kernel handles on a device, loaded once."""
        with self._guard:
            if device not in self._functions:
                self._check_arch(device)
                with self._driver.current(device):
                    module = self._driver.load_module(self._artifact.data)
                    self._modules.append(module)
                    self._functions[device] = tuple(
                        self._prepare(module, kernel, device) for kernel in self._source.kernels
                    )
            return self._functions[device]

    def _prepare(self, module: Any, kernel: KernelSource, device: int) -> int:
        """The handle of one kernel, allowed to use the shared memory that it needs."""
        driver = self._driver
        function = driver.function(module, kernel.name)
        static = driver.function_attribute(function, "SHARED_SIZE_BYTES")
        limit = driver.attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        if static + kernel.smem_bytes > limit:
            raise ResourceError(
                f"kernel {kernel.name} needs more shared memory than a block of this device has",
                expected=f"at most {limit} bytes",
                got=f"{static + kernel.smem_bytes} bytes",
                hint="smaller tiles or fewer pipeline stages",
            )
        registers = driver.function_attribute(function, "NUM_REGS")
        available = driver.attribute(device, "MAX_REGISTERS_PER_BLOCK")
        warps = -(-kernel.threads // 32)
        if registers * warps * 32 > available:
            raise ResourceError(
                f"kernel {kernel.name} needs more registers than a block of this device has",
                expected=f"at most {available // (warps * 32)} per lane for {kernel.threads} lanes",
                got=f"{registers}",
                hint="fewer threads or smaller fragments",
            )
        if static + kernel.smem_bytes > _DEFAULT_SMEM_BYTES:
            driver.set_function_attribute(
                function, "MAX_DYNAMIC_SHARED_SIZE_BYTES", kernel.smem_bytes
            )
        if max(kernel.cluster) > 1 and _product(kernel.cluster) > 8:
            driver.set_function_attribute(function, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
        return function

    def _resident_blocks(self, kernel: KernelSource, function: int, device: int) -> int:
        """How many blocks of a kernel the device runs at once."""
        driver = self._driver
        warps = -(-kernel.threads // 32)
        registers = -(-driver.function_attribute(function, "NUM_REGS") // 8) * 8
        static = driver.function_attribute(function, "SHARED_SIZE_BYTES")
        smem = static + kernel.smem_bytes + _RESERVED_SMEM_BYTES
        each = min(
            driver.attribute(device, "MAX_REGISTERS_PER_MULTIPROCESSOR")
            // (registers * warps * 32),
            driver.attribute(device, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR") // smem,
            driver.attribute(device, "MAX_THREADS_PER_MULTIPROCESSOR") // kernel.threads,
        )
        blocks = max(1, each) * driver.attribute(device, "MULTIPROCESSOR_COUNT")
        cluster = _product(kernel.cluster)
        return max(blocks // cluster, 1) * cluster

    def _check_arch(self, device: int) -> None:
        capability = (
            self._driver.attribute(device, "COMPUTE_CAPABILITY_MAJOR"),
            self._driver.attribute(device, "COMPUTE_CAPABILITY_MINOR"),
        )
        if not runs_on(self._target.arch, capability):
            wanted = ".".join(map(str, capability_of(self._target.arch)))
            raise LaunchError(
                f"{self._program.name} was compiled for another device",
                expected=f"{self._target.arch}: compute capability {wanted}",
                got=f"cuda:{device} of compute capability {capability[0]}.{capability[1]}",
                hint="pass arch= to compile, or move the tensors",
            )

    def _explain(self, code: int, kernel: KernelSource, grid: tuple[int, ...]) -> LaunchError:
        """The error of a failed launch of `kernel`."""
        return explain_failure(self._driver, code, f"kernel {kernel.name} on grid {grid}")


# Failures that the device reports at some later call, and that end its context: CUDA driver API,
# description of CUresult ("the process must be terminated and relaunched").
_FATAL = {
    700: "a kernel read or wrote an address that is not mapped",
    702: "a kernel ran longer than the device allows",
    710: "a device-side assertion did not hold",
    714: "a kernel corrupted its stack",
    715: "a kernel executed an illegal instruction",
    716: "a kernel used a misaligned address",
    717: "a kernel used an address of the wrong memory",
    718: "a kernel jumped to an invalid place",
    719: "a kernel trapped (T.device_assert, or an exception of the hardware)",
}


def explain_failure(driver: Any, code: int, what: str) -> LaunchError:
    """A `LaunchError` for a CUresult, which says whether the device is still usable."""
    name, text = driver.error_text(code)
    if code in _FATAL:
        return LaunchError(
            f"{_FATAL[code]}, in {what} or in work enqueued before it",
            got=name,
            hint="the device itself is fine, but this process has lost it: start a new one, and "
            'run the kernel with device="emulator" to find the place',
        )
    return LaunchError(f"{what} could not be launched", got=f"{name} ({text})")


def synchronize() -> None:
    """Wait for all work on all devices.

    Raises:
        LaunchError: a kernel failed meanwhile, with what happened to it.
    """
    driver = get_driver()
    for ordinal in range(driver.device_count()):
        try:
            driver.synchronize(ordinal)
        except DriverError as error:
            raise explain_failure(driver, error.code, f"work on cuda:{ordinal}") from error


def _product(extents: tuple[int, int, int]) -> int:
    return extents[0] * extents[1] * extents[2]
