"""The command itself, ``demo`` and ``bench``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tilecore import __version__
from tilecore.cli import bench as bench_module
from tilecore.cli import demo as demo_module
from tilecore.errors import UnsupportedError


def test_version_and_help(run) -> None:
    assert __version__ in run("--version").output
    help_text = run("--help").output
    assert all(name in help_text for name in ("backends", "bench", "demo", "inspect"))


def test_installed_command_runs() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tilecore.cli.main", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert __version__ in result.stdout


def test_missing_click_is_explained() -> None:
    program = "import sys; sys.modules['click'] = None; import tilecore.cli.main"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'tilecore[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


def demo_row(**changes: Any) -> SimpleNamespace:
    facts = {
        "what": "gemm", "shape": "64^3 float32", "checked_against": "NumPy", "error": 1.5e-7,
        "passed": True, "milliseconds": 1.25, "peer_milliseconds": None, "rate": 1234.5,
        "unit": "GFLOP/s", "share": 0.75,
    }  # fmt: skip
    return SimpleNamespace(**{**facts, **changes})


def use_modules(monkeypatch: pytest.MonkeyPatch, module: Any, **modules: Any) -> None:
    monkeypatch.setattr(module, "kernels_module", lambda name: modules[name or "root"])


def test_demo_shows_its_rows(run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [demo_row(), demo_row(what="softmax", peer_milliseconds=2.5, share=None)]
    fake = SimpleNamespace(run=lambda backend, report: rows)
    use_modules(monkeypatch, demo_module, demo=fake)
    result = run("demo", "--backend", "cpu_llvm")
    assert result.exit_code == 0
    for text in ("gemm", "softmax", "1.5e-07", "1.250 ms", "2.500 ms", "1,234.5 GFLOP/s", "75%",
                 "2 of 2 results agree"):  # fmt: skip
        assert text in result.output


def test_demo_with_a_wrong_result_fails(run, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(run=lambda backend, report: [demo_row(), demo_row(passed=False)])
    use_modules(monkeypatch, demo_module, demo=fake)
    result = run("demo", "--backend", "cpu_llvm")
    assert result.exit_code == 1
    assert "the error is more than rounding explains" in result.output


@pytest.mark.parametrize("command", [["demo"], ["bench"]])
def test_missing_kernels_package_is_explained(
    run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "tilecore_kernels":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tilecore_kernels", None)
    result = run(*command)
    assert result.exit_code != 0
    assert "pip install tilecore-kernels" in result.output


@dataclass(frozen=True)
class Problem:
    size: int


def fake_kernels(error: Exception | None = None) -> dict[str, Any]:
    """A kernels package of one family whose kernels do nothing in exactly a millisecond."""
    import numpy as np

    class Kernel:
        resources = (SimpleNamespace(notes=("spills 8 bytes",)),)

        def __call__(self, *tensors: Any) -> None:
            assert [tensor.shape for tensor in tensors] == [(4,), (2,)]

    def compile_kernel(name: str, problem: Problem, backend: str, arch: str) -> Kernel:
        if error is not None:
            raise error
        return Kernel()

    def time_call(call: Any, synchronize: Any, budget_s: float) -> SimpleNamespace:
        call()
        assert budget_s == 0.5
        return SimpleNamespace(median=1e-3)

    family = SimpleNamespace(
        name="gemm",
        problems=(Problem(4),),
        inputs=lambda problem, generator: (np.zeros(problem.size, np.float32),),
        outputs=lambda problem: (((2,), "float32"),),
        flops=lambda problem: 2e9,
        bytes_moved=lambda problem: 3e6,
    )
    return {
        "root": SimpleNamespace(FAMILIES={"gemm": family}, compile_kernel=compile_kernel),
        "tensors": SimpleNamespace(
            to_target=lambda array, target: array, synchronizer=lambda target: None
        ),
        "measure": SimpleNamespace(time_call=time_call),
    }


def test_bench_reports_rates(run, monkeypatch: pytest.MonkeyPatch) -> None:
    use_modules(monkeypatch, bench_module, **fake_kernels())
    options = ["--backend", "cpu_llvm", "--seconds", "0.5"]
    row = json.loads(run("bench", "gemm", "--json", *options).output)
    assert row["milliseconds"] == pytest.approx(1.0)
    assert row["gflops"] == pytest.approx(2000.0)
    assert row["gigabytes"] == pytest.approx(3.0)
    assert row["notes"] == ["spills 8 bytes"]
    table = run("bench", *options).output
    assert all(text in table for text in ("gemm", "2,000.0", "1.000 ms", "spills 8 bytes"))


def test_bench_reports_what_it_could_not_run(run, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = fake_kernels(UnsupportedError("no such instruction"))
    use_modules(monkeypatch, bench_module, **modules)
    options = ["--backend", "cpu_llvm", "--seconds", "0.5"]
    assert json.loads(run("bench", "--json", *options).output)["error"] == "no such instruction"
    assert "no such instruction" in run("bench", *options).output


def test_bench_refuses_unknown_kernels(run, monkeypatch: pytest.MonkeyPatch) -> None:
    use_modules(monkeypatch, bench_module, **fake_kernels())
    result = run("bench", "nonsense")
    assert result.exit_code != 0
    assert "no kernel 'nonsense'; there are gemm" in result.output
