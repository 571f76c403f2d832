#!/usr/bin/env python3
"""Makes tests/data/tokenizer/ anew from the reference engine.

    make_tokenizer_goldens.py OUT TOKGOLD...

TOKGOLD: a command that, given MODEL IN.hex OUT.jsonl in a folder of its own choosing, writes the token cases of
tests/data/goldens/FORMAT.md for the lines of IN.hex; the words {dir} in it stand for the folder with the three files.
Needs the python package gguf. The seed is fixed: the same engine gives the same files.

  pre.jsonl      every family of pre-tokenizers over one list of texts. The vocabulary has one token for each byte and
                 one for each pair of bytes, merged in order of bytes, so that where words end shows in the lengths of the
                 tokens. First line: origin. Second: texts in hex. Then one line for all names that behave alike:
                 `names` (with what the engine takes from each: add_bos; tidy: detokenising changes spaces), `cuts`: for
                 each text the bytes of its tokens, one digit each.
  whole.jsonl    names for which a word that is a token is taken whole whatever the merges say.
  NAME.json      a small vocabulary and its cases: gemma4, spm-*, specials-* (tokens that overlap), phi-3, jina.
"""
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

import gguf

NAMES = """default llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano laguna minicpm5
deepseek-llm deepseek-coder deepseek-v3 youtu falcon mpt starcoder gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es
jina-v2-de a.x-4.0 mellum mellum2 modern-bert jina-v1-en jina-v2-code roberta-bpe refact command-r qwen2
deepseek-r1-qwen kormo f2llmv2 megrez qwen35 stablelm2 olmo dbrx smaug-bpe poro-chat glm4 glm5 chatglm-bpe viking jais
jais-2 tekken smollm codeshell bloom gpt3-finnish exaone exaone4 exaone-moe chameleon minerva-7b gpt-4o llama4 kanana2
talkie superbpe trillion granite-docling granite-embed-multi-97m bailingmoe bailingmoe2 llada-moe seed-coder hunyuan
hunyuan-dense joyai-llm ufakzeka kimi-k2 grok-2 afmoe minimax-m2 solar-open tiny_aya cohere2moe""".split()

