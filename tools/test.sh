#!/usr/bin/env bash
# Installs what tests need and runs all of them. Asks nothing; the last line is "N passed, N failed, N skipped".
#
#   tools/test.sh           everything: checks, unit tests, black-box tests, sanitizers, fuzz targets
#   tools/test.sh --quick   checks, unit tests and black-box tests only
#   tools/test.sh --long    everything, with every injected failure, 10 minutes of chaos on one server and 10 a fuzz
#                           target, and the thread sanitizer over a whole server
#   tools/test.sh --cuda    everything, and all CUDA code: its build, and the tests that need no GPU; skipped where
#                           there is no toolkit
#
# Logs are in build/logs. PELTON_MODELS is extended by ./models (where smollm2-135m is fetched to) and, where it
# exists, ../shared/models; a test that then misses a model fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

quick=0 long=0 cuda=0
for argument in "$@"; do
  case $argument in
    --quick) quick=1 ;;
    --long) long=1 ;;
    --cuda) cuda=1 ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
    *) echo "test.sh: unknown option $argument" >&2; exit 2 ;;
  esac
done

jobs=$(nproc)
started=$SECONDS
passed=0 failed=0 skipped=0
logs=build/logs
mkdir -p "$logs"
# Hits from any folder, and for what uses precompiled headers.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
# Property tests draw the same cases every time.
export RC_PARAMS=seed=7

say() { printf '[%5d s] %s\n' $((SECONDS - started)) "$*"; }

# Runs a command with its output in a log; on failure shows the log's end.
logged() { # logged LOG COMMAND...
  local log=$logs/$1.log status
  shift
  "$@" >"$log" 2>&1
  status=$?
  if [[ $status -ne 0 ]]; then
    tail -n 60 "$log"
    say "failed ($status): $* (all of it in $log)"
  fi
  return $status
}

count() { # count PASSED FAILED SKIPPED
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# A step that is one test: it passes or fails as a whole.
single() { # single LOG COMMAND...
  say "$1"
  if logged "$@"; then count 1 0 0; else count 0 1 0; return 1; fi
}

build() { # build PRESET FOLDER
  say "$1: build"
  logged "$1-configure" cmake --preset "$1" && logged "$1-build" cmake --build "build/$2" --parallel "$jobs"
  local status=$?
  [[ $status -eq 0 ]] || count 0 1 0
  return $status
}

# Adds ctest's figures; a run without one test counts as a failure.
run_ctest() { # run_ctest PRESET JOBS [CTEST OPTIONS...]
  local preset=$1 log=$logs/$1-ctest.log total bad skips width=$2
  shift 2
  say "$preset: tests"
  (cd "build/$preset" && ctest --parallel "$width" --output-on-failure --no-tests=error "$@") >"$log" 2>&1
  local status=$?
  read -r bad total < <(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of \([0-9]*\).*/\1 \2/p' "$log")
  skips=$(grep -c '\*\*\*Skipped' "$log")
  if [[ -z ${total:-} ]]; then
    tail -n 40 "$log"
    count 0 1 0
    return
  fi
  count $((total - bad - skips)) "$bad" "$skips"
  if [[ $status -ne 0 ]]; then
    [[ $bad -gt 0 ]] || count 0 1 0
    grep -A 40 -m 3 'FAILED\|ERROR: AddressSanitizer\|runtime error\|WARNING: ThreadSanitizer' "$log"
    sed -n '/The following tests FAILED/,$p' "$log"
  fi
  say "$preset: $total tests, $bad failed, $skips skipped"
}

run_pytest() { # run_pytest NAME PRESET TESTS...
  local name=$1 preset=$2 log=$logs/${1// /-}.log n word
  shift 2
  say "$name"
  if [[ ! -x build/$preset/bin/pelton ]]; then
    say "$name: build/$preset/bin/pelton was not built"
    count 0 1 0
    return
  fi
  if ! { [[ -x .venv/bin/python ]] || logged venv python3 -m venv .venv; } ||
    ! logged venv-install .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
      -r tests/requirements.txt; then
    count 0 1 0
    return
  fi
  PELTON_BINARY=$PWD/build/$preset/bin/pelton .venv/bin/python -m pytest -q -rs "$@" >"$log" 2>&1
  local status=$?
  [[ $status -eq 0 ]] || cat "$log"
  local good=0 bad=0 skips=0
  while read -r n word; do
    case $word in
      passed) good=$n ;;
      failed | error | errors) bad=$((bad + n)) ;;
      skipped) skips=$n ;;
    esac
  done < <(tail -n 1 "$log" | grep -oE '[0-9]+ (passed|failed|errors?|skipped)')
  if [[ $status -ne 0 && $bad -eq 0 ]]; then bad=1; fi
  count "$good" "$bad" "$skips"
  say "$name: $good passed, $bad failed, $skips skipped"
}

