#!/usr/bin/env python3
"""Compares Pelton on real GGUF files with transformers in float32 on the same weights, dequantized.

For each file: --activations f32 must stay within 1e-3 of the reference's logits, relative to their largest magnitude,
and the default path within a mean KL of 0.003 nat; where llama-cpp-python can be imported, Pelton's KL must not exceed
llama.cpp's. References are kept in --cache, so that a second run needs no transformers work.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

LIMIT_RELATIVE = 1e-3
LIMIT_KL = 0.003
POSITIONS = 64

TEXTS = [
    "A water wheel turns slowly, yet it drives the whole mill: the stream decides how much work can be done, and the "
    "builder decides how little of it is lost on the way. When the river ran low in late summer, the miller opened the "
    "second sluice and waited for the buckets to fill before he let the stones down again. Nothing was hurried there.",
    "def merge(left, right):\n    \"\"\"Two sorted lists as one.\"\"\"\n    out = []\n    i = j = 0\n    while i < len(left) and j < "
    "len(right):\n        if left[i] <= right[j]:\n            out.append(left[i])\n            i += 1\n        else:\n            "
    "out.append(right[j])\n            j += 1\n    return out + left[i:] + right[j:]\n\n\nprint(merge([1, 4, 9], [2, 3, 10]))\n",
    "Die Brücke über den Fluss wurde 1894 gebaut und ist 217 Meter lang. Le pont a été reconstruit après la guerre. "
    "这座桥在1894年建成，全长217米。橋は戦後に再建された。 Мост был восстановлен в 1951 году. 🌉 Today about 12,500 cars cross it every day.",
    "{\"name\": \"sensor-17\", \"readings\": [21.5, 21.7, 22.0], \"unit\": \"celsius\", \"ok\": true}\nQuestion: what is the mean of the "
    "three readings, rounded to one decimal place?\nAnswer: The readings add up to 65.2, and 65.2 divided by 3 is about 21.7, "
    "so the mean temperature is 21.7 degrees Celsius.\n",
]


def models_in(search):
    for folder in search.split(":"):
        yield from sorted(p for p in pathlib.Path(folder).glob("*.gguf"))


def fingerprint(path):
    """Of the header and the size: enough to notice another file under the same name."""
    with open(path, "rb") as file:
        head = file.read(1 << 20)
    return hashlib.sha256(head + str(path.stat().st_size).encode() + "".join(TEXTS).encode()).hexdigest()[:16]


def reference(path, cache):
    """Folder with text-N.ids.json and text-N.logits.f32 ([ids, vocabulary], float32)."""
    folder = cache / f"{path.stem}-{fingerprint(path)}"
    if (folder / "done").exists():
        return folder
    import torch

    import gguf_reference

    folder.mkdir(parents=True, exist_ok=True)
    model, meta = gguf_reference.load(path)
    for i, text in enumerate(TEXTS):
        ids = gguf_reference.encode(meta, text)[:POSITIONS]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].float().numpy()
        (folder / f"text-{i}.ids.json").write_text(json.dumps([int(v) for v in ids]))
        logits.astype("<f4").tofile(folder / f"text-{i}.logits.f32")
    (folder / "done").write_text("")
    return folder


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl(expected, got):
    """Of each position, in nat."""
    p, q = log_softmax(expected), log_softmax(got)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def pelton_logits(program, path, ids_file, vocab, extra):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "logits.f32"
        command = [program, "eval", str(path), "--ids", str(ids_file), "--dump-logits", str(out), *extra]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
        return np.fromfile(out, "<f4").reshape(-1, vocab)


class LlamaCpp:
    def __init__(self, path):
        from llama_cpp import Llama

        self.model = Llama(str(path), logits_all=True, n_ctx=POSITIONS * 2, verbose=False, n_threads=os.cpu_count())

    def logits(self, ids):
        self.model.reset()
        self.model.eval(ids)
        return np.array(self.model.scores[: len(ids)], dtype=np.float32)


def llama_cpp(path):
    try:
        return LlamaCpp(path)
    except ImportError:
        return None


def compare(program, path, folder):
    theirs = llama_cpp(path)
    relative, ours_kl, theirs_kl, agree = [], [], [], []
    for i in range(len(TEXTS)):
        ids_file = folder / f"text-{i}.ids.json"
        ids = json.loads(ids_file.read_text())
        expected = np.fromfile(folder / f"text-{i}.logits.f32", "<f4").reshape(len(ids), -1)
        vocab = expected.shape[1]
        exact = pelton_logits(program, path, ids_file, vocab, ["--activations", "f32"])
        relative.append(np.abs(exact - expected).max(axis=1) / np.abs(expected).max(axis=1))
        got = pelton_logits(program, path, ids_file, vocab, [])
        ours_kl.append(kl(expected, got))
        agree.append(got.argmax(axis=1) == expected.argmax(axis=1))
        if theirs is not None:
            theirs_kl.append(kl(expected, theirs.logits(ids)))
    row = {"name": path.name, "max_relative_error_f32": float(np.concatenate(relative).max()),
           "mean_kl": float(np.concatenate(ours_kl).mean()), "max_kl": float(np.concatenate(ours_kl).max()),
           "same_top_token": float(np.concatenate(agree).mean())}  # fmt: skip
    if theirs_kl:
        row["mean_kl_llama_cpp"] = float(np.concatenate(theirs_kl).mean())
    row["ok"] = (row["max_relative_error_f32"] <= LIMIT_RELATIVE and row["mean_kl"] <= LIMIT_KL
                 and row["mean_kl"] <= row.get("mean_kl_llama_cpp", float("inf")))  # fmt: skip
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=os.environ.get("PELTON_MODELS", "models"), help="search path, ':' between")
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--pelton", default="build/release/bin/pelton")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("build/verify"))
    parser.add_argument("--reference-only", action="store_true", help="fill the cache and stop")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    rows = []
    for path in models_in(args.models):
        if args.only not in path.name:
            continue
        print(f"{path.name}: reference", file=sys.stderr, flush=True)
        folder = reference(path, args.cache)
        if args.reference_only:
            continue
        rows.append(compare(args.pelton, path, folder))
        if not args.json:
            row = rows[-1]
            theirs = f", llama.cpp {row['mean_kl_llama_cpp']:.5f}" if "mean_kl_llama_cpp" in row else ""
            print(f"{row['name']}: f32 within {row['max_relative_error_f32']:.2e}, mean KL {row['mean_kl']:.5f} nat"
                  f"{theirs}, same top token {row['same_top_token']:.1%}: {'ok' if row['ok'] else 'FAILED'}", flush=True)
    if args.json:
        print(json.dumps({"schema": "pelton.verify.1", "limit_relative": LIMIT_RELATIVE, "limit_kl": LIMIT_KL,
                          "rows": rows}, indent=1))
    if not rows and not args.reference_only:
        sys.exit(f"no GGUF file in {args.models}")
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
