"""Words of device memory that are zero before and after every launch: the counters of tiles.

Blocks that stay take tiles from a counter, and a launch leaves it at zero. Two launches may use one
counter only if they cannot run at the same time. So each stream has its own, as launches on one
stream follow one another, and a launch that is captured into a graph has one that nobody else gets:
graphs run on any stream, but one graph never beside itself. Several executable
graphs made of one captured graph must not run at the same time.
"""

from __future__ import annotations

import threading
from typing import Any

from tilecore.errors import LaunchError
from tilecore.forking import FreshLock

PAGE_WORDS = 16384
WORD_BYTES = 4
PER_THREAD_STREAM = 2  # cuda.h: CU_STREAM_PER_THREAD, another stream in every thread


class TileCounters(dict[int, int]):
    """Stream handle -> address of its counter, for the launches of one program on one device.

    Args:
        driver: gives zeroed memory.
        device: ordinal.
    """

    def __init__(self, driver: Any, device: int) -> None:
        super().__init__()
        self._driver = driver
        self._device = device
        self._guard = FreshLock()
        self._threads = threading.local()
        self._free = range(0)
        self._page()

    def __missing__(self, stream: int) -> int:
        if stream == PER_THREAD_STREAM:
            if not hasattr(self._threads, "counter"):
                self._threads.counter = self.fresh()
            return int(self._threads.counter)
        return self.setdefault(stream, self.fresh())

    def fresh(self, in_capture: bool = False) -> int:
        """The address of a counter that nobody else has.

        Raises:
            LaunchError: all are used, and a capture is under way, which forbids to allocate.
        """
        with self._guard:
            if not self._free:
                if in_capture:
                    raise LaunchError(
                        "a capture holds too many launches of one kernel",
                        expected=f"at most {PAGE_WORDS} since the last launch outside of captures",
                        hint="launch the kernel once between captures",
                    )
                self._page()
            address, self._free = self._free[0], self._free[1:]
            return address

    def of(self, stream: int) -> int:
        """The counter for a launch on `stream` now."""
        return self.fresh(True) if self._driver.is_capturing(stream) else self[stream]

    def _page(self) -> None:
        start = self._driver.zeroed_words(self._device, PAGE_WORDS)
        self._free = range(start, start + PAGE_WORDS * WORD_BYTES, WORD_BYTES)