TEXTS = [
    # white space
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\n ", "\r\n", "\r\n\r\n", " \t\n x", "a  b", "a   b", " a", "  a",
    "\ta", "\t\ta\t", "a\n\nb", "a \n b", "a  \n\n  b", "\n\n\na", "  \n  \n  ", "a\n", "a \n", "x \r\n y", "x\ry",
    "\u00a0a", "a\u00a0b", "a\u00a0\u00a0 b", "\u3000日本", "a\u2003b\u2028c\u2029d", "\u200bx\u200cy\u200dz\ufeffw",
    "a\x0bb\x0cc\x85d", "\x1f\x00\x01a\x7f", "a\u180eb \u180e c", "x\u1680y", "\n" * 19, "\t" * 9 + "x",
    "x" + "\t " * 40 + "y", "x" + " \t\t" * 230 + "\ty", " \t " * 345, "\t  " * 21 + "\n x", "x" + " " * 40 + "y",
    # contractions
    "Hello, world!", "Hello world's end", "I'm you're he's she'd we'll they've don't",
    "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE DON'T", "'s 'S 't 'T", "'tis 'twas", "it''s", "a'b'c", "o'clock 'sup'",
    "L'été d'or", "can't've", "'LL'll'lL", "ſ'ſ x'ſ", "K'K", "’s don’t it’s", "'re'Re'rE", "'", "''", "' s", "x'", " 's",
    # numbers
    "1", "12", "123", "1234", "12345", "1234567890", "1,234,567.89", "3.14159", "a1b22c333d4444", "x1 22 333 4444",
    "0x1F 1e10 1_000", " 12 345  6789", "$100 €200 £300 50%", "2024-01-31T12:34:56Z", "١٢٣٤٥ ٦٧", "१२३४ ५६", "Ⅷ Ⅻ ⅷ½ ¾",
    "①②③ ²³¹", "１２３４５", "v1.2.3-rc4", "12345678901234567890a1234567", "𝟏𝟐𝟑𝟒", "12.", "1 2 3", "9999999 99",
    "۱۲۳abc۴۵", "12٣4 ٣12", "1234567_x 1234567 x1234567", "tel:+49(0)30-123456", "1" * 50,
    # case
    "foo_bar_baz", "fooBarBaz", "FooBarBAZqux", "HTTPServer", "getHTTPResponseCode2xx", "ABCdefGHI", "aB", "Ab", "AB",
    "aBC", "ABc", "iPhone", "éCOLE École ÉCOLE école", "ÀÉÎõü", "ǅungla ǈ ǋ", "ΑΒΓαβγ Γειά", "ПриветМИР мир", "ßẞ",
    "ŁódźŁÓDŹ", "İIıi", "ªº", "ᴬᵃ ʰ", "ⓐⒶ", "camelCaseÜberString", "ÜberGROSSÄÖ", "ʼn ŉ", "Ａｂｃ ＡＢＣ", "𝐀𝐁𝐜𝐝 𝕏", "ꭰᏣ ꮳ",
    "აბგ ᲐᲑᲒ ႠႡ", "Ա ա", "Ω Å K", "aA" * 20, "A" * 40, "a" * 70, "é" * 25,
    # scripts
    "你好，世界！", "你好世界123abc", "日本語テキスト。カタカナ ﾊﾝｶｸ", "한국어 텍스트 ㄱㄴㄷ ᄀᄁ", "漢字かなカナ混じり文",
    "中文 English 混合 text", "「引用」『二重』（括弧）", "㐀㐁 豈更 ⼀⼁ 𠀀𠀁", "ㄅㄆㄇ", "々〆〇", "、。〈〉《》", "！？：；，", "！…“”‘’—",
    "〰︰︱﹏﹐", "ーー・・", "กขค ไทย ภาษาไทย", "ລາວ ພາສາ", "ខ្មែរ ភាសា", "မြန်မာ", "ꩠꩡ ꧠꧡ", "ༀ བོད་ཡིག", "हिन्दी में लिखा", "বাংলা ভাষা",
    "தமிழ் மொழி", "العربية مُشَكَّلَة", "فارسی می‌خواهم", "עִבְרִית שלום", "日" * 30,
    # combining marks
    "e\u0301cole cafe\u0301", "a\u0300\u0301\u0302b", "\u0301abc", " \u0301x", "x\u0301 y", "1\u03012", "!\u0301a",
    "Z\u0351\u036b\u0343a\u0315l", "n\u0303o \u0303", "\u0915\u093c\u0915", "\u20dd①\u20dd", "A\u030a\u0327 B", "é\u0301É",
    "\u093e\u093f", "\u0301" * 12,
    # symbols
    "😀", "a😀b", "😀 😀", "👨‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "👍🏽", "❤️ ❤", "→←↑↓", "∑∫√ ≤≥≠", "© ® ™", "a→b", "▁▁a▁", "♪♫ #️⃣",
    "\ue000\uf8ff", "\U000f0000", "\ufffd\ufffdx", "\uffff", "¡¿", "«»", "„“", "†‡•", "°C",
    # punctuation and code
    "!", "!!", "?!.", "...", "a.b.c", "a...b", "foo(bar)[baz]{qux}", '<tag attr="v">text</tag>', "</div>\n", "&amp;&&||",
    "a=b; c+=d", "i++ --j", "x == y != z", "a->b::c", "#include <stdio.h>\n", "// comment\n/* x */",
    "def f(x):\n    return x+1\n\n", "    if (a) {\n        b();\n    }\n", "\"quoted\" 'single' `back`", "~/path/to/file.txt",
    "C:\\dir\\file", "user@example.com", "https://example.com/a?b=c&d=e#f", "$x^2$ \\frac{a}{b}", "| a | b |\n|---|---|\n",
    "- item\n* item\n1. item", "--flag=value -x", "__init__", "$$$", "^^^", "<<<>>>", "```python\nx\n```", "`", "^a", "~a",
    "|a", "+a", "=a", "<a", "$a", " $a", " +b", "a$ b", "!a", "#a #b", "(a)", " (a)", '"a', "/a/b", "a/b/c/", "!/", "! /\n",
    "x/\n/y", "!\n\n", "!\r\n/", "!\n/\n a", "..\n\n\nx", "<sentinel:12> x", "IMGIMGABCZ IMGIMGAZ", "\n\n\n\n    x",
    "The quick brown fox jumps over the lazy dog. 12 cats, 345 dogs & 6789 birds!",
    "Hello , world ! it 's me . I 'm , you 're ? we 've ' x ' ' don 't", "a .b , c",
]


def random_texts(n, alphabet, longest):
    return ["".join(random.choice(alphabet) for _ in range(random.randint(1, longest))) for _ in range(n)]


