#!/usr/bin/env bash
# ISA objects may export nothing but their fill_* functions. A weak symbol (an inline or template
# function of the standard library or of a header) compiled with wide instructions could be the copy
# that the linker keeps, and then crash older processors far from any kernel.
#   tools/dev/check_isa_symbols.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: check_isa_symbols.sh BUILD_DIR}
mapfile -t objects < <(find "$build" -path "*cpu/avx2/*.o" -o -path "*cpu/avx512/*.o" -o -path "*cpu/amx/*.o")
((${#objects[@]} > 0)) || { echo "no ISA objects under $build"; exit 1; }
status=0
for object in "${objects[@]}"; do
  # Defined symbols: T/D/B/R global, W/V weak, u unique. Constants of local linkage are lower case.
  bad=$(nm -C --defined-only "$object" | awk '$2 ~ /^[TDBRWVu]$/' | grep -vE ' T pelton::kernels::(avx2|avx512|amx)::fill_[a-z0-9_]+\(' || true)
  if [[ -n $bad ]]; then
    echo "$object exports:"
    echo "$bad"
    status=1
  fi
done
exit $status
