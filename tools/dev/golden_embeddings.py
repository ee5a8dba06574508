"""Writes tests/golden/embeddings/runnel-2m.json: what transformers computes as the final hidden states of a few
prompts, the last token's and their mean, both of length one. Needs torch and transformers.
"""
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS = [[5, 17, 300, 42, 7, 99], [1, 2, 3], [8]]


def main():
    model = AutoModelForCausalLM.from_pretrained(ROOT / "tests/data/runnel-2m", dtype=torch.float32).eval()
    out = []
    with torch.no_grad():
        for ids in PROMPTS:
            hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
            for vector in (hidden[-1], hidden.mean(0)):
                out.append([round(value, 7) for value in (vector / vector.norm()).tolist()])
    target = ROOT / "tests/golden/embeddings/runnel-2m.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"ids": PROMPTS, "out": out}))


if __name__ == "__main__":
    main()
