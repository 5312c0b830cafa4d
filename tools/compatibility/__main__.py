"""``python -m tools.compatibility CHECKOUT``: run the programs, write ``docs/compatibility.md``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDERS = ("examples", "testing/python")
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.compatibility", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--commit", help="of the checkout, if git cannot tell")
    parser.add_argument("--tree", help="commit of tilecore, if git cannot tell")
    parser.add_argument(
        "--backend",
        default="cpu_llvm",
        help="cpu_llvm runs; others are emulated, with smaller sizes, unless --native is given",
    )
    parser.add_argument(
        "--native", action="store_true", help="the backend's device is here: run on it"
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], help="paths that begin so, in this order"
    )
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time a file")
    parser.add_argument("--minutes", type=float, help="start no file after that many minutes")
    parser.add_argument("--stop", type=float, help="end what runs then, undecided: minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="keep logs and results there; resume from them")
    parser.add_argument(
        "--show",
        nargs="*",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="only write the page, of the runs that were kept in these folders, in this order",
    )
    parser.add_argument("--output", type=Path, default=PAGE)
    return parser.parse_args()


def _head(folder: Path, *options: str) -> str:
    command = ["git", "-C", str(folder), "rev-parse", *options, "HEAD"]
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


def _place(given: argparse.Namespace) -> str:
    """What runs the programs; known without touching the device, which each process opens."""
    if given.backend == "cpu_llvm":
        return "host"
    if not given.native:
        return "emulator"
    code = (
        "import sys\nfrom tilecore.targets import present_device\n"
        f"found = present_device({given.backend!r})\n"
        "sys.exit('no device') if found is None else print(found[1].name)"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _run(given: argparse.Namespace, work: Path) -> None:
    """Run what is left of the list, and keep it in `work`."""
    started = time.time()
    place = _place(given)
    os.environ["TILECORE_COMPAT_BACKEND"] = given.backend
    os.environ["TILECORE_COMPAT_QUICK"] = "1"
    os.environ["TILECORE_COMPAT_DEVICE"] = "emulator" if place == "emulator" else "native"
    import torch

    from tools.compatibility.pool import Pool, run_all
    from tools.compatibility.runs import begin, keep
    from tools.compatibility.small_sizes import use_emulator_limits
    from tools.compatibility.vocabulary import load_vocabulary

    torch.set_num_threads(1)
    load_vocabulary(given.checkout)
    if place == "emulator":
        use_emulator_limits()
    root = work / "programs"
    paths = _rewrite(given.checkout, root)
    done = begin(work, given.backend, place, given.limit)
    chosen = [path for start in given.only for path in paths if path.startswith(start)]
    tree = given.tree or _head(ROOT, "--short")

    def after(minutes: float | None) -> float | None:
        return None if minutes is None else started + 60 * minutes

    for result in run_all(
        [path for path in dict.fromkeys(chosen) if path not in done],
        Pool(root, given.checkout.resolve(), work, given.limit),
        jobs=given.jobs,
        deadline=after(given.minutes),
        stop=after(given.stop),
    ):
        result.tree, result.limit = tree, given.limit
        keep(work, result)
        reason = f": {result.reasons[0]}" if result.reasons else ""
        print(f"{result.state:12} {result.seconds:5.1f} s {result.path}{reason}", flush=True)


def main() -> int:
    """Run, print one line for each file, and write the page."""
    given = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.keep or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        if not given.show:
            _run(given, work)
        from tools.compatibility.child import TESTS_EACH
        from tools.compatibility.document import document
        from tools.compatibility.runs import read_run

        runs = [read_run(folder) for folder in given.show or [work]]
    commit = given.commit or _head(given.checkout)
    given.output.write_text(document(runs, commit=commit, each=TESTS_EACH), encoding="utf-8")
    print(f"{given.output}: {', '.join(f'{len(run.results)} files {run.title}' for run in runs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
