"""The benchmark for the device, rehearsed: its own code on the emulator, torch on the host.

Only what torch does on a device is replaced (where tensors lie, events, flushing).
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import tilecore
from tilecore_backend_rocm.compilers import Compiler

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
torch = pytest.importorskip("torch")
pytest.importorskip("tilecore_kernels")
pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="the repository's scripts are elsewhere"
)


class Event:
    """torch.cuda.Event, of a clock that always shows the same."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self) -> None:
        """Nothing runs on a device."""

    def elapsed_time(self, other: Event) -> float:
        return 0.5


def on_host() -> Any:
    """torch as the benchmark sees it, with host memory for device memory."""

    def made(name: str) -> Any:
        make = getattr(torch, name)
        return lambda *a, device="cuda", **named: make(*a, **named)

    cuda = types.SimpleNamespace(Event=Event, synchronize=lambda: None, empty_cache=lambda: None)
    own = {name: made(name) for name in ("empty", "randn", "ones")}
    return types.SimpleNamespace(**{**vars(torch), **own, "cuda": cuda})


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """(rocm, rocm_rows) with small problems on the emulator."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("rocm", "rocm_rows"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    rocm, rocm_rows = importlib.import_module("rocm"), importlib.import_module("rocm_rows")
    compile_for = tilecore.compile
    monkeypatch.setattr(
        rocm.tilecore, "compile",
        lambda program, backend, options: compile_for(program, backend, device="emulator",
                                                      options=options),
    )  # fmt: skip
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(rocm, "torch_with_device", on_host)
    monkeypatch.setattr(rocm, "FLUSH_BYTES", 1 << 10)
    monkeypatch.setattr(rocm, "milliseconds", lambda torch, call: (call(), 0.5)[1])
    small = {
        "gemm": rocm_rows.Row("gemm", rocm_rows.GEMM, rocm_rows.GemmProblem(
            64, 128, 96, "bfloat16", transpose_b=True)),
        "scaled": rocm_rows.Row("scaled", rocm_rows.SCALED_GEMM, rocm_rows.ScaledGemmProblem(
            64, 64, 256, "tensor", "float8_e4m3fnuz")),
        "attention": rocm_rows.Row("attention", rocm_rows.FLASH_ATTENTION,
                                   rocm_rows.AttentionProblem(1, 2, 64, 64, "bfloat16", right=0)),
        "decode": rocm_rows.Row("decode", rocm_rows.FLASH_DECODE, rocm_rows.DecodeProblem(
            1, 8, 100, 64, "bfloat16", kv_heads=2)),
        "mla": rocm_rows.Row("mla", rocm_rows.MLA_DECODE, rocm_rows.latent_problem(
            1, 40, heads=16, dtype="bfloat16")),
    }  # fmt: skip
    chosen = lambda groups: [small[g] for g in groups if g in small]  # noqa: E731
    monkeypatch.setattr(rocm, "rows", chosen)
    return rocm, rocm_rows


@pytest.mark.parametrize("group", ["gemm", "scaled", "attention", "decode", "mla"])
def test_every_group_is_checked_timed_and_told(
    scripts: tuple[Any, Any], group: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rocm, _ = scripts
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["rocm.py", group, "--configs", "1", "--json", str(file)])
    assert rocm.main() == 0, capsys.readouterr().out
    (row,) = json.loads(file.read_text())
    assert row["group"] == group and row["best"]["error"] < 1e-2
    assert row["best"]["rate"].endswith(("TFLOP/s", "GB/s")) and row["best"]["predicted"] != "-"
    assert "ROW " in capsys.readouterr().out


def test_a_wrong_result_fails_and_the_others_are_still_measured(
    scripts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rocm, _ = scripts
    monkeypatch.setattr(rocm, "_error", lambda got, want: float("nan"))
    monkeypatch.setattr(sys, "argv", ["rocm.py", "gemm", "scaled", "--configs", "1"])
    assert rocm.main() == 1
    text = capsys.readouterr().out
    assert text.count("wrong result") >= 2 and text.count("ROW ") == 2


def test_the_table_says_what_spills_and_what_occupancy_was_planned(
    scripts: tuple[Any, Any], compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    rocm, rocm_rows = scripts
    chosen = rocm.rows(["gemm", "attention", "mla"])
    assert rocm_rows.print_table(chosen, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].count("|") == len(rocm_rows.HEADINGS) + 1
    kernels = {line.split("|")[1].strip().split(" ")[0] for line in lines[2:]}
    assert {"gemm", "attention", "mla"} <= kernels and not any("NOT AS" in line for line in lines)
