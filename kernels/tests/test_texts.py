"""Generated texts depend on the program alone: not on the process, nor on what it did before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tilecore_kernels import FAMILIES

LOWER = """
import hashlib, importlib.util, json, sys
import tilecore
from tilecore.hooks.manager import targets_of
from tilecore_kernels import FAMILIES

spec = importlib.util.spec_from_file_location("families", sys.argv[1])
families = importlib.util.module_from_spec(spec)
spec.loader.exec_module(families)
cases = [
    (family.name, family.build(families.SMALL[family.name][0], target), target)
    for family in FAMILIES.values()
    for backend in ("cpu_llvm", "cuda_ampere", "cuda_hopper", "rocm_cdna3")
    for target in targets_of(backend)[:1]
]
found = {}
for name, program, target in cases[:: int(sys.argv[2])]:
    lowered = tilecore.lower(program, target=target)
    words = [lowered.ir("scheduled"), lowered.source.text, repr(lowered.source.kernels)]
    found[f"{name} {target}"] = [hashlib.sha256(word.encode()).hexdigest() for word in words]
print(json.dumps(found))
"""


def texts(order: int, seed: str) -> dict[str, list[str]]:
    """Digests of what all families become on every backend, lowered in that order."""
    families = str(Path(__file__).with_name("test_families.py"))
    done = subprocess.run(
        [sys.executable, "-c", LOWER, families, str(order)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_texts_do_not_depend_on_the_process_nor_on_earlier_ones() -> None:
    first, second = texts(1, "1"), texts(-1, "2")
    assert len(first) == 4 * len(FAMILIES)
    assert list(first) == list(second)[::-1]
    assert {name for name in first if first[name] != second[name]} == set()
