"""A backend that a stranger wrote, installed as a stranger installs it, compiles and runs programs.

It lives outside of every package of this project and uses only the public hooks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOY = HERE.parent / "toy_backend"

PROGRAM = """
import numpy as np, tilecore, tilecore.language as T

@T.prim_func
def scale_rows(X: T.Tensor((37, 50), "float16"), S: T.Tensor((37,), "float32"),
               Y: T.Tensor((37, 50), "float32")):
    with T.Kernel(T.ceildiv(50, 32), T.ceildiv(37, 16), threads=64) as (bx, by):
        tile = T.alloc_shared((16, 32), "float16")
        out = T.alloc_fragment((16, 32), "float32")
        T.copy(X[by * 16, bx * 32], tile)
        T.fill(out, 1.0)
        for step in T.serial(3):
            for i, j in T.Parallel(16, 32):
                row = T.min(by * 16 + i, 36)
                out[i, j] = out[i, j] * T.if_then_else(step == 1, tile[i, j] * S[row], 1.0)
        T.copy(out, Y[by * 16, bx * 32])

assert "toy_py" in __import__("tilecore.hooks.manager", fromlist=["x"]).installed_backends()
kernel = tilecore.compile(scale_rows, backend="toy_py", out_idx=-1)
x = np.random.default_rng(0).standard_normal((37, 50)).astype("float16")
s = np.random.default_rng(1).standard_normal(37).astype("float32")
y = kernel(x, s)
assert np.allclose(y, x.astype("float32") * s[:, None], rtol=1e-5), abs(y).max()
assert "for bx in range" in kernel.source
try:
    @T.prim_func
    def uses_gemm(A: T.Tensor((16, 16), "float32"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, C)
    tilecore.compile(uses_gemm, backend="toy_py")
except tilecore.errors.UnsupportedError as error:
    assert "toy_py does not know Gemm" in str(error)
else:
    raise AssertionError("the toy has no gemm")
print("right")
"""


def test_plugin_is_small() -> None:
    text = (TOY / "tilecore_backend_toy" / "plugin.py").read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) < 150


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy installed from its own pyproject.toml by pip."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
        "--disable-pip-version-check", "--target", str(folder), str(TOY),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder


def test_installed_toy_compiles_and_runs(site: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    paths = [str(site), *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TILECORE_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True, text=True, check=False, env=environment, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith("right")
