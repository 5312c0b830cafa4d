"""Kernels of tests on a real device: `pytest tests/properties --on-device cuda_hopper`.

What tests run in lanes on this machine then runs on the backend's device instead, several times
each, the later ones beside other work: races and missing fences need not show in lanes, nor at
once.
Arrays of the host travel between guard bands; views of one array stay views of one array.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

RUNS = 4
"""Times that a device runs each call, from the same arrays."""
GUARD_BYTES, GUARD = 1024, 0x5C
ALIGNMENT = 256
BESIDE = 512
"""Rows of the matrix products that keep a device busy beside the later runs."""

NAMES: set[str] = set()
"""The backends whose devices are asked for; `pytest_configure` fills it."""


def root_of(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory, as far as NumPy knows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@dataclass(frozen=True, slots=True)
class Copied:
    """The memory of one array of the host on the device."""

    first: int
    """Its first byte's address on the host."""
    before: np.ndarray
    """Its bytes on the host, between guards, as they were."""
    there: Any
    """The same on the device: a torch tensor of bytes."""

    @classmethod
    def of(cls, root: np.ndarray, torch: Any) -> Copied:
        first, end = np.lib.array_utils.byte_bounds(root)
        size = end - first if root.size else 0
        padded = 2 * GUARD_BYTES + -(-size // ALIGNMENT) * ALIGNMENT
        block = np.full(padded, GUARD, np.uint8)
        if size:
            content = (ctypes.c_ubyte * size).from_address(first)
            block[GUARD_BYTES : GUARD_BYTES + size] = np.frombuffer(content, np.uint8)
        return cls(first, block, torch.from_numpy(block).cuda())

    def view(self, array: np.ndarray, torch: Any) -> Any:
        """The tensor on the device that is to this memory what `array` is to the host's."""
        kind = getattr(torch, array.dtype.name, None)
        offset, item = self._offset(array), array.itemsize
        if kind is None or offset % item or any(s < 0 or s % item for s in array.strides):
            pytest.skip(f"torch has no such tensor: {array.dtype.name}, strides {array.strides}")
        strides = [stride // item for stride in array.strides]
        return self.there.view(kind).as_strided(array.shape, strides, offset // item)

    def _offset(self, array: np.ndarray) -> int:
        if not array.size:
            return GUARD_BYTES
        return GUARD_BYTES + array.ctypes.data - self.first

    def read(self, array: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """What `array` would hold, from the device's bytes."""
        return np.ndarray(array.shape, array.dtype, raw, self._offset(array), array.strides)


class OnDevice:
    """A compiled kernel that is called with arrays of the host and runs on the device."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.is_ordered = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __call__(self, *arguments: Any) -> Any:
        """Run `RUNS` times from the same arrays; the results are written into them.

        Raises:
            AssertionError: runs differ, or bytes beside an array were written.
        """
        import torch

        arrays = [one for one in arguments if isinstance(one, np.ndarray)]
        first: list[np.ndarray] = []
        result: Any = None
        for number in range(RUNS):
            came, result = self._run(arguments, arrays, number, torch)
            first = first or came
            for place, (one, other) in enumerate(zip(came, first, strict=True)):
                if not self.is_ordered:
                    break
                assert _alike(one, other), f"run {number} differs from the first: array {place}"
        for array, values in zip(arrays, came, strict=True):
            if array.flags.writeable:
                array[...] = values
        return result

    def _run(
        self, arguments: tuple[Any, ...], arrays: list[np.ndarray], number: int, torch: Any
    ) -> tuple[list[np.ndarray], Any]:
        roots = {id(root_of(array)): root_of(array) for array in arrays}
        copies = {key: Copied.of(root, torch) for key, root in roots.items()}

        def there(one: Any) -> Any:
            return copies[id(root_of(one))].view(one, torch) if isinstance(one, np.ndarray) else one

        values = [there(one) for one in arguments]
        torch.cuda.synchronize()
        if number > 1:
            _keep_busy(torch)
        result = self.kernel(*values)
        try:
            torch.cuda.synchronize()
        except Exception as error:  # whatever runs after it would only fail as well
            pytest.exit(f"the device's context is lost: {error}", returncode=3)
        raw = {key: copy.there.cpu().numpy() for key, copy in copies.items()}
        for key, copy in copies.items():
            ends = raw[key][:GUARD_BYTES], raw[key][-GUARD_BYTES:]
            assert all((end == GUARD).all() for end in ends), "bytes beside an array were written"
            assert not arrays or copy.before.size == raw[key].size
        came = [copies[id(root_of(one))].read(one, raw[id(root_of(one))]) for one in arrays]
        return came, _to_host(result, torch)


def in_any_order(kernel: Any) -> Any:
    """The kernel, whose results may depend on the order in which lanes come: runs may differ."""
    if isinstance(kernel, OnDevice):
        kernel.is_ordered = False
    return kernel


def needs_emulator(backend: str) -> None:
    """Skip a test whose fault would end the device's context, and every later test with it."""
    if backend in NAMES:
        pytest.skip("the fault ends the device's context")


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Bit by bit, or, in floats whose sums may come in any order, closely."""
    if one.tobytes() == other.tobytes():
        return True
    if one.dtype.kind in "biu":
        return False
    wide = one.astype(np.float64), other.astype(np.float64)
    return bool(np.allclose(*wide, rtol=1e-3, atol=1e-3, equal_nan=True))


def _to_host(result: Any, torch: Any) -> Any:
    if isinstance(result, torch.Tensor):
        raw = result.contiguous().view(torch.uint8).cpu().numpy()
        return raw.view(getattr(np, str(result.dtype).removeprefix("torch.")))
    return tuple(_to_host(one, torch) for one in result) if isinstance(result, tuple) else result


_beside: list[Any] = []


def _keep_busy(torch: Any) -> None:
    """Matrix products on a stream of their own."""
    if not _beside:
        values = torch.randn(BESIDE, BESIDE, device="cuda", dtype=torch.float16)
        _beside.extend((torch.cuda.Stream(), values))
    stream, values = _beside
    with torch.cuda.stream(stream):
        for _ in range(8):
            values @ values
