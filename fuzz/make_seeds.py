#!/usr/bin/env python3
"""Makes fuzz/corpus anew: small inputs from which the fuzz targets start. Run it at the root of the repository."""
import json
import pathlib
import random
import re
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


# Where every step of a sampler has an effect: settings that sampler_fuzz.cc finds all away from their defaults.
ALL_SETTINGS = {
    "temperature": 0.7, "dynatemp_range": 0.25, "dynatemp_exponent": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.02,
    "typical_p": 0.95, "top_n_sigma": 3, "xtc_probability": 0.5, "xtc_threshold": 0.2, "min_keep": 2, "repeat_last_n": 16,
    "repeat_penalty": 1.25, "frequency_penalty": 0.5, "presence_penalty": 0.25, "dry_multiplier": 0.75, "dry_base": 1.5,
    "dry_allowed_length": 1, "dry_penalty_last_n": 32, "mirostat": 0, "mirostat_tau": 3, "mirostat_eta": 0.25,
    "adaptive_target": 0.5, "adaptive_decay": 0.75}


def sampler_tables():
    """The names of the settings and of the steps, each in the order of its table."""
    source = pathlib.Path("src/runtime/sampler_options.cc").read_text(encoding="utf-8")
    settings = re.findall(r'^    \{"(\w+)", "\w*", &Options::', source, re.M)
    steps = re.findall(r"^    \{SamplerStep::\w+, '\w', \"(\w+)\"", source, re.M)
    return settings, steps


def samplers():
    """As sampler_fuzz.cc takes them: settings, a chain, biases, a seed, breakers, a grammar, history, logits."""
    rng = random.Random(4)
    settings, steps = sampler_tables()
    unknown = sorted(set(settings) ^ set(ALL_SETTINGS))
    if unknown:
        raise SystemExit(f"settings without a value, or values without a setting: {unknown}")

    def save_sampler(name, chain, changes, grammar=0):
        values = ALL_SETTINGS | changes
        data = b"".join(b"\3" + struct.pack("<f", values[setting]) for setting in settings)
        data += bytes([len(chain), *map(steps.index, chain)])
        data += bytes([1, 8 + 6]) + struct.pack("<f", -1.5) + struct.pack("<H", 7)  # a bias of token 6; the seed
        data += bytes([1, 1, 2, 1, grammar])
        data += bytes([20] + [rng.randrange(8) for _ in range(20)])
        data += b"".join(bytes([0, rng.randrange(256)]) for _ in range(24))
        save("sampler", name, data)

    usual = steps[:steps.index("temperature") + 1]
    save_sampler("all", steps, {})
    save_sampler("usual", usual, {"adaptive_target": -1})
    save_sampler("infill", ["top_k", "top_p", "infill"], {"top_k": 20})
    save_sampler("greedy", usual, {"temperature": 0, "dynatemp_range": 0})
    for version in (1, 2):
        save_sampler(f"mirostat_{version}", usual, {"mirostat": version})
    for grammar in range(4):
        save_sampler(f"grammar_{grammar}", ["top_k", "infill", "temperature"] if grammar == 1 else usual, {}, 4 + grammar)


def section(kind, content):
    return struct.pack("<IIQQ", kind, 0, len(content), 0) + content + bytes(-len(content) % 8)


# As state_fuzz.cc has them: n_kv_heads, k_dim, v_dim, window; and layer, key heads, value heads, k_dim, v_dim, taps.
LAYERS = [(2, 8, 32, 0), (1, 4, 32, 8)]
REC_LAYERS = [(2, 1, 2, 2, 3, 4), (3, 1, 1, 1, 1, 2)]


def rec_state(length):
    """The recurrent state behind so many tokens: the convolutions' last inputs and the matrices, all f32."""
    floats = sum(min(taps - 1, length) * (2 * n_keys * k_dim + n_values * v_dim) + n_values * k_dim * v_dim
                 for _, n_keys, n_values, k_dim, v_dim, taps in REC_LAYERS)
    return bytes(4 * floats)


def state_sections(n_tokens, first=0, snapshots=None):
    """One sequence. first: position of the windowed layer; snapshots: their lengths, of a model with recurrent layers."""
    n_layers = len(LAYERS) + (0 if snapshots is None else len(REC_LAYERS))
    rows = bytes(2 * n_tokens * (16 + 34) + (n_tokens - first) * (8 + 34))
    firsts = struct.pack(f"<{n_layers}q", 0, first, *[0] * (n_layers - 2))
    sections = [section(2, struct.pack(f"<qqq{n_tokens}i", 0, 0, n_tokens, *[7] * n_tokens)), section(3, firsts + rows)]
    if snapshots is not None:
        states_held = [*snapshots, n_tokens] if n_tokens else snapshots
        sections.append(section(5, struct.pack(f"<{1 + len(snapshots)}q", len(snapshots), *snapshots) +
                                b"".join(rec_state(length) for length in states_held)))
    return sections


