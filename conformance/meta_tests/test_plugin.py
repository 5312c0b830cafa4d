"""The plugin itself: lists with reasons, strict xfails, the matrix, workers, shards, the header."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilecore_conformance.plugin import shard_of

HERE = Path(__file__).parent
SUITE = ["--pyargs", "tilecore_conformance", "-p", "fakes", "-p", "no:cacheprovider"]


def _pytest(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *SUITE, *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HERE), "HOME": str(cwd)},
        capture_output=True,
        text=True,
        timeout=500,
    )


def _write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


HEALTHY = ("--backend", "broken_healthy", "-k", "test_case and fill")
BROKEN = ("--backend", "broken_dropped_tail", "-k", "test_case and fill")


def _cells(text: str, row: str) -> list[str]:
    found = re.search(rf"^  {row} +(.*)$", text, re.MULTILINE)
    assert found is not None, text[-3000:]
    return found.group(1).split()


def test_header_and_matrix(tmp_path: Path) -> None:
    done = _pytest(*HEALTHY, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "broken_healthy-run: broken_healthy/fake" in done.stdout
    assert "device interpreter" in done.stdout
    passed, failed, *_ = _cells(done.stdout, "fill")
    assert int(passed) > 5 and failed == "."


def test_failures_are_counted_and_fail_the_run(tmp_path: Path) -> None:
    done = _pytest(*BROKEN, cwd=tmp_path)
    assert done.returncode == 1
    assert int(_cells(done.stdout, "fill")[1]) > 0


def test_workers_give_the_same_matrix(tmp_path: Path) -> None:
    alone = _pytest(*HEALTHY, cwd=tmp_path)
    shared = _pytest(*HEALTHY, "-n", "2", cwd=tmp_path)
    assert _cells(alone.stdout, "fill") == _cells(shared.stdout, "fill")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fill/*", "has no reason"),
        ("fill/*   #  ", "has no reason"),
        ("fill/no_such_program*  # the reason", "matches no case"),
        ("nowhere/*  # the reason", "matches no case"),
        ("someday:fill/*  # the reason", "unknown level"),
    ],
)
@pytest.mark.parametrize("option", ["--skips-file", "--xfails-file"])
def test_lists_need_reasons_and_matches(
    tmp_path: Path, option: str, line: str, message: str
) -> None:
    done = _pytest(*HEALTHY, option, _write(tmp_path, "list.txt", line + "\n"), cwd=tmp_path)
    assert done.returncode == 4, done.stdout[-2000:]
    assert message in done.stdout + done.stderr


def test_missing_list_is_an_error(tmp_path: Path) -> None:
    done = _pytest(*HEALTHY, "--skips-file", "nowhere.txt", cwd=tmp_path)
    assert done.returncode == 4


def test_skips_and_xfails_are_counted_apart(tmp_path: Path) -> None:
    skips = _write(tmp_path, "s.txt", "# a comment\nfill/*int8*  # shown in the matrix\n")
    xfails = _write(tmp_path, "x.txt", "run:fill/*  # the last element is dropped\n")
    done = _pytest(*BROKEN, "--skips-file", skips, "--xfails-file", xfails, cwd=tmp_path)
    counts = _cells(done.stdout, "fill")
    assert counts[2] != "." and counts[3] != ".", counts


def test_an_xfail_that_passes_fails(tmp_path: Path) -> None:
    xfails = _write(tmp_path, "x.txt", "fill/*  # nothing is wrong with it\n")
    done = _pytest(*HEALTHY, "--xfails-file", xfails, cwd=tmp_path)
    assert done.returncode == 1
    assert int(_cells(done.stdout, "fill")[1]) > 5


def test_unknown_backend_is_a_usage_error(tmp_path: Path) -> None:
    done = _pytest("--backend", "no_such_backend", cwd=tmp_path)
    assert done.returncode == 4
    assert "no backend named" in done.stdout + done.stderr


def test_what_cannot_run_is_not_a_pass(tmp_path: Path) -> None:
    """The interpreter-backed fake has no emulator support: not run, counted apart."""
    done = _pytest(*HEALTHY, "--level", "emulate", cwd=tmp_path)
    assert "NOT RUN: the backend ships no emulator support" in done.stdout
    counts = _cells(done.stdout, "fill")
    assert counts[0] == "." and int(counts[4]) > 5


def _collected(*arguments: str, cwd: Path) -> list[str]:
    done = _pytest(*HEALTHY, "--collect-only", "-q", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout[-3000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_shards_are_the_whole_dealt_out(tmp_path: Path) -> None:
    whole = _collected(cwd=tmp_path)
    parts = [_collected("--shard", f"{number}/3", cwd=tmp_path) for number in (1, 2, 3)]
    assert len(whole) > 6 and parts == [whole[0::3], whole[1::3], whole[2::3]]
    assert _collected("--shard", "1/1", cwd=tmp_path) == whole


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "1/0", "-1/3", "a/b", "1/2/3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected I/N"):
        shard_of(text)


def test_the_command_says_what_it_expects(tmp_path: Path) -> None:
    done = _pytest(*HEALTHY, "--shard", "5/4", cwd=tmp_path)
    assert done.returncode == 4
    assert "expected I/N with 1 <= I <= N" in done.stderr
