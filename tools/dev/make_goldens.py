#!/usr/bin/env python3
"""Writes tests/golden/models/: tiny models and what transformers computes from them in float32.

A folder a model: config.json, model.safetensors (F16), the same weights as model.gguf where GGUF can say all of the
configuration, tokenizer files, golden.json (index) and golden.bin (float32, little-endian). tests/golden/models/README.md
describes the format.
"""

import argparse
import json
import logging
import pathlib
import shutil
import warnings

import numpy as np
import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM

import tiny_model

PROMPT = (
    "The miller waits until the water is high, and then he opens both gates. How many turns does the wheel make in a "
    "day, and who counts them?\n    return wheel.turns + 17"
)
SHORT, LONG = 12, 48
# GGUF has no word for a window in some layers of Qwen, nor for scaling by length.
WITHOUT_GGUF = ("llama-bias", "llama-dynamic", "mistral", "qwen2-window")
GREEDY_TOKENS = 32
BEAM_TOKENS = 12


def scaling(**values):
    return {"rope_scaling": values}


LLAMA3 = scaling(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                 original_max_position_embeddings=32)  # fmt: skip
YARN = scaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LONGROPE = {"original_max_position_embeddings": 32, "partial_rotary_factor": 0.75,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.3],
                             "long_factor": [1.0, 1.3, 1.9, 2.8, 4.0, 5.5]}}  # fmt: skip

# name: (architecture, configuration, what to leave out)
MODELS = {
    "llama": ("llama", {"tie_word_embeddings": True}, ()),
    "llama-bias": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 32, "layers": 1}, ("beam",)),
    "llama-llama3": ("llama", {"tie_word_embeddings": True, **LLAMA3}, ("beam",)),
    "llama-linear": ("llama", {"tie_word_embeddings": True, **scaling(type="linear", factor=4.0)}, ("beam",)),
    # Frequencies follow the length of the context, so generation has no one answer.
    "llama-dynamic": ("llama", {"tie_word_embeddings": True, "positions": 32,
                                **scaling(rope_type="dynamic", factor=4.0)}, ("beam", "greedy")),
    "llama-yarn": ("llama", {"tie_word_embeddings": True, **YARN}, ("beam",)),
    "mistral": ("mistral", {"sliding_window": 16, "tie_word_embeddings": True}, ()),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}, ()),
    "qwen2-window": ("qwen2", {"tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 16,
                               "max_window_layers": 1}, ("beam",)),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}, ()),
    "gemma3": ("gemma3", {"layers": 3, "kv_heads": 1, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, ()),
    "phi3": ("phi3", {"sliding_window": 40, "layers": 2, "tie_word_embeddings": True}, ()),
    "phi3-longrope": ("phi3", {"tie_word_embeddings": True, **LONGROPE}, ("beam",)),
    "gpt2": ("gpt2", {}, ()),
    "gpt_bigcode": ("gpt_bigcode", {}, ()),
}  # fmt: skip


class Blob:
    """Float32 arrays one after the other, and where each lies."""

    def __init__(self):
        self.data = []
        self.size = 0

    def add(self, tensor):
        array = np.ascontiguousarray(tensor.detach().numpy(), dtype="<f4")
        self.data.append(array.tobytes())
        entry = {"offset": self.size, "shape": list(array.shape)}  # offset in floats
        self.size += array.size
        return entry

    def bytes(self):
        return b"".join(self.data)


