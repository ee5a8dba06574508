"""Reference tokenizers: `tokenizers` objects rebuilt from GGUF metadata, and tiny ones for each component."""
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_corpus

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = HEAD + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
LLAMA3 = HEAD + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN35 = HEAD + r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def case_pattern(contraction, digits):
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (lead + UPPER + "*" + LOWER + "+" + contraction + "|" + lead + UPPER + "+" + LOWER + "*" + contraction + "|" + digits
            + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


O200K = case_pattern(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")
TEKKEN = case_pattern("", r"\p{N}")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"""
            r"|\s+(?!\S)|\s+")
DEEPSEEK_LETTERS = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
DEEPSEEK_MARKS = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"
HAN = "[一-龥ࠀ-一가-퟿]+"
BLANK = "\u2581"
# The reference decodes an added token with normalized=True to its normalized text and then does not know it as special.
DECODE_DIFFERS = {"bytes_added_lower", "sentencepiece_bpe"}


def isolated(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def byte_level(*steps):
    return pre_tokenizers.Sequence(list(steps) + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PRE = {
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "qwen2": lambda: byte_level(*isolated(QWEN2)),
    "llama-bpe": lambda: byte_level(*isolated(LLAMA3)),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
}


def gguf_fields(path):
    import gguf

    reader = gguf.GGUFReader(path)
    return {k: v.contents() for k, v in reader.fields.items() if k.startswith("tokenizer.ggml.")}


def from_gguf(path):
    """A `tokenizers` object with the same vocabulary. Llama-type vocabularies become a BPE with byte fallback whose merge
    list is made of the scores, as transformers converts SentencePiece models."""
    f = {k.removeprefix("tokenizer.ggml."): v for k, v in gguf_fields(path).items()}
    tokens, types = f["tokens"], f["token_type"]
    vocab = {t: i for i, t in reversed(list(enumerate(tokens)))}
    if f["model"] == "gpt2":
        merges = [tuple(m.split(" ")) for m in f["merges"]]
        out = Tokenizer(models.BPE(vocab, merges, ignore_merges=f["pre"] == "llama-bpe"))
        out.pre_tokenizer = PRE[f["pre"]]()
        out.decoder = decoders.ByteLevel()
        if f["pre"] == "qwen2":
            out.normalizer = normalizers.NFC()
    else:
        scores = f["scores"]
        usable = {t for i, t in enumerate(tokens) if types[i] in (1, 4)}
        pairs = []
        for token in usable:
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in usable and right in usable:
                    pairs.append((-scores[vocab[token]], vocab[token], left, right))
        pairs.sort(key=lambda p: (p[0], p[1], vocab[p[2]], vocab[p[3]]))
        out = Tokenizer(models.BPE(vocab, [(p[2], p[3]) for p in pairs], byte_fallback=True, unk_token=tokens[f["unknown_token_id"]], fuse_unk=True))
        prefix = f.get("add_space_prefix", True)
        out.normalizer = normalizers.Sequence(([normalizers.Prepend(BLANK)] if prefix else []) + [normalizers.Replace(" ", BLANK)])
        steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
        out.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    special = [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k in (2, 3)]
    user = [AddedToken(t, special=False, normalized=False) for t, k in zip(tokens, types) if k == 4]
    out.add_special_tokens(special)
    out.add_tokens(user)
    if f.get("add_bos_token", f["model"] == "llama" or f.get("pre") == "llama-bpe"):
        bos = tokens[f["bos_token_id"]]
        out.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, f["bos_token_id"])])
    return out


def charsmap():
    """A small precompiled character map, made by SentencePiece from a few rules of our own."""
    import io
    import os
    import tempfile

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb

    rules = [("FF21", "41"), ("FB01", "66 69"), ("2126", "3A9"), ("65 301", "E9"), ("2460", "31"), ("3000", "20"), ("9", "20"), ("1F600", "3A 29"), ("AD", ""), ("61 300", "E0"), ("D A", "A"), ("2122", "74 6D"), ("C5", "61 61")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.tsv")
        with open(path, "w") as f:
            f.writelines("%s\t%s\n" % r for r in rules)
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(list(tokenizer_corpus.SENTENCES.values())[:20]), model_writer=model, vocab_size=150, hard_vocab_limit=False,
                                                 normalization_rule_tsv=path, character_coverage=0.98, minloglevel=2)
    proto = pb.ModelProto.FromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def train_bpe(pre=None, size=340, normalizer=None, alphabet=None, limit=120, **model):
    out = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        out.normalizer = normalizer
    if pre is not None:
        out.pre_tokenizer = pre
    extra = {k: model[k] for k in ("continuing_subword_prefix", "end_of_word_suffix") if k in model}
    special = ([model["unk_token"]] if model.get("unk_token") else []) + (["<0x%02X>" % b for b in range(256)] if model.get("byte_fallback") else [])
    trainer = trainers.BpeTrainer(vocab_size=size + len(special), show_progress=False, initial_alphabet=alphabet or [], special_tokens=special, limit_alphabet=limit, **extra)
    out.train_from_iterator(list(tokenizer_corpus.SENTENCES.values())[:24] + tokenizer_corpus.CODE, trainer)
    return out


BYTES = pre_tokenizers.ByteLevel.alphabet()


def train_bytes(pre, **more):
    out = train_bpe(pre, 380, alphabet=BYTES, limit=1000, **more)
    out.decoder = decoders.ByteLevel()
    return out


def word_chars(pre=None, normalizer=None):
    """A model that shows every piece border: single characters, with a marked one at each piece's end."""
    chars = sorted(set("".join(list(tokenizer_corpus.SENTENCES.values())[:12])) | set(" \n\t▁-_.,'0123456789") | set("abcdefghijklmnopqrstuvwxyz"))
    vocab = {"<unk>": 0}
    for c in chars:
        vocab.setdefault(c, len(vocab))
        vocab.setdefault(c + "</w>", len(vocab))
    out = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    if pre is not None:
        out.pre_tokenizer = pre
    if normalizer is not None:
        out.normalizer = normalizer
    out.decoder = decoders.BPEDecoder(suffix="</w>")
    return out


def unigram(pre=None, normalizer=None, byte_fallback=False, decoder=None):
    out = Tokenizer(models.Unigram())
    if pre is not None:
        out.pre_tokenizer = pre
    if normalizer is not None:
        out.normalizer = normalizer
    special = ["<unk>", "<s>", "</s>"] + (["<0x%02X>" % b for b in range(256)] if byte_fallback else [])
    trainer = trainers.UnigramTrainer(vocab_size=300 + len(special), show_progress=False, special_tokens=special, unk_token="<unk>")
    out.train_from_iterator(list(tokenizer_corpus.SENTENCES.values())[:24], trainer)
    import json

    state = json.loads(out.to_str())
    # Training is not reproducible to the last bit, nor are its ties: short scores, pieces in order.
    head, tail = state["model"]["vocab"][: len(special)], state["model"]["vocab"][len(special):]
    state["model"]["vocab"] = head + sorted(([t, round(s, 3)] for t, s in tail), key=lambda p: (-p[1], p[0]))
    state["model"]["byte_fallback"] = byte_fallback
    # Only pieces of the model: as added tokens, their text in a plain string would become them in the reference's unigram model.
    state["added_tokens"] = []
    out = Tokenizer.from_str(json.dumps(state))
    if decoder is not None:
        out.decoder = decoder
    return out


def llama_style(scheme, split):
    out = unigram(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split), byte_fallback=True)
    out.decoder = decoders.Sequence([decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return out


def sentencepiece_bpe():
    out = train_bpe(None, 320, normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    out.decoder = decoders.Sequence([decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    out.add_special_tokens([AddedToken("<s>", special=True, normalized=True), AddedToken("</s>", special=True, normalized=False)])
    out.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", out.token_to_id("<s>")), ("</s>", out.token_to_id("</s>"))])
    return out


def with_added(out):
    out.add_tokens([AddedToken("TOK"), AddedToken("hello", single_word=True), AddedToken("<h1>", lstrip=True), AddedToken("</h1>", rstrip=True), AddedToken("<think>", normalized=False),
                    AddedToken("it", single_word=True, lstrip=True, rstrip=True), AddedToken("ÀB", normalized=True), AddedToken("\n\n"), AddedToken("\n\n\n"), AddedToken("  ")])
    out.add_special_tokens([AddedToken("<|im_end|>", special=True), AddedToken("<|im_start|>", special=True, lstrip=True, rstrip=True), AddedToken("<mask>", special=True, lstrip=True, normalized=True), AddedToken("<|endoftext|>", special=True)])
    return out


def word_piece():
    out = Tokenizer(models.WordPiece({}, unk_token="[UNK]", max_input_chars_per_word=40))
    out.normalizer = normalizers.BertNormalizer()
    out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    out.train_from_iterator(tokenizer_corpus.SENTENCES.values(), trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    out.decoder = decoders.WordPiece()
    out.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return out


def word_level(pre):
    words = sorted({w for s in list(tokenizer_corpus.SENTENCES.values())[:20] for w, _ in pre.pre_tokenize_str(s)})
    out = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[UNK]"] + words)}, unk_token="[UNK]"))
    out.pre_tokenizer = pre
    return out


def tiny():
    """Name to tokenizer: each component at least once."""
    P, N, D = pre_tokenizers, normalizers, decoders
    out = {}
    for name, steps in {
        "gpt2_regex": isolated(GPT2), "qwen2_regex": isolated(QWEN2), "llama3_regex": isolated(LLAMA3), "qwen35_regex": isolated(QWEN35), "o200k_regex": isolated(O200K),
        "tekken_regex": isolated(TEKKEN), "deepseek_regex": isolated(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK), "other_regex": isolated(r"\s?\p{Lu}\p{Ll}*|\d{2}|[^\s\w]+$|\w+(?=\s)|\s+"),
        "starcoder": [P.Digits(individual_digits=True)],
        # As llama.cpp cuts for files of these names.
        "deepseek_llm": isolated(r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_MARKS, r"\s+$", HAN, r"\p{N}+"),
        "deepseek_coder": isolated(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN, r"\p{N}"),
        "falcon": isolated(r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"),
        "gguf_default": isolated(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    }.items():
        pre = byte_level(*steps) if name != "starcoder" else P.Sequence(steps + [P.ByteLevel(add_prefix_space=False)])
        out["bytes_" + name] = train_bytes(pre)
    out["bytes_prefix_space"] = train_bytes(P.ByteLevel(add_prefix_space=True))
    out["bytes_prefix_space"].post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(single="A $0 B", special_tokens=[("A", 40), ("B", 41)])])
    out["bytes_ignore_merges"] = train_bytes(byte_level(*isolated(LLAMA3)), ignore_merges=True)
    out["bytes_first"] = train_bpe(P.Sequence([P.ByteLevel(add_prefix_space=False), P.Digits(individual_digits=True)]), 330, alphabet=BYTES)
    out["bytes_normalizer"] = train_bpe(None, 330, N.Sequence([N.NFC(), N.ByteLevel()]), alphabet=BYTES)
    out["bytes_normalizer"].decoder = D.ByteLevel()
    out["bytes_added"] = with_added(train_bytes(byte_level(*isolated(QWEN2)), normalizer=N.NFC()))
    out["bytes_added_lower"] = with_added(train_bytes(P.ByteLevel(add_prefix_space=False), normalizer=N.Lowercase()))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        out["split_" + behavior] = word_chars(P.Split(Regex(r"[\s\-]+|\d"), behavior))
        out["split_invert_" + behavior] = word_chars(P.Split(Regex(r"\w"), behavior, invert=True))
        out["split_string_" + behavior] = word_chars(P.Split("a", behavior))
        out["punctuation_" + behavior] = word_chars(P.Punctuation(behavior))
    out["digits"] = word_chars(P.Digits(individual_digits=False))
    out["whitespace"] = word_chars(P.Whitespace())
    out["whitespace_split"] = word_chars(P.Sequence([P.WhitespaceSplit(), P.Digits(individual_digits=True)]))
    out["delimiter"] = word_chars(P.CharDelimiterSplit("-"))
    for scheme in ("always", "first", "never"):
        out["metaspace_" + scheme] = llama_style(scheme, True)
        out["metaspace_whole_" + scheme] = llama_style(scheme, False)
        out["metaspace_chars_" + scheme] = with_added(word_chars(P.Metaspace(prepend_scheme=scheme)))
        out["metaspace_chars_" + scheme].decoder = D.Metaspace(prepend_scheme=scheme)
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        out["normalizer_" + form] = train_bytes(P.ByteLevel(add_prefix_space=False), normalizer=getattr(N, form)())
    out["normalizer_strip"] = word_chars(P.WhitespaceSplit(), N.Sequence([N.Strip(), N.Replace(Regex(r"\s{2,}"), " "), N.Replace("é", "e"), N.NFD(), N.StripAccents()]))
    out["normalizer_strip_left"] = word_chars(None, N.Strip(left=True, right=False))
    out["normalizer_bert"] = train_bytes(P.ByteLevel(add_prefix_space=False), normalizer=N.BertNormalizer(lowercase=False, strip_accents=True))
    precompiled = N.Precompiled(charsmap())
    out["unigram_precompiled"] = unigram(P.Metaspace(), N.Sequence([precompiled, N.Replace(Regex(" {2,}"), " ")]), decoder=D.Metaspace())
    out["unigram_unk"] = unigram(P.WhitespaceSplit())
    out["sentencepiece_bpe"] = sentencepiece_bpe()
    out["bpe_unk"] = train_bpe(P.Whitespace(), 200, unk_token="<unk>")
    out["bpe_fuse_unk"] = train_bpe(P.WhitespaceSplit(), 200, unk_token="<unk>", fuse_unk=True)
    out["bpe_suffix"] = train_bpe(P.Whitespace(), 250, unk_token="<unk>", end_of_word_suffix="</w>")
    out["bpe_suffix"].decoder = D.BPEDecoder()
    out["bpe_prefix"] = train_bpe(P.WhitespaceSplit(), 250, unk_token="<unk>", continuing_subword_prefix="##")
    out["bpe_prefix"].decoder = D.WordPiece(cleanup=False)
    out["word_piece"] = word_piece()
    out["word_level"] = word_level(P.Whitespace())
    out["word_level"].decoder = D.Sequence([D.Strip("a", 1, 0), D.Fuse(), D.Strip("l", 2, 0)])
    out["roberta"] = train_bytes(P.ByteLevel(add_prefix_space=True))
    out["roberta"].post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return out
