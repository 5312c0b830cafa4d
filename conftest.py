"""Settings of every test run in this repository."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

# Busy machines make slow examples; a slow example is no failure, the test's timeout is. The same
# examples every time: what fails is the change under test. Others: `--hypothesis-profile=search`.
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("tilecore", settings.get_profile("search"), derandomize=True)
settings.register_profile(  # where compiling an example takes longer than reading it
    "unshrunk", settings.get_profile("tilecore"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("tilecore")

# Tests leave the user's cache alone. Entries are found by content, so keeping them is safe.
os.environ.setdefault("TILECORE_CACHE_DIR", str(Path(__file__).parent / ".tilecore-cache"))

# What would turn a test's expectations over, set where somebody set it for other work.
for _name in ("TILECORE_DISABLE_CACHE", "TILECORE_CACHE_BYTES", "TILECORE_DUMP"):
    os.environ.pop(_name, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The same random numbers for a test, whatever ran before it and in whichever order."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
