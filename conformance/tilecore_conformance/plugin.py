"""The pytest plugin: options, the report's header, skip and xfail lists, the matrix at the end.

It is installed as an entry point, so ``pytest --pyargs tilecore_conformance --backend X`` works
for a backend outside this repository.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parent / "suite"
PROPERTY = "tilecore_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite."""
    group = parser.getgroup("tilecore conformance")
    group.addoption(
        "--backend",
        action="append",
        default=[],
        help="backend under test (repeatable); every installed one by default",
    )
    group.addoption(
        "--arch", default=None, help="architecture; the device's, or the backend's best"
    )
    group.addoption(
        "--level",
        action="append",
        default=[],
        choices=["emit", "compile", "emulate", "run"],
        help="how far to go (repeatable); by default as far as this machine lets the backend go",
    )
    group.addoption(
        "--sample",
        type=int,
        default=0,
        help="at most so many cases of each program, spread over all of them (for slow tools)",
    )
    group.addoption(
        "--shard",
        type=shard_of,
        default=(1, 1),
        metavar="I/N",
        help="the I-th of N equal parts (from 1), for machines or processes that share the work",
    )
    group.addoption("--skips-file", action="append", default=[], help="a skip list of your own")
    group.addoption("--xfails-file", action="append", default=[], help="an xfail list of your own")


def shard_of(text: str) -> tuple[int, int]:
    """Number and count of ``"I/N"``.

    Raises:
        argparse.ArgumentTypeError: it is no such pair with ``1 <= I <= N``.
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with 1 <= I <= N, such as 2/8, got {text}")
    return int(number), int(count)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one shard of what is left to run; neighbours are dealt to different shards."""
    number, count = config.getoption("--shard")
    if count > 1:
        kept = items[number - 1 :: count]
        config.hook.pytest_deselected(
            items=[i for k, i in enumerate(items, 1 - number) if k % count]
        )
        items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    """Register what the suite needs in every process, the controller's included."""
    config.addinivalue_line("markers", "area(name): row of the conformance matrix")
    config.addinivalue_line("markers", "slow: longer than some seconds")
    if _is_selected(config):
        from tilecore_conformance.session import ConformanceSession

        config.pluginmanager.register(ConformanceSession(config), "tilecore-conformance-session")


def _is_selected(config: pytest.Config) -> bool:
    """True when the arguments reach into the suite's folder."""
    root = Path(config.invocation_params.dir)
    for argument in config.args:
        text = argument.split("::")[0]
        if config.getoption("pyargs", False) and text.startswith("tilecore_conformance"):
            return True
        path = (root / text).resolve()
        if path == SUITE or path in SUITE.parents or SUITE in path.parents:
            return True
    return False


def pytest_generate_tests(metafunc: Any) -> None:
    """Hand over to the session, which knows the subjects and the cases."""
    session = metafunc.config.pluginmanager.get_plugin("tilecore-conformance-session")
    if session is not None:
        session.parametrize(metafunc)
