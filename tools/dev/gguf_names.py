"""Names and layouts of tensors: Hugging Face's and GGUF's, and the way between them.

One direction is enough for both uses: whoever has the Hugging Face name of a tensor asks for the GGUF name, and for the
GGUF layout of its value or back.
"""

import re

import numpy as np

# architecture in GGUF by model_type
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3",
                 "phi3": "phi3", "gpt2": "gpt2", "gpt_bigcode": "starcoder"}  # fmt: skip

_GLOBAL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
           "transformer.wte": "token_embd", "transformer.wpe": "position_embd",
           "transformer.ln_f": "output_norm"}  # fmt: skip

_LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
          "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
          "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
          "post_attention_layernorm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
          "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
          "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "ln_1": "attn_norm", "attn.c_attn": "attn_qkv",
          "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}  # fmt: skip


def gguf_name(model_type, name):
    stem, suffix = name.rsplit(".", 1)
    if stem in _GLOBAL:
        return f"{_GLOBAL[stem]}.{suffix}"
    layer, part = re.fullmatch(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.+)", stem).groups()
    mapped = _LAYER[part]
    if model_type == "gemma3_text" and part == "post_attention_layernorm":
        mapped = "post_attention_norm"
    return f"blk.{layer}.{mapped}.{suffix}"


def _heads(config, name):
    """Number of heads whose rows GGUF permutes in this tensor, or none."""
    if config["model_type"] not in ("llama", "mistral"):
        return None
    if "self_attn.q_proj" in name:
        return config["num_attention_heads"]
    if "self_attn.k_proj" in name:
        return config.get("num_key_value_heads") or config["num_attention_heads"]
    return None


def _transposed(config, name):
    return config["model_type"] == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def _offset(config, name):
    return 1.0 if config["model_type"] == "gemma3_text" and name.endswith("norm.weight") else 0.0


def to_gguf(config, name, value):
    """The value of a Hugging Face tensor as GGUF stores it."""
    if (heads := _heads(config, name)) is not None:
        rows = value.shape[0] // heads
        value = value.reshape(heads, 2, rows // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    if _transposed(config, name):
        value = value.T
    return np.ascontiguousarray(value + np.float32(_offset(config, name)) if _offset(config, name) else value)


def from_gguf(config, name, value):
    """The inverse of to_gguf."""
    if (heads := _heads(config, name)) is not None:
        rows = value.shape[0] // heads
        value = value.reshape(heads, rows // 2, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    if _transposed(config, name):
        value = value.T
    return np.ascontiguousarray(value - np.float32(_offset(config, name)) if _offset(config, name) else value)
