"""A stand-in for torch built for ROCm: tensors, devices and streams, as far as launches ask.

torch calls AMD devices ``cuda``; ``torch.version.hip`` tells its builds apart.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Device:
    """torch.device."""

    type: str
    index: int | None


@dataclass
class Tensor:
    """torch.Tensor on a device; nothing is behind the address."""

    address: int
    shape: tuple[int, ...]
    device: Device
    dtype: str = "torch.float32"
    strides: tuple[int, ...] | None = None
    layout: str = "strided"
    requires_grad: bool = False

    def data_ptr(self) -> int:
        return self.address

    def stride(self) -> tuple[int, ...]:
        if self.strides is not None:
            return self.strides
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.insert(0, step)
            step *= extent
        return tuple(strides)

    def is_neg(self) -> bool:
        return False

    def is_conj(self) -> bool:
        return False


@dataclass
class Exported:
    """An array of another library that speaks DLPack (kDLROCM is 10)."""

    tensor: Tensor
    code: int = 10

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.code, self.tensor.device.index or 0

    def __dlpack__(self, **_: Any) -> Tensor:
        return self.tensor


@dataclass
class FakeTorch(types.ModuleType):
    """The module; `streams` are the current ones, by device."""

    streams: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__("torch")
        self.Tensor = Tensor
        self.strided = "strided"
        self.device = lambda text: Device(*_parsed(text))
        self.version = types.SimpleNamespace(hip="6.2.41133", cuda=None)
        self.cuda = types.SimpleNamespace(is_available=lambda: True)
        self._C = types.SimpleNamespace(
            _cuda_getCurrentRawStream=lambda ordinal: self.streams.get(ordinal, 0)
        )
        self.float32 = "torch.float32"
        self.made: list[Tensor] = []

    def is_grad_enabled(self) -> bool:
        return True

    def empty(self, shape: tuple[int, ...], dtype: str, device: Device) -> Tensor:
        self.made.append(Tensor(0xA000 + 0x100 * len(self.made), shape, device, dtype))
        return self.made[-1]

    def from_dlpack(self, exported: Exported) -> Tensor:
        return exported.__dlpack__()


def _parsed(text: str) -> tuple[str, int | None]:
    kind, _, index = text.partition(":")
    return kind, int(index) if index else None
