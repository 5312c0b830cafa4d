"""``python -m tilecore.migrate FILE.py``: the report, and the rewritten program on request."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilecore.migrate.examine import Finding, examine
from tilecore.migrate.imports import rewrite_imports


def main(arguments: list[str] | None = None) -> int:
    """Report on each file; 1 when something in them is not supported, 2 for a file that is no
    Python."""
    parser = argparse.ArgumentParser(prog="python -m tilecore.migrate", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.py")
    parser.add_argument("-o", "--output", type=Path, help="write the rewritten program there")
    parser.add_argument("-i", "--in-place", action="store_true", help="rewrite the files")
    parser.add_argument("--all", action="store_true", help="list supported constructs too")
    given = parser.parse_args(arguments)
    if given.output is not None and len(given.files) > 1:
        parser.error("--output takes one file")
    refused = 0
    for path in given.files:
        try:
            text = path.read_text(encoding="utf-8")
            findings = examine(text)
        except (OSError, SyntaxError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        refused += report(path, findings, show_all=given.all)
        target = path if given.in_place else given.output
        if target is not None:
            target.write_text(rewrite_imports(text), encoding="utf-8")
    return 1 if refused else 0


def report(path: Path, findings: list[Finding], *, show_all: bool) -> int:
    """Print the findings of one file; the number of constructs that are not supported."""
    refused = [one for one in findings if not one.supported]
    for one in findings if show_all else refused:
        lines = ", ".join(map(str, one.lines))
        state = "supported" if one.supported else f"not supported: {one.reason}"
        print(f"{path}:{lines}: {one.construct}: {state}")
    print(f"{path}: {len(findings) - len(refused)} of {len(findings)} constructs are supported")
    return len(refused)


if __name__ == "__main__":
    sys.exit(main())
