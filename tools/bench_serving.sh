#!/usr/bin/env bash
# Serving figures of this machine: what HTTP costs, what idle connections cost, what the prefix cache costs and brings, continuous
# against static batching, and llama-server beside it. Runs are interleaved and medians reported.
#
#   tools/bench_serving.sh [--rows overhead,ttft,idle,prefix,batching,mix,peers] [--pairs N] [--threads N] [--json] [--small MODEL] [--model MODEL]
#
# Builds Pelton's release preset unless PELTON_BIN names a binary, and for the row "peers" once llama-server from the source package of
# llama-cpp-python into build/peers-server (10 minutes on two cores) unless PELTON_LLAMA_SERVER names one.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=build/peers-server
version=0.3.36
say() { printf '%s\n' "$*" >&2; }

build_llama_server() {
  local source=$peers/llama_cpp_python-$version/vendor/llama.cpp
  mkdir -p "$peers"
  if [[ ! -d $source ]]; then
    python3 -m venv "$peers/venv"
    "$peers/venv/bin/pip" download --quiet --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version" -d "$peers" >&2
    tar xzf "$peers/llama_cpp_python-$version.tar.gz" -C "$peers"
  fi
  cmake -S "$source" -B "$peers/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF >&2
  cmake --build "$peers/build" --target llama-server -j "${PELTON_JOBS:-$(nproc)}" >&2
}

if [[ -z ${PELTON_BIN:-} ]]; then
  say "building pelton"
  cmake --preset release >&2
  cmake --build build/release --target pelton >&2
  export PELTON_BIN=$PWD/build/release/bin/pelton
fi

rows=overhead,ttft,idle,prefix,batching,mix,peers
arguments=("$@")
for ((i = 0; i < ${#arguments[@]}; ++i)); do
  if [[ ${arguments[i]} == --rows ]]; then rows=${arguments[i + 1]:-}; fi
done
if [[ ,$rows, == *,peers,* && -z ${PELTON_LLAMA_SERVER:-} ]]; then
  export PELTON_LLAMA_SERVER=$PWD/$peers/build/bin/llama-server
  if [[ ! -x $PELTON_LLAMA_SERVER ]]; then
    say "building llama-server from llama-cpp-python $version (once)"
    build_llama_server
  fi
fi

exec python3 tools/dev/bench_serving.py --rows "$rows" "$@"
