"""Where a program's text comes from: files that change, cells, prompts, text without a file."""

from __future__ import annotations

import importlib.util
import linecache
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilecore
from tilecore.errors import LanguageError

FILE = """
import tilecore.language as T


@T.prim_func
def {name}(A: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=4) as _:
        for i in T.Parallel(4):
            A[i] = A[i] * 2


def make(factor):
    @T.prim_func
    def inner(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4) as _:
            for i in T.Parallel(4):
                A[i] = A[i] * 2 + factor
    return inner
"""


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(function: Any, device: str = "reference") -> list[int]:
    array = np.arange(4, dtype=np.int32)
    tilecore.compile(function, device=device)(array)
    return array.tolist()


def module(tmp_path: Path, name: str = "main") -> tuple[Path, Any]:
    path = tmp_path / "program.py"
    path.write_text(FILE.format(name=name))
    return path, imported(path)


Edit = Callable[[str], str]
OF_ITS_BODY: dict[str, Edit] = {
    "another constant": lambda text: text.replace("* 2", "* 3"),
    "another operator": lambda text: text.replace("* 2", "- 2"),
    "another place": lambda text: "\n" + text,
    "no function any more": lambda text: text.replace("@T.prim_func\n", "").replace("def", "x ="),
    "nothing any more": lambda text: "",
}
ELSEWHERE: dict[str, Edit] = {
    "nothing": lambda text: text,
    "lines behind it": lambda text: text + "\nx = 3\n",
    "a comment in it": lambda text: text.replace(
        "for i in T.Parallel(4):", "for i in T.Parallel(4):  # all"
    ),
    "another function": lambda text: text.replace("A[i] * 2\n", "A[i] * 3\n"),
}


@pytest.mark.parametrize("edit", OF_ITS_BODY.values(), ids=OF_ITS_BODY)
def test_a_function_that_was_edited_since_its_import_is_refused(edit: Edit, tmp_path: Path) -> None:
    """Its new text is not what was imported. What was traced at the import stays as it was."""
    path, program = module(tmp_path)
    path.write_text(edit(path.read_text()))
    with pytest.raises(LanguageError, match=r"has\s+changed|is not available"):
        program.make(1)
    assert result(program.main) == [0, 2, 4, 6]


@pytest.mark.parametrize("edit", ELSEWHERE.values(), ids=ELSEWHERE)
def test_edits_elsewhere_do_no_harm(edit: Edit, tmp_path: Path) -> None:
    path, program = module(tmp_path)
    path.write_text(edit(path.read_text()))
    assert result(program.make(1)) == [1, 3, 5, 7]
    assert result(program.main) == [0, 2, 4, 6]


def test_a_file_imported_again_after_an_edit_gives_the_new_kernel(tmp_path: Path) -> None:
    path, program = module(tmp_path)
    assert result(program.make(0)) == [0, 2, 4, 6]
    path.write_text(FILE.format(name="main").replace("* 2", "* 5"))
    again = imported(path)
    assert result(again.main) == result(again.make(0)) == [0, 5, 10, 15]
    assert result(program.main) == [0, 2, 4, 6]


def test_a_deleted_file_is_refused(tmp_path: Path) -> None:
    path, program = module(tmp_path)
    path.unlink()
    with pytest.raises(LanguageError, match="source of inner is not available"):
        program.make(1)
    assert result(program.main) == [0, 2, 4, 6]


def test_a_notebook_cell_is_its_own_file() -> None:
    """As notebooks do it: the text is only in `linecache`, for good."""
    text, name = FILE.format(name="main"), "<cell 1>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec", dont_inherit=True), names)
    assert result(names["main"]) == [0, 2, 4, 6]
    assert result(names["make"](1)) == [1, 3, 5, 7]


PROMPT = """
import numpy, tilecore
import tilecore.language as T
from tilecore.errors import LanguageError
x = numpy.arange(4, dtype="int32")
try:
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4) as _:
            for i in T.Parallel(4):
                A[i] = A[i] * 2
    tilecore.compile(main, device="reference")(x)
except LanguageError as error:
    print("refused:", error)

print(x.tolist())
"""


@pytest.mark.parametrize("way", ["-c", "-i", "exec"])
def test_text_without_a_file_is_refused_or_runs(way: str) -> None:
    """Newer interpreters keep what they were given; others are told what to do."""
    program = f"exec({PROMPT!r}, {{'__name__': '__main__'}})" if way == "exec" else PROMPT
    command, given = (["-i"], program) if way == "-i" else (["-c", program], None)
    done = subprocess.run(
        [sys.executable, *command], input=given, capture_output=True, text=True, check=False
    )
    words = ("refused: ", "source of main is not available", "[0, 1, 2, 3]")
    assert "[0, 2, 4, 6]" in done.stdout or all(word in done.stdout for word in words), done


@pytest.mark.parametrize("name", ["k" * 5000, "größe" * 60])
def test_very_long_names(name: str, tmp_path: Path) -> None:
    """Longer than a file's name may be."""
    _, program = module(tmp_path, name)
    function = getattr(program, name)
    assert result(function) == [0, 2, 4, 6]
    for backend, device in (("cpu_llvm", "native"), ("cuda_ampere", "emulator")):
        array = np.arange(4, dtype=np.int32)
        tilecore.compile(function, backend, device=device)(array)
        assert array.tolist() == [0, 2, 4, 6]


PYTEST_FILE = """
import numpy as np
import tilecore
import tilecore.language as T


@T.macro
def scaled(x, factor):
    assert factor in (2, 3), "one of two"
    return x * factor


@tilecore.jit
def make(factor: int):

    @T.prim_func
    def inner(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4) as _:
            for i in T.Parallel(4):
                A[i] = scaled(A[i], factor)

    return inner


def test_makes():
    a = np.arange(4, dtype=np.int32)
    make(3)(a)
    assert a.tolist() == [0, 3, 6, 9]
"""


def test_a_test_file_whose_asserts_are_rewritten_is_what_was_imported(tmp_path: Path) -> None:
    """A new file of tests is younger than the process, and pytest compiles it in its own way."""
    path = tmp_path / "test_fresh.py"
    path.write_text(PYTEST_FILE)
    code = (
        "import time, sys, tilecore.language, pytest, pathlib; time.sleep(0.05)\n"
        "p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text())\n"
        "sys.exit(pytest.main([str(p), '-q', '-p', 'no:cacheprovider', '-c', '/dev/null']))"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
