#!/usr/bin/env bash
# Runs the kernel tests of each instruction-set level that this machine has, from prebuilt test binaries: for
# machines with levels that the build machine lacks.
#
#   tools/test_isa.sh [FOLDER]      FOLDER holds pelton_ops_test and others (default: build/dev/bin)
#
# Needs nothing but the binaries and their shared libraries. The last line is "N passed, N failed, N skipped".
set -uo pipefail

folder=${1:-$(dirname "${BASH_SOURCE[0]}")/../build/dev/bin}
levels=(generic avx2 avx512 amx)
binaries=()
for name in pelton_ops_test pelton_kernels_test; do
  if [[ -x $folder/$name ]]; then binaries+=("$folder/$name"); fi
done
if [[ ${#binaries[@]} -eq 0 ]]; then
  echo "test_isa.sh: no test binary in $folder" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi

grep -m 1 'model name' /proc/cpuinfo
passed=0 failed=0 skipped=0 ran=() lacking=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

number() { # number PATTERN: the count that gtest's summary gives after PATTERN, or 0
  sed -n "s/^\[ *$1 *\] \([0-9]*\) tests\{0,1\}[.,].*/\1/p" "$log" | tail -n 1 | grep . || echo 0
}

for level in "${levels[@]}"; do
  level_run=0 level_failed=0 level_skipped=0
  for binary in "${binaries[@]}"; do
    # Parameters are named by level; "avx2" is no prefix of another level's name.
    "$binary" --gtest_brief=0 --gtest_filter="*/${level}:*/${level}_*" >"$log" 2>&1
    status=$?
    good=$(number PASSED) bad=$(number FAILED) skips=$(number SKIPPED)
    if [[ $status -ne 0 && $bad -eq 0 ]]; then bad=1; fi # it crashed
    if [[ $status -ne 0 ]]; then grep -B 12 'FAILED\|Illegal' "$log" | tail -n 60; fi
    level_run=$((level_run + good)) level_failed=$((level_failed + bad)) level_skipped=$((level_skipped + skips))
  done
  echo "$level: $level_run passed, $level_failed failed, $level_skipped skipped"
  passed=$((passed + level_run)) failed=$((failed + level_failed)) skipped=$((skipped + level_skipped))
  if [[ $((level_run + level_failed)) -gt 0 ]]; then ran+=("$level"); else lacking+=("$level"); fi
done
echo "levels run: ${ran[*]:-none}; levels this machine lacks: ${lacking[*]:-none}"
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
