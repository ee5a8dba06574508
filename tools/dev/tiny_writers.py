"""Model files from configuration and weights by Hugging Face name: safetensors folders and GGUF."""

import json
import pathlib
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import gguf_names
import tiny_tokenizer

SAFETENSORS_TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
GGUF_TYPES = {t.name: t for t in (Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0,
                                  Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.IQ4_XS,
                                  Type.MXFP4)}  # fmt: skip
# Types that the gguf package cannot write: where a block's f16 scales lie, and the scale that gives weights of about
# unit variance (with the minimum's scale, if any, as a multiple of it).
_RANDOM_BLOCKS = {"Q2_K": (80, 0.09, 82, 1.5), "Q3_K": (108, 0.025, None, 0), "Q4_K": (0, 0.0045, 2, 7.5),
                  "Q5_K": (0, 0.0022, 2, 15.5), "Q6_K": (208, 0.00075, None, 0), "IQ4_NL": (0, 0.015, None, 0),
                  "IQ4_XS": (0, 0.0008, None, 0)}  # fmt: skip


def to_bf16(value):
    """Round to nearest even, as uint16."""
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def plain_bytes(value, dtype):
    if dtype == "bf16":
        return to_bf16(value).tobytes()
    return np.ascontiguousarray(value).astype({"f32": "<f4", "f16": "<f2"}[dtype]).tobytes()


def safetensors_bytes(tensors, dtype):
    """`tensors`: {name: float32 array}."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, value in tensors.items():
        blob = plain_bytes(value, dtype)
        header[name] = {"dtype": SAFETENSORS_TYPES[dtype], "shape": list(value.shape),
                        "data_offsets": [offset, offset + len(blob)]}  # fmt: skip
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(blobs)


def write_folder(out, config, tensors, dtype, tokenizer_vocab):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out / "model.safetensors").write_bytes(safetensors_bytes(tensors, dtype))
    if tokenizer_vocab:
        (out / "tokenizer.json").write_text(
            json.dumps(tiny_tokenizer.tokenizer_json(tokenizer_vocab), ensure_ascii=False) + "\n")
        (out / "tokenizer_config.json").write_text(json.dumps(tiny_tokenizer.tokenizer_config(), indent=1) + "\n")


def random_blocks(shape, type_name, scale, rng):
    """Blocks of random codes whose scales are finite and give values of about `scale` in magnitude."""
    elements, size = gguf.GGML_QUANT_SIZES[GGUF_TYPES[type_name]]
    at, unit, minimum_at, minimum = _RANDOM_BLOCKS[type_name]
    rows = int(np.prod(shape[:-1]))
    blocks = rng.integers(0, 256, (rows, shape[-1] // elements, size), dtype=np.uint8)
    d = (unit * scale * rng.uniform(0.7, 1.3, blocks.shape[:2])).astype("<f2")
    blocks[..., at : at + 2] = d[..., None].view(np.uint8)
    if minimum_at is not None:
        blocks[..., minimum_at : minimum_at + 2] = (d * np.float16(minimum)).astype("<f2")[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def block_data(value, type_name, rng):
    """(bytes as the writer wants them, type) of a matrix; types that need other row lengths fall back to F16."""
    kind = GGUF_TYPES[type_name]
    if value.ndim < 2 or kind == Type.F32:
        return value.astype(np.float32), Type.F32
    elements, _ = gguf.GGML_QUANT_SIZES[kind]
    if value.shape[-1] % elements:
        raise SystemExit(f"rows of {value.shape[-1]} do not fill {type_name} blocks of {elements}")
    if type_name in _RANDOM_BLOCKS:
        return random_blocks(value.shape, type_name, float(value.std()), rng), kind
    return gguf.quants.quantize(value, kind), kind


def _model_metadata(writer, config):
    c = config
    gpt = c["model_type"] in ("gpt2", "gpt_bigcode")
    hidden, heads = c["n_embd" if gpt else "hidden_size"], c["n_head" if gpt else "num_attention_heads"]
    writer.add_block_count(c["n_layer" if gpt else "num_hidden_layers"])
    writer.add_context_length(c["n_positions" if gpt else "max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_head_count(heads)
    writer.add_vocab_size(c["vocab_size"])
    if gpt:
        writer.add_feed_forward_length(c.get("n_inner") or 4 * hidden)
        writer.add_layer_norm_eps(c["layer_norm_epsilon"])
        writer.add_head_count_kv(1 if c.get("multi_query") else heads)
        return
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(c["rope_theta"])
    if "head_dim" in c:
        writer.add_key_length(c["head_dim"])
        writer.add_value_length(c["head_dim"])
    head_dim = c.get("head_dim", hidden // heads)
    writer.add_rope_dimension_count(int(head_dim * c.get("partial_rotary_factor", 1.0)))
    if c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])
    if c["model_type"] == "gemma3_text" and c.get("sliding_window_pattern", 6) != 6:
        writer.add_uint32(f"{gguf_names.ARCHITECTURES['gemma3_text']}.attention.sliding_window_pattern",
                          c["sliding_window_pattern"])
    scaling = c.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind in ("yarn", "longrope"):
        trained = scaling.get("original_max_position_embeddings") or c["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(trained)
        if kind == "longrope":
            stretch = c["max_position_embeddings"] / trained
            writer.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(stretch) / np.log(trained)) if stretch > 1 else 1.0)


def _rope_tensors(config):
    """Frequency factors that converters compute from the configuration, {name: float32}."""
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "longrope":
        return {f"rope_factors_{k}.weight": np.array(scaling[f"{k}_factor"], np.float32) for k in ("short", "long")}
    if kind != "llama3":
        return {}
    dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    wavelengths = 2 * np.pi * config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    trained, low, high = (scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor",
                                               "high_freq_factor"))  # fmt: skip
    smooth = np.clip((trained / wavelengths - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32)}


def write_gguf(path, config, tensors, type_name, tokenizer_vocab, seed=0, overrides=None):
    """`overrides`: {key: (writer method, value) or None to leave out} for tests of bad metadata."""
    rng = np.random.default_rng(seed)
    arch = gguf_names.ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_name("tiny")
    _model_metadata(writer, config)
    if tokenizer_vocab:
        for key, value in tiny_tokenizer.gguf_metadata(tokenizer_vocab).items():
            add = {str: writer.add_string, bool: writer.add_bool, list: writer.add_array}[type(value)]
            add(f"tokenizer.ggml.{key}", value)
        writer.add_chat_template(tiny_tokenizer.CHAT_TEMPLATE)
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    eos = config.get("eos_token_id")
    if eos is not None:
        writer.add_eos_token_id(eos[0] if isinstance(eos, list) else eos)
    for key, change in (overrides or {}).items():
        key = key.replace("{arch}", arch)
        for shard in writer.kv_data:
            shard.pop(key, None)
        if change is not None:
            getattr(writer, f"add_{change[0]}")(key, change[1])
    for name, value in (_rope_tensors(config) if config["model_type"] not in ("gpt2", "gpt_bigcode") else {}).items():
        writer.add_tensor(name, value)
    for name, value in tensors.items():
        try:
            mapped = gguf_names.gguf_name(config["model_type"], name)
        except (AttributeError, KeyError):  # a tensor of no architecture
            mapped = name
        whole = gguf_names.to_gguf(config, name, value)
        # Positions are looked up, never multiplied: converters keep them plain.
        kind = type_name if not mapped.startswith("position_embd") else "F32"
        data, raw = block_data(whole, kind, rng)
        writer.add_tensor(mapped, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
