"""Moving programs written in the same vocabulary elsewhere: what is supported, and new imports.

`examine` reports by construct and line, `rewrite_imports` gives the program's new text;
``python -m tilecore.migrate FILE.py`` does both.
"""

from __future__ import annotations

from tilecore.migrate.examine import Finding, examine
from tilecore.migrate.imports import rewrite_imports

__all__ = ["Finding", "examine", "rewrite_imports"]
