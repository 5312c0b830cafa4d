"""Makes the helpers of all tests importable by their plain names; where kernels of tests run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/properties --on-device cuda_hopper`."""
    parser.addoption(
        "--on-device",
        action="append",
        default=[],
        metavar="BACKEND",
        help="run what would be emulated for a backend on its device instead, several times each "
        "(repeatable; needs torch)",
    )
    parser.addoption(
        "--device-runs",
        type=int,
        default=4,
        help="how often each call runs there (1 for tools that watch every access)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell the helpers.

    Raises:
        pytest.UsageError: there is no such device here.
    """
    asked = config.getoption("--on-device")
    if not asked:
        return
    import devices

    from tilecore.targets import present_device

    missing = [name for name in asked if present_device(name) is None]
    if missing:
        raise pytest.UsageError(f"no device of {', '.join(missing)} here")
    devices.NAMES.update(asked)
    devices.RUNS = config.getoption("--device-runs")
