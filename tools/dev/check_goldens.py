#!/usr/bin/env python3
"""Runs the program on every golden model, as a folder and as GGUF, and compares logits with the reference's (1e-4)."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

LIMIT = 1e-4


def error_of(program, path, case, want, folder):
    ids, out = folder / "ids.json", folder / "logits.f32"
    ids.write_text(json.dumps(case["ids"]))
    command = [program, "eval", str(path), "--activations", "f32", "--ids", str(ids), "--dump-logits", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    got = np.fromfile(out, "<f4")
    return float(np.abs(got.reshape(want.shape) - want).max() / np.abs(want).max()) if got.size == want.size else np.inf


def main():
    root = pathlib.Path(__file__).parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pelton", default=str(root / "build/release/bin/pelton"))
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for index in sorted((root / "tests/golden/models").glob("*/golden.json")):
            blob = np.fromfile(index.parent / "golden.bin", "<f4")
            for path in (index.parent, index.parent / "model.gguf"):
                for case in json.loads(index.read_text())["cases"] if path.exists() else ():
                    entry = case["logits"]
                    count = int(np.prod(entry["shape"]))
                    want = blob[entry["offset"] : entry["offset"] + count].reshape(entry["shape"])
                    error = error_of(args.pelton, path, case, want, pathlib.Path(folder))
                    ok = error <= LIMIT
                    failed |= not ok
                    name = path.relative_to(root / "tests/golden/models")
                    print(f"{name} {len(case['ids'])} ids: {error:.1e}{'' if ok else ' FAILED'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
