"""A small byte-level BPE tokenizer with ChatML specials, trained on the text below; the same for every seed."""

import functools
import re

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What the split below does not know (a word boundary inside a special token) cannot occur in this text.
TRAINING_TEXT = """
The wheel turns as long as the stream runs. A small stream can turn a large wheel when little of it is wasted, and a
large stream is wasted on a wheel that leaks. The miller knows the stream and the builder knows the wheel; between
them they know how much grain can be ground in a day, and neither of them asks the river for more than it has.
When the water is low they wait, and when the water is high they open the second gate. Every gate has a keeper and
every keeper has a lamp, so that the work goes on in the night as it does in the day: the same stones, the same grain,
the same flour, whoever stands beside the wheel.
def turn(wheel, stream, hours=24):
    for hour in range(hours):
        if stream.level < wheel.least:
            return hour
        wheel.turn(stream.level)
    return hours
The answer to the question is the number of turns, and the number of turns is the answer to the question.
"""
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ASCII_PATTERN = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(rest)}


@functools.cache
def train(vocab_size):
    """(tokens in id order, merges). As many merges as the vocabulary and the text allow."""
    alphabet = byte_alphabet()
    tokens = SPECIALS + [alphabet[b] for b in range(256)]
    if vocab_size < len(tokens):
        raise SystemExit(f"a vocabulary of {vocab_size} has no room for {len(tokens)} bytes and specials")
    words = [[alphabet[b] for b in w.encode()] for w in _ASCII_PATTERN.findall(TRAINING_TEXT)]
    merges = []
    while len(tokens) < vocab_size:
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        pairs = [(-count, pair) for pair, count in counts.items() if count > 1 and "".join(pair) not in tokens]
        if not pairs:
            break
        first, second = min(pairs)[1]
        merges.append((first, second))
        tokens.append(first + second)
        for word in words:
            at = 0
            while at + 1 < len(word):
                if word[at] == first and word[at + 1] == second:
                    word[at : at + 2] = [first + second]
                at += 1
    return tuple(tokens), tuple(merges)


def tokenizer_json(vocab_size):
    tokens, merges = train(vocab_size)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, token in enumerate(SPECIALS)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": [list(m) for m in merges]},
    }  # fmt: skip


def tokenizer_config():
    return {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[0], "eos_token": SPECIALS[2],
            "add_bos_token": False, "chat_template": CHAT_TEMPLATE}  # fmt: skip


def gguf_metadata(vocab_size):
    """Keys under tokenizer.ggml, except the ids of special tokens."""
    tokens, merges = train(vocab_size)
    # GGUF lists a token for every row of the embedding.
    padded = [*tokens, *(f"[PAD{i}]" for i in range(len(tokens), vocab_size))]
    types = [3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)) + [5] * (len(padded) - len(tokens))
    return {"model": "gpt2", "pre": "gpt-2", "tokens": padded, "token_type": types,
            "merges": [" ".join(m) for m in merges], "add_bos_token": False}  # fmt: skip
