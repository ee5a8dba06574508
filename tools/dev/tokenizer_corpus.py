"""The texts that tokenizers are compared on: languages, code, emoji, white space, controls, look-alikes.

Everything here was written for this purpose; random parts come from a fixed seed."""
import random

SENTENCES = {
    "English": "The quick brown fox doesn't jump; it's reading 1,024 pages, isn't it? They'll say we've won, I'd guess.",
    "German": "Übermäßig große Füße stören Fußgänger nicht – sagte Jörg um 17:45 Uhr.",
    "French": "L'été dernier, j'ai mangé des crêpes à Orléans; quel goût, n'est-ce pas ?",
    "Spanish": "¿Dónde está el niño? ¡Mañana volverá con su pingüino!",
    "Portuguese": "A canção começou às três, não é? Avô e avó já saíram.",
    "Italian": "Perché no? È così che si fa: un po' di qua, un po' di là.",
    "Polish": "Zażółć gęślą jaźń, powiedział źrebak łososiowi.",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Hungarian": "Árvíztűrő tükörfúrógép, öt hűtőházból kértünk színhúst.",
    "Turkish": "İstanbul'da ılık bir gün; ağaçlar yeşil, şehir kalabalık.",
    "Romanian": "Și țara își ține tradițiile în fiecare an.",
    "Swedish": "Sju sjösjuka sjömän sköttes av åtta sköna sköterskor på ön.",
    "Danish": "Rødgrød med fløde på en blå ø.",
    "Finnish": "Hääyöaie on sana, jossa on monta vokaalia peräkkäin.",
    "Icelandic": "Þetta er ágætt, sagði Ásgeir og hló.",
    "Vietnamese": "Tiếng Việt có nhiều dấu: ă, â, đ, ê, ô, ơ, ư và thanh điệu.",
    "Yoruba": "Ẹ káàárọ̀, ṣé dáadáa ni? Ọjọ́ ti lọ.",
    "Hausa": "Ina kwana? Ƙasa mai kyau ce, ɗan'uwa.",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, τί ωραία μέρα!",
    "Ancient Greek": "ἄνδρα μοι ἔννεπε, Μοῦσα, πολύτροπον",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ukrainian": "Щастям б'єш жук їх глицю в фон й ґедзь пріч.",
    "Bulgarian": "Жълтата дюля беше щастлива, че пухът замръзна.",
    "Serbian": "Љубазни фењерџија чађавог лица хоће да ми покаже штос.",
    "Kazakh": "Қазақстан — ұлан-ғайыр дала, әдемі өлке.",
    "Mongolian": "Монгол улсын нийслэл бол Улаанбаатар хот юм.",
    "Armenian": "Բարև, աշխարհ։ Ինչպե՞ս ես այսօր։",
    "Georgian": "გამარჯობა მსოფლიო, როგორ ხარ დღეს?",
    "Hebrew": "שָׁלוֹם עוֹלָם, מה שלומך היום? הכל בסדר.",
    "Arabic": "مرحبا بالعالم، كيف حالك اليوم؟ السِّعرُ ١٢٣٤ ريال.",
    "Persian": "سلام دنیا، می‌خواهم کتاب‌ها را بخوانم ۱۲۳.",
    "Urdu": "آپ کیسے ہیں؟ یہ ایک خوبصورت دن ہے۔",
    "Pashto": "زه ښه یم، ته څنګه یې؟",
    "Syriac": "ܫܠܡܐ ܥܠܡܐ",
    "Thaana": "ދިވެހި ބަސް އެއީ ރީތި ބަހެކެވެ",
    "Hindi": "नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय और ज्ञान १२३।",
    "Marathi": "मला मराठी येते, तुम्हाला येते का?",
    "Nepali": "संसारलाई नमस्कार, तपाईंलाई कस्तो छ?",
    "Bengali": "ওহে বিশ্ব, তুমি কেমন আছো? সংখ্যা ১২৩৪।",
    "Gurmukhi": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨੀਆ, ਤੁਸੀਂ ਕਿਵੇਂ ਹੋ?",
    "Gujarati": "નમસ્તે દુનિયા, તમે કેમ છો? ૧૨૩",
    "Oriya": "ନମସ୍କାର ଦୁନିଆ, ଆପଣ କେମିତି ଅଛନ୍ତି?",
    "Tamil": "வணக்கம் உலகம், நீங்கள் எப்படி இருக்கிறீர்கள்?",
    "Telugu": "నమస్కారం ప్రపంచం, మీరు ఎలా ఉన్నారు?",
    "Kannada": "ನಮಸ್ಕಾರ ಜಗತ್ತು, ನೀವು ಹೇಗಿದ್ದೀರಿ?",
    "Malayalam": "നമസ്കാരം ലോകമേ, സുഖമാണോ?",
    "Sinhala": "ආයුබෝවන් ලෝකය, ඔබට කොහොමද?",
    "Thai": "สวัสดีชาวโลก วันนี้เป็นอย่างไรบ้าง ๑๒๓",
    "Lao": "ສະບາຍດີຊາວໂລກ ມື້ນີ້ເປັນແນວໃດ",
    "Khmer": "សួស្តីពិភពលោក តើអ្នកសុខសប្បាយទេ?",
    "Burmese": "မင်္ဂလာပါ ကမ္ဘာလောက၊ နေကောင်းလား။",
    "Tibetan": "བཀྲ་ཤིས་བདེ་ལེགས། འཛམ་གླིང་།",
    "Amharic": "ሰላም ዓለም፣ እንዴት ነህ? ፩፪፫",
    "Cherokee": "ᎣᏏᏲ ᎡᎶᎯ, ꭳꮟᏺ",
    "Inuktitut": "ᐊᐃ ᓄᓇᕐᔪᐊᖅ ᖃᓄᐃᑉᐱᑦ",
    "Ogham": "᚛ᚑᚌᚐᚋ᚜ ᚁᚂᚃ",
    "Runic": "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ",
    "Gothic": "𐌼𐌰𐌲 𐌲𐌻𐌴𐍃 𐌹̈𐍄𐌰𐌽",
    "Deseret": "𐐔𐐇𐐝𐐀𐐡𐐇𐐓 𐐨𐐩𐐪",
    "Egyptian": "𓀀𓁐𓂋𓏤",
    "Cuneiform": "𒀭𒂗𒍪",
    "Chinese": "今天天气很好，我们去公园散步吧！价格是１２３元。",
    "Traditional Chinese": "這個週末要不要一起去爬山？聽說風景很美。",
    "Rare Han": "𠀀𠮷野家，㐂び 龘 𪚥",
    "Japanese": "こんにちは世界。今日はラーメンを食べたいですね！ﾊﾝｶｸｶﾅ",
    "Korean": "안녕하세요 세계, 오늘 기분이 어때요? 꿻뛟",
    "Old Korean": "나랏말ᄊᆞ미 듕귁에 달아",
    "Javanese": "ꦲꦤꦕꦫꦏ ꦢꦠꦱꦮꦭ",
    "Balinese": "ᬳᬦᬘᬭᬓ",
    "N'Ko": "ߒߞߏ ߡߊ߬ߙߋ߲",
    "Tifinagh": "ⴰⵣⵓⵍ ⴰⵎⴰⴹⴰⵍ",
    "Adlam": "𞤀𞤣𞤢𞤥 𞤨𞤵𞤤𞤢𞤪",
    "Swahili": "Habari ya dunia, leo siku njema kweli kweli.",
    "Esperanto": "Eĥoŝanĝo ĉiuĵaŭde.",
    "Latin": "Gallia est omnis divisa in partes tres, quarum unam incolunt Belgae.",
    "Math": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β ⇒ ∑ᵢ xᵢ² ≤ ½π∞ 𝔸𝒷𝟙𝟚",
}

