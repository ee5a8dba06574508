#!/usr/bin/env python3
"""Writes a model of random weights: any architecture, shape and format that Pelton reads, the same for the same seed.

    tiny_model.py --arch qwen3 --format safetensors-f16 --seed 1 out/            a folder
    tiny_model.py --arch llama --format gguf-Q4_0 --hidden 128 out.gguf          a file
    tiny_model.py --arch llama --format gguf-Q8_0 --mutate nan-scale bad.gguf    one rule broken

--config KEY=JSON sets any key of config.json, e.g. --config 'rope_scaling={"rope_type":"linear","factor":4}'.
"""

import argparse
import json
import pathlib

import numpy as np

import tiny_mutations
import tiny_writers

ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3", "gpt2", "gpt_bigcode"]
FORMATS = [f"safetensors-{t}" for t in tiny_writers.SAFETENSORS_TYPES] + [f"gguf-{t}" for t in tiny_writers.GGUF_TYPES]


def make_config(arch, *, hidden=64, layers=2, heads=4, kv_heads=2, head_dim=None, intermediate=128, vocab=384,
                positions=128, **changes):
    """config.json's content. `changes` are set last, by Hugging Face name; None removes a key."""
    model_type = {"gemma3": "gemma3_text"}.get(arch, arch)
    class_name = {"gpt2": "GPT2LMHeadModel", "gpt_bigcode": "GPTBigCodeForCausalLM", "gemma3": "Gemma3ForCausalLM"}
    config = {"architectures": [class_name.get(arch, arch.capitalize() + "ForCausalLM")], "model_type": model_type,
              "vocab_size": vocab, "bos_token_id": 0, "eos_token_id": 2, "torch_dtype": "float32"}  # fmt: skip
    if arch in ("gpt2", "gpt_bigcode"):
        config |= {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": intermediate,
                   "n_positions": positions, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
                   "activation_function": "gelu_new" if arch == "gpt2" else "gelu_pytorch_tanh"}  # fmt: skip
        if arch == "gpt_bigcode":
            config["multi_query"] = True
    else:
        config |= {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
                   "num_key_value_heads": kv_heads, "intermediate_size": intermediate,
                   "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                   "hidden_act": "silu", "tie_word_embeddings": arch == "gemma3"}  # fmt: skip
        if arch in ("qwen3", "gemma3") or head_dim:
            config["head_dim"] = head_dim or hidden // heads
        if arch == "mistral":
            config["sliding_window"] = None
        if arch == "phi3":
            config |= {"original_max_position_embeddings": positions, "pad_token_id": 0}
        if arch == "gemma3":
            del config["hidden_act"]
            config |= {"hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                       "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": config["head_dim"],
                       "sliding_window": 16, "sliding_window_pattern": 2}  # fmt: skip
    for key, value in changes.items():
        config[key] = value
        if value is None and key not in ("sliding_window", "eos_token_id", "bos_token_id"):
            del config[key]
    return config


def _gpt_shapes(config):
    c = config
    hidden, inner = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    head_dim = hidden // c["n_head"]
    fused = hidden + 2 * (head_dim if c.get("multi_query") else hidden)

    def linear(name, rows, columns):
        # GPT-2 keeps its matrices as [in, out].
        shape = (columns, rows) if c["model_type"] == "gpt2" else (rows, columns)
        return {f"{name}.weight": shape, f"{name}.bias": (rows,)}

    def norm(name):
        return {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}

    shapes = {"transformer.wte.weight": (c["vocab_size"], hidden), "transformer.wpe.weight": (c["n_positions"], hidden)}
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        shapes |= norm(p + "ln_1") | linear(p + "attn.c_attn", fused, hidden)
        shapes |= linear(p + "attn.c_proj", hidden, hidden) | norm(p + "ln_2")
        shapes |= linear(p + "mlp.c_fc", inner, hidden) | linear(p + "mlp.c_proj", hidden, inner)
    shapes |= norm("transformer.ln_f")
    if not c.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    return shapes


def tensor_shapes(config):
    """{Hugging Face name: shape} of every tensor that the configuration asks for."""
    c = config
    if c["model_type"] in ("gpt2", "gpt_bigcode"):
        return _gpt_shapes(c)
    kind, hidden, inner = c["model_type"], c["hidden_size"], c["intermediate_size"]
    head_dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * head_dim, c["num_key_value_heads"] * head_dim
    bias_all = bool(c.get("attention_bias")) and kind in ("llama", "qwen3", "gemma3_text")
    bias_qkv = bias_all or kind == "qwen2"
    mlp_bias = bool(c.get("mlp_bias")) and kind == "llama"

    def linear(name, rows, columns, bias=False):
        return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})

    shapes = {"model.embed_tokens.weight": (c["vocab_size"], hidden)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = (hidden,)
        if kind == "phi3":
            shapes |= linear(p + "self_attn.qkv_proj", q + 2 * kv, hidden)
        else:
            shapes |= linear(p + "self_attn.q_proj", q, hidden, bias_qkv)
            shapes |= linear(p + "self_attn.k_proj", kv, hidden, bias_qkv)
            shapes |= linear(p + "self_attn.v_proj", kv, hidden, bias_qkv)
        shapes |= linear(p + "self_attn.o_proj", hidden, q, bias_all)
        if kind in ("qwen3", "gemma3_text"):
            shapes |= {p + f"self_attn.{n}_norm.weight": (head_dim,) for n in "qk"}
        shapes[p + "post_attention_layernorm.weight"] = (hidden,)
        if kind == "gemma3_text":
            shapes |= {p + f"{n}_feedforward_layernorm.weight": (hidden,) for n in ("pre", "post")}
        if kind == "phi3":
            shapes |= linear(p + "mlp.gate_up_proj", 2 * inner, hidden)
        else:
            shapes |= linear(p + "mlp.gate_proj", inner, hidden, mlp_bias)
            shapes |= linear(p + "mlp.up_proj", inner, hidden, mlp_bias)
        shapes |= linear(p + "mlp.down_proj", hidden, inner, mlp_bias)
    shapes["model.norm.weight"] = (hidden,)
    if not c.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (c["vocab_size"], hidden)
    return shapes


def make_weights(config, seed):
    """{name: float32}. Magnitudes keep activations near one and logits spread by a few units."""
    rng = np.random.default_rng(seed)
    gemma = config["model_type"] == "gemma3_text"
    weights = {}
    for name, shape in tensor_shapes(config).items():
        noise = rng.standard_normal(shape, dtype=np.float32)
        norm = "norm" in name or "ln_" in name
        if norm and name.endswith("weight"):
            value = np.float32(0 if gemma else 1) + np.float32(0.2) * noise
        elif name.endswith("bias"):
            value = np.float32(0.1) * noise
        elif "embed_tokens" in name or "wte" in name or "lm_head" in name:
            # Gemma multiplies embeddings by sqrt(hidden), which would drown what the layers add.
            value = noise * np.float32(0.12 if gemma else 0.3)
        elif "wpe" in name:
            value = noise * np.float32(0.2)
        else:
            transposed = config["model_type"] == "gpt2"
            value = noise * np.float32(1.4 / np.sqrt(shape[0 if transposed else 1]))
        weights[name] = value.astype(np.float32)
    return weights


def write(out, format_name, config, weights, *, seed=0, tokenizer_vocab=None, overrides=None):
    kind, _, dtype = format_name.partition("-")
    if kind == "safetensors":
        tiny_writers.write_folder(out, config, weights, dtype, tokenizer_vocab)
    else:
        pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
        tiny_writers.write_gguf(out, config, weights, dtype, tokenizer_vocab, seed, overrides)


def write_model(out, format_name, config, seed, tokenizer_vocab, mutation=None):
    model = tiny_mutations.Model(out=out, gguf=format_name.startswith("gguf"), config=config,
                                 weights=make_weights(config, seed), tokenizer_vocab=tokenizer_vocab)  # fmt: skip
    if mutation and mutation.before:
        mutation.before(model)
    write(out, format_name, model.config, model.weights, seed=seed, tokenizer_vocab=model.tokenizer_vocab,
          overrides=model.overrides)
    if not model.gguf:
        tiny_mutations.rewrite_config(model)
    if mutation and mutation.after:
        mutation.after(model)


def write_mutated(out, arch, format_name, mutation, seed=0):
    config = make_config(arch)
    write_model(out, format_name, config, seed, config["vocab_size"], mutation)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", help="folder (safetensors) or file (GGUF)")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="llama")
    parser.add_argument("--format", choices=FORMATS, default="safetensors-f32", metavar="FORMAT",
                        help="safetensors-{f32,f16,bf16} or gguf-TYPE: " + " ".join(tiny_writers.GGUF_TYPES))
    parser.add_argument("--seed", type=int, default=0)
    for name, default in (("hidden", 64), ("layers", 2), ("heads", 4), ("kv-heads", 2), ("head-dim", None),
                          ("intermediate", 128), ("vocab", 384), ("positions", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tie", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--no-tokenizer", action="store_true")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=JSON")
    parser.add_argument("--mutate", metavar="RULE", help="break one rule (--list-mutations)")
    parser.add_argument("--list-mutations", action="store_true")
    args = parser.parse_args()
    if args.list_mutations:
        print(tiny_mutations.listing())
        return
    if not args.out:
        parser.error("OUT is missing")

    changes = {key: json.loads(value) for key, _, value in (item.partition("=") for item in args.config)}
    if args.tie is not None:
        changes["tie_word_embeddings"] = args.tie
    config = make_config(args.arch, hidden=args.hidden, layers=args.layers, heads=args.heads, kv_heads=args.kv_heads,
                         head_dim=args.head_dim, intermediate=args.intermediate, vocab=args.vocab,
                         positions=args.positions, **changes)  # fmt: skip
    mutation = tiny_mutations.find(args.mutate, args.format.startswith("gguf")) if args.mutate else None
    write_model(pathlib.Path(args.out), args.format, config, args.seed, None if args.no_tokenizer else args.vocab,
                mutation)


if __name__ == "__main__":
    main()
