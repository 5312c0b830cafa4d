"""The table of kinds of fault names files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "properties" / "README.md"


def test_every_family_of_the_table_exists() -> None:
    rows = PAGE.read_text("utf-8").split("## Kinds of fault")[1].splitlines()
    named = [text for row in rows if row.startswith("| ") for text in re.findall(r"`([^`]+)`", row)]
    areas = ROOT / "conformance" / "tilecore_conformance" / "cases"
    texts = {path.name: path.read_text("utf-8") for path in ROOT.glob("tests/*/test_*.py")}
    missing = []
    for name in named:
        file, _, test = name.partition("::")
        known = (
            any(ROOT.glob(f"tests/{file}")) or any(ROOT.glob(file)) or file in texts
            if file.endswith(".py")
            else (areas / f"{file.removeprefix('conformance/')}.toml").exists()
            or any(f"def {file}(" in text for text in texts.values())
            or file in ("conformance", "--backend reference")
        )
        if not known or (test and f"def {test}(" not in texts[Path(file).name]):
            missing.append(name)
    assert len(named) > 30 and not missing, missing
