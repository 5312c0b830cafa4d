"""Records of a static performance model: what a kernel costs by counting, without running it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublicFigure:
    """A published figure to read a prediction against.

    Attributes:
        what: workload, library and device.
        teraflops: in 1e12 operations a second.
        source: where it was published, and how sure it is.
    """

    what: str
    teraflops: float
    source: str


@dataclass(frozen=True, slots=True)
class KernelModel:
    """One kernel's prediction.

    Attributes:
        name: the kernel.
        parts: (resource, cycles that one block keeps it busy), largest first.
        block_cycles: cycles of one block alone on its processor.
        resident: blocks that one processor holds at once.
        rounds: how often all processors are filled.
        seconds: predicted duration.
        unlimited_seconds: the same at the highest clock, were power and memory without limits.
        operations: of matrix instructions, padding included (a multiply-add counts as two).
        bytes_moved: between registers and global memory, by all blocks.
        bound: the resource that decides.
    """

    name: str
    parts: tuple[tuple[str, float], ...]
    block_cycles: float
    resident: int
    rounds: int
    seconds: float
    unlimited_seconds: float
    operations: float
    bytes_moved: float
    bound: str

    @property
    def teraflops(self) -> float:
        """Matrix operations a second, in 1e12."""
        return self.operations / self.seconds / 1e12 if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class PerformanceModel:
    """A backend's answer to ``tilecore_model``.

    Attributes:
        kernels: in launch order.
        assumptions: what the figures rest on, each with its source, one sentence each.
        figures: published figures of comparable workloads; may be empty.
    """

    kernels: tuple[KernelModel, ...]
    assumptions: tuple[str, ...]
    figures: tuple[PublicFigure, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """The report, line by line."""
        result: list[str] = []
        for kernel in self.kernels:
            result.append(
                f"{kernel.name}: {1e6 * kernel.seconds:.1f} us, {kernel.teraflops:.0f} TFLOP/s "
                f"predicted, bound by {kernel.bound}"
            )
            result.append(
                f"  one block alone: {kernel.block_cycles:.0f} cycles; {kernel.resident} on a "
                f"processor, {kernel.rounds} rounds; {kernel.bytes_moved / 1e9:.2f} GB moved; "
                f"{1e6 * kernel.unlimited_seconds:.1f} us were power and memory without limits"
            )
            result += [
                f"  {what}: {cycles:.0f} cycles a block, {cycles / kernel.block_cycles:.0%}"
                for what, cycles in kernel.parts
            ]
        if self.figures:
            result.append("published figures:")
            result += [f"  {f.what}: {f.teraflops:.0f} TFLOP/s ({f.source})" for f in self.figures]
        result.append("assumptions:")
        result += [f"  - {text}" for text in self.assumptions]
        return tuple(result)