CODE = [
    "def f(x: int) -> str:\n    \"\"\"Doc.\"\"\"\n    return f\"{x!r:>10}\"  # end\n",
    "#include <vector>\nint main(int argc, char** argv) {\n\tstd::vector<int> v{1, 2, 3};\n\treturn v[0] << 3;\n}\n",
    "fn main() -> Result<(), Box<dyn Error>> {\n    let x: &'a str = \"hi\\n\";\n    println!(\"{x:?}\");\n    Ok(())\n}\n",
    "const f = async ({a, ...b}) => { await `t${a}`; return b?.c ?? null; };\n",
    "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Printf(\"%d\\n\", 0xFF)\n}\n",
    "SELECT a.id, COUNT(*) FROM t AS a LEFT JOIN u ON a.id=u.id WHERE x<>'y' GROUP BY 1;\n",
    "<html>\n  <body class=\"a b\">&nbsp;<!-- c --></body>\n</html>\n",
    "body > .x::after { content: \"\\201C\"; margin: -0.5em auto !important; }\n",
    "#!/bin/bash\nset -euo pipefail\nfor f in *.txt; do echo \"${f%.txt}\" | sed 's/a/b/g' >> out; done\n",
    "class A<T extends B & C> implements D { @Override public int x() { return ~1 >>> 2; } }\n",
    "module M where\nfact :: Integer -> Integer\nfact 0 = 1\nfact n = n * fact (n - 1)\n",
    "(defun f (x) (if (< x 2) 1 (* x (f (1- x)))))\n",
    "\\begin{equation}\n  E = mc^2 \\quad \\alpha_{i,j}\n\\end{equation}\n",
    "{\"a\": [1, 2.5e-3, null, true], \"b\": {\"c\": \"\\u00e9\\n\"}}\n",
    "key: value\nlist:\n  - a\n  - b: |\n      text\n...\n",
    "| a | b |\n|---|---|\n| `x` | **y** |\n\n# Title\n\n1. one\n2. two\n",
    "diff --git a/x b/x\n@@ -1,3 +1,4 @@\n-old\n+new\n unchanged\n",
    "x <- c(1:10); y %>% filter(a == 'b') # R\n",
    "if ($x =~ /^\\s*(\\w+)\\s*$/) { print \"$1\\n\"; }\n",
    "mov eax, [ebp+8]\n; comment\nlabel:\n\tjmp label\n",
    "\t\tif x:\n\t\t    y = 1\n        z\t=\t2\n",
    "FROM debian:12\nRUN apt-get update && rm -rf /var/lib/apt/lists/*\n",
]

