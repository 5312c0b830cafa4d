from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tilecore.cli.main import main
from tilecore.hooks.manager import register_backend, unregister_backend
from tilecore.hooks.specs import hookimpl

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs the command in this process."""

    def call(*arguments: str) -> Result:
        result = CliRunner().invoke(main, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def backend() -> Iterator[Callable[..., None]]:
    """Registers backends with the given hook implementations; forgets them afterwards."""
    names: list[str] = []

    def make(name: str, **hooks: Any) -> None:
        register_backend(name, SimpleNamespace(**{k: hookimpl(v) for k, v in hooks.items()}))
        names.append(name)

    yield make
    for name in names:
        unregister_backend(name)
