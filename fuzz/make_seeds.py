#!/usr/bin/env python3
"""Makes fuzz/corpus anew: small inputs from which the fuzz targets start. Run it at the root of the repository."""
import json
import pathlib
import random
import struct

DATA = pathlib.Path("tests/data/templates")
CORPUS = pathlib.Path("fuzz/corpus")

FORMS = """{% macro m(x, y=2) %}{{ x|upper }}{{ y + 1 }}{% endmacro %}{% set ns = namespace(n=0) %}
{%- for m in messages if m.content is string %}{% set ns.n = ns.n + 1 %}{{ loop.index0 }}{{ m['role'][::-1] }}
{{- m.content | trim | replace('a', 'b') | tojson }}{% if loop.last %}{% break %}{% endif %}{% else %}none{% endfor %}
{{- m(ns.n ~ 'q') }}{{ [1, 2.5, {'a': none}] | map('string') | join(',') }}{{ raise_exception('x') if false }}
{%- raw -%}{{ no }}{%- endraw -%}"""
REQUEST = {"messages": [{"role": "user", "content": "banana"}, {"role": "assistant", "content": None}],
           "add_generation_prompt": False}


def save(target, name, data):
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(data)


def templates():
    """A template, a border and a request that it renders."""
    for name in ["gemma3", "llama31", "qwen3", "gpt_oss", "deepseek", "glm46"]:
        source = (DATA / f"{name}.jinja").read_text(encoding="utf-8")
        cases = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
        requests = [{k: v for k, v in case["variables"].items() if k in ("messages", "tools", "add_generation_prompt")}
                    for case in cases if "out" in case]
        texts = [json.dumps(r, ensure_ascii=False) for r in requests]
        longest = max((t for t in texts if len(t) < 1500), key=len)
        save("template", name, f"{source}\n====\n{longest}".encode())
    save("template", "forms", f"{FORMS}\n====\n{json.dumps(REQUEST)}".encode())


def tokenizers():
    """A byte that chooses the vocabulary, its description where it is a described one, and a text."""
    texts = {"words": "The other 12 men weren't there;  they'd   left.\r\n\n\t int main() { return 0x7f; }",
             "scripts": "Grüße, мир! 日本語 한국어 हिन्दी العربية 👩\u200d👩\u200d👧 e\u0301 ﬁ Ⅷ",
             "special": "<|im_end|> the <|im_end|>"}
    for name, text in texts.items():
        for family in (0, 1, 10):
            save("tokenizer", f"{name}_{family}", bytes([family]) + text.encode())
    save("tokenizer", "broken_utf8", b"\x02 a\xff\xc3(\xe2\x82 \xf0\x9f\x98 the\xed\xa0\x80\x00")
    space = "\u2581".encode()
    save("tokenizer", "described_llama", b"\x3fT\x00\x01\x02\n<s>\n</s>\n<unk>\n" + space + b"\n" + space +
         b"the\nt\nh\ne\nth\n<0x20>\n\nthe the th\xff")
    save("tokenizer", "described_gpt2", b"\x3fU\x00\x01\nt\nh\nt h\ne\nth e\n\xc4\xa0\n\nthe the\n")
    save("tokenizer", "described_gemma4", b"\x3fV\x00\x01\xff\nt\nh\nt h\n" + space + b"\n<0x41>\n\nthe AB\n")


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_key(key, kind, value):
    return gguf_text(key) + struct.pack("<I", kind) + value


def gguf_file(tensors):
    """A GGUF 3 file. tensors: name, dimensions, type number, bytes."""
    keys = [gguf_key("general.architecture", 8, gguf_text("llama")),
            gguf_key("general.alignment", 4, struct.pack("<I", 32)),
            gguf_key("a.u8", 0, b"\7"), gguf_key("a.f32", 6, struct.pack("<f", 1.5)), gguf_key("a.bool", 7, b"\1"),
            gguf_key("a.i64", 11, struct.pack("<q", -3)),
            gguf_key("a.strings", 9, struct.pack("<IQ", 8, 2) + gguf_text("x") + gguf_text("yz")),
            gguf_key("a.ints", 9, struct.pack("<IQ", 5, 3) + struct.pack("<3i", 1, -2, 3))]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, dims, kind, size in tensors:
        head += gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += bytes((i * 37 + 11) & 0xFF for i in range(size)) + bytes(-size % 32)
    return head + bytes(-len(head) % 32) + data


