"""The example programs run, on the best device here, and check themselves."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tilecore.errors import BackendError
from tilecore.targets import best_backend
from tilecore_kernels import minilm

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = ("quickstart", "dynamic_shapes", "custom_epilogue", "own_kernel")


@pytest.fixture(autouse=True)
def _needs_device() -> None:
    try:
        best_backend()
    except BackendError as error:
        pytest.skip(f"no device: {error}")


def _run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = EXAMPLES / f"{name}.py"
    if not path.exists():
        pytest.skip("the examples are part of the repository, not of the distribution")
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("name", PLAIN)
def test_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(name, monkeypatch)


@pytest.mark.slow
def test_sentence_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    if not minilm.is_available():
        pytest.skip("needs the extra 'embeddings'")
    _run("sentence_embeddings", monkeypatch)


def test_every_example_is_tested() -> None:
    if not EXAMPLES.exists():
        pytest.skip("the examples are part of the repository, not of the distribution")
    found = {path.stem for path in EXAMPLES.glob("*.py")}
    assert found == {*PLAIN, "sentence_embeddings"}
