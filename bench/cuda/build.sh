#!/usr/bin/env bash
# Builds the runner of the CUDA kernels with the toolkit alone: bench/cuda/build.sh [OUTPUT FOLDER].
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/build/cuda_runner}
mkdir -p "$out"
# shellcheck disable=SC2054  # the commas belong to nvcc and the compiler
flags=(-gencode=arch=compute_90a,code=sm_90a -std=c++20 -O3 -I"$root/src" -I"$root/bench/cuda"
       -Werror all-warnings -Xcompiler -Wall,-Wextra)
sources=("$root"/src/kernels/cuda/common/tile_launch.cc "$root"/src/kernels/cuda/{library,matmul,attention}/*.c[cu]
         "$root"/src/kernels/cuda/sampling/sample.cu "$root"/src/kernels/ref/sampling.cc "$root"/src/base/rng.cc
         "$root"/bench/cuda/*.c[cu])
for i in "${!sources[@]}"; do [[ ${sources[i]} != *_test.cc ]] || unset "sources[i]"; done
# shellcheck disable=SC2016  # the inner shell expands them
printf '%s\n' "${sources[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} sh -c '
  source=$1; out=$2; root=$3; shift 3
  nvcc "$@" -c "$source" -o "$out/$(echo "${source#"$root"/}" | tr / _).o"' sh {} "$out" "$root" "${flags[@]}"
objects=()
for source in "${sources[@]}"; do objects+=("$out/$(echo "${source#"$root"/}" | tr / _).o"); done
nvcc -gencode=arch=compute_90a,code=sm_90a "${objects[@]}" -o "$out/runner"
echo "$out/runner"
