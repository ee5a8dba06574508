#!/usr/bin/env bash
# Installs Debian packages: install_packages.sh build | test. Does nothing for what is there; needs root or sudo.
#
#   build   what compiling and running needs, and fetching the quickstart's model
#   test    build, and the compiler of the sanitizers and fuzz targets, test libraries, checkers,
#           a browser without windows for the web page, `file` for making the Debian package
set -euo pipefail

build=(build-essential cmake ninja-build ccache git ca-certificates pkg-config
  libfmt-dev nlohmann-json3-dev libsimdjson-dev libpcre2-dev libcli11-dev libxxhash-dev libssl-dev libboost1.81-dev
  python3 python3-pip python3-venv unzip)
test=(clang-19 clang-format-19 libclang-rt-19-dev llvm-19 libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev shellcheck file
  chromium-headless-shell)

case ${1:-} in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "packages: all ${#wanted[@]} are there"
  exit
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || {
    echo "install_packages.sh: run as root, or install: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "packages: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}"
