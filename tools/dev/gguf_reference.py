"""A GGUF file as a float32 transformers model, and its tokenizer, for reference values."""

import json

import gguf
import numpy as np
import regex
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import gguf_names

MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text", "phi3": "phi3",
               "gpt2": "gpt2", "starcoder": "gpt_bigcode"}  # fmt: skip


def fields(reader):
    return {key: field.contents() for key, field in reader.fields.items()}


def config_of(meta, tensors):
    """config.json's content, as a dict, for a file's metadata."""
    arch = meta["general.architecture"]
    model_type = MODEL_TYPES[arch]

    def get(key, default=None):
        return meta.get(f"{arch}.{key}", default)

    vocab = int(tensors["token_embd.weight"].shape[1])
    config = {"model_type": model_type, "vocab_size": vocab, "tie_word_embeddings": "output.weight" not in tensors,
              "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
              "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"), "pad_token_id": 0}  # fmt: skip
    heads = get("attention.head_count")
    if model_type in ("gpt2", "gpt_bigcode"):
        return config | {"n_embd": get("embedding_length"), "n_layer": get("block_count"), "n_head": heads,
                         "n_inner": get("feed_forward_length"), "n_positions": get("context_length"),
                         "layer_norm_epsilon": get("attention.layer_norm_epsilon")}  # fmt: skip
    hidden = get("embedding_length")
    config |= {"hidden_size": hidden, "num_hidden_layers": get("block_count"), "num_attention_heads": heads,
               "num_key_value_heads": get("attention.head_count_kv", heads),
               "intermediate_size": get("feed_forward_length"), "max_position_embeddings": get("context_length"),
               "rms_norm_eps": get("attention.layer_norm_rms_epsilon"), "rope_theta": get("rope.freq_base", 10000.0),
               "head_dim": get("attention.key_length", hidden // heads)}  # fmt: skip
    window = get("attention.sliding_window")
    if model_type == "gemma3_text":
        scalar = hidden // heads if get("block_count") == 62 else config["head_dim"]
        config |= {"sliding_window": window, "query_pre_attn_scalar": scalar, "rope_local_base_freq": 10000.0,
                   "sliding_window_pattern": get("attention.sliding_window_pattern", 6)}  # fmt: skip
    elif window:
        config |= {"sliding_window": window}
        if model_type == "llama":
            config["model_type"] = "mistral"
    if get("rope.scaling.type") == "linear":
        config["rope_scaling"] = {"rope_type": "linear", "factor": get("rope.scaling.factor")}
    if get("rope.scaling.type") == "yarn":
        config["rope_scaling"] = {"rope_type": "yarn", "factor": get("rope.scaling.factor"),
                                  "original_max_position_embeddings": get("rope.scaling.original_context_length")}
    return config


def load(path):
    """(model in float32, metadata)."""
    reader = gguf.GGUFReader(path)
    meta = fields(reader)
    tensors = {t.name: t for t in reader.tensors}
    raw = config_of(meta, tensors)
    config = AutoConfig.for_model(**json.loads(json.dumps(raw)))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    state = {}
    for name in model.state_dict():
        mapped = gguf_names.gguf_name(raw["model_type"], name)
        if mapped not in tensors and name == "lm_head.weight" and raw["tie_word_embeddings"]:
            mapped = "token_embd.weight"
        tensor = tensors[mapped]
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        state[name] = torch.from_numpy(gguf_names.from_gguf(raw, name, value))
    # Buffers (rotary frequencies, embedding scale) are not in the file: a real instance computes them.
    fresh = type(model)._from_config
    small = json.loads(json.dumps(raw)) | {"vocab_size": 8, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    for key, value in (("num_hidden_layers", 1), ("n_layer", 1), ("intermediate_size", 8), ("n_inner", 8)):
        if key in small:
            small[key] = value
    if raw["model_type"] == "gemma3_text":  # both layer types must exist for both sets of frequencies
        small["num_hidden_layers"] = 6
    donor = fresh(AutoConfig.for_model(**small), dtype=torch.float32)
    buffers = dict(donor.named_buffers())
    model.load_state_dict(state, strict=True, assign=True)
    for name, _ in list(model.named_buffers()):
        if name not in buffers:
            raise RuntimeError(f"no value for buffer {name}")
        owner, _, leaf = name.rpartition(".")
        model.get_submodule(owner)._buffers[leaf] = buffers[name]
    for module_name, module in donor.named_modules():
        for attribute in ("attention_scaling", "scalar_embed_scale"):
            if hasattr(module, attribute):
                setattr(model.get_submodule(module_name), attribute, getattr(module, attribute))
    model.tie_weights()
    return model.eval(), meta


_SPLITS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "smollm": r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}


def _byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}


def _merge(pieces, rank):
    while True:
        pairs = [(rank(a, b), i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if rank(a, b) is not None]
        if not pairs:
            return pieces
        at = min(pairs)[1]
        pieces = [*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2:]]


def encode(meta, text):
    """Ids of a text without special tokens inside; begins with BOS where the file says so."""
    tokens = meta["tokenizer.ggml.tokens"]
    ids = {token: i for i, token in enumerate(tokens)}
    out = [meta["tokenizer.ggml.bos_token_id"]] if meta.get("tokenizer.ggml.add_bos_token") else []
    if meta["tokenizer.ggml.model"] == "llama":
        scores = meta["tokenizer.ggml.scores"]
        marked = text.replace(" ", "\u2581")
        for piece in _merge(list(marked), lambda a, b: -scores[ids[a + b]] if a + b in ids else None):
            out += [ids[piece]] if piece in ids else [ids[f"<0x{b:02X}>"] for b in piece.encode()]
        return out
    alphabet = _byte_alphabet()
    ranks = {tuple(m.split(" ")): i for i, m in enumerate(meta["tokenizer.ggml.merges"])}
    for word in regex.findall(_SPLITS[meta.get("tokenizer.ggml.pre", "gpt-2")], text):
        pieces = _merge([alphabet[b] for b in word.encode()], lambda a, b: ranks.get((a, b)))
        out += [ids[p] for p in pieces]
    return out
