#!/usr/bin/env bash
# Builds, tests and measures the CUDA backend on a machine with an H200; each part is bounded by 8 minutes, and a
# part that is done is not done again. Kernel parts need the CUDA toolkit alone; the others the programs of a `cuda`
# preset build, which may come from another machine.
#
#   tools/gpu.sh [--parts LIST] [--rows LIST] [--bin FOLDER] [--out FOLDER] [--again]
#
#   --parts  of: build check memcheck racecheck tests kernels table (default: all, in this order)
#   --rows   rows of the table, by the beginnings of their names (see tools/dev/gpu_table.py)
#   --bin    the preset's programs (default: build/cuda/bin)
#   --out    results, as JSON and logs (default: build/gpu)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

parts=build,check,memcheck,racecheck,tests,kernels,table rows="" bin=build/cuda/bin out=build/gpu again=0
while [[ $# -gt 0 ]]; do
  case $1 in
    --parts | --rows | --bin | --out)
      [[ $# -ge 2 ]] || { echo "gpu.sh: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"; shift 2 ;;
    --again) again=1; shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
    *) echo "gpu.sh: unknown option $1" >&2; exit 2 ;;
  esac
done
mkdir -p "$out"
runner=$out/runner/runner
failed=0

part() { # part NAME COMMAND...: its log and, when it succeeded, its mark
  local name=$1 started=$SECONDS status
  shift
  [[ ",$parts," == *",$name,"* ]] || return 0
  if [[ -e $out/$name.done && $again -eq 0 ]]; then echo "$name: done before"; return 0; fi
  rm -f "$out/$name.done"
  timeout --kill-after=10 480 "$@" >"$out/$name.log" 2>&1
  status=$?
  if [[ $status -eq 0 ]]; then
    echo "$name: ok, $((SECONDS - started)) s"
    touch "$out/$name.done"
  else
    failed=1
    tail -n 25 "$out/$name.log"
    echo "$name: failed ($status) after $((SECONDS - started)) s; all of it in $out/$name.log"
  fi
}

# shellcheck disable=SC2317  # called through bash -c
device_tests() { # every unit test program, its tests that use the device
  local program status=0
  for program in "$bin"/pelton_*_test; do
    [[ -x $program ]] || { echo "no test programs in $bin"; return 1; }
    "$program" --gtest_filter='*Cuda*:*Device*' --gtest_brief=1 || { echo "failed: $program"; status=1; }
  done
  return "$status"
}
export -f device_tests
export bin

# The kernels before the table, which shows their rows and takes its ceilings from them.
part build bench/cuda/build.sh "$out/runner"
part check "$runner" --check
part memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$runner" --check --quick
part racecheck compute-sanitizer --tool racecheck --error-exitcode 9 "$runner" --check --quick
part tests bash -c device_tests
part kernels "$runner" --bench --json "$out/kernels.json"
if [[ ",$parts," == *,table,* ]]; then
  options=()
  [[ $again -eq 0 ]] || options+=(--again)
  python3 tools/dev/gpu_table.py --pelton "$bin/pelton" --out "$out/rows" --kernels "$out/kernels.json" --rows "$rows" \
    "${options[@]}" | tee "$out/table.txt"
  [[ ${PIPESTATUS[0]} -eq 0 ]] || failed=1
fi
exit "$failed"
