"""Settings of every test run in this repository."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Busy machines make slow examples; a slow example is no failure, the test's timeout is. The same
# examples every time: what fails is the change under test. Others: `--hypothesis-profile=search`.
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("tilecore", settings.get_profile("search"), derandomize=True)
settings.load_profile("tilecore")

# Tests leave the user's cache alone. Entries are found by content, so keeping them is safe.
os.environ.setdefault("TILECORE_CACHE_DIR", str(Path(__file__).parent / ".tilecore-cache"))
