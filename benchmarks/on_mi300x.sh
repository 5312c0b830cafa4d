#!/bin/sh
# Everything that an owner of an MI300X can find out for this project, unattended:
#   sh benchmarks/on_mi300x.sh [RESULT.txt]
# Needs Python 3.11 or later, ROCm 6.2 or later with its clang, and torch for ROCm in the environment
# that runs it. Makes nothing but the result file and the caches. One file comes out: send it back.
set -u
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
result=${1:-mi300x-$(date -u +%Y%m%d-%H%M%S).txt}
case $result in /*) ;; *) result=$(pwd)/$result ;; esac
python=${PYTHON:-python3}
cd "$here" || exit 1

section() {
  printf '\n===== %s =====\n' "$1" | tee -a "$result"
}
run() {
  "$@" >>"$result" 2>&1
  status=$?
  printf 'exit status %s: %s\n' "$status" "$*" | tee -a "$result"
}

: >"$result" || exit 1
section "machine"
run uname -a
run rocm-smi --showproductname --showdriverversion
run "$python" -c 'import torch; print(torch.__version__, torch.version.hip, torch.cuda.get_device_name())'
section "what tilecore sees"
run "$python" -c '
from tilecore.hooks.manager import hooks_of, targets_of
for target in targets_of("rocm_cdna3"):
    hooks = hooks_of("rocm_cdna3")
    print(hooks.call("tilecore_probe_device", target=target))
    print(hooks.call("tilecore_probe_toolchain", target=target))'
section "tests of the backend"
run "$python" -m pytest backends/rocm_cdna3/tests -q
section "conformance, on the device"
run "$python" -m pytest conformance --backend rocm_cdna3 --level run -q --ignore=conformance/meta_tests
section "benchmarks beside torch"
run "$python" benchmarks/gpu.py --backend rocm_cdna3 gemm attention rows
section "done"
echo "result: $result"
