#!/usr/bin/env python3
"""Faults that people reported of servers like this one, and their kin: each is answered with a sentence, and nothing else
suffers. The numbers are those of public reports (of llama.cpp where no repository is named).

  server_reports_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import contextlib
import json
import os
import tempfile
import time
import unittest

from server_support import DATA, GREEDY, HELLO, TIMEOUT_S, Server, ServerTest, main

CHAT = "/v1/chat/completions"


def deep(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


class BadInput(ServerTest):
    def tearDown(self):
        self.good("GET", "/health")

    def test_bodies_that_crashed_servers(self):
        for path in (CHAT, "/v1/completions", "/completion", "/v1/messages", "/v1/responses", "/tokenize", "/detokenize",
                     "/apply-template"):
            for body in ({}, [], "{", '{"prompt":', "null", b"\xff", {"messages": {}}, {"messages": [None]}, {"prompt": {}},
                         {"input": 5}, {"tokens": {}}, {"content": {}}):
                status, _, reply = self.server.call("POST", path, body)                       # 7133
                self.assertIn(status, (200, 400) if path.endswith("tokenize") else (400,), (path, body, reply))
        for prompt in ("text", {"prompt": "x"}, 5):                                           # 7089, 7152
            self.good("POST", "/completion", {"prompt": "a", "n_predict": 1, "system_prompt": prompt})

    def test_numbers_that_ran_past_buffers(self):
        for field in ("n_discard", "n_keep", "id_slot", "top_k", "n_probs", "n_predict", "max_tokens", "t_max_predict_ms", "n"):
            for value in (-(2 ** 31) - 1, 2 ** 31 + 7, 2 ** 63 - 1, 2 ** 64, -(2 ** 70), 1e300, 0.5):   # CVE-2026-21869, 24786
                status, _, reply = self.server.call("POST", "/completion", {"prompt": "a", "n_predict": 1, field: value})
                self.assertIn(status, (200, 400), (field, value, reply))
                if status == 400:
                    self.assertRegex(reply["error"]["message"], r"\w+ .*\w+")
            self.bad(400, field, "/completion", {"prompt": "a", "n_predict": 1, field: 2 ** 64})
        self.bad(400, "JSON", "/completion", '{"prompt": "a", "temperature": 1e999}')
        self.bad(400, "JSON", "/completion", '{"prompt": "a", "temperature": NaN}')
        self.bad(400, "JSON", "/completion", '{"prompt": "\\ud800"}')

    def test_grammars(self):
        for grammar, pattern in (
                ("root ::= " + "(" * 30000 + '"a"' + ")" * 30000, "deep"),                    # 26600
                ("root ::= " + "(" * 20000, "deep"),
                ('root ::= ' + "(" * 150 + '"a"' + ")+" * 150 + "x", "no rule"),
                ('root ::= root "a"', "begins with itself"),
                ('root ::= x "a"\nx ::= root | ""', "begins with itself"),
                ('root ::= "a"{1,999999999}', "repetitions"),
                ('root ::= ((("a"{1000}){1000}){1000}){1000}', "states"),
                ('root ::= "a"{5,2}', "swap"), ('x ::= "a"', "root"), ("root ::= y", "'y'"), ("root = nonsense", "::="),
                ("root ::= [", "line 1"), ('root ::= "\\x"', "line 1"), ("root ::= \"a", "line 1"),
                ("root ::= *", "line 1"), ('root ::= "a" |' * 3, "line 1")):
            self.bad(400, pattern, "/completion", {"prompt": "a", "grammar": grammar})

    def test_a_reply_is_never_left_unconstrained(self):                                       # 19051
        for path, body in (("/completion", {"prompt": "a"}), ("/v1/completions", {"prompt": "a"}), (CHAT, {"messages": HELLO})):
            for streams in (False, True):
                for wrong in ({"grammar": "root = nonsense"}, {"json_schema": {"type": "banana"}}):
                    self.bad(400, "grammar|schema", path, {**body, **wrong, "stream": streams})
        self.bad(400, "schema", "/v1/responses", {"input": "a", "text": {"format": {
            "type": "json_schema", "name": "x", "schema": {"$ref": "#"}}}})

    def test_patterns(self):                                                                  # 19008, 25283, 22606, 25308
        def ask(pattern):
            return {"prompt": "a", "n_predict": 2, "json_schema": {"type": "string", "pattern": pattern}}
        for pattern in ("(a*)*$", "^()*$", "^(|a)*$", "^a$|^b$", "", "^$", "((((a)*)*)*)*", "(a|a|a)*", "[^a]{0,40}"):
            self.good("POST", "/completion", ask(pattern))
        for pattern in ("^" + "(" * 5000 + "a" + ")" * 5000 + "$", "(a|" * 3000, "a{0,99999999}", "^*", "+", "a**", "\\", "[",
                        "[z-a]", "(?:", "\\u12", "a{2,1}", ")", "(((a{1000}){1000}){1000})"):
            self.bad(400, r"pattern|states", "/completion", ask(pattern))
        for pattern in ("(?=a)b", "(?<n>a)\\k<n>", "\\1", "(?<!a)b", "\\bword"):
            self.bad(501, "write it without", "/completion", ask(pattern), "not_supported_error")

    def test_schemas(self):
        for schema, pattern in (
                ({"$ref": "#"}, "itself"), ({"$ref": "#/nowhere"}, "nothing"),
                ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "itself"),
                (deep(400), "nested"), ({"type": "string", "minLength": 10 ** 12}, "minLength"),
                ({"type": "array", "minItems": 10 ** 9}, "minItems"), ({"type": "array", "minItems": 5, "maxItems": 2}, "minItems"),
                ({"allOf": [{"type": "string"}, {"type": "number"}]}, "contradicts"), ({"type": "banana"}, "banana"),
                ({"type": "object", "properties": []}, "properties"), ({"enum": []}, "enum"), ({"type": []}, "type"),
                ({"type": "object", "required": "a"}, "required"), ({"anyOf": []}, "anyOf")):
            self.bad(400, pattern, "/completion", {"prompt": "a", "json_schema": schema})
        self.bad(501, "leads out", "/completion", {"prompt": "a", "json_schema": {"$ref": "http://example.com/x"}},
                 "not_supported_error")

    def test_tool_calls_that_are_no_json(self):                                               # 15640, 14051
        for arguments in ('{"a": ', "", "[]", "null", "nonsense", {"a": 1}, 5):
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
            status, _, reply = self.server.call("POST", CHAT, {"max_tokens": 1, "messages": [
                *HELLO, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "x"}]})
            self.assertIn(status, (200, 400), (arguments, reply))
        for tool in (5, {}, {"type": "function"}, {"type": "function", "function": {}}, {"type": "function", "function": {"name": 5}}):
            status, _, reply = self.server.call("POST", CHAT, {"max_tokens": 1, "messages": HELLO, "tools": [tool]})
            self.assertIn(status, (200, 400), (tool, reply))

    def test_pictures_without_an_encoder(self):                                               # 23331
        for part in ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "input_audio"}):
            messages = [{"role": "user", "content": [part]}]
            for path, body in ((CHAT, {"messages": messages}), ("/v1/responses", {"input": messages}),
                               ("/v1/messages/count_tokens", {"messages": messages})):
                status, _, reply = self.server.call("POST", path, body)
                self.assertEqual((status, reply["error"]["type"]), (501, "not_supported_error"), (path, reply))
                self.assertRegex(reply["error"]["message"], f'is "{part["type"]}"; this server reads text')
        for part in ({"type": "text"}, {"type": 5}, 5, None):
            self.bad(400, r'field "messages\[0\]\.content\[0\].* it must be ', CHAT, {"messages": [{"role": "user", "content": [part]}]})

    def test_prompts_longer_than_the_context(self):                                           # 10380, 3817
        for path, body in (("/completion", {"prompt": "word " * 3000}), ("/v1/responses", {"input": "word " * 3000}),
                           (CHAT, {"messages": [{"role": "user", "content": "word " * 3000}]})):
            self.bad(400, "256", path, body, "exceed_context_size_error")
        whole = self.good("POST", "/completion", {"prompt": [1] * 255, "n_predict": 99, "ignore_eos": True, **GREEDY})
        self.assertIn(whole["tokens_predicted"], (1, 2))  # the last token needs no place

    def test_slots_that_are_empty(self):                                                      # 14434
        self.good("POST", "/slots/0?action=erase")
        saved = self.good("POST", "/slots/0?action=save", {"filename": "empty.bin"})
        self.assertEqual(saved["n_saved"], 0)
        self.assertEqual(self.good("POST", "/slots/0?action=restore", {"filename": "empty.bin"})["n_restored"], 0)
        with open(os.path.join(self.slots.name, "noise.bin"), "wb") as file:
            file.write(b"\xff" * 1000)
        self.bad(400, r"\w+ \w+", "/slots/0?action=restore", {"filename": "noise.bin"})
        self.bad(404, "nowhere.bin", "/slots/0?action=restore", {"filename": "nowhere.bin"}, "not_found_error")


class ServerLife(unittest.TestCase):
    def start(self, *flags, **options):
        server = Server(*flags, **options)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def test_leaving_the_queue_ends_nobody_else(self):                                        # ik_llama.cpp 1929, 13262
        server = self.start("-np", "1", "--context-shift", "--metrics")

        def wait_for(metric):
            end = time.monotonic() + TIMEOUT_S
            while metric not in server.call("GET", "/metrics")[2]:
                self.assertLess(time.monotonic(), end, metric)
                time.sleep(0.01)
        endless = json.dumps({"prompt": "a", "n_predict": -1, "stream": True, "ignore_eos": True})
        with contextlib.closing(server.connect()) as active:
            active.request("POST", "/completion", endless)
            reply = active.getresponse()
            reply.read(1)
            for _ in range(3):
                with contextlib.closing(server.connect()) as queued:
                    queued.request("POST", "/completion", endless)
                    wait_for("requests_deferred 1")
                wait_for("requests_deferred 0")
                for _ in range(20):
                    self.assertTrue(reply.readline())
            self.assertIn("requests_processing 1", server.call("GET", "/metrics")[2])
        wait_for("requests_processing 0")                                                     # 24496

    def test_a_full_context_of_models_that_cannot_shift(self):                                # 10380
        for model in ("tiny-qwen35.gguf", "tiny-gemma3.gguf", "tiny-gpt-oss.gguf"):
            server = self.start("--context-shift", model=str(DATA / model))
            for body in ({"prompt": "word " * 300, "n_predict": 4}, {"prompt": "a", "n_predict": 400, "ignore_eos": True}):
                status, _, reply = server.call("POST", "/completion", {**body, **GREEDY})
                self.assertIn(status, (200, 400, 501), (model, reply))
                if status == 200:
                    self.assertIn(reply["stop_type"], ("limit", "eos"))
            self.assertEqual(server.call("GET", "/health")[0], 200)

    def test_a_missing_template_is_said(self):
        server = self.start(model=str(DATA / "tiny-gemma3.gguf"))
        server.wait_for(r"^note: tiny-gemma3\.gguf has no chat template; ChatML is used$")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("{{ messages[0].content }}")
            file.flush()
            self.assertNotIn("no chat template", self.start("--chat-template-file", file.name).text())

    def test_templates(self):                                                                 # 20733, 20305
        late = [*HELLO, {"role": "system", "content": "late"}, *HELLO]
        for source, messages, status, pattern in (
                ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system comes "
                 "first') }}{% endif %}{{ m.content }}{% endfor %}", late, 400, "system comes first"),
                ("{{ 'x' * 1000000000000 }}", HELLO, 501, r"\w+ \w+"),
                ("{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}", HELLO,
                 501, r"\w+ \w+"),
                ("{% for i in range(999999999) %}{% endfor %}", HELLO, 501, r"\w+ \w+"),
                ("{{ messages | rejectattr('role', 'in', ['system']) | list | length }}", late, 200, "^2$")):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(source)
                file.flush()
                server = self.start("--chat-template-file", file.name)
                found, _, reply = server.call("POST", "/apply-template", {"messages": messages})
                self.assertEqual(found, status, (source, reply))
                self.assertRegex(reply["prompt"] if status == 200 else reply["error"]["message"], pattern)
                self.assertEqual(server.call("GET", "/health")[0], 200)


if __name__ == "__main__":
    main()
