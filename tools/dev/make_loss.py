#!/usr/bin/env python3
"""Writes tests/data/text.loss.json: the loss of tests/data/runnel-2m on tests/data/text.txt, by transformers in float32.

The text is split at "\\n\\f\\n" into documents; each is encoded without special tokens and id 0 appended, all joined.
Window i holds ids 1024*i .. 1024*i+1024 (1,025 ids, 1,024 predictions, positions from 0); natural log. A last window
of fewer predictions is left out.
"""

import argparse
import json
import pathlib

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM

WINDOW = 1024
PROCEDURE = (
    'documents of the text split at "\\n\\f\\n"; each encoded without special tokens, id 0 appended, all joined; window '
    "i holds ids 1024*i .. 1024*i+1024 (1025 ids, 1024 predictions, positions from 0); whole windows only; natural log; "
    "float32"
)


def ids_of(tokenizer, text):
    ids = []
    for document in text.split("\n\f\n"):
        ids += [*tokenizer.encode(document, add_special_tokens=False).ids, 0]
    return ids


def main():
    data = pathlib.Path(__file__).parents[2] / "tests/data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=data / "runnel-2m")
    parser.add_argument("--text", type=pathlib.Path, default=data / "text.txt")
    parser.add_argument("--windows", type=int, default=None)
    parser.add_argument("--out", type=pathlib.Path, default=data / "text.loss.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="eager").eval()
    ids = ids_of(tokenizer, args.text.read_bytes().decode())
    count = (len(ids) - 1) // WINDOW
    losses, right = [], 0
    for i in range(min(count, args.windows or count)):
        window = torch.tensor(ids[WINDOW * i : WINDOW * i + WINDOW + 1])
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0]
        losses.append(float(torch.nn.functional.cross_entropy(logits, window[1:])))
        right += int((logits.argmax(-1) == window[1:]).sum())
    result = {"procedure": PROCEDURE, "torch": torch.__version__, "transformers": transformers.__version__,
              "model": args.model.name, "ids": len(ids), "windows": len(losses),
              "mean": round(sum(losses) / len(losses), 6), "top1_accuracy": round(right / (WINDOW * len(losses)), 5),
              "per_window": [round(v, 6) for v in losses]}  # fmt: skip
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(ids)} ids, {len(losses)} windows, mean {result['mean']}")


if __name__ == "__main__":
    main()
