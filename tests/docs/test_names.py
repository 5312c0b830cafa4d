"""docs/names.md holds every name of the language, as the code says it today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_code_says() -> None:
    script = ROOT / "tools" / "language_names.py"
    spec = importlib.util.spec_from_file_location("language_names", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / "names.md").read_text("utf-8")
    assert written == module.page(), "run python tools/language_names.py"
