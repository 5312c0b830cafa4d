#!/bin/sh
# Everything that an owner of an MI300X can find out for this project, unattended:
#   sh benchmarks/on_mi300x.sh [RESULT.txt]
# Needs a clone of the repository, Python 3.11 or later, ROCm 6.2 or later, and torch for ROCm in the
# environment that runs it (PYTHON names another one; without torch nothing can be measured). What
# else is missing of Python packages goes into .venv-mi300x here, on top of that environment.
# Makes nothing but that folder, the result file and the caches. One file comes out: send it back. It
# says of every step how it ended, and at its end what failed. Takes hours: STEP_SECONDS (7200) ends
# each step, CONFIGS (4) is how many configurations of each problem are measured.
# Exit status: 0 all went well, 1 a step failed (the file says which), 2 there is no device here or no
# way to use it.
set -u
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
result=${1:-mi300x-$(date -u +%Y%m%d-%H%M%S).txt}
case $result in /*) ;; *) result=$(pwd)/$result ;; esac
python=${PYTHON:-python3}
limit=${STEP_SECONDS:-7200}
configs=${CONFIGS:-4}
failed=
sampler=
cd "$here" || exit 1
: >"$result" || exit 1

say() {
  printf '%s\n' "$*" | tee -a "$result"
}
# run NAME COMMAND...: its output goes to the file, how it ended to both.
run() {
  name=$1
  shift
  say "===== $name: $*"
  if command -v timeout >/dev/null 2>&1; then
    timeout -k 60 "$limit" "$@" >>"$result" 2>&1
  else
    "$@" >>"$result" 2>&1
  fi
  status=$?
  say "----- $name: exit status $status"
  [ $status -eq 0 ] || failed="$failed $name"
  return $status
}
# A step without which nothing can be measured.
give_up() {
  tail -n 3 "$result" >&2
  say "NOTHING WAS MEASURED: $1"
  say "result: $result"
  exit 2
}
# show COMMAND...: what the machine says of itself, where it has the command.
show() {
  if command -v "$1" >/dev/null 2>&1; then
    printf '+ %s\n' "$*" >>"$result"
    "$@" >>"$result" 2>&1
  fi
}
# Packages of this repository and what their tests need; hip-python of ROCm's own version.
install() {
  "$python" -m venv --system-site-packages .venv-mi300x || return 1
  python=$here/.venv-mi300x/bin/python
  rocm=$(sed -n 's/^\([0-9]*\.[0-9]*\).*/\1/p' "${ROCM_PATH:-/opt/rocm}/.info/version" 2>/dev/null)
  "$python" -m pip install --quiet "hip-python${rocm:+==$rocm.*}" ||
    "$python" -m pip install --quiet hip-python || return 1
  "$python" -m pip install --quiet -e '.[cli,test]' -e backends/cpu_llvm -e backends/rocm_cdna3 \
    -e kernels -e conformance
}
# Power and clocks while kernels run, every ten seconds, until stopped.
sample() {
  while :; do
    date -u +%H:%M:%S
    rocm-smi --showpower --showclocks --showuse 2>&1 | grep -E 'sclk|Power|use'
    sleep 10
  done
}
stop_sampling() {
  [ -z "$sampler" ] || kill "$sampler" 2>/dev/null
  sampler=
}
trap stop_sampling EXIT
trap 'exit 1' HUP INT TERM

say "tilecore on an MI300X, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
show git rev-parse HEAD
show git status --short
show uname -a
show cat "${ROCM_PATH:-/opt/rocm}/.info/version"
show rocm-smi --showproductname --showdriverversion --showclocks --showpower --showmaxpower --showcomputepartition
show "${ROCM_PATH:-/opt/rocm}/llvm/bin/clang" --version
if ! "$python" -c 'import tilecore_backend_rocm, tilecore_backend_cpu, tilecore_kernels, tilecore_conformance, hypothesis, hip' 2>/dev/null; then
  say "===== install"
  install >>"$result" 2>&1 || give_up "packages could not be installed"
fi
show "$python" -m pip list --disable-pip-version-check
run device "$python" -c '
import sys
from tilecore.hooks.manager import hooks_of, targets_of
(target,) = targets_of("rocm_cdna3")
hooks = hooks_of("rocm_cdna3")
print(hooks.call("tilecore_probe_toolchain", target=target))
device = hooks.call("tilecore_probe_device", target=target)
if device is None:
    sys.exit("no gfx942 device: " + hooks.call("tilecore_explain_absence", target=target))
print(device)' || give_up "no device that this backend runs on"
run torch "$python" -c 'import torch; print(torch.__version__, torch.version.hip, torch.cuda.get_device_name())'
run table "$python" benchmarks/rocm.py --compile-only --configs "$configs"
run backend-tests "$python" -m pytest backends/rocm_cdna3/tests -q
run conformance "$python" -m pytest conformance --backend rocm_cdna3 --level run -q --ignore=conformance/meta_tests
if command -v rocm-smi >/dev/null 2>&1; then
  sample >"$result.samples" 2>&1 &
  sampler=$!
fi
run benchmarks "$python" benchmarks/rocm.py --configs "$configs"
if [ -n "$sampler" ]; then
  stop_sampling
  say "===== power and clocks during the benchmarks"
  cat "$result.samples" >>"$result"
  rm -f "$result.samples"
fi
if [ -n "$failed" ]; then
  say "FAILED STEPS:$failed"
else
  say "all steps went well"
fi
say "result: $result"
[ -z "$failed" ]
