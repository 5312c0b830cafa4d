"""The stream on which a launch belongs: the current one of whoever owns the tensors."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

StreamGetter = Callable[[int], int]
"""Device ordinal -> stream handle."""


def stream_getter(device: int) -> StreamGetter:
    """A cheap function that tells a device's current stream.

    torch's public ``current_stream`` builds an object at 4 microseconds a call; the getter that
    its own launcher code uses takes a tenth of one. Without torch, CuPy's current stream counts;
    without either, the legacy default stream, which waits for all blocking streams.
    """
    if "torch" in sys.modules:
        getter = _torch_getter()
        if getter is not None:
            return getter
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return lambda ordinal: cupy.cuda.get_current_stream(ordinal).ptr
    return lambda ordinal: 0


@functools.cache
def _torch_getter() -> StreamGetter | None:
    torch = sys.modules["torch"]
    if not torch.cuda.is_available():
        return None
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream)
