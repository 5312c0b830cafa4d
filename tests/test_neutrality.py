"""Core knows no vendor: its code spells no architecture and no vendor's instruction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilecore

ROOT = Path(tilecore.__file__).parent
WORDS = (
    r"\bsm_?\d\d", r"gfx\d", r"wgmma", r"mma\.sync", r"mfma", r"cp\.async", r"ldmatrix",
    r"stmatrix", r"tensormap", r"setmaxnreg", r"\bptx\b", r"\bnvrtc\b", r"\bhiprtc\b",
    r"\bhopper\b",
    r"\bampere\b", r"\bcdna\d?\b", r"__shfl", r"\bxmma\b", r"\btma\b", r"s_waitcnt",
)  # fmt: skip
PATTERN = re.compile("|".join(WORDS), re.IGNORECASE)
# Where a vendor may be named, each with the reason.
ALLOWED = {
    "runtime": "tensors say where they live, and arguments follow array libraries' interfaces",
    "cli": "shows what backends report",
}
# Names that kernel authors know from elsewhere, and that the language therefore has to recognise.
LANGUAGE_NAMES = re.compile(r"T\.|\"[a-z_0-9]+\"|'[a-z_0-9]+'|disable_tma|use_tma")

FILES = sorted(
    path
    for path in ROOT.rglob("*")
    if path.suffix in {".py", ".h", ".hpp", ".cpp", ".c"} and "__pycache__" not in path.parts
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_vendor_words(path: Path) -> None:
    part = path.relative_to(ROOT).parts[0]
    if part in ALLOWED:
        return
    wrong = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        shown = LANGUAGE_NAMES.sub("", line) if part == "language" else line
        found = PATTERN.search(shown)
        if found:
            wrong.append(f"{path.name}:{number}: {found[0]!r} in {line.strip()!r}")
    assert not wrong