EMOJI = [
    "😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵🇺🇸", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "❤️", "❤", "1️⃣2️⃣#️⃣", "👨🏿‍🚀 flew 🚀", "🤷🏻‍♀️", "☺︎ vs ☺️",
    "🧑‍🤝‍🧑", "🫠🫡🩷🪿", "a😀b", " 😀 ", "😀😀😀😀", "🇦", "🏽", "‍", "️", "🤦🏼‍♂️🤦🏼‍♂️", "🕵️‍♀️?", "©®™", "⌚️⏰",
]

SPACES = [
    " ", "  ", "   ", "    ", "\t", "\n", "\r", "\r\n", "\n\n", "\n\n\n", "\r\n\r\n", " \n", "\n ", " \n ", "\t\n\t", "\u00a0", "\u2003", "\u3000",
    "\u2028", "\u2029", "\u0085", "\u200b", "\u200c", "\u200d", "\ufeff", "\u1680", "\u180e", "\u202f", "\u205f", "\v", "\f", " \r\n \r\n ",
]

LOOKALIKES = [
    "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>", "<|im_end|>", "<|im_end|", "<|im_end>", "|im_end|>", "<<|im_end|>>", "<s>", "</s>",
    "<s>x</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "<start_of_turn>user\nx<end_of_turn>\n", "[INST] x [/INST]", "<<SYS>>", "<|eot_id|>",
    "<|begin_of_text|>", "<0x0A>", "<0x-1>", "<0xZZ>", "<0xFF>", "<tool_call>\n{}\n</tool_call>", "<think>", "</think>", "[CLS] a [SEP]", "[UNK]", "[MASK]",
    "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "<unused0>", "<unused99>", "▁", "▁▁", "a▁b", " ▁ ", "Ġ", "Ġhello", "Ċ", "##ing", "</w>", "a</w>b",
    "<repo_name>x<file_sep>y", "<|file_sep|>", "<h1>x</h1>", "<|endoftext|><|endoftext|>", " <|im_end|> ", "\n<|im_end|>\n", "a<|im_end|>b", "TOKword", "TOK word",
]