def ggufs():
    save("gguf", "plain", gguf_file([("token_embd.weight", (32, 4), 0, 512), ("output_norm.weight", (32,), 1, 64),
                                     ("q.weight", (32, 2), 2, 36), ("k.weight", (32, 2), 8, 68)]))
    save("gguf", "k_quants", gguf_file([("a.weight", (256, 2), 12, 288), ("b.weight", (256, 1), 14, 210),
                                        ("c.weight", (256, 1), 10, 84)]))
    save("gguf", "empty", b"GGUF" + struct.pack("<IQQ", 3, 0, 0))


def samplers():
    """As sampler_fuzz.cc takes them: the settings, a chain of all steps, breakers, history, logits."""
    rng = random.Random(4)
    for i in range(4):
        data = b""
        for k in range(22):
            kind = (0, 2, 1, 2)[(i + k) % 4]
            data += bytes([kind, rng.randrange(1, 60)] if kind else [kind])
        data += bytes([9, *range(9), 0]) + struct.pack("<H", i) + bytes([1, 1, 2, 1])
        data += bytes([20] + [rng.randrange(8) for _ in range(20)])
        data += b"".join(bytes([0, rng.randrange(256)]) for _ in range(24))
        save("sampler", f"chain_{i}", data)


def section(kind, content):
    return struct.pack("<IIQQ", kind, 0, len(content), 0) + content + bytes(-len(content) % 8)


def states():
    """As state_fuzz.cc takes them: the scope, then a state of its shape; the target sets sizes and checksums."""
    memory = section(1, struct.pack("<IIqq", 1, 8, 10, 2) + struct.pack("<8q", 2, 8, 32, 0, 1, 4, 32, 8))
    sequence = section(2, struct.pack("<qqq3i", 0, 0, 3, 7, 8, 9))
    kv = section(3, struct.pack("<qq", 0, 0) + bytes(2 * 3 * (16 + 34) + 3 * (8 + 34)))
    windowed = section(3, struct.pack("<qq", 0, 2) + bytes(2 * 3 * (16 + 34) + 1 * (8 + 34)))
    logits = section(4, struct.pack("<q", 1) + bytes(40))
    for name, scope, sections in (("whole", 0, [memory, sequence, kv, logits]), ("sequence", 1, [memory, sequence, kv]),
                                  ("window", 0, [memory, sequence, windowed, logits]), ("empty", 0, [memory, logits])):
        head = b"TSRSTATE" + struct.pack("<IIQ", 1, len(sections), 0) + bytes(16) + struct.pack("<IIQQ", scope, 0, 0, 0)
        save("state", name, bytes([scope]) + head + b"".join(sections))


def grammars():
    """A grammar, a border and a text that it lets through; and schemas."""
    for path in sorted(pathlib.Path("examples/grammars").glob("*.gbnf")):
        save("grammar", path.stem, path.read_bytes())
    save("grammar", "forms", b'root ::= (a | b{2,3} "\\x41\\u00e9" [^a-c\\]]? .)* <x> !<[1]> # c\na ::= "" | "ab"+\n'
         b'b ::= "{" root "}" |\n  "[" b "]"\n====\n[{}]{}A\xc3\xa9dx')
    save("grammar", "ambiguous", b'root ::= s\ns ::= "a" s s | "a" s | "a"\n====\naaaaaaaaaaaa')
    schemas = {
        "object": {"type": "object", "properties": {"a": {"type": "integer", "minimum": -5, "maximum": 1200}, "b": {
            "type": "string", "minLength": 1, "maxLength": 9}}, "required": ["a"], "additionalProperties": {}},
        "joined": {"allOf": [{"$ref": "#/$defs/n"}, {"properties": {"v": {"enum": [1, "x", None]}}}], "$defs": {"n": {
            "properties": {"v": {}, "next": {"$ref": "#/$defs/n"}}, "required": ["v"]}}},
        "strings": {"anyOf": [{"pattern": "^(a|b)+[^\\d\\w]{2,}\\.$"}, {"format": "date-time"}, {"const": "q\"é"}]},
        "lists": {"prefixItems": [{"type": "null"}, {"exclusiveMinimum": 0.25, "maximum": 3.5}], "items": {
            "oneOf": [{"type": ["boolean", "null"]}, {"items": {"$ref": "#"}, "maxItems": 2}]}, "minItems": 3}}
    for name, schema in schemas.items():
        save("schema", name, json.dumps(schema).encode())


if __name__ == "__main__":
    grammars()
    states()
    templates()
    tokenizers()
    ggufs()
    samplers()
