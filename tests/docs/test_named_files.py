"""Every file that a document names or links is there: documents go stale when files move."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _files() -> list[str]:
    """Paths below the root, without environments and caches."""
    found: list[str] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        found += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in names]
    return sorted(found)


FILES = _files()
PAGES = [name for name in FILES if name.endswith(".md")]
HISTORY = ("docs/performance-log.md", "docs/compatibility.md")  # the second is generated
DOCUMENTS = [name for name in PAGES if name not in HISTORY]
NAMED = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|h|cu|cpp|txt|toml)|[a-z_]+\.py)`")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def _anchors(page: Path) -> set[str]:
    """The names under which a renderer of Markdown finds the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _exists(name: str) -> bool:
    """Whether a path ends with this name: documents shorten paths to what tells them apart."""
    return any(f"/{path}".endswith(f"/{name}") for path in FILES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_names_exist(document: str):
    named = NAMED.findall((ROOT / document).read_text())
    missing = [name for name in named if not re.search("FILE|NAME", name) and not _exists(name)]
    assert not missing, f"{document} names files that are not there"


@pytest.mark.parametrize("document", PAGES)
def test_links_lead_somewhere(document: str):
    place = ROOT / document
    lost: list[str] = []
    for name, anchor in LINK.findall(place.read_text()):
        page = place.parent / name if name else place
        if not (name.startswith("http") or page.exists()) or (
            anchor and page.suffix == ".md" and anchor not in _anchors(page)
        ):
            lost.append(f"{name}#{anchor}")
    assert not lost, f"{document} links what is not there"


def test_documents_are_found():
    assert "docs/architecture.md" in DOCUMENTS and len(DOCUMENTS) > 10
