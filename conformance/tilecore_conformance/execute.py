"""Taking one experiment through one subject: emit, compile, or call and compare."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilecore
from tilecore_conformance.compare import difference
from tilecore_conformance.experiment import Experiment
from tilecore_conformance.subjects import Subject

GUARD_BYTES = 512
"""Bytes before and after each tensor that no kernel may write, nor read to any effect."""
OUTPUT_GUARD = 0x5C
INPUT_GUARD = 0xFF  # nan in every float, -1 in signed integers: a stray read shows


class GuardedArray:
    """A tensor between two guard bands, on the host or on the subject's device.

    The order of its axes in memory is kept; gaps between elements are not.
    """

    def __init__(self, content: np.ndarray, guard: int, on_device: bool) -> None:
        order = sorted(range(content.ndim), key=lambda axis: -content.strides[axis])
        self._to_shape = tuple(np.argsort(order)) if 0 not in content.shape else None
        if self._to_shape is not None:
            content = np.ascontiguousarray(content.transpose(order))
        self._guard, self._content, self._on_device = guard, content, on_device
        block = np.full(content.nbytes + 2 * GUARD_BYTES + 256, guard, np.uint8)
        offset = -block.ctypes.data % 256
        self._bytes: Any = block[offset : offset + content.nbytes + 2 * GUARD_BYTES]
        if on_device:
            import torch

            self._bytes = torch.from_numpy(self._bytes).cuda()
        self.tensor = self._view()
        self.reset()

    def _view(self) -> Any:
        inner = self._bytes[GUARD_BYTES : GUARD_BYTES + self._content.nbytes]
        dtype: Any = self._content.dtype
        if self._on_device:
            import torch

            dtype = getattr(torch, dtype.name)
        stored = inner.view(dtype).reshape(self._content.shape)
        if self._to_shape is None:
            return stored
        permute = stored.permute if self._on_device else stored.transpose
        return permute(tuple(int(axis) for axis in self._to_shape))

    def reset(self) -> None:
        """Put the initial content back."""
        flat = np.ascontiguousarray(self._content).reshape(-1).view(np.uint8)
        inner = self._bytes[GUARD_BYTES : GUARD_BYTES + flat.size]
        if self._on_device:
            import torch

            inner.copy_(torch.from_numpy(flat.copy()))
        else:
            inner[...] = flat

    def read(self) -> np.ndarray:
        """The content, on the host."""
        raw = self._bytes.cpu().numpy() if self._on_device else self._bytes
        inner = raw[GUARD_BYTES : GUARD_BYTES + self._content.nbytes].copy()
        stored = inner.view(self._content.dtype).reshape(self._content.shape)
        return stored if self._to_shape is None else stored.transpose(self._to_shape)

    def overrun(self) -> str:
        """Where a guard band was written, or ""."""
        raw = self._bytes.cpu().numpy() if self._on_device else self._bytes
        for name, band in (("before", raw[:GUARD_BYTES]), ("behind", raw[-GUARD_BYTES:])):
            if (band != self._guard).any():
                return f"{int((band != self._guard).sum())} bytes {name} the tensor were written"
        return ""


def compile_for(subject: Subject, function: Any) -> Any:
    """The callable kernel of `function` for an executing subject."""
    if subject.target is None:
        return tilecore.compile(function, device="reference")
    target = subject.target
    return tilecore.compile(function, target.backend, arch=target.arch, device=target.device)


def call(subject: Subject, kernel: Any, experiment: Experiment) -> list[GuardedArray]:
    """Call a compiled kernel as often as the experiment says; returns its outputs.

    Raises:
        AssertionError: an input was changed, or memory beside a tensor was written.
    """
    on_device = subject.level == "run" and subject.target is not None
    on_device = on_device and subject.target.lanes_per_warp > 1
    inputs = [
        GuardedArray(value, INPUT_GUARD, on_device) if isinstance(value, np.ndarray) else value
        for value in experiment.inputs
    ]
    outputs = [GuardedArray(value, OUTPUT_GUARD, on_device) for value in experiment.outputs]
    arguments = [getattr(value, "tensor", value) for value in (*inputs, *outputs)]
    for _ in range(experiment.calls):
        kernel(*arguments)
    if on_device:
        import torch

        torch.cuda.synchronize()
    for number, (guarded, original) in enumerate(zip(inputs, experiment.inputs, strict=True)):
        if isinstance(guarded, GuardedArray):
            assert guarded.read().tobytes() == original.tobytes(), f"input {number} was changed"
            assert not guarded.overrun(), f"input {number}: {guarded.overrun()}"
    for number, guarded in enumerate(outputs):
        assert not guarded.overrun(), f"output {number}: {guarded.overrun()}"
    return outputs


def check(subject: Subject, experiment: Experiment) -> None:
    """Take an experiment as far as the subject's level says.

    Raises:
        AssertionError: the answer is wrong, with what, where and by how much.
        TilecoreError: the subject refuses the program.
    """
    if subject.level == "emit":
        lowered = tilecore.lower(experiment.function, target=subject.target)
        assert lowered.source.text.strip(), "no source text"
        return
    kernel = compile_for(subject, experiment.function)
    if subject.level == "compile":
        assert kernel.source.strip(), "no source text"
        return
    outputs = call(subject, kernel, experiment)
    for number, (guarded, expected) in enumerate(zip(outputs, experiment.expected(), strict=True)):
        wrong = difference(guarded.read(), expected)
        assert not wrong, f"output {number}: {wrong}"
