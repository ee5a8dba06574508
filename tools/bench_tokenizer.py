#!/usr/bin/env python3
"""Encoding speed beside the `tokenizers` library, one thread, the same text.

    tools/bench_tokenizer.py TOOL MODEL [--text FILE] [--megabytes N] [--pairs N] [--json]

TOOL is pelton_tokenizer_tool, MODEL a tokenizer.json, a folder with one, or a GGUF file. The two alternate and
processor time is measured, so that a busy machine does not distort; the figure is the median of the ratios of the pairs."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "dev"))

from tokenizers import Tokenizer

import tokenizer_corpus
import tokenizer_reference


def mixed_text(path, size):
    own = "\n".join(tokenizer_corpus.texts())
    other = open(path, encoding="utf-8").read() if path else ""
    out, total, turn = [], 0, 0
    while total < size:
        # A sixth is the many-language corpus, the rest running text.
        part = own if turn % 6 == 0 or not other else other[(turn * 500_000) % max(1, len(other)) :][:500_000]
        out.append(part)
        total += len(part.encode())
        turn += 1
    return "".join(out).encode()[:size].decode(errors="ignore")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("model")
    parser.add_argument("--text")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    model = args.model
    if model.endswith(".gguf"):
        reference = tokenizer_reference.from_gguf(model)
    else:
        reference = Tokenizer.from_file(model if model.endswith(".json") else os.path.join(model, "tokenizer.json"))
    reference.encode_special_tokens = True
    text = mixed_text(args.text, int(args.megabytes * 1e6))
    with tempfile.NamedTemporaryFile("wb", suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        run = subprocess.Popen([args.tool, model, "time", file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        rows = []
        for _ in range(args.pairs):
            run.stdin.write("\n")
            run.stdin.flush()
            seconds, count = run.stdout.readline().split()
            start = time.process_time()
            theirs = len(reference.encode(text, add_special_tokens=False).ids)
            rows.append((float(seconds), time.process_time() - start))
            if int(count) != theirs:
                sys.exit(f"token counts differ: {count} and {theirs}")
        run.stdin.close()
        run.wait()
    size = len(text.encode()) / 1e6
    ratio = statistics.median(b / a for a, b in rows)
    ours, reference_speed = (size / statistics.median(r[i] for r in rows) for i in (0, 1))
    if args.json:
        print(json.dumps([{"name": "tokenizer_encode", "ours": ours, "theirs": reference_speed, "ratio": ratio}]))
    else:
        print(f"{os.path.basename(model)}: {ours:.1f} MB/s, tokenizers {reference_speed:.1f} MB/s, median ratio {ratio:.2f} of {args.pairs} pairs")


if __name__ == "__main__":
    main()
