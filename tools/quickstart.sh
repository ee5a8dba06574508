#!/usr/bin/env bash
# From a bare Debian bookworm to an answer: installs packages (as root or with sudo), builds the program,
# fetches a small model (SmolLM2-135M-Instruct, 98 MB) and asks it something. Asks nothing; running it again does
# only what is missing.
#
#   tools/quickstart.sh [PROMPT]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
esac
prompt=${1:-Why is the sky blue?}
started=$SECONDS
step() { printf '\n== [%4d s] %s\n' $((SECONDS - started)) "$1"; }

step "1/4 packages"
tools/install_packages.sh build

step "2/4 build"
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset release
cmake --build build/release --target pelton --parallel "$(nproc)"

step "3/4 model"
tools/fetch_model.sh smollm2-135m
model=$(tools/fetch_model.sh --path smollm2-135m)

step "4/4 answer to: $prompt"
build/release/bin/pelton run "$model" -p "$prompt" -n 48
printf '\n\nDone in %d s. Chat with:  build/release/bin/pelton run %s\n' $((SECONDS - started)) "$model"
