"""Rules of a model file, broken one at a time. Each entry says what a reader must do: refuse, warn, or accept."""

import dataclasses
import json
import pathlib
import struct
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass
class Model:
    out: pathlib.Path
    gguf: bool
    config: dict  # what the weights were made for
    weights: dict
    tokenizer_vocab: int | None
    lies: dict = dataclasses.field(default_factory=dict)  # config.json values written last; ... leaves a key out
    overrides: dict = dataclasses.field(default_factory=dict)  # GGUF metadata, as tiny_writers.write_gguf takes it

    @property
    def data_file(self):
        return self.out if self.gguf else self.out / "model.safetensors"


@dataclasses.dataclass
class Mutation:
    name: str
    expected: str  # "refuse", "warn", "accept"
    what: str
    formats: str = "both"  # "both", "gguf", "safetensors"
    skip: tuple = ()  # architectures that do not have what is broken
    before: Callable | None = None
    after: Callable | None = None


def rewrite_config(model):
    if not model.lies:
        return
    config = {k: v for k, v in (model.config | model.lies).items() if v is not ...}
    (model.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def lie(json_key, gguf_key, value, method="uint32"):
    """Sets one value in whichever place the format has; None for a place that the format lacks."""

    def before(model):
        if model.gguf:
            key = gguf_key.replace("rms_epsilon", "epsilon") if "n_embd" in model.config else gguf_key
            model.overrides[key] = None if value is ... else (method, value)
        else:
            key = json_key
            if "n_embd" in model.config:
                key = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                       "intermediate_size": "n_inner", "max_position_embeddings": "n_positions",
                       "rms_norm_eps": "layer_norm_epsilon"}.get(key, key)  # fmt: skip
            model.lies[key] = value

    return before


def pick(model, part):
    return next(name for name in model.weights if any(p in name for p in part.split("|")))


def on_weight(part, change):
    def before(model):
        name = pick(model, part)
        value = change(model.weights[name].copy())
        if value is None:
            del model.weights[name]
        else:
            model.weights[name] = value

    return before


def poison(value):
    def change(array):
        array.reshape(-1)[array.size // 2] = value
        return array

    return change


def add_tensor(name, shape):
    def before(model):
        model.weights[name] = np.ones(shape, np.float32)

    return before


def head(tied, present):
    """The four combinations of flag and tensor; GGUF has no flag."""

    def before(model):
        embedding = model.weights[pick(model, "wte" if "n_embd" in model.config else "embed_tokens")]
        model.weights.pop("lm_head.weight", None)
        if present:
            model.weights["lm_head.weight"] = embedding * np.float32(1 if tied == "equal" else 2)
        model.lies["tie_word_embeddings"] = bool(tied)

    return before


def bytes_of(change):
    def after(model):
        data = model.data_file.read_bytes()
        model.data_file.write_bytes(change(data))

    return after


def nan_scale(model):
    """Sets the f16 scale of the first block of the last quantized matrix to NaN."""
    import gguf

    reader = gguf.GGUFReader(str(model.out))
    tensor = next(t for t in reversed(reader.tensors) if t.tensor_type.name not in ("F32", "F16", "BF16"))
    at = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208}.get(tensor.tensor_type.name, 0)
    offset = int(tensor.data_offset) + at
    name = tensor.tensor_type.name
    del reader, tensor
    data = bytearray(model.out.read_bytes())
    data[offset : offset + 2] = b"\xff\xff" if name == "MXFP4" else struct.pack("<H", 0x7E00)
    model.out.write_bytes(bytes(data))


def drop_tokenizer(model):
    model.tokenizer_vocab = None


