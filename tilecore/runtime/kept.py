"""Sources that a compiler refused, kept for whoever wants to look at them."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path


def keep_source(text: str, suffix: str) -> str:
    """Write `text` to the folder of temporary files; its path, or why it is not there."""
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"tilecore-{name}{suffix}"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"nothing: {path}: {error.strerror}"
    return str(path)