OTHER = [
    "", "a", "A", "é", "e\u0301", "e\u0323\u0301", "e\u0301\u0323", "ﬁ ﬂ ﬃ", "Å Å Å", "Ω Ω", "가 가", "ſtraße ſ's", "it'ſ", "I'S I'T HE'LL WE'RE I'VE I'M I'D", "it's's''s",
    "don't DON'T Don'T don’t", "'s", "'", "''", "'re", "'R", "a'b'c'd", "0", "00", "000", "0000", "1234567890", "1 2 3", "3.14159", "-1e-10", "0x1F", "１２３", "٣٤٥", "½⅓", "²³",
    "Ⅷ ⅷ", "①②", "...", "….", "--", "---", "-----", "!!!", "?!?!", "$100.00", "50%", "#hash @at", "a_b_c", "CamelCaseString", "snake_case_string", "SCREAMING_CASE",
    "http://example.com/a?b=c&d=e#f", "me@example.com", "C:\\dir\\file.txt", "/usr/bin/env", "a\\nb", "a\nb", "\\n", "\\\\n", "\\t\\r", "\x00", "\x00\x01\x02", "\x1b[31mred\x1b[0m",
    "\x7f", "\x80\x9f", "\u0378", "\ue000", "\ufffd", "\uffff", "\U0010ffff", "\u0300", "\u0300\u0301\u0302", "a\u0300\u0301\u0302\u0303\u0304", "Z̸̢̛̖̰̈́͑a̴͇͝l̷͎̾g̵̙̓o̶̫͌", "x" * 100, "ab" * 64,
    "A" * 70, "é" * 50, "中" * 70, "😀" * 30, " " * 70, "\n" * 40, "\t" * 33, "." * 80, "0" * 65, "\u0301" * 40, "aA" * 40, "a1" * 40, "a " * 40, " a" * 40, "-=" * 40, "=" * 128,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "Pneumonoultramicroscopicsilicovolcanoconiosis", " ?", "n 't", " .", "x , y", "a ' b", "do not", " 's",
    "hello", " hello", "  hello", "Hello world", "Hello  world", "Hello   world", "Hello\tworld", "Hello\nworld", "Hello \n world", "Hello world ", "Hello world  ", "\nHello", "HELLO", "hElLo",
    "ΑΣ ας Σ", "İi ıI", "ǅ ǆ Ǆ", "ŉ ǰ ΐ", "ß ẞ", "ﷺ", "㈱ ㎏ ㍿", "ｱｲｳ ガ ガ", "𝕳𝖊𝖑𝖑𝖔", "ⓗⓔⓛⓛⓞ", "H₂O x² aₙ", "a\u00adb", "a\u034fb", "\u061c\u200e\u200f", "ab\u202eba\u202c", "مـــد", "क्‍ष", "க்ஷ",
    "\u0915\u093c \u0958", "\u1100\u1161\u11a8 \uac01", "\u0f71\u0f72 \u0f73", "\ufb2c \u05e9\u05bc\u05c1", "\u2126\u212a\u212b", "\U0001d15e", "\U0002f800", "\u0344 \u0374 \u037e \u0387",
]


def texts(count=2200, seed=20240607):
    rng = random.Random(seed)
    out = list(SENTENCES.values()) + CODE + EMOJI + SPACES + LOOKALIKES + OTHER
    for group in (SPACES, ["a", "中", "1", ".", "é"]):
        out += [x + y for x in group for y in ("a", "1", ".", " a", "\n")] + ["a" + x + "b" for x in group]
    out += [w.lower() for w in SENTENCES.values()] + [w.upper() for w in SENTENCES.values()]
    out += [w.replace(" ", "\r\n") for w in list(SENTENCES.values())[:20]]
    out += [" " + w for w in list(SENTENCES.values())[::2]]
    words = [w for s in SENTENCES.values() for w in s.split()]
    parts = words + EMOJI + SPACES * 3 + LOOKALIKES + ["'s", "'LL", "12", "3456", "é", "\u0301", "/", "_", "-", "(", ")", "<", ">", "\r\n"]
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x250, 0x370), (0x370, 0x530), (0x530, 0x800), (0x900, 0x1000), (0x1000, 0x1400), (0x1400, 0x1D00), (0x1D00, 0x2000), (0x2000, 0x2C00),
              (0x2C00, 0x3000), (0x3000, 0x3400), (0x4E00, 0xA000), (0xA000, 0xAC00), (0xAC00, 0xD7B0), (0xF900, 0xFFFE), (0x10000, 0x11000), (0x1D400, 0x1D800), (0x1F000, 0x1FB00), (0, 0x110000)]
    while len(out) < count:
        kind = rng.randrange(4)
        if kind == 0:
            text = "".join(rng.choice(parts) + rng.choice(["", " ", " ", "  "]) for _ in range(rng.randrange(2, 12)))
        elif kind == 1:
            low, high = rng.choice(blocks)
            text = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 20)))
        elif kind == 2:
            text = "".join(rng.choice("aAéΣя中あ한\u0301'sStTlLrRvVeEdDmM 1२\t\n\r.,!-/_<|>\u3000😀ſ▁") for _ in range(rng.randrange(1, 30)))
        else:
            line = rng.choice(CODE)
            at = rng.randrange(len(line))
            text = line[at : at + rng.randrange(1, 40)] + rng.choice(SPACES) + rng.choice(words)
        out.append("".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF))
    return list(dict.fromkeys(out))
