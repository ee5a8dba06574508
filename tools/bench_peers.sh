#!/usr/bin/env bash
# Pelton beside llama.cpp: same files, threads and machine, runs interleaved, ratios of medians.
#
#   tools/bench_peers.sh [--json] [--threads N] [--pairs N] [--prompt N] [--decode N] [--batch 1,4,16] [--depth N] [MODEL.gguf ...]
#
# Without models: all GGUF files in the folders of PELTON_MODELS. Builds Pelton's release preset, and once llama-cpp-python from its
# source package into build/peers (10 to 15 minutes on two cores), tuned for this processor.
set -euo pipefail
cd "$(dirname "$0")/.."

peers=${PELTON_PEERS_VENV:-build/peers}
version=0.3.36
say() { printf '%s\n' "$*" >&2; }

if ! "$peers/bin/python" -c "import llama_cpp; assert llama_cpp.__version__ == '$version'" 2>/dev/null; then
  say "building llama-cpp-python $version into $peers (once)"
  python3 -m venv "$peers"
  # Only the libraries: no tools, server, tests or vision.
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF" \
    "$peers/bin/pip" install --quiet --no-binary llama-cpp-python "llama-cpp-python==$version" >&2
fi

if [[ -z ${PELTON_BIN:-} ]]; then
  say "building pelton"
  cmake --preset release >&2
  cmake --build build/release --target pelton >&2
  PELTON_BIN=build/release/bin/pelton
fi

exec "$peers/bin/python" tools/dev/bench_peers.py --pelton "$PELTON_BIN" "$@"
