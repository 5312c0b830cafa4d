"""The acceptance list: what is run, what counts as portable, and how the page shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.compatibility.document import document
from tools.compatibility.families import FAMILIES, in_family
from tools.compatibility.pool import Result, summarise
from tools.compatibility.runs import Run, begin, keep, read_run
from tools.compatibility.verdict import FAIL, NOT_PORTABLE, PASS, TIME, TOO_LARGE

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
import torch
import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=[-1])
def scaled(n, by):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] * by
    return main

def main(seq_len=4096, by=2):
    a = torch.randn(seq_len, device="cuda")
    assert a.numel() == 256
    torch.testing.assert_close(scaled(seq_len, by)(a), a * 2)
"""

PROGRAMS = {
    "examples/gemm_sp/right.py": KERNEL + "if __name__ == '__main__':\n    main()\n",
    "examples/norm/wrong.py": KERNEL + "if __name__ == '__main__':\n    main(by=3)\n",
    "examples/norm/foreign.py": "import tilelang.language as T\nT.alloc_tmem([1], 'float32')\n",
    "examples/norm/lone.py": "import no_such_package\nprint(1)\n",
    "examples/norm/parts.py": KERNEL,
    "examples/norm/endless.py": KERNEL + "for _ in iter(int, 1):\n    pass\n",
    "testing/python/test_some.py": """
import tilelang.testing
from examples.norm.parts import main

def test_right():
    main()

@tilelang.testing.requires_cuda_compute_version_ge(10, 0)
def test_newer():
    main(by=3)
""",
    "tilelang/language/common.py": "def copy(): ...\n",
}


@pytest.mark.slow
def test_a_checkout_is_run_and_shown(tmp_path: Path) -> None:
    """Files pass, fail, end at the limit, or are not portable, each with its reason."""
    pytest.importorskip("torch")
    checkout = tmp_path / "checkout"
    for name, text in PROGRAMS.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    command = [sys.executable, "-m", "tools.compatibility", str(checkout), "--commit", "abc"]
    folder, page = tmp_path / "kept", tmp_path / "page.md"
    options = ["--keep", str(folder), "--output", str(page), "--tree", "def", "--limit", "40"]
    environment = {**os.environ, "TILECORE_CACHE_DIR": str(tmp_path / "cache")}
    for _again in range(2):  # what was decided is not run again
        done = subprocess.run(
            [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    run = read_run(folder)
    assert (run.backend, run.place, run.limit) == ("cpu_llvm", "host", 40)
    assert {path: one.state for path, one in run.results.items()} == {
        "examples/gemm_sp/right.py": PASS,
        "examples/norm/wrong.py": FAIL,
        "examples/norm/foreign.py": NOT_PORTABLE,
        "examples/norm/lone.py": NOT_PORTABLE,
        "examples/norm/parts.py": "no program",
        "examples/norm/endless.py": TIME,
        "testing/python/test_some.py": PASS,
    }
    lines = (folder / "results.jsonl").read_text().splitlines()
    assert len(lines) == len(run.results)
    assert run.results["examples/norm/lone.py"].reasons == ["needs the package no_such_package"]
    text = page.read_text()
    assert "| `cpu_llvm` host | 7 | 4 | 2 | 1 | 1 | 0 | **50.0%** |" in text
    assert "| `right.py` | pass |  |" in text and "`def` (4)" in text
    assert "needs compute capability >= 10.0" in text


def _run(backend: str, place: str, *results: Result) -> Run:
    return Run(backend, place, 40, ("einops",), {one.path: one for one in results})


def test_the_page_has_a_column_for_each_run_and_a_reason_for_each_failure() -> None:
    path = "examples/convolution/example_convolution.py"
    other = "examples/flash_decoding/example_mha_inference.py"
    host = _run("cpu_llvm", "host", Result(path, PASS, {PASS: 1}), Result(other, PASS, {PASS: 1}))
    device = _run(
        "cuda_hopper",
        "some device",
        Result(path, FAIL, {PASS: 2, FAIL: 1}, ["a | b", "two", "three", "four"], tree="abc"),
        Result(other, TOO_LARGE, {TOO_LARGE: 1}, ["4 bytes"]),
    )
    text = document([host, device], commit="123", each=2)
    assert "| `cpu_llvm` host | 2 | 2 | 2 | 0 | 0 | 0 | **100.0%** |" in text
    assert "| `cuda_hopper` some device | 2 | 1 | 0 | 1 | 0 | 1 | **0.0%** |" in text
    assert "| convolution | 1/1 | 0/1 |" in text
    assert "| flash decoding | 1/1 |  (1 too large) |" in text
    row = next(line for line in text.splitlines() if line.startswith("| `example_convolution.py`"))
    assert row == ("| `example_convolution.py` | pass | fail 2/3 | a \\| b; two; three; 1 more |")
    assert "| `cuda_hopper` some device | 2 of 3 | einops | `abc` (1) |" in text


def test_runs_are_kept_and_resumed(tmp_path: Path) -> None:
    assert begin(tmp_path, "cpu_llvm", "host", 40) == {}
    keep(tmp_path, Result("a.py", PASS, {PASS: 1}, tree="abc"))
    keep(tmp_path, Result("b.py", FAIL, {FAIL: 1}, ["why"], tree="def"))
    done = begin(tmp_path, "cpu_llvm", "host", 40)
    assert done["b.py"].reasons == ["why"]
    run = read_run(tmp_path)
    assert run.portable() == 2 and run.tests(PASS) == 1
    assert run.trees() == {"abc": 1, "def": 1}


@pytest.mark.parametrize(
    ("rows", "stopped", "state"),
    [
        ([{"planned": 2}, {"name": "a", "state": PASS, "reason": ""}], False, PASS),
        ([{"planned": 2}, {"name": "a", "state": PASS, "reason": ""}], True, TIME),
        ([{"name": "a", "state": NOT_PORTABLE, "reason": "r"}], False, NOT_PORTABLE),
        ([{"planned": 0}], False, "no program"),
        ([], False, FAIL),
    ],
)
def test_a_file_has_the_worst_state_of_its_tests(
    rows: list[dict[str, object]], stopped: bool, state: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = summarise("a.py", out, 1.0, stopped=stopped, limit=5)
    assert result.state == state
    assert result.state == PASS or result.reasons


def test_every_family_matches_the_files_it_is_named_after() -> None:
    examples = {
        "flash attention, forward": "flash_attention/example_mha_fwd_bshd.py",
        "flash attention, backward": "flash_attention/example_gqa_bwd.py",
        "flash attention, variable lengths": "flash_attention/example_gqa_fwd_varlen.py",
        "grouped queries": "flash_attention/example_gqa_fwd_bshd.py",
        "flash decoding": "flash_decoding/example_mha_inference.py",
        "attention sinks, sliding windows": "attention_sink/example_mha_sink_fwd_bhsd.py",
        "latent attention, decoding": "deepseek_mla/example_mla_decode.py",
        "DeepGEMM fp8": "deepseek_deepgemm/example_deepgemm_fp8_2xAcc.py",
        "dynamic shapes": "dynamic_shape/example_dynamic.py",
        "dequantised products": "dequantize_gemm/example_dequant_gemm_w4a8.py",
        "block-sparse": "blocksparse_gemm/example_blocksparse_gemm.py",
        "2:4 sparse products": "gemm_sp/example_gemm_sp.py",
        "linear attention": "linear_attention/example_retention_fwd.py",
        "convolution": "convolution/example_convolution.py",
    }
    assert examples.keys() == FAMILIES.keys()
    for name, path in examples.items():
        assert in_family(name, f"examples/{path}")
