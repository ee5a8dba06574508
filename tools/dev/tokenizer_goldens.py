#!/usr/bin/env python3
"""Writes tests/golden/text: the texts, the tiny tokenizers and the ids and decoded texts that references give.

    tools/dev/tokenizer_goldens.py --out tests/golden/text [--models DIR ...] [--only NAME]

Each golden file holds, for every text, one 32-bit FNV-1a hash (eight hexadecimal digits) over its ids without special
tokens, its ids with them (little-endian int32 both), and the UTF-8 text that the latter decode to with and without special
tokens; and all ids of every 100th text. GGUF files are compared with `tokenizers` objects
rebuilt from their metadata (for llama-type vocabularies: a BPE with byte fallback whose merges come from the scores)."""
import argparse
import json
import os
import random
import struct

from tokenizers import Tokenizer

import tokenizer_corpus
import tokenizer_reference

FULL = 100


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def plain_ids(tokenizer, text):
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


def special_ids(tokenizer, text):
    tokenizer.encode_special_tokens = False
    return tokenizer.encode(text, add_special_tokens=True).ids


def random_ids(tokenizer, index):
    """Id sequences that no text gives: torn characters, runs of byte tokens, control tokens."""
    rng = random.Random(index)
    return [rng.randrange(tokenizer.get_vocab_size(with_added_tokens=True)) for _ in range(rng.randrange(1, 12))]


def golden(tokenizer, texts, decode=True):
    plain = [plain_ids(tokenizer, t) for t in texts]
    special = [special_ids(tokenizer, t) for t in texts]
    strange = [random_ids(tokenizer, i) for i in range(100)]
    hashes = []
    for p, q in zip(plain, special):
        data = struct.pack("<%di" % (len(p) + len(q)), *p, *q)
        if decode:
            data += tokenizer.decode(q, skip_special_tokens=False).encode()
            data += tokenizer.decode(q, skip_special_tokens=True).encode()
        hashes.append("%08x" % fnv(data))
    return {
        "decode": decode,
        "hashes": "".join(hashes),
        "full": {str(i): special[i] for i in range(0, len(texts), FULL)},
        "strange": strange,
        "strange_hashes": "".join("%08x" % fnv(tokenizer.decode(i, skip_special_tokens=True).encode()) for i in strange),
    }


def write(path, value):
    with open(path, "w") as out:
        json.dump(value, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--only")
    args = parser.parse_args()
    texts = tokenizer_corpus.texts()
    os.makedirs(os.path.join(args.out, "tiny"), exist_ok=True)
    write(os.path.join(args.out, "corpus.json"), texts)
    if not args.models:
        for name, tokenizer in tokenizer_reference.tiny().items():
            if args.only and args.only != name:
                continue
            state = json.loads(tokenizer.to_str())
            tokenizer = Tokenizer.from_str(json.dumps(state))
            write(os.path.join(args.out, "tiny", name + ".json"), state)
            write(os.path.join(args.out, "tiny", name + ".golden.json"), golden(tokenizer, texts, name not in tokenizer_reference.DECODE_DIFFERS))
            print(name, flush=True)
    for folder in args.models:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".gguf"):
                tokenizer = tokenizer_reference.from_gguf(path)
            elif os.path.exists(os.path.join(path, "tokenizer.json")):
                tokenizer = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
            else:
                continue
            if args.only and args.only not in name:
                continue
            write(os.path.join(args.out, name + ".golden.json"), golden(tokenizer, texts))
            print(name, flush=True)


if __name__ == "__main__":
    main()