def byte_letters():
    printable = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in printable]
    letter = {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(rest)}
    return [letter[b] for b in range(256)]


LETTERS = byte_letters()


class Engine:
    def __init__(self, command):
        self.command = command

    def cases(self, vocab, texts):
        """The header and the cases of texts (bytes), or None if the engine refuses the vocabulary."""
        with tempfile.TemporaryDirectory() as folder:
            write_gguf(os.path.join(folder, "m.gguf"), vocab)
            with open(os.path.join(folder, "in.hex"), "w") as f:
                f.writelines(t.hex() + "\n" for t in texts)
            command = [w.replace("{dir}", folder) for w in self.command]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return None
            with open(os.path.join(folder, "out.jsonl")) as f:
                return [json.loads(line) for line in f]


def write_gguf(path, v):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(v.get("model_name", "probe"))
    for add in (w.add_context_length, w.add_embedding_length, w.add_feed_forward_length, w.add_rope_dimension_count):
        add(64)
    for add in (w.add_block_count, w.add_head_count, w.add_head_count_kv):
        add(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model(v["model"])
    if "pre" in v:
        w.add_tokenizer_pre(v["pre"])
    w.add_token_list(v["tokens"])
    w.add_token_types(v.get("types", [1] * len(v["tokens"])))
    if "scores" in v:
        w.add_token_scores(v["scores"])
    if "merges" in v:
        w.add_token_merges(v["merges"])
    w.add_bos_token_id(v["bos"])
    w.add_eos_token_id(v["eos"])
    w.add_unk_token_id(v.get("unk", 0))
    for key, add in (("add_bos", w.add_add_bos_token), ("add_space_prefix", w.add_add_space_prefix)):
        if key in v:
            add(v[key])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def write_lines(path, rows):
    with open(path, "w") as f:
        f.writelines(json.dumps(r, separators=(",", ":"), ensure_ascii=False) + "\n" for r in rows)
    print(path, os.path.getsize(path), "bytes")


def pre_families(engine, out):
    mixed = list("aabbBZz  \n\r\t'.,!$+1230 _-/éÉ日本ßñक\u0301ा١½…“😀한\u00a0\u3000")
    mixed += ["'s", "'LL", "  ", "\n\n", "ing", "123456", "ΑΒ", "αβ", "。", "ก", "ﾊ"]
    texts = list(dict.fromkeys(TEXTS + random_texts(120, mixed, 24)))
    vocab = {"model": "gpt2", "bos": 0, "eos": 0, "tokens": LETTERS + [a + b for a in LETTERS for b in LETTERS],
             "merges": [a + " " + b for a in LETTERS for b in LETTERS]}
    alike = collections.defaultdict(list)
    for name in NAMES:
        got = engine.cases(vocab | {"pre": name}, [t.encode() for t in texts])
        if got is None:
            print("the engine does not know", name)
            continue
        engine_name = got[0]["engine"]
        cuts = ["".join("1" if i < 256 else "2" for i in row["plain"]) for row in got[1:]]
        tidy = any(row["detok"] != row["hex"] for row in got[1:])
        alike[json.dumps(cuts)].append({"name": name, "add_bos": got[0]["add_bos"], "tidy": tidy})
    origin = {"format": "pre-golden-1", "engine": engine_name, "command": "scripts/make_tokenizer_goldens.py"}
    write_lines(os.path.join(out, "pre.jsonl"), [origin, {"texts": [t.encode().hex() for t in texts]}] +
                [{"names": names, "cuts": json.loads(cuts)} for cuts, names in alike.items()])

    whole = {"model": "gpt2", "bos": 0, "eos": 0, "tokens": LETTERS + ["xyz"], "merges": ["a b"]}
    rows = []
    for name in NAMES:
        got = engine.cases(whole | {"pre": name}, [b"xyz"])
        if got is not None:
            rows.append({"name": name, "whole": got[1]["plain"] == [256]})
    write_lines(os.path.join(out, "whole.jsonl"), [origin] + rows)


def small_vocabulary(engine, out, name, vocab, texts):
    got = engine.cases(vocab, [t if isinstance(t, bytes) else t.encode() for t in texts])
    header = got[0]
    kept = ("hex", "special", "plain", "framed", "detok", "detok_hide", "detok_plain")
    rows = [{k: row[k] for k in kept if k in row} for row in got[1:]]
    header = {k: header[k] for k in ("bos", "eos", "eog", "nl", "add_bos")}
    origin = {"format": "vocab-golden-1", "engine": got[0]["engine"], "command": "scripts/make_tokenizer_goldens.py"}
    write_lines(os.path.join(out, name + ".jsonl"), [origin | {"vocab": vocab, "header": header}] + rows)


def small_vocabularies(engine, out):
    base = ["<unk>", "<s>", "</s>", "<pad>"] + ["<0x%02X>" % i for i in range(256)]
    base_types = [2, 3, 3, 3] + [6] * 256
    chars = [chr(c) for c in range(33, 127)] + ["▁", "é", "日", "\n"]
    words = ["ab", "abc", "▁a", "▁ab", "▁▁", "▁▁▁▁", "he", "▁the", "th", "a▁b", "b▁c", "zz", "<|x|>", "▁x", "U▁", "N▁", "▁<"]
    types = base_types + [4 if w in ("<|x|>", "▁x") else 1 for w in chars + words]
    texts = ["", " ", "  ", "a", " a", "a b", "▁x", b"\xf0\xe2\x96\x81a", b"\xe2\x96", b"\xc3 ", b"\xe2 ab", b"a\xff\xf0 b"]
    texts += random_texts(90, list("abc the  \n\nzé日\t!öhiUN|x") + ["<s>", "</s>", "<unk>", "<|x|>", " the ", " x", "<0x41>"], 24)
    texts += [bytes(random.randint(0, 255) for _ in range(random.randint(1, 12))) for _ in range(20)]
    for name, prefix in (("spm-prefix", True), ("spm-bare", False)):
        scores = [0.0] * len(base) + [random.choice([-1.0, -2.0, -3.0, -3.0, 0.5]) for _ in chars + words]
        small_vocabulary(engine, out, name, {"model": "llama", "tokens": base + chars + words, "types": types, "bos": 1, "eos": 2,
                                             "scores": scores, "add_space_prefix": prefix}, texts)

    words = ["ab", "abc", "▁a", "▁ab", "\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "he", "▁the", "th", "a▁b", "<|turn>", "<turn|>", "\t"]
    small_vocabulary(engine, out, "gemma4", {
        "model": "gemma4", "tokens": base + chars + words, "bos": 1, "eos": 2, "add_bos": False,
        "types": base_types + [4 if w in ("<|turn>", "<turn|>") else 1 for w in chars + words],
        "merges": ["a b", "ab c", "▁ a", "▁a b", "▁ ▁", "▁▁ ▁▁", "t h", "th e", "h e", "▁ the", "a ▁", "\n \n"]},
        ["", "\n", "\n\n", "\n\n\n\n", " a", "a▁b"] +
        random_texts(90, list("abc the  \n\nzé日\t!ö😀") + ["\n\n\n", "<s>", "<|turn>", "<turn|>", "the "], 24))

    for i in range(3):  # lengths all differ, since the order among equals is the engine's accident
        overlapping = ["".join(random.choice("ab ") for _ in range(n)) for n in range(2, 14)]
        random.shuffle(overlapping)
        texts = ["".join(random.choice(overlapping)[random.randint(0, 2):] for _ in range(random.randint(1, 8))) for _ in range(80)]
        small_vocabulary(engine, out, "specials-%d" % i, {
            "model": "gpt2", "pre": "gpt-2", "tokens": LETTERS + overlapping, "merges": ["z z"], "bos": 0, "eos": 0,
            "types": [1] * 256 + [random.choice([3, 4]) for _ in overlapping]}, texts)

    special = ["<s>", "</s>", "<|end|>", "<|endoftext|>", "<|user|>", "<unk>", "<mask>"]
    texts = ["<|user|>\n Hello <|end|>\n\n x", "</s>  a", "<s>  a", "<|endoftext|>  a", "<unk> b", "<|end|>\n",
             "a <|end|> \t\n<|user|> b", " <|end|>", "a  <mask> b", " <mask>"]
    for name, extra in (("phi-3", {"model_name": "Phi-3-mini", "pre": "gpt-2"}), ("jina", {"pre": "jina-v2-es"})):
        small_vocabulary(engine, out, name, {"model": "gpt2", "tokens": LETTERS + special, "merges": ["a b"], "bos": 256,
                                             "eos": 257, "types": [1] * 256 + [3, 4, 3, 3, 3, 2, 3], **extra}, texts)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    random.seed(7)
    engine = Engine(sys.argv[2:])
    os.makedirs(sys.argv[1], exist_ok=True)
    pre_families(engine, sys.argv[1])
    small_vocabularies(engine, sys.argv[1])


main()