# One target for a while on a copy of its kept corpus, so that the repository does not grow.
fuzz_target() { # fuzz_target TARGET SECONDS
  local name=${1##*/fuzz_} options
  options=(-max_total_time="$2" -rss_limit_mb=2048 -timeout=20 -artifact_prefix="build/fuzz/findings/$name-" -print_final_stats=1)
  if [[ -f fuzz/$name.dict ]]; then options+=("-dict=fuzz/$name.dict"); fi
  rm -rf "build/fuzz/$name" && mkdir -p "build/fuzz/$name"
  logged "fuzz-$name" "$1" "${options[@]}" "build/fuzz/$name" "fuzz/corpus/$name"
}

# As many targets at a time as there are cores.
run_fuzz() { # run_fuzz SECONDS
  local target name running=() found=0
  mkdir -p build/fuzz/findings
  collect() {
    if wait "${running[0]}"; then count 1 0 0; else count 0 1 0; fi
    running=("${running[@]:1}")
  }
  for target in build/asan-ubsan/bin/fuzz_*; do
    [[ -x $target ]] || continue
    name=${target##*/fuzz_}
    found=1
    if [[ ! -d fuzz/corpus/$name ]]; then
      say "fuzz $name: fuzz/corpus/$name is missing"
      count 0 1 0
      continue
    fi
    say "fuzz-$name"
    fuzz_target "$target" "$1" &
    running+=($!)
    if [[ ${#running[@]} -ge $jobs ]]; then collect; fi
  done
  while [[ ${#running[@]} -gt 0 ]]; do collect; done
  if [[ $found -eq 0 ]]; then
    say "fuzz: no target was built"
    count 0 1 0
  fi
}

# The oldest toolkit that the device code is written for.
least_cuda=13

# Why no CUDA code can be built here; nothing where it can.
cuda_missing() {
  local nvcc release
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [[ -x $nvcc ]] || { echo "no nvcc"; return; }
  release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  [[ ${release:-0} -ge $least_cuda ]] || echo "$nvcc is of CUDA ${release:-?}, $least_cuda is needed"
}

# Machines without a GPU run what chooses and plans, and the engine on a device that is not there.
run_cuda() {
  local missing
  missing=$(cuda_missing)
  if [[ -n $missing ]]; then
    say "cuda: skipped: $missing"
    count 0 0 1
    return
  fi
  build cuda-test cuda-test || return
  run_ctest cuda-test "$jobs" --tests-regex 'Cuda|Device|Choose|Mirror|Uploader|GraphCache|LibraryTest'
  [[ -x .venv/bin/python ]] || return
  single cuda-command-line env PELTON_BINARY="$PWD/build/cuda-test/bin/pelton" .venv/bin/python -m pytest -q -rs \
    tests/e2e/test_faults.py tests/e2e/test_refusals.py -k 'gpu or cuda'
}

finish() {
  say "done"
  echo "$passed passed, $failed failed, $skipped skipped"
  [[ $failed -eq 0 ]]
  exit
}

say "packages"
if ! tools/install_packages.sh test; then
  count 0 1 0
  finish
fi

single check-layers python3 tools/dev/check_layers.py
single check-files python3 tools/dev/check_files.py
single check-format tools/dev/check_format.sh
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
single check-shell shellcheck -x "${scripts[@]}"

PELTON_MODELS=$PWD/models${PELTON_MODELS:+:$PELTON_MODELS}
if [[ -d ../shared/models ]]; then PELTON_MODELS+=:$(realpath ../shared/models); fi
export PELTON_MODELS PELTON_REQUIRE_MODELS=1
single fetch-model tools/fetch_model.sh smollm2-135m

if [[ $long -eq 1 ]]; then export PELTON_LONG_TESTS=1; fi
if build dev dev; then
  single check-commands python3 tools/dev/make_commands.py build/dev/bin/pelton --check
  run_ctest dev "$jobs"
  # These wait a third of their time for servers and time limits: the next tree is compiled in it, at the lowest priority.
  ahead=
  if [[ $quick -eq 0 ]]; then
    { cmake --preset asan-ubsan && nice -n 19 cmake --build build/asan-ubsan --parallel "$jobs"; } >"$logs/ahead.log" 2>&1 &
    ahead=$!
  fi
  run_pytest "black-box tests" dev tests/e2e tools/dev
  if [[ -n $ahead ]]; then
    say "asan-ubsan: rest of the build"
    wait "$ahead"
  fi
fi
if [[ $quick -eq 1 ]]; then finish; fi

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tools/dev/lsan.supp:print_suppressions=0
# Tests labelled slow repeat, on large inputs, what others already cover; sanitizers leave them out.
if build asan-ubsan asan-ubsan; then
  run_ctest asan-ubsan "$jobs" --label-exclude slow
  run_pytest "chaos under the address sanitizer" asan-ubsan tests/e2e/test_chaos.py -k "tight-1-30 or cut_at or deadlock"
  if [[ $long -eq 1 ]]; then run_fuzz 600; else run_fuzz 20; fi
fi
tsan=tsan
if [[ $long -eq 1 ]]; then tsan="tsan-server"; fi
if build "$tsan" "$tsan"; then run_ctest "$tsan" 1 --label-exclude slow; fi
if [[ $cuda -eq 1 ]]; then run_cuda; fi
finish
