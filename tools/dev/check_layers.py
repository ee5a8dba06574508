#!/usr/bin/env python3
"""Who may include whom: the ladder of docs/layers.md, read from the #include lines of src/ and include/.

A folder includes itself and what its row names, nothing transitively. Tests, benchmarks and a folder's
testing/ helpers may include anything; nothing else includes those. Prints each offence, exits 1 on any.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Folder: what it may include. include/pelton is open to all and includes only itself.
MAY_INCLUDE = {
    "base": "",
    "core": "base",
    "device": "core base",
    "memory": "device core base",
    "kernels": "core device base",
    "ops": "kernels memory device core base",
    "weights": "core base",
    "text": "base",
    "kv/blocks": "base",
    "grammar": "text base",
    "comm": "device core base",
    "quant": "ops weights core base",
    "kv/pages": "ops memory kv/blocks core base",
    "nn": "ops comm kv/pages quant weights memory core base",
    "models": "nn ops weights kv/pages core base",
    "sampling": "ops grammar core base",
    "sched": "kv/blocks base",
    "runtime": "models nn ops sampling sched kv/blocks kv/pages comm memory device core base",
    "spec": "runtime sampling kv/blocks kv/pages sched base",
    "engine": "spec runtime sched sampling models weights text grammar kv/blocks kv/pages comm base",
    "server": "engine text base",
    "python": "engine text base",
    "diag": "engine runtime models nn ops weights quant text sampling kv/pages core base",
    "distill": "engine text models nn ops weights quant comm memory core base",
    "bench_lib": "engine runtime ops device core base",
    "bench_serve": "base",
    "cli": "server bench_serve bench_lib distill diag engine spec runtime models nn sampling grammar text quant sched "
           "kv/blocks kv/pages ops comm memory weights device core base",
}
# Of another folder, only these headers.
ONLY = {
    ("models", "ops"): {"ops/step_context.h", "ops/elementwise.h"},
    ("kernels", "core"): {"core/dtype.h", "core/quant_format.h"},
    ("kernels", "device"): {"device/stream.h", "device/caps.h"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
SOURCES = (".h", ".cc", ".inl", ".cu", ".cuh")
CUDA_FOLDERS = ("src/device/cuda/", "src/kernels/cuda/", "src/comm/", "src/memory/")


def folder_of(path):
    """'kv/blocks' for kv/blocks/x.h, 'base' for base/x.h, 'pelton' for pelton/x.h, else None."""
    parts = path.split("/")
    if len(parts) < 2:
        return None
    name = "/".join(parts[:2]) if parts[0] == "kv" else parts[0]
    return name if name in MAY_INCLUDE or name == "pelton" else None


def is_test(relative):
    name = relative.rsplit("/", 1)[-1]
    return bool(re.search(r"_(test|tests|bench|tool|cases|test_util)\.(cc|h|inl)$|^test_support\.h$", name)) or "/testing/" in "/" + relative


def sideways(own, relative, target):
    """Between siblings that must not know each other: the levels of kernels/cpu."""
    levels = {"generic", "avx2", "avx512", "amx", "neon"}
    mine, theirs = relative.split("/"), target.split("/")
    return (own == "kernels" and len(mine) > 3 and len(theirs) > 3 and mine[1] == theirs[1] == "cpu"
            and mine[2] in levels and theirs[2] in levels and mine[2] != theirs[2])


def check_include(relative, target):
    """The offence of one include in src/, or None."""
    own = folder_of(relative)
    if is_test(relative):
        return None
    if is_test(target) or target.startswith(("tests/", "fuzz/", "support/")):
        return "is for tests only"
    other = folder_of(target)
    if other is None:
        return None if "/" not in target or target.startswith(("nlohmann/", "fmt/")) else "is not a folder of src/"
    if other == "pelton":
        return None
    if other == own:
        return "goes sideways" if sideways(own, relative, target) else None
    if other not in MAY_INCLUDE[own].split():
        return f"is outside of what {own} may include ({MAY_INCLUDE[own] or 'nothing'})"
    allowed = ONLY.get((own, other))
    if allowed is not None and target not in allowed:
        return f"is not one of {', '.join(sorted(allowed))}"
    return None


def main():
    offences = 0
    files = 0
    for base in ("src", "include"):
        for path in sorted((ROOT / base).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            files += 1
            relative = path.relative_to(ROOT / base).as_posix()
            if base == "src" and folder_of(relative) is None:
                print(f"src/{relative}: its folder is not in the table")
                offences += 1
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if match is None:
                    if re.match(r"^\s*#\s*include\s+<(cuda|cublas|cudnn|nccl|nvml)", line) and not (
                            f"{base}/{relative}".startswith(CUDA_FOLDERS)):
                        print(f"{base}/{relative}:{number}: a CUDA header outside of the CUDA folders")
                        offences += 1
                    continue
                target = match.group(1)
                if base == "include":
                    offence = None if target.startswith("pelton/") else "is not public"
                else:
                    offence = check_include(relative, target)
                if offence:
                    print(f"{base}/{relative}:{number}: \"{target}\" {offence}")
                    offences += 1
    print(f"layers: {files} files, {offences} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
