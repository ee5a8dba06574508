#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cc: character properties as the reference tokenizer library sees them.

The properties are read out of `tokenizers` itself, code point by code point, because its regex engine, its
normalizers and the Rust standard library each carry their own Unicode version, and token ids must follow those.
Combining classes come from the `regex` module, cut down to what the reference's normalizer reorders.

    tools/dev/unicode_tables.py src/text/unicode_tables.cc
"""
import sys

import regex
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 4096


def members_by_regex(pattern):
    """Code points that the reference's regex engine matches with `pattern`."""
    replace = normalizers.Replace(Regex(pattern), "")
    out = set()
    for at in range(0, len(CODES), CHUNK):
        chunk = CODES[at : at + CHUNK]
        kept = set(replace.normalize_str("".join(map(chr, chunk))))
        out.update(c for c in chunk if chr(c) not in kept)
    return out


def members_by_split(pre_tokenizer, probe):
    """Code points that stay glued to `probe` (or are cut off it) by a pre-tokenizer."""
    out = set()
    for c in CODES:
        if len(pre_tokenizer.pre_tokenize_str(probe + chr(c))) > 1:
            out.add(c)
    return out


def bert(**options):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **options})


def mapped(normalizer):
    out = {}
    for c in CODES:
        text = normalizer.normalize_str(chr(c))
        if text != chr(c):
            out[c] = [ord(x) for x in text]
    return out


BITS = [
    ("kLetter", lambda: members_by_regex(r"\p{L}")),
    ("kNumber", lambda: members_by_regex(r"\p{N}")),
    ("kMark", lambda: members_by_regex(r"\p{M}")),
    ("kSpace", lambda: members_by_regex(r"\s")),
    ("kPunctuation", lambda: members_by_regex(r"\p{P}")),
    ("kSymbol", lambda: members_by_regex(r"\p{S}")),
    ("kUpper", lambda: members_by_regex(r"[\p{Lu}\p{Lt}]")),
    ("kLower", lambda: members_by_regex(r"\p{Ll}")),
    ("kDecimal", lambda: members_by_regex(r"\p{Nd}")),
    ("kHan", lambda: members_by_regex(r"\p{Han}")),
    ("kWord", None),
    ("kPunct", lambda: members_by_split(pre_tokenizers.Punctuation(), "a")),
    ("kNumeric", lambda: members_by_split(pre_tokenizers.Digits(individual_digits=True), "a")),
    ("kAccent", lambda: {c for c, t in mapped(normalizers.StripAccents()).items() if not t}),
    ("kBertControl", lambda: {c for c, t in mapped(bert(clean_text=True)).items() if not t}),
    ("kNonSpacing", lambda: {c for c, t in mapped(bert(strip_accents=True)).items() if not t}),
]


def word_members(space):
    """`\\w` of the Rust regex crate, through the Whitespace pre-tokenizer (`\\w+|[^\\w\\s]+`)."""
    whitespace = pre_tokenizers.Whitespace()
    return {c for c in CODES if c not in space and len(whitespace.pre_tokenize_str("a" + chr(c))) == 1}


def combining_classes():
    classes = {}
    nfd = normalizers.NFD()
    for value in range(1, 255):
        try:
            pattern = regex.compile(r"\p{ccc=%d}" % value)
        except regex.error:
            continue
        for c in CODES:
            if c >= 0x300 and pattern.match(chr(c)):
                classes[c] = value
    for c, value in list(classes.items()):
        base = nfd.normalize_str(chr(c))
        known = value == 1 or base != chr(c)
        known = known or nfd.normalize_str(chr(c) + "\u0334") == "\u0334" + chr(c)
        if not known:
            del classes[c]
    return classes


def hangul(c):
    return 0xAC00 <= c < 0xAC00 + 11172


def rows(values, per_line, fmt="{}"):
    values = [fmt.format(v) for v in values]
    return "\n".join("    " + ", ".join(values[i : i + per_line]) + "," for i in range(0, len(values), per_line))


def main(path):
    bits = [0] * 0x110000
    space = None
    for index, (name, find) in enumerate(BITS):
        members = word_members(space) if find is None else find()
        if name == "kSpace":
            space = members
        for c in members:
            bits[c] |= 1 << index
        print(name, len(members), file=sys.stderr)

    blocks, index = {}, []
    for at in range(0, 0x110000, 128):
        block = tuple(bits[at : at + 128])
        index.append(blocks.setdefault(block, len(blocks)))
    flat = [v for block in blocks for v in block]

    nfd, nfkd = mapped(normalizers.NFD()), mapped(normalizers.NFKD())
    nfd = {c: t for c, t in nfd.items() if not hangul(c)}
    nfkd = {c: t for c, t in nfkd.items() if not hangul(c) and nfd.get(c) != t}
    nfc = normalizers.NFC()
    pairs = []
    for c, text in nfd.items():
        # The pair that composes to c: one step of decomposition, found by composing all but the last.
        head = nfc.normalize_str("".join(map(chr, text[:-1])))
        if len(text) >= 2 and len(head) == 1 and nfc.normalize_str(head + chr(text[-1])) == chr(c):
            pairs.append((ord(head), text[-1], c))
    lower = mapped(normalizers.Lowercase())
    ccc = combining_classes()
    runs = []
    for c in sorted(ccc):
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == ccc[c]:
            runs[-1][1] = c
        else:
            runs.append([c, c, ccc[c]])

    pool = []

    def mappings(table):
        out = []
        for c in sorted(table):
            out.append("{0x%X, %d, %d}" % (c, len(pool), len(table[c])))
            pool.extend(table[c])
        return out

    tables = [("kCanonical", mappings(nfd)), ("kCompatibility", mappings(nfkd)), ("kLowercase", mappings(lower))]
    with open(path, "w") as out:
        w = lambda text: out.write(text + "\n")
        w("// Generated by tools/dev/unicode_tables.py from tokenizers %s and regex %s." % (
            tokenizers.__version__, regex.__version__ if hasattr(regex, "__version__") else "?"))
        w("// clang-format off")
        w('#include "text/unicode_tables.h"\n')
        w("namespace pelton::text::unicode_tables {\n")
        w("const uint16_t kBlockIndex[8704] = {\n%s\n};\n" % rows(index, 24))
        w("const uint16_t kBlocks[] = {\n%s\n};\n" % rows(flat, 24))
        for name, entries in tables:
            w("static const Mapping %sRows[] = {\n%s\n};" % (name, rows(entries, 6)))
            w("const std::span<const Mapping> %s(%sRows);\n" % (name, name))
        w("const uint32_t kPool[] = {\n%s\n};\n" % rows(pool, 14, "0x{:X}"))
        w("static const Composition kCompositionRows[] = {\n%s\n};" % rows(
            ["{0x%X, 0x%X, 0x%X}" % p for p in sorted(pairs)], 5))
        w("const std::span<const Composition> kCompositions(kCompositionRows);\n")
        w("static const CombiningRun kCombiningRows[] = {\n%s\n};" % rows(
            ["{0x%X, 0x%X, %d}" % tuple(r) for r in runs], 6))
        w("const std::span<const CombiningRun> kCombining(kCombiningRows);\n")
        w("}  // namespace pelton::text::unicode_tables")
    print(len(blocks), "blocks", len(pairs), "pairs", len(runs), "runs", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