def save_state(name, is_recurrent, sequence, sections):
    """sections: those behind the memory."""
    layers = LAYERS + ([(0, 0, 0, 0)] * 2 if is_recurrent else [])
    rec_layers = REC_LAYERS if is_recurrent else []
    memory = struct.pack("<IIqq", 1, 8, 10, len(layers)) + b"".join(struct.pack("<4q", *layer) for layer in layers)
    memory += struct.pack("<q", len(rec_layers)) + b"".join(struct.pack("<6q", *layer) for layer in rec_layers)
    sections = [section(1, memory), *sections]
    head = b"TSRSTATE" + struct.pack("<IIQ", 1, len(sections), 0) + bytes(16) + struct.pack("<IIQQ", sequence, 0, 0, 0)
    save("state", name, bytes([sequence + 2 * is_recurrent]) + head + b"".join(sections))


def states():
    """As state_fuzz.cc takes them: scope and shape, then a state of that shape; the target sets sizes and checksums."""
    logits = section(4, struct.pack("<q", 1) + bytes(40))
    save_state("whole", False, False, [*state_sections(3), logits])
    save_state("window", False, False, [*state_sections(3, first=2), logits])
    save_state("empty", False, False, [logits])
    save_state("sequence", False, True, state_sections(3))
    save_state("recurrent_whole", True, False, [*state_sections(3, first=1, snapshots=[2]), logits])
    save_state("recurrent_sequence", True, True, state_sections(6, snapshots=[1, 4, 6]))
    save_state("recurrent_nothing", True, True, state_sections(0, snapshots=[]))


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


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}}}}}
TURNS = [*CHAT, {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
         {"role": "tool", "tool_call_id": "c", "content": "2"}]
SAMPLING = {"temperature": 0.5, "top_k": 4, "top_p": 0.9, "min_p": 0.1, "typical_p": 1, "repeat_penalty": 1.1, "mirostat": 2,
            "repeat_last_n": 8, "presence_penalty": 0.1, "frequency_penalty": 0.1, "dry_multiplier": 0.5, "xtc_probability": 0.1,
            "samplers": ["top_k", "temperature"], "dry_sequence_breakers": ["\n"], "seed": 7}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "x"]}}, "required": ["a"]}
REQUESTS = {
    "completion": ("POST /completion", {"prompt": "a the", "n_predict": 4, "n_probs": 2, "stop": ["x", "y"], "stream": True,
                                        "logit_bias": [[5, -1], ["a", False]], "id_slot": 0, "cache_prompt": True, **SAMPLING}),
    "mixed": ("POST /completions", {"prompt": [[1, 2], "a", ["b", 3]], "n_predict": 2, "return_tokens": True, "n_keep": 1,
                                    "n_discard": 1, "t_max_predict_ms": 5, "timings_per_token": True, "return_progress": True,
                                    "response_fields": ["content"], "post_sampling_probs": True, "ignore_eos": True,
                                    "sse_ping_interval": 3, "priority": 1, "grammar": "root ::= \"a\""}),
    "openai": ("POST /v1/completions", {"model": "other", "prompt": ["a", "b"], "max_tokens": 3, "n": 2, "echo": True, "logprobs": 2,
                                        "suffix": "z", "best_of": 2, "user": "u", "logit_bias": {"5": 3}, "json_schema": SCHEMA}),
    "chat": ("POST /v1/chat/completions", {"messages": TURNS, "max_completion_tokens": 5, "tools": [TOOL], "tool_choice": "auto",
                                           "parallel_tool_calls": True, "logprobs": True, "top_logprobs": 2, "stream": True,
                                           "stream_options": {"include_usage": True}, "reasoning_format": "none"}),
    "format": ("POST /chat/completions", {"messages": CHAT, "max_tokens": 5, "response_format": {"type": "json_schema",
               "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}, "chat_template_kwargs": {"enable_thinking": False},
               "reasoning_effort": "low", "add_generation_prompt": True}),
    "messages": ("POST /v1/messages", {"model": "other", "max_tokens": 4, "system": [{"type": "text", "text": "s"}], "messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": ""}, {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "2"}]}]}],
        "tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}, "stop_sequences": ["q"], "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 3}, "metadata": {"user_id": "u"}}),
    "count": ("POST /v1/messages/count_tokens", {"messages": CHAT[1:], "system": "s"}),
    "responses": ("POST /v1/responses", {"model": "late", "instructions": "i", "max_output_tokens": 4, "stream": True, "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "2"}], "tools": [{"type": "function", "name": "f", "parameters":
        SCHEMA}], "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, "reasoning": {"effort": "low"}}),
    "tokenize": ("POST /tokenize", {"content": ["a", 5, "the"], "add_special": True, "parse_special": False, "with_pieces": True}),
    "detokenize": ("POST /detokenize", {"tokens": [97, 256, 200]}),
    "template": ("POST /apply-template", {"messages": TURNS, "tools": [TOOL], "continue_final_message": True}),
    "save": ("POST /slots/1?action=save", {"filename": "s.bin"}),
    "erase": ("POST /slots/0?action=erase", {}),
    "embeddings": ("POST /v1/embeddings", {"input": ["a", "the"], "encoding_format": "base64", "dimensions": 3}),
    "rows": ("POST /embedding", {"model": "other", "content": [[97, "b"], "c"], "embd_normalize": -1}),
    "infill": ("POST /infill?model=other", {"input_prefix": "a", "input_suffix": "b", "prompt": "c", "n_predict": 2, "input_extra": [
        {"filename": "f", "text": "t"}]}),
    "move": ("POST /placement?model=late", {"split_mode": "tensor", "tensor_split": [1, 0.5], "policy": "off"}),
    "deadline": ("POST /placement", {"split_mode": "layer", "deadline_ms": 5}),
    "policy": ("POST /placement", {"policy": "auto"}),
    "load": ("POST /models/load", {"model": "late"}),
    "unload": ("POST /models/unload", {"model": "fake"}),
    "gone": ("POST /completion?gone=1&model=late", {"prompt": ["a", "b"], "stream": True}),
}
# Of requests that no route takes, or only to refuse them; their names are worth trying anyway.
OTHER_NAMES = ["documents", "query", "image_url", "data:image/png;base64,", "input_audio", "none", "required", "?model="]


