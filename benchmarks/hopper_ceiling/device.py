"""Load cubins, encode tensor maps and launch kernels on torch's stream through the driver."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from cuda.bindings import driver

SM_COUNT_ATTRIBUTE = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


def check(result: tuple[Any, ...]) -> Any:
    """Unwrap one driver call's result tuple; raise on an error code."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"driver call failed: {result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


def sm_count() -> int:
    """Multiprocessors of the current device."""
    return torch.cuda.get_device_properties(0).multi_processor_count


def tensor_map(
    tensor: torch.Tensor,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
) -> Any:
    """Encode a 128-byte-swizzled map; all lists innermost first, strides in elements."""
    dtype = {
        torch.float16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        torch.bfloat16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    }[tensor.dtype]
    width = tensor.element_size()
    return check(
        driver.cuTensorMapEncodeTiled(
            dtype,
            len(sizes),
            tensor.data_ptr(),
            [driver.cuuint64_t(size) for size in sizes],
            [driver.cuuint64_t(stride * width) for stride in strides],
            [driver.cuuint32_t(extent) for extent in box],
            [driver.cuuint32_t(1) for _ in sizes],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


class Kernel:
    """One loaded kernel with its dynamic shared memory and block size."""

    def __init__(self, cubin: bytes, name: str, threads: int, shared_bytes: int) -> None:
        torch.cuda.current_stream()  # the primary context exists and is current
        torch.zeros(1, device="cuda")
        self.threads, self.shared_bytes = threads, shared_bytes
        self._module = check(driver.cuModuleLoadData(cubin))
        self._function = check(driver.cuModuleGetFunction(self._module, name.encode()))
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(self._function, limit, shared_bytes))

    def clock_mhz(self) -> float:
        """Mean multiprocessor clock since the last call, from the kernel's own record."""
        torch.cuda.synchronize()
        pointer, size = check(driver.cuModuleGetGlobal(self._module, b"clock_record"))
        values = (ctypes.c_uint64 * 2)()
        check(driver.cuMemcpyDtoH(ctypes.addressof(values), pointer, size))
        check(driver.cuMemsetD8(pointer, 0, size))
        return 1e3 * values[0] / max(values[1], 1)

    def bind(self, grid: int, arguments: Sequence[Any]) -> Callable[[], None]:
        """Pack the arguments once; the result launches on torch's current stream.

        Arguments: tensor maps, tensors (their pointer), ctypes values and structures.
        """
        keep, addresses = [], []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                keep.append(argument)
                argument = ctypes.c_void_p(argument.data_ptr())
            keep.append(argument)
            is_ctypes = isinstance(argument, ctypes._SimpleCData | ctypes.Structure)
            addresses.append(ctypes.addressof(argument) if is_ctypes else argument.getPtr())
        packed = (ctypes.c_void_p * len(addresses))(*addresses)
        pointer = ctypes.addressof(packed)

        def launch() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            check(
                driver.cuLaunchKernel(
                    self._function,
                    grid,
                    1,
                    1,
                    self.threads,
                    1,
                    1,
                    self.shared_bytes,
                    stream,
                    pointer,
                    0,
                )
            )

        launch.keep = (keep, packed)
        launch.clock_mhz = self.clock_mhz
        return launch


def _timed_calls(function: Callable[[], None], flush: torch.Tensor, count: int) -> list[float]:
    events = []
    for _ in range(count):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def time_sustained(
    candidates: dict[str, Callable[[], None]],
    rounds: int = 2,
    warm_ms: float = 120,
    timed_ms: float = 160,
) -> tuple[dict[str, float], dict[str, float]]:
    """Median milliseconds and mean clock in MHz of each candidate at its own steady power.

    Matrix kernels run against the power limit, whose control loop needs some 0.1 s to settle: a
    candidate timed right after a lighter one looks faster than it is. So each runs alone for
    `warm_ms` before it is timed, in an order that is shuffled every round. L2 is flushed before
    every call.
    """
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    clocks: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    generator = random.Random(0)
    for _ in range(rounds):
        generator.shuffle(names)
        for name in names:
            function = candidates[name]
            one = sorted(_timed_calls(function, flush, 5))[2] + 0.08
            _timed_calls(function, flush, max(3, int(warm_ms / one)))
            if hasattr(function, "clock_mhz"):
                function.clock_mhz()
            samples[name] += _timed_calls(function, flush, max(3, int(timed_ms / one)))
            if hasattr(function, "clock_mhz"):
                clocks[name].append(function.clock_mhz())
    medians = {name: sorted(values)[len(values) // 2] for name, values in samples.items()}
    return medians, {name: sum(v) / len(v) for name, v in clocks.items() if v}


def time_mixed(candidates: dict[str, Callable[[], None]], repeats: int = 16) -> dict[str, float]:
    """Median milliseconds, candidates shuffled call by call: equal clocks, so cycles compare."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    generator = random.Random(1)
    for _ in range(repeats):
        generator.shuffle(names)
        for name in names:
            samples[name] += _timed_calls(candidates[name], flush, 1)
    return {name: sorted(values)[len(values) // 2] for name, values in samples.items()}
