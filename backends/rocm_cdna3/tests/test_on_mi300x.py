"""The script for owners of the device: what it leaves behind, with a stand-in for what it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilecore.hooks.manager import targets_of
from tilecore_backend_rocm.device import probe_device

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "benchmarks" / "on_mi300x.sh"
STEPS = ["device", "torch", "table", "backend-tests", "conformance", "benchmarks"]

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the repository's script is elsewhere")

STAND_IN = """#!/bin/sh
printf '%s\\n' "$*" | head -n 1 >>"$LOG"
echo "ran: $1 $2 $3"
case "$*" in *"$FAILS"*) exit 7 ;; esac
exit 0
"""


def executable(path: Path, text: str) -> Path:
    """A program of that text, there."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def is_running(pid: str) -> bool:
    """A process that ended stays listed where nothing collects orphans."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def run(tmp_path: Path, fails: str, **more: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """(the finished script, its result file), Python replaced by a program that only records."""
    python = executable(tmp_path / "python", STAND_IN)
    result = tmp_path / "result.txt"
    environment = {
        **os.environ, "PYTHON": str(python), "LOG": str(tmp_path / "log"), "FAILS": fails, **more,
    }  # fmt: skip
    done = subprocess.run(
        ["sh", str(SCRIPT), str(result)], env=environment, capture_output=True, text=True,
        check=False, cwd=tmp_path, timeout=500,
    )  # fmt: skip
    return done, result.read_text()


def skip_where_a_device_is() -> None:
    """There the script would run this test again, and so on."""
    if probe_device(targets_of("rocm_cdna3")[0]) is not None:
        pytest.skip("there is an MI300X here")


def test_all_steps_run_and_are_told(tmp_path: Path) -> None:
    done, text = run(tmp_path, "nothing fails")
    assert done.returncode == 0 and "all steps went well" in text
    found = [line.split()[1].rstrip(":") for line in text.splitlines() if line.startswith("=====")]
    assert found == STEPS
    log = (tmp_path / "log").read_text()
    assert "conformance --backend rocm_cdna3 --level run" in log and "benchmarks/rocm.py" in log
    assert str(tmp_path / "result.txt") in done.stdout


@pytest.mark.parametrize(
    ("fails", "step"), [("--level run", "conformance"), ("rocm.py --configs", "benchmarks"),
                        ("import torch", "torch"), ("--compile-only", "table")],
)  # fmt: skip
def test_a_failed_step_is_named_and_the_others_still_run(
    tmp_path: Path, fails: str, step: str
) -> None:
    done, text = run(tmp_path, fails)
    assert done.returncode == 1 and f"FAILED STEPS: {step}\n" in text
    assert f"----- {step}: exit status 7" in text and "all steps went well" not in text
    assert [s for s in STEPS if f"===== {s}:" in text] == STEPS


def test_without_a_device_nothing_is_measured(tmp_path: Path) -> None:
    done, text = run(tmp_path, "tilecore_probe_device")
    assert done.returncode == 2 and "NOTHING WAS MEASURED" in text
    assert "===== conformance" not in text


def test_missing_packages_are_installed_or_nothing_is_measured(tmp_path: Path) -> None:
    done, text = run(tmp_path, "import tilecore_backend_rocm")
    log = (tmp_path / "log").read_text()
    assert "-m venv --system-site-packages .venv-mi300x" in log
    assert done.returncode == 2 and "packages could not be installed" in text
    assert "===== device" not in text


def test_power_and_clocks_are_sampled_while_kernels_run(tmp_path: Path) -> None:
    shows = "#!/bin/sh\necho 'GPU[0] : sclk clock level: 1 (1234Mhz)'\n"
    executable(tmp_path / "rocm-smi", shows)
    until = f"until grep -q Mhz '{tmp_path}/result.txt.samples'; do sleep 0.1; done"
    waits = f'#!/bin/sh\ncase "$*" in *rocm.py\\ --configs*) {until} ;; esac\n'
    done, text = run(
        tmp_path, "nothing fails", PYTHON=str(executable(tmp_path / "waits", waits)),
        PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    )  # fmt: skip
    assert done.returncode == 0
    assert "(1234Mhz)" in text.split("power and clocks during the benchmarks")[1]
    assert not list(tmp_path.glob("*.samples"))


def test_an_interrupted_run_leaves_no_sampler(tmp_path: Path) -> None:
    """The file so far stays; nothing goes on running."""
    executable(tmp_path / "rocm-smi", "#!/bin/sh\necho 'sclk'\n")
    until = f"until [ -e '{tmp_path}/go_on' ]; do sleep 0.1; done"
    waits = f'#!/bin/sh\ncase "$*" in *rocm.py\\ --configs*) {until} ;; esac\n'
    slow = executable(tmp_path / "python", waits)
    result = tmp_path / "result.txt"
    environment = {**os.environ, "PYTHON": str(slow), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen(["sh", str(SCRIPT), str(result)], env=environment, cwd=tmp_path,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    samples = Path(f"{result}.samples")
    while process.poll() is None and not (samples.exists() and samples.read_text()):
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    before = children.read_text().split() if children.exists() else []
    process.terminate()
    (tmp_path / "go_on").touch()  # a shell looks at signals when its command has ended
    process.wait()
    assert process.returncode != 0 and "===== benchmarks" in result.read_text()
    assert before
    while any(is_running(pid) for pid in before):  # until the test's time limit
        time.sleep(0.1)


def test_without_rocm_the_reason_is_in_the_file(tmp_path: Path) -> None:
    """With this very interpreter."""
    skip_where_a_device_is()
    done, text = run(tmp_path, "", PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 2 and "no gfx942 device: " in text and "NOTHING WAS MEASURED" in text
    assert "no gfx942 device: " in done.stderr


def test_the_benchmark_says_what_is_missing() -> None:
    skip_where_a_device_is()
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "rocm.py"), "fp8"], capture_output=True,
        text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 2 and "nothing was measured" in done.stderr
