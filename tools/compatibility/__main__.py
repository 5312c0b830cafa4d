"""``python -m tools.compatibility CHECKOUT``: run the programs, write ``docs/compatibility.md``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

FOLDERS = ("examples", "testing/python")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.compatibility", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--commit", help="of the checkout, if git cannot tell")
    parser.add_argument(
        "--backend",
        default="cpu_llvm",
        help="cpu_llvm runs; others are emulated, with smaller sizes (their page: --output)",
    )
    parser.add_argument(
        "--emulated",
        nargs="*",
        default=[],
        metavar="BACKEND=FOLDER",
        help="results of other backends that the page shows too: the --keep of their runs",
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], help="paths that begin so, in this order"
    )
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time a file")
    parser.add_argument("--minutes", type=float, help="start no file after that many minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="keep logs and results there; resume from them")
    parser.add_argument("--output", type=Path, default=PAGE)
    return parser.parse_args()


def _commit(given: argparse.Namespace) -> str:
    if given.commit:
        return str(given.commit)
    command = ["git", "-C", str(given.checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _rewrite(checkout: Path, root: Path) -> list[str]:
    """A copy of the programs with new imports; the paths of its Python files."""
    from tilecore.migrate import rewrite_imports

    paths: list[str] = []
    for folder in FOLDERS:
        for path in sorted((checkout / folder).rglob("*")):
            if not path.is_file():
                continue
            name = path.relative_to(checkout)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if path.suffix != ".py":
                (root / name).write_bytes(path.read_bytes())
                continue
            (root / name).write_text(rewrite_imports(path.read_text("utf-8")), "utf-8")
            if path.name not in ("conftest.py", "__init__.py"):
                paths.append(name.as_posix())
    return paths


def main() -> int:
    """Run, print one line for each file, and write the page."""
    given = _arguments()
    os.environ["TILECORE_COMPAT_BACKEND"] = given.backend
    os.environ["TILECORE_COMPAT_QUICK"] = "1"
    is_emulated = given.backend != "cpu_llvm"
    os.environ["TILECORE_COMPAT_DEVICE"] = "emulator" if is_emulated else "native"
    import torch

    import tilecore.compat
    from tools.compatibility.child import TESTS_EACH
    from tools.compatibility.document import document
    from tools.compatibility.pool import read_results, run_all
    from tools.compatibility.small_sizes import use_emulator_limits
    from tools.compatibility.vocabulary import load_vocabulary

    assert tilecore.compat.settings.settings.backend == given.backend
    torch.set_num_threads(1)
    load_vocabulary(given.checkout)
    if is_emulated:
        use_emulator_limits()
    with tempfile.TemporaryDirectory() as temporary:
        work = given.keep or Path(temporary)
        root = work / "programs"
        paths = _rewrite(given.checkout, root)
        record = work / "results.jsonl"
        done = read_results(record)
        chosen = [path for start in given.only for path in paths if path.startswith(start)]
        todo = [path for path in dict.fromkeys(chosen) if path not in done]

        def report(result: Any) -> None:
            with record.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(result)) + "\n")
            reason = f": {result.reasons[0]}" if result.reasons else ""
            print(f"{result.state:12} {result.seconds:5.1f} s {result.path}{reason}", flush=True)

        deadline = None if given.minutes is None else time.time() + 60 * given.minutes
        for result in run_all(
            todo,
            root,
            given.checkout.resolve(),
            work,
            jobs=given.jobs,
            limit=given.limit,
            deadline=deadline,
            report=report,
        ):
            done[result.path] = result
    results = [done[path] for path in paths if path in done]
    emulated = {
        name: read_results(Path(folder) / "results.jsonl")
        for name, folder in (one.split("=", 1) for one in given.emulated)
    }
    page = document(
        results,
        total=len(paths),
        commit=_commit(given),
        backend=given.backend,
        limit=given.limit,
        each=TESTS_EACH,
        emulated=emulated,
    )
    given.output.write_text(page, encoding="utf-8")
    print(f"{given.output}: {len(results)} of {len(paths)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
