"""What a launch of the emulator tells: faults, bank conflicts, printed text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilecore.errors import EmulatorFault, Loc


@dataclass(frozen=True, slots=True)
class KernelFault:
    """One kind of fault at one place of the kernel.

    Attributes:
        kind: a word of the table in README.md, section 6.
        message: what happened, at its first occurrence in ``block``.
        loc: the author's line.
        other_loc: the author's line of the access or wait that it collides with.
        text_line: line of the generated text; 0 where there is none.
        block: the first block of the grid, x fastest, in which it was seen.
        lanes: lanes of that block in which it was seen.
        count: how often it was seen in the whole launch.
    """

    kind: str
    message: str
    loc: Loc | None
    other_loc: Loc | None
    text_line: int
    block: tuple[int, ...]
    lanes: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        text = f"{self.kind} at {self.loc or 'an unknown line'}"
        if self.text_line:
            text += f" (generated line {self.text_line})"
        text += f", block {self.block}, lanes {_ranges(self.lanes)}: {self.message}"
        if self.other_loc is not None:
            text += f"; the other side is {self.other_loc}"
        return text + (f" [{self.count} times]" if self.count > 1 else "")


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """Accesses to shared memory at one place of the kernel, summed over the launch.

    Attributes:
        loc: the author's line.
        text_line: line of the generated text.
        bytes_per_lane: width of one lane's access.
        is_write: store, or load.
        accesses: warp-wide accesses.
        wavefronts: passes over the banks that they took.
        ideal_wavefronts: passes without any bank conflict.
    """

    loc: Loc | None
    text_line: int
    bytes_per_lane: int
    is_write: bool
    accesses: int
    wavefronts: int
    ideal_wavefronts: int

    @property
    def bank_conflicts(self) -> int:
        """Passes lost to bank conflicts."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """Result of one launch.

    Attributes:
        faults: empty when ``launch`` returned.
        shared_accesses: bank statistics, by place.
        prints: text of TC_PRINT, in order of arrival.
        fault_count: single occurrences of all faults.
        switches: lane switches, a measure of work.
    """

    faults: tuple[KernelFault, ...]
    shared_accesses: tuple[SharedAccess, ...]
    prints: str
    fault_count: int
    switches: int

    @property
    def bank_conflicts(self) -> int:
        """Passes lost to bank conflicts in the whole launch."""
        return sum(access.bank_conflicts for access in self.shared_accesses)


class KernelFaults(EmulatorFault):
    """All faults of one launch.

    Attributes:
        faults: each kind and place; those of earlier blocks of the grid first.
        report: the whole report of the launch.
    """

    def __init__(self, kernel: str, report: LaunchReport, seed: int) -> None:
        self.faults = report.faults
        self.report = report
        first = report.faults[0]
        count = len(report.faults)
        summary = f"kernel {kernel} has {count} fault{'s' if count > 1 else ''} (seed {seed})"
        lines = "".join(f"\n  {fault}" for fault in report.faults)
        super().__init__(summary + lines, loc=first.loc)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of fault that were seen."""
        return frozenset(fault.kind for fault in self.faults)


def _ranges(numbers: Sequence[int]) -> str:
    """``0-31,64`` for sorted lane numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
