#!/usr/bin/env python3
"""Gives every broken tiny model of tiny_mutations.py to the program and checks that it is refused, warned of or taken.

Refused: a non-zero exit code below 128, one line on stderr that names the file or folder, nothing on stdout.
Warned: exit code 0 and the word "warning" on stderr. Accepted: exit code 0; a model whose numbers are not finite may
instead end its request with an error.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import tiny_model
import tiny_mutations

NOT_FINITE = ("nan-weight", "inf-weight", "nan-scale")


def verdict(mutation, path, result):
    """None, or what is wrong."""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    refused = 0 < result.returncode < 128
    if result.returncode < 0 or result.returncode >= 128:
        return f"crashed: {result.returncode}"
    if mutation.expected == "refuse":
        if not refused:
            return "not refused"
        if result.stdout:
            return "output before the refusal"
        if len(lines) != 1:
            return f"{len(lines)} lines instead of one: {result.stderr[:200]!r}"
        return None if path.name in lines[0] else f"does not name the file: {lines[0][:200]}"
    if refused and mutation.name not in NOT_FINITE:
        return f"refused: {result.stderr[:200]!r}"
    if refused and path.name not in lines[-1]:
        return f"does not name the file: {lines[-1][:200]}"
    if mutation.expected == "warn" and "warning" not in result.stderr.lower():
        return "no warning"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pelton", default="build/release/bin/pelton")
    parser.add_argument("--arch", action="append", choices=tiny_model.ARCHITECTURES)
    parser.add_argument("--write-only", action="store_true", help="only check that every broken file can be written")
    args = parser.parse_args()
    failures = count = 0
    for arch in args.arch or ["llama", "gemma3", "gpt2"]:
        for format_name in ("safetensors-f32", "gguf-Q8_0"):
            gguf = format_name.startswith("gguf")
            for mutation in tiny_mutations.MUTATIONS:
                if mutation.formats not in ("both", "gguf" if gguf else "safetensors"):
                    continue
                if mutation.skip and arch in mutation.skip:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder) / ("broken.gguf" if gguf else "broken")
                    tiny_model.write_mutated(path, arch, format_name, mutation)
                    count += 1
                    if args.write_only:
                        continue
                    command = [args.pelton, "run", str(path), "--raw", "-p", "The wheel", "-n", "2", "--greedy"]
                    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
                    wrong = verdict(mutation, path, result)
                    if wrong:
                        failures += 1
                        print(f"{arch} {format_name} {mutation.name} ({mutation.expected}): {wrong}", flush=True)
    print(f"{count} broken models, {failures} wrong answers")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
