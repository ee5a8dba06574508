#!/usr/bin/env python3
"""Writes tests/golden/models/rope.json: inverse frequencies of every RoPE scaling as transformers computes them.

Each case holds a config.json text as a user would have it, the context length, and inv_freq and magnitude in float32.
"""

import argparse
import json
import pathlib

import torch
from transformers import AutoConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip


def llama(**changes):
    return {**LLAMA, **changes}


def scaled(max_positions=4096, theta=10000.0, **scaling):
    return llama(max_position_embeddings=max_positions, rope_theta=theta, rope_scaling=scaling)


def longrope(context, **changes):
    half = 24  # of rotary dimensions, partial_rotary_factor 0.75 of 64
    config = llama(model_type="phi3", max_position_embeddings=131072, original_max_position_embeddings=4096,
                   partial_rotary_factor=0.75,
                   rope_scaling={"type": "longrope", "short_factor": [1.0 + 0.01 * i for i in range(half)],
                                 "long_factor": [1.0 + 0.7 * i for i in range(half)]}, **changes)
    return config, context


def cases():
    yield "default", llama(), 4096
    yield "default_theta_500000_head_128", llama(rope_theta=500000.0, head_dim=128), 4096
    yield "linear", scaled(type="linear", factor=4.0), 4096
    yield "linear_uneven_factor", scaled(type="linear", factor=2.7), 4096
    yield "dynamic_within", scaled(rope_type="dynamic", factor=2.0), 4096
    yield "dynamic_beyond", scaled(rope_type="dynamic", factor=2.0), 7001
    yield "dynamic_far_beyond", scaled(rope_type="dynamic", factor=4.0), 16384
    yield "yarn", scaled(32768, rope_type="yarn", factor=8.0, original_max_position_embeddings=4096), 32768
    yield "yarn_qwen", scaled(131072, 1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768), 40000
    yield "yarn_betas", scaled(32768, rope_type="yarn", factor=8.0, original_max_position_embeddings=4096,
                               beta_fast=16, beta_slow=2), 32768
    yield "yarn_mscale", scaled(32768, rope_type="yarn", factor=40.0, original_max_position_embeddings=4096,
                                mscale=0.707, mscale_all_dim=1.0), 32768
    yield "yarn_no_truncate", scaled(32768, rope_type="yarn", factor=32.0, original_max_position_embeddings=4096,
                                     truncate=False, beta_fast=32.0, beta_slow=1.0), 32768
    yield "yarn_attention_factor", scaled(32768, rope_type="yarn", factor=8.0, attention_factor=0.85,
                                          original_max_position_embeddings=4096), 32768
    yield "llama3", scaled(131072, 500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                           original_max_position_embeddings=8192), 8192
    yield "llama32", scaled(131072, 500000.0, rope_type="llama3", factor=32.0, low_freq_factor=1.0,
                            high_freq_factor=4.0, original_max_position_embeddings=8192), 8192
    for name, context in (("short", 4096), ("long", 4097)):
        yield (f"longrope_{name}", *longrope(context))
    gemma = {"model_type": "gemma3_text", "hidden_size": 640, "num_hidden_layers": 6, "num_attention_heads": 4,
             "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 128, "vocab_size": 512,
             "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
             "rope_local_base_freq": 10000.0, "sliding_window": 512,
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}}  # fmt: skip
    yield "gemma3_global", gemma, 32768
    yield "gemma3_local", gemma, 32768


def frequencies(name, raw, context):
    raw = json.loads(json.dumps(raw))
    config = AutoConfig.for_model(raw.pop("model_type"), **raw)
    kind = {"gemma3_text": Gemma3RotaryEmbedding, "phi3": Phi3RotaryEmbedding}.get(config.model_type,
                                                                                  LlamaRotaryEmbedding)
    rope = kind(config)
    positions = torch.arange(context)[None]
    if config.model_type == "gemma3_text":
        layer = "full_attention" if name.endswith("global") else "sliding_attention"
        rope(torch.zeros(1), positions, layer)
        return getattr(rope, f"{layer}_inv_freq"), getattr(rope, f"{layer}_attention_scaling")
    rope(torch.zeros(1), positions)
    return rope.inv_freq, rope.attention_scaling


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).parents[2] / "tests/golden/models/rope.json")
    out = parser.parse_args().out
    rows = []
    for name, config, context in cases():
        inv_freq, magnitude = frequencies(name, config, context)
        rows.append({"name": name, "config": config, "context_len": context,
                     "inv_freq": [float(v) for v in inv_freq.float()], "magnitude": float(magnitude)})
    out.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
