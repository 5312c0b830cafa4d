"""Lets programs that ask torch for an accelerator run on the host, in this process only."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CAPABILITY = (9, 0)
"""The compute capability that programs are told."""


def _is_accelerator(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.split(":")[0] == "cuda"


def _replaced(value: Any) -> Any:
    return "cpu" if _is_accelerator(value) else value


_DIVISIONS = (torch.Tensor.__truediv__, torch.Tensor.div, torch.div, torch.true_divide)


def _divides_by_number(value: Any, by: Any) -> bool:
    """A float tensor by a number: an accelerator multiplies with the number's reciprocal."""
    plain = isinstance(by, int | float) and not isinstance(by, bool) and by != 0
    return plain and isinstance(value, torch.Tensor) and value.is_floating_point()


class OnHost(TorchFunctionMode):
    """Every tensor that would be made on, or moved to, an accelerator is made on the host."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = {name: _replaced(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if kwargs.get("device") == "cpu" and func is torch.Tensor.to and "index" in kwargs:
            kwargs.pop("index")
        args = (args[0], *map(_replaced, args[1:])) if args else args
        if func in _DIVISIONS and len(args) == 2 and _divides_by_number(*args) and not kwargs:
            return torch.mul(args[0], 1.0 / args[1])
        return func(*args, **kwargs)


class _Event:
    def __init__(self, **_: Any) -> None:
        self.at = 0.0

    def record(self, *_: Any) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3


class _Stream(contextlib.nullcontext[None]):
    """The one order in which a host does everything."""

    cuda_stream = 0
    stream_id = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def synchronize(self, *_: Any) -> None:
        return None

    wait_stream = wait_event = synchronize

    def record_event(self, event: Any = None) -> Any:
        return _Event() if event is None else event


class _HostGenerator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, _replaced(device))


_FACTS = SimpleNamespace(
    name="host", major=CAPABILITY[0], minor=CAPABILITY[1], multi_processor_count=4, warp_size=32,
    total_memory=2**36, shared_memory_per_block_optin=227 * 1024, L2_cache_size=50 * 2**20,
    shared_memory_per_multiprocessor=228 * 1024, max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536, gcnArchName="",
)  # fmt: skip


def pretend() -> None:
    """Answer programs' questions about the device."""
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.init = lambda: None
    cuda.mem_get_info = lambda *_: (2**30, 2**36)
    cuda.synchronize = lambda *_: None
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda.set_device = lambda *_: None
    cuda.empty_cache = lambda: None
    cuda.manual_seed = cuda.manual_seed_all = lambda *_: None
    cuda.get_device_capability = lambda *_: CAPABILITY
    cuda.get_device_properties = lambda *_: _FACTS
    cuda.get_device_name = lambda *_: _FACTS.name
    cuda.max_memory_allocated = cuda.memory_allocated = lambda *_: 0
    cuda.reset_peak_memory_stats = lambda *_: None
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    cuda.set_rng_state = lambda *_: None
    cuda.Event = _Event
    cuda.Stream = _Stream
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.current_stream = cuda.default_stream = lambda *_: _Stream()
    torch.set_default_device = lambda *_: None  # its device would be set below `OnHost`
    torch.Generator = _HostGenerator  # type: ignore[misc]
