#!/bin/sh
# Everything that an owner of an MI300X can find out for this project, unattended:
#   sh benchmarks/on_mi300x.sh [RESULT.txt]
# Needs Python 3.11 or later, ROCm 6.2 or later, hip-python, and torch for ROCm in the environment
# that runs it (PYTHON names another one). Makes nothing but the result file and the caches. One file
# comes out: send it back. It says of every step how it ended, and at its end what failed.
# Exit status: 0 all went well, 1 a step failed (the file says which), 2 there is no device here.
set -u
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
result=${1:-mi300x-$(date -u +%Y%m%d-%H%M%S).txt}
case $result in /*) ;; *) result=$(pwd)/$result ;; esac
python=${PYTHON:-python3}
limit=${STEP_SECONDS:-7200}
failed=
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
    timeout "$limit" "$@" >>"$result" 2>&1
  else
    "$@" >>"$result" 2>&1
  fi
  status=$?
  say "----- $name: exit status $status"
  [ $status -eq 0 ] || failed="$failed $name"
  return $status
}

say "tilecore on an MI300X, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
git rev-parse HEAD >>"$result" 2>/dev/null
uname -a >>"$result"
if command -v rocm-smi >/dev/null 2>&1; then
  rocm-smi --showproductname --showdriverversion --showclocks --showpower >>"$result" 2>&1
fi
if ! run device "$python" -c '
import sys
from tilecore.hooks.manager import hooks_of, targets_of
(target,) = targets_of("rocm_cdna3")
hooks = hooks_of("rocm_cdna3")
print(hooks.call("tilecore_probe_toolchain", target=target))
device = hooks.call("tilecore_probe_device", target=target)
if device is None:
    sys.exit("no gfx942 device: " + hooks.call("tilecore_explain_absence", target=target))
print(device)'; then
  tail -n 3 "$result" >&2
  say "NOTHING WAS MEASURED: no device that this backend runs on"
  say "result: $result"
  exit 2
fi
run torch "$python" -c 'import torch; print(torch.__version__, torch.version.hip, torch.cuda.get_device_name())'
run backend-tests "$python" -m pytest backends/rocm_cdna3/tests -q
run conformance "$python" -m pytest conformance --backend rocm_cdna3 --level run -q --ignore=conformance/meta_tests
run benchmarks "$python" benchmarks/rocm.py --configs 4
if [ -n "$failed" ]; then
  say "FAILED STEPS:$failed"
else
  say "all steps went well"
fi
say "result: $result"
[ -z "$failed" ]
