"""``tilecore backends``: what is here, and why not."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from tilecore.hooks.records import DeviceInfo, ToolchainInfo
from tilecore.target import Target


def found(text: str) -> dict[str, Any]:
    return {report["name"]: report for report in json.loads(text)}


def test_every_installed_backend_is_listed(run) -> None:
    reports = found(run("backends", "--json").output)
    assert {"cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3"} <= set(reports)
    for name, report in reports.items():
        assert not report["error"], f"{name}: {report['error']}"
        assert report["targets"]
        assert report["devices"] or report["absence"], f"{name} does not say why there is none"
    assert reports["cuda_hopper"]["chain"] == ["cuda_ampere", "cuda_hopper"]
    assert reports["cpu_llvm"]["devices"]
    assert reports["cpu_llvm"]["can_compile"]
    assert "tilecore-backend-cpu" in reports["cpu_llvm"]["distribution"]
    assert reports["cuda_ampere"]["can_compile"], reports["cuda_ampere"]["toolchain"]


def test_table_and_json_say_the_same(run, backend, monkeypatch) -> None:
    # Whatever else is installed or was registered by other tests, no cell is folded.
    monkeypatch.setattr("tilecore.cli.main.make_console", lambda: Console(width=600))
    backend(
        "present",
        tilecore_describe_targets=lambda: [Target("present", "one"), Target("present", "two")],
        tilecore_probe_device=lambda target: DeviceInfo("Some Device 9", "one", 17),
        tilecore_probe_toolchain=lambda target: ToolchainInfo("somecc", "1.2"),
    )
    backend(
        "absent",
        tilecore_describe_targets=lambda: [Target("absent", "one")],
        tilecore_explain_absence=lambda target: "the cable is not plugged in",
        tilecore_probe_toolchain=lambda target: ToolchainInfo("somecc", "", "install somecc"),
    )
    backend("silent", tilecore_describe_targets=lambda: [Target("silent", "one")])
    table = run("backends").output
    for text in ("Some Device 9", "17 processors", "somecc 1.2", "the cable is not plugged in",
                 "install somecc", "not stated"):  # fmt: skip
        assert text in table
    reports = found(run("backends", "--json").output)
    assert reports["present"]["targets"] == ["one", "two"]
    assert len(reports["present"]["devices"]) == 1
    assert reports["absent"]["absence"] == "the cable is not plugged in"
    assert not reports["absent"]["can_compile"]
    assert reports["silent"]["toolchain"] is None


def test_broken_backend_is_reported_beside_the_others(run, backend) -> None:
    def describe() -> list[Target]:
        return []

    backend("broken", tilecore_describe_targets=describe)
    result = run("backends", "--json")
    assert result.exit_code == 0
    reports = found(result.output)
    assert "describes no targets" in reports["broken"]["error"]
    assert not reports["cpu_llvm"]["error"]
    words = run("backends").output.replace("│", " ").split()  # a table's cells wrap
    assert "describes no targets" in " ".join(words)