def apis():
    """A request's first line and its body; and a dictionary of names."""
    names = set(OTHER_NAMES)

    def collect(value):
        if isinstance(value, dict):
            names.update(value)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
            collect(inner)
        if isinstance(value, str):
            names.add(value)
    for name, (line, body) in REQUESTS.items():
        save("api", name, f"{line}\n{json.dumps(body)}".encode())
        collect(body)
    for path in ("/health", "/props", "/slots?fail_on_no_slot=1", "/metrics", "/v1/models", "/placement?model=other", "/nowhere"):
        save("api", path.split("?")[0].strip("/").replace("/", "_"), f"GET {path}\n".encode())
    words = [json.dumps(name) for name in sorted(names)] + [line.split("?")[0] for line, _ in REQUESTS.values()] + [
        "null", "true", "-1", "1e308", "18446744073709551616", "[]", "{}", '":', "\\ud83d\\ude00"]
    quoted = ['"%s"' % word.replace("\\", "\\\\").replace('"', '\\"') for word in words if word.isascii()]
    pathlib.Path("fuzz/api.dict").write_text("\n".join(quoted) + "\n", encoding="utf-8")


def https():
    """As http_fuzz.cc takes them: after how many bytes the client pauses, and what it sends."""
    for name, pause, data in (
            ("get", 255, "GET /a?x=%41+b HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n"),
            ("post", 7, "POST /e HTTP/1.1\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhelloGET /b HTTP/1.1\r\n\r\n"),
            ("chunks", 3, "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n"),
            ("bytes", 0, "GET /b HTTP/1.1\r\nX: " + "a" * 1500 + "\r\n\r\n"),  # one by one
            ("old", 255, "HEAD /d HTTP/1.0\r\n\r\n"),
            ("head", 255, "HEAD /b HTTP/1.1\r\n\r\nGET /1 HTTP/1.1\r\n\r\n"),  # of a stream
            ("expect", 40, "PUT /f HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"),
            ("pipelined", 255, "GET /1 HTTP/1.1\r\n\r\n" * 5 + "GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n")):
        save("http", name, bytes([pause]) + data.encode())
    words = ["GET ", "POST ", " HTTP/1.1", " HTTP/1.0", "\\x0d\\x0a", "\\x0d\\x0a\\x0d\\x0a", "Content-Length: ", "Transfer-Encoding: ",
             "chunked", "Connection: ", "close", "keep-alive", "Upgrade: ", "Expect: 100-continue", "Host: ", "0\\x0d\\x0a", "%2e", "?x="]
    pathlib.Path("fuzz/http.dict").write_text("".join(f'"{word}"\n' for word in words), encoding="utf-8")


if __name__ == "__main__":
    apis()
    https()
    grammars()
    states()
    templates()
    tokenizers()
    ggufs()
    samplers()
