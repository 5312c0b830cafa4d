"""``tilecore inspect FILE:NAME``: programs found, stages shown, mistakes explained."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = """
import tilecore
import tilecore.language as T

SIZE = 64


@T.prim_func
def double(A: T.Tensor((SIZE,), "float32"), B: T.Tensor((SIZE,), "float32")):
    with T.Kernel(1, threads=32) as bx:
        for i in T.Parallel(SIZE):
            B[i] = A[i] * 2.0


def scaled(n, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(n):
                B[i] = A[i] + A[i]

    return main


jitted = tilecore.jit(scaled)
number = 3


def nothing():
    return None
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "programs.py"
    path.write_text(PROGRAMS)
    return path


@pytest.mark.parametrize("stage", ["tile", "canonical", "scheduled", "source"])
def test_stages_of_a_program(run, file: Path, stage: str) -> None:
    result = run("inspect", f"{file}:double", "--backend", "cpu_llvm", "--stage", stage)
    assert result.exit_code == 0, result.output
    assert "double" in result.output
    if stage == "source":
        assert "define " in result.output, "LLVM IR"
    else:
        assert "define " not in result.output


def test_all_stages_come_with_headings(run, file: Path) -> None:
    output = run("inspect", f"{file}:double", "--backend", "cpu_llvm", "--stage", "all").output
    headings = [line for line in output.splitlines() if line.startswith("====")]
    assert [h.split()[1].rstrip(",") for h in headings] == [
        "tile", "canonical", "scheduled", "source",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["scaled", "jitted"])
def test_factory_is_called_with_settings(run, file: Path, name: str) -> None:
    result = run(
        "inspect", f"{file}:{name}", "--backend", "cpu_llvm", "--stage", "tile",
        "--set", "n=48", "--set", "dtype=float16",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "48" in result.output
    assert "float16" in result.output


def test_resources_are_shown_or_said_to_be_missing(run, file: Path) -> None:
    result = run("inspect", f"{file}:double", "--backend", "cpu_llvm", "--stage", "resources")
    assert result.exit_code == 0, result.output
    assert "does not report resources" in result.output or "registers:" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{file}:absent"], "has no 'absent'; it has double"),
        (["{file}:number"], "number is neither a tile program nor a function"),
        (["{file}:nothing"], "nothing is no tile program and returns none"),
        (["{file}:scaled"], "missing a required argument: 'n'"),
        (["{file}:scaled", "--set", "n=4", "--set", "m=3"], "got an unexpected keyword argument"),
        (["{file}:scaled", "--set", "n"], "expected NAME=VALUE"),
        (["{file}:double", "--set", "n=3"], "takes no --set"),
        (["nowhere.py:double"], "expected FILE:NAME with an existing file"),
        (["{file}"], "expected FILE:NAME"),
        (["{file}:double", "--stage", "nonsense"], "no such stage; expected one of tile"),
        (["{file}:double", "--backend", "nonsense"], "no backend named 'nonsense' is installed"),
        (["{file}:double", "--backend", "cpu_llvm", "--arch", "z80"], "no such architecture"),
    ],
)
def test_mistakes_are_explained(run, file: Path, arguments: list[str], message: str) -> None:
    result = run("inspect", *(argument.format(file=file) for argument in arguments))
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