def layers_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def forward(model, ids, blob):
    """Logits of all positions; the residual stream after the embedding and after each layer."""
    hidden = {}

    def keep(name):
        def hook(_module, _inputs, output):
            hidden[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()

        return hook

    hooks = [layer.register_forward_hook(keep(f"layer.{i}.output")) for i, layer in enumerate(layers_of(model))]
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    for hook in hooks:
        hook.remove()
    hidden = {"embedding": out.hidden_states[0][0], **hidden}
    return {"ids": ids, "context_len": len(ids), "logits": blob.add(out.logits[0]),
            "hidden": {name: blob.add(value) for name, value in hidden.items()}}  # fmt: skip


def generate(model, ids, **options):
    with torch.no_grad():
        return model.generate(torch.tensor([ids]), do_sample=False, pad_token_id=0, return_dict_in_generate=True,
                              output_scores=True, **options)


def greedy(model, ids):
    out = generate(model, ids, max_new_tokens=GREEDY_TOKENS, eos_token_id=None)
    top = torch.stack(out.scores)[:, 0].topk(2).values
    margin = float((top[:, 0] - top[:, 1]).min())
    assert margin > 1e-3, f"a tie of {margin} would make the greedy tokens arbitrary"
    return {"prompt": ids, "ids": out.sequences[0, len(ids):].tolist(), "least_margin": margin}


def cut(sequence, ends):
    """Without the padding after the first end token."""
    for i, token in enumerate(sequence):
        if token in ends:
            return sequence[: i + 1]
    return sequence


def common_end(model, ids):
    """A token that beams without an end produce early, so that it finishes some of them."""
    out = generate(model, ids, max_new_tokens=BEAM_TOKENS, num_beams=4, num_return_sequences=4, eos_token_id=None)
    tokens = out.sequences[:, len(ids) + 2 : len(ids) + 8].flatten().tolist()
    return max(sorted(set(tokens)), key=tokens.count)


def beams(model, ids):
    end = common_end(model, ids)
    rows = []
    for length_penalty in (0.6, 1.0, 2.0):
        for early_stopping in (False, True, "never"):
            out = generate(model, ids, max_new_tokens=BEAM_TOKENS, num_beams=4, num_return_sequences=4,
                           eos_token_id=end, length_penalty=length_penalty, early_stopping=early_stopping)
            rows.append({"prompt": ids, "num_beams": 4, "length_penalty": length_penalty,
                         "early_stopping": early_stopping, "max_new_tokens": BEAM_TOKENS, "eos_token_ids": [end],
                         "sequences": [cut(s, [end]) for s in out.sequences[:, len(ids):].tolist()],
                         "scores": [float(s) for s in out.sequences_scores]})  # fmt: skip
    return rows


def make(name, out):
    arch, options, without = MODELS[name]
    seed = 1 + list(MODELS).index(name)
    shape = {k: options[k] for k in ("layers", "kv_heads", "head_dim", "positions") if k in options}
    config = tiny_model.make_config(arch, **shape, **{k: v for k, v in options.items() if k not in shape})
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    # Rounded first, so that norms and biases, which GGUF keeps in F32, are the same numbers in both files.
    weights = {k: v.astype(np.float16).astype(np.float32) for k, v in tiny_model.make_weights(config, seed).items()}
    tiny_model.write(folder, "safetensors-f16", config, weights, tokenizer_vocab=config["vocab_size"])
    if name not in WITHOUT_GGUF:
        tiny_model.write(folder / "model.gguf", "gguf-F16", config, weights, tokenizer_vocab=config["vocab_size"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    assert not model.training
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(PROMPT).ids
    assert len(ids) >= LONG, len(ids)

    blob = Blob()
    golden = {"torch": torch.__version__, "transformers": transformers.__version__,
              "cases": [forward(model, ids[:n], blob) for n in (SHORT, LONG)]}  # fmt: skip
    if "greedy" not in without:
        golden["greedy"] = greedy(model, ids[:LONG])
    if "beam" not in without:
        golden["beam"] = beams(model, ids[:SHORT])
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")
    (folder / "golden.bin").write_bytes(blob.bytes())
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size / 1024:.0f} KiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "tests/golden/models")
    parser.add_argument("names", nargs="*", help="models; all by default")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name in args.names or MODELS:
        make(name, args.out)


if __name__ == "__main__":
    main()
