#!/usr/bin/env bash
# Compares Pelton on the real GGUF files of PELTON_MODELS with transformers in float32 on the same weights, dequantized.
# Makes its own environment on first use (about 1 GB of packages); references are kept in build/verify.
#   tools/verify_models.sh [--only NAME] [--json] [--reference-only]
# With VERIFY_LLAMA_CPP=1 llama-cpp-python is built too (10 to 15 minutes) and compared on the same texts.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/verify-venv
pins=(torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.4.6 regex==2026.11.19)
if [[ ! -e $venv/ready ]]; then
  echo "making $venv" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --progress-bar off "${pins[@]}"
  touch "$venv/ready"
fi
if [[ ${VERIFY_LLAMA_CPP:-0} == 1 && ! -e $venv/ready-llama-cpp ]]; then
  echo "building llama-cpp-python" >&2
  "$venv/bin/pip" install --progress-bar off llama-cpp-python==0.3.36
  touch "$venv/ready-llama-cpp"
fi

program=build/release/bin/pelton
if [[ " $* " != *" --reference-only "* && ! -x $program ]]; then
  echo "$program is missing: cmake --preset release && cmake --build build/release" >&2
  exit 1
fi
exec "$venv/bin/python" tools/dev/verify_models.py "$@"
