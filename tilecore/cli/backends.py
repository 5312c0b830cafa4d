"""``tilecore backends``: what is installed, what is present, and why not."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from tilecore.errors import TilecoreError
from tilecore.hooks.manager import ENTRY_POINT_GROUP, hooks_of, installed_backends, targets_of
from tilecore.hooks.records import DeviceInfo, ToolchainInfo


@dataclass(frozen=True, slots=True)
class BackendReport:
    """One backend as it is found here.

    Attributes:
        name: entry-point name.
        distribution: what provides it, with its version; "" when it was registered by hand.
        chain: backends whose hooks answer, the first asked last.
        targets: architectures that it compiles for.
        devices: devices that are present.
        absence: why there is no device, or "".
        toolchain: what compiles, or what is missing; None when the backend does not say.
        error: why the backend cannot be used at all, or "".
    """

    name: str
    distribution: str
    chain: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    absence: str = ""
    toolchain: ToolchainInfo | None = None
    error: str = ""

    @property
    def can_compile(self) -> bool:
        """True when the toolchain is here."""
        return not self.error and (self.toolchain is None or not self.toolchain.missing)


def survey() -> list[BackendReport]:
    """Every installed backend. A broken one is reported, not raised."""
    return [_report(name) for name in installed_backends()]


def _report(name: str) -> BackendReport:
    distribution = _distribution(name)
    try:
        hooks, targets = hooks_of(name), targets_of(name)
        found = [hooks.call("tilecore_probe_device", target=target) for target in targets]
        devices = tuple(dict.fromkeys(device for device in found if device is not None))
        absence = ""
        if not devices:
            absence = hooks.call("tilecore_explain_absence", target=targets[0]) or ""
        toolchain: ToolchainInfo | None = hooks.call("tilecore_probe_toolchain", target=targets[0])
    except TilecoreError as error:
        return BackendReport(name, distribution, error=str(error))
    archs = tuple(target.arch for target in targets)
    return BackendReport(name, distribution, hooks.chain, archs, devices, absence, toolchain)


def _distribution(name: str) -> str:
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        if point.dist is not None:
            return f"{point.dist.name} {point.dist.version}"
    return ""


def as_json(reports: Sequence[BackendReport]) -> str:
    """The reports as a JSON list."""
    return json.dumps(
        [{**asdict(report), "can_compile": report.can_compile} for report in reports], indent=2
    )


def show(reports: Sequence[BackendReport], console: Console) -> None:
    """The reports as a table, and what to do where there are none."""
    if not reports:
        console.print("no backend is installed: pip install tilecore-backend-cpu")
        return
    table = Table("backend", "from", "targets", "device here", "toolchain")
    for report in reports:
        if report.error:
            table.add_row(report.name, report.distribution, "", "", f"[red]{report.error}")
        else:
            table.add_row(
                report.name,
                report.distribution,
                " ".join(report.targets),
                _devices(report),
                _toolchain(report.toolchain),
            )
    console.print(table)


def _devices(report: BackendReport) -> str:
    if not report.devices:
        return f"[yellow]none[/]: {report.absence}" if report.absence else "[yellow]none"
    return "\n".join(
        f"[green]{device.name}[/], {device.processors} processors" for device in report.devices
    )


def _toolchain(toolchain: ToolchainInfo | None) -> str:
    if toolchain is None:
        return "not stated"
    if toolchain.missing:
        return f"[yellow]{toolchain.missing}"
    return f"{toolchain.name} {toolchain.version}"
