#!/usr/bin/env bash
# Runs a server under clients that misbehave and sums up: soak.sh [SECONDS] [SEED] [SERVE OPTIONS...]; two hours otherwise.
# PELTON_BINARY names the program (build/dev/bin/pelton). Exit code 0 when nothing changed, leaked or grew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PELTON_BINARY=${PELTON_BINARY:-$PWD/build/dev/bin/pelton}
python=.venv/bin/python
if [[ ! -x $python ]]; then
  python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.txt
fi
exec "$python" tests/e2e/soak.py "${1:-7200}" "${@:2}"