A = "{arch}."
GPT = ("gpt2", "gpt_bigcode")
MUTATIONS = [
    Mutation("missing-tensor", "refuse", "a layer's matrix is absent", before=on_weight("1.mlp", lambda _: None)),
    Mutation("missing-norm", "refuse", "the last norm is absent", before=lambda m: m.weights.pop(
        "transformer.ln_f.weight" if "n_embd" in m.config else "model.norm.weight")),
    Mutation("missing-embedding", "refuse", "the token embedding is absent",
             before=lambda m: m.weights.pop(next(iter(m.weights)))),
    Mutation("extra-tensor", "warn", "a tensor that no architecture has", before=add_tensor("extra.weight", (4, 32))),
    Mutation("wrong-shape", "refuse", "a matrix is transposed",
             before=on_weight("1.mlp", lambda w: np.ascontiguousarray(w.T))),
    Mutation("short-rows", "refuse", "a matrix has half its output rows",
             before=on_weight("1.mlp", lambda w: w[: len(w) // 2].copy())),
    Mutation("norm-shape", "refuse", "a norm is twice as long", before=on_weight(
        "norm|ln_", lambda w: np.concatenate([w, w]))),
    Mutation("wrong-rank", "refuse", "a matrix has three dimensions", before=on_weight(
        "1.mlp", lambda w: w.reshape(2, w.shape[0] // 2, w.shape[1])), formats="safetensors"),
    Mutation("nan-weight", "accept", "one NaN in a matrix: requests that meet it end with an error",
             before=on_weight("1.mlp", poison(np.nan)), formats="safetensors"),
    Mutation("inf-weight", "accept", "one infinity in a matrix", before=on_weight("1.mlp", poison(np.inf)),
             formats="safetensors"),
    Mutation("nan-scale", "accept", "one block's scale is NaN", formats="gguf", after=nan_scale),
    Mutation("tied-and-present", "accept", "flag tied, head present and equal", before=head("equal", True)),
    Mutation("tied-and-different", "warn", "flag tied, head present and different", before=head("other", True),
             formats="safetensors"),
    Mutation("untied-and-present", "accept", "flag untied, head present", before=head("", True)),
    Mutation("untied-and-absent", "refuse", "flag untied, head absent", before=head("", False), formats="safetensors"),
    Mutation("tokenizer-missing", "refuse", "no tokenizer at all", before=drop_tokenizer),
    Mutation("hidden-zero", "refuse", "hidden size 0", before=lie("hidden_size", A + "embedding_length", 0)),
    Mutation("hidden-negative", "refuse", "hidden size -64",
             before=lie("hidden_size", A + "embedding_length", -64, "int32")),
    Mutation("hidden-huge", "refuse", "hidden size 2^62",
             before=lie("hidden_size", A + "embedding_length", 1 << 62, "uint64")),
    Mutation("hidden-lie", "refuse", "hidden size twice that of the tensors",
             before=lambda m: lie("hidden_size", A + "embedding_length",
                                  2 * m.config.get("hidden_size", m.config.get("n_embd")))(m)),
    Mutation("hidden-missing", "refuse", "no hidden size", before=lie("hidden_size", A + "embedding_length", ...)),
    Mutation("hidden-text", "refuse", "hidden size as text",
             before=lie("hidden_size", A + "embedding_length", "64", "string")),
    Mutation("layers-more", "refuse", "more layers than tensors", before=lie("num_hidden_layers", A + "block_count", 9)),
    Mutation("layers-fewer", "warn", "tensors of a layer that the count leaves out",
             before=lie("num_hidden_layers", A + "block_count", 1)),
    Mutation("layers-huge", "refuse", "2^31 layers",
             before=lie("num_hidden_layers", A + "block_count", 1 << 31, "uint64")),
    Mutation("heads-zero", "refuse", "no heads", before=lie("num_attention_heads", A + "attention.head_count", 0)),
    Mutation("heads-uneven", "refuse", "heads that do not divide the hidden size",
             before=lie("num_attention_heads", A + "attention.head_count", 5)),
    Mutation("kv-heads-uneven", "refuse", "key-value heads that do not divide the heads", skip=GPT,
             before=lie("num_key_value_heads", A + "attention.head_count_kv", 3)),
    Mutation("kv-heads-lie", "refuse", "fewer key-value heads than the tensors hold", skip=GPT,
             before=lie("num_key_value_heads", A + "attention.head_count_kv", 1)),
    Mutation("head-dim-odd", "refuse", "heads of 15", skip=GPT, before=lie("head_dim", A + "attention.key_length", 15)),
    Mutation("head-dim-lie", "refuse", "heads of twice the size", skip=GPT, before=lie("head_dim", A + "attention.key_length", 32)),
    Mutation("rotary-too-large", "refuse", "more rotary dimensions than a head has", skip=GPT,
             before=lie("partial_rotary_factor", A + "rope.dimension_count", 64)),
    Mutation("intermediate-lie", "refuse", "an inner size that the tensors do not have",
             before=lie("intermediate_size", A + "feed_forward_length", 96)),
    Mutation("vocab-more", "refuse", "a vocabulary larger than the embedding",
             before=lie("vocab_size", A + "vocab_size", 100000)),
    Mutation("vocab-less", "refuse", "a vocabulary smaller than the embedding",
             before=lie("vocab_size", A + "vocab_size", 300)),
    Mutation("positions-zero", "refuse", "no positions",
             before=lie("max_position_embeddings", A + "context_length", 0)),
    Mutation("eps-zero", "refuse", "epsilon 0",
             before=lie("rms_norm_eps", A + "attention.layer_norm_rms_epsilon", 0.0, "float32")),
    Mutation("eps-negative", "refuse", "epsilon below 0",
             before=lie("rms_norm_eps", A + "attention.layer_norm_rms_epsilon", -1e-5, "float32")),
    Mutation("eps-huge", "refuse", "epsilon 1000",
             before=lie("rms_norm_eps", A + "attention.layer_norm_rms_epsilon", 1000.0, "float32")),
    Mutation("eps-nan", "refuse", "epsilon NaN",
             before=lie("rms_norm_eps", A + "attention.layer_norm_rms_epsilon", float("nan"), "float32")),
    Mutation("theta-zero", "refuse", "RoPE base 0", skip=GPT, before=lie("rope_theta", A + "rope.freq_base", 0.0, "float32")),
    Mutation("rope-unknown", "refuse", "an unknown RoPE scaling", skip=GPT, before=lambda m: (
        lie("rope_scaling", A + "rope.scaling.type", "mystery" if m.gguf else {"rope_type": "mystery", "factor": 2.0},
            "string")(m), m.overrides.update({A + "rope.scaling.factor": ("float32", 2.0)}))),
    Mutation("eos-outside", "refuse", "an end token outside the vocabulary",
             before=lie("eos_token_id", "tokenizer.ggml.eos_token_id", 1 << 20)),
    Mutation("eos-list", "accept", "a list of end tokens", before=lie("eos_token_id", None, [2, 0]),
             formats="safetensors"),
    Mutation("eos-text", "refuse", "an end token as text",
             before=lie("eos_token_id", "tokenizer.ggml.eos_token_id", "2", "string")),
    Mutation("activation-unknown", "refuse", "an unknown activation", skip=GPT, before=lie("hidden_act", None, "mystery"),
             formats="safetensors"),
    Mutation("architecture-unknown", "refuse", "an unknown architecture",
             before=lie("model_type", "general.architecture", "mystery", "string")),
    Mutation("architecture-missing", "refuse", "no architecture",
             before=lie("model_type", "general.architecture", ...)),
    Mutation("quantized", "refuse", "a quantization that is not there",
             before=lie("quantization_config", None, {"quant_method": "gptq", "bits": 4}), formats="safetensors"),
    Mutation("experts", "refuse", "a mixture of experts", before=lie("num_local_experts", A + "expert_count", 8)),
    Mutation("tokens-more", "refuse", "more tokens than embedding rows", formats="gguf",
             before=lambda m: setattr(m, "tokenizer_vocab", m.config["vocab_size"] + 7)),
    Mutation("config-empty", "refuse", "config.json is empty", formats="safetensors",
             after=lambda m: (m.out / "config.json").write_text("")),
    Mutation("config-missing", "refuse", "no config.json", formats="safetensors",
             after=lambda m: (m.out / "config.json").unlink()),
    Mutation("weights-missing", "refuse", "no model.safetensors", formats="safetensors",
             after=lambda m: m.data_file.unlink()),
    Mutation("file-empty", "refuse", "a file of no bytes", after=bytes_of(lambda d: b"")),
    Mutation("magic", "refuse", "another magic number", formats="gguf", after=bytes_of(lambda d: b"FUGG" + d[4:])),
    Mutation("version", "refuse", "version 77", formats="gguf",
             after=bytes_of(lambda d: d[:4] + struct.pack("<I", 77) + d[8:])),
    Mutation("header-huge", "refuse", "counts of 2^63", after=bytes_of(
        lambda d: d[:8] + struct.pack("<Q", 1 << 63) + d[16:] if d[:4] == b"GGUF" else struct.pack("<Q", 1 << 63) + d[8:])),
    Mutation("cut-header", "refuse", "cut inside the header", after=bytes_of(lambda d: d[:100])),
    Mutation("cut-data", "refuse", "the last byte is missing", after=bytes_of(lambda d: d[: len(d) - 64])),
]  # fmt: skip


def listing():
    return "\n".join(f"{m.name:22} {m.expected:7} {m.formats:12} {m.what}" for m in MUTATIONS)


def find(name, gguf):
    for mutation in MUTATIONS:
        if mutation.name == name:
            if mutation.formats not in ("both", "gguf" if gguf else "safetensors"):
                raise SystemExit(f"{name} is for {mutation.formats} only")
            return mutation
    raise SystemExit(f"no mutation {name}; --list-mutations shows them")
