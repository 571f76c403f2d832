#!/usr/bin/env python3
"""`tessera serve` from outside: routes, streams, errors, hostile clients, shutdown, and the clients people use.

  server_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from server_support import DATA, GREEDY, HELLO, MODEL, TIMEOUT_S, Server, ServerTest, main, program


class Routes(ServerTest):
    def test_what_it_says_of_itself(self):
        self.assertEqual(self.good("GET", "/health"), {"status": "ok"})
        model = self.good("GET", "/v1/models")["data"][0]
        self.assertEqual(model["id"], "tiny-llama.gguf")
        self.assertGreater(model["meta"]["n_params"], 0)
        props = self.good("GET", "/props")
        self.assertEqual(props["total_slots"], 2)
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 256)
        self.assertEqual(props["default_generation_settings"]["params"]["top_k"], 40)
        slots = self.good("GET", "/slots")
        self.assertEqual([slot["id"] for slot in slots], [0, 1])
        self.assertEqual(self.server.raw(b"HEAD /health HTTP/1.0\r\n\r\n").split(b"\r\n\r\n")[1], b"")

    def test_tokenize_and_back(self):
        ids = self.good("POST", "/tokenize", {"content": "Hello wörld"})["tokens"]
        self.assertEqual(self.good("POST", "/detokenize", {"tokens": ids})["content"].strip(), "Hello wörld")
        pieces = self.good("POST", "/tokenize", {"content": "Hi", "with_pieces": True})["tokens"]
        self.assertEqual("".join(p["piece"] for p in pieces).strip(), "Hi")

    def test_apply_template(self):
        prompt = self.good("POST", "/apply-template", {"messages": HELLO})["prompt"]
        self.assertIn("Hello", prompt)

    def test_no_such_route(self):
        status, _, reply = self.server.call("GET", "/nowhere")
        self.assertEqual((status, reply["error"]["type"]), (404, "not_found_error"))
        self.assertIn("/v1/chat/completions", reply["error"]["message"])
        for path, use in (("/api/generate", "/v1/completions"), ("/api/chat", "/v1/chat/completions"), ("/api/tags", "/v1/models"),
                          ("/v1/models/", "/v1/models"), ("/v1/chat/completions/", "/v1/chat/completions"),
                          ("/v1/v1/chat/completions", "/v1/chat/completions"), ("/v1/tokenize", "/tokenize")):
            for method in ("GET", "POST"):
                status, _, reply = self.server.call(method, path, "{}" if method == "POST" else None)
                self.assertEqual((status, reply["error"]["message"]), (404, f"there is no {path}; use {use}"))
        self.bad(404, "does not rerank", "/v1/rerank", {}, "not_found_error")
        for method, path, use in (("GET", "/completion", "POST"), ("DELETE", "/placement", "GET, HEAD, POST"),
                                  ("POST", "/health", "GET, HEAD")):
            status, headers, reply = self.server.call(method, path)
            self.assertEqual((status, headers["Allow"]), (405, use))
            self.assertEqual(reply["error"]["message"], f"{path} does not take {method}; use {use}")

    def test_cors(self):
        status, headers, _ = self.server.call("OPTIONS", "/v1/chat/completions", headers={
            "Origin": "http://page", "Access-Control-Request-Headers": "authorization"})
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "http://page")
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization")

    def test_metrics(self):
        self.good("POST", "/completion", {"prompt": "a", "n_predict": 3, **GREEDY})
        lines = dict(line.rsplit(" ", 1) for line in self.good("GET", "/metrics").split("\n")
                     if line and not line.startswith("#"))
        self.assertGreaterEqual(float(lines["llamacpp:tokens_predicted_total"]), 3)
        self.assertEqual(float(lines["llamacpp:requests_processing"]), 0)

    def test_slot_files(self):
        first = self.good("POST", "/completion", {"prompt": "one two three", "n_predict": 2, "id_slot": 1, **GREEDY})
        saved = self.good("POST", "/slots/1?action=save", {"filename": "s.bin"})
        self.assertGreaterEqual(saved["n_saved"], first["tokens_evaluated"])
        self.assertEqual(self.good("POST", "/slots/1?action=erase")["n_erased"], saved["n_saved"])
        restored = self.good("POST", "/slots/1?action=restore", {"filename": "s.bin"})
        self.assertEqual((restored["n_restored"], restored["n_read"]), (saved["n_saved"], saved["n_written"]))
        for name in ("../x", "/etc/passwd", "", ".hidden", "a/b", 5):
            self.bad(400, "filename", "/slots/1?action=save", {"filename": name})
        self.bad(400, "slot", "/slots/99?action=erase", {})
        self.bad(400, "action", "/slots/1?action=dance", {})
        self.bad(404, r"\w", "/slots/1?action=restore", {"filename": "none.bin"}, "not_found_error")

    def test_a_slot_folder_that_goes_away_is_the_servers_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "slots"
            path.mkdir()
            server = Server("--slot-save-path", str(path))
            self.addCleanup(server.stop)
            path.rmdir()
            for action in ("save", "restore"):
                status, _, reply = server.call("POST", f"/slots/0?action={action}", {"filename": "s.bin"})
                self.assertEqual((status, reply["error"]["type"]), (500, "server_error"), reply)
                self.assertRegex(reply["error"]["message"], "--slot-save-path")


class Completions(ServerTest):
    def test_native(self):
        whole = self.good("POST", "/completion", {"prompt": "The", "n_predict": 8, "return_tokens": True, **GREEDY})
        self.assertEqual(whole["tokens_predicted"], 8)
        self.assertEqual((whole["stop_type"], whole["stop"]), ("limit", True))
        self.assertEqual(whole["timings"]["predicted_n"], 8)
        events = [json.loads(e) for e in self.server.events("/completion", {"prompt": "The", "n_predict": 8, **GREEDY})]
        self.assertEqual("".join(e["content"] for e in events), whole["content"])
        self.assertEqual([t for e in events for t in e["tokens"]], whole["tokens"])
        self.assertTrue(events[-1]["stop"])

    def test_prompt_forms(self):
        ids = self.good("POST", "/tokenize", {"content": "The", "add_special": True})["tokens"]
        text = self.good("POST", "/completion", {"prompt": "The", "n_predict": 4, **GREEDY})
        tokens = self.good("POST", "/completion", {"prompt": ids, "n_predict": 4, **GREEDY})
        self.assertEqual(text["content"], tokens["content"])
        both = self.good("POST", "/completion", {"prompt": ["The", ids], "n_predict": 4, **GREEDY})
        self.assertEqual([c["content"] for c in sorted(both, key=lambda c: c["index"])], [text["content"]] * 2)

    def test_response_fields(self):
        body = {"prompt": ["The", "A"], "n_predict": 3, **GREEDY}
        names = ["content", "generation_settings/n_predict", "timings/predicted_n", "no/such", "content/x"]
        whole = self.good("POST", "/completion", body)
        some = self.good("POST", "/completion", {**body, "response_fields": names})
        self.assertEqual(some, [{"content": w["content"], "generation_settings/n_predict": 3, "timings/predicted_n": 3}
                                for w in sorted(whole, key=lambda c: c["index"])])
        events = [json.loads(e) for e in self.server.events("/completion", {**body, "prompt": "The", "response_fields": names})]
        self.assertEqual(set(events[-1]), set(names[:3]))
        self.assertFalse(events[0]["stop"])
        self.assertEqual(self.good("POST", "/completion", {**body, "prompt": "The", "response_fields": []})["stop"], True)
        self.bad(400, '"response_fields"', "/completion", {**body, "response_fields": [5]})

    def test_prompt_is_reused(self):
        body = {"prompt": "a b c d e f g h i j", "n_predict": 2, **GREEDY}
        self.good("POST", "/completion", body)
        self.assertGreater(self.good("POST", "/completion", body)["timings"]["cache_n"], 3)

    def test_stop_word(self):
        text = self.good("POST", "/completion", {"prompt": "The", "n_predict": 16, **GREEDY})["content"]
        word = text[2:4]
        cut = self.good("POST", "/completion", {"prompt": "The", "n_predict": 16, "stop": [word], **GREEDY})
        self.assertEqual((cut["stop_type"], cut["stopping_word"], cut["content"]), ("word", word, text.split(word)[0]))

    def test_seeds(self):
        body = {"prompt": "x", "n_predict": 12, "seed": 7, "temperature": 5.0, "top_k": 0, "top_p": 1, "min_p": 0}
        one = self.good("POST", "/completion", body)["content"]
        self.assertEqual(self.good("POST", "/completion", body)["content"], one)
        self.assertNotEqual(self.good("POST", "/completion", {**body, "seed": 8})["content"], one)

    def test_logit_bias(self):
        first = self.good("POST", "/completion", {"prompt": "The", "n_predict": 1, "return_tokens": True, "n_probs": 3,
                                                  **GREEDY})
        probs = first["completion_probabilities"][0]
        self.assertEqual(len(probs["top_logprobs"]), 3)
        self.assertEqual(probs["id"], probs["top_logprobs"][0]["id"])
        banned = self.good("POST", "/completion", {"prompt": "The", "n_predict": 1, "n_probs": 1, **GREEDY,
                                                   "logit_bias": [[probs["id"], False]]})
        self.assertEqual(banned["completion_probabilities"][0]["id"], probs["top_logprobs"][1]["id"])
        wanted = self.good("POST", "/v1/completions", {"prompt": "The", "max_tokens": 1, "logprobs": 1, **GREEDY,
                                                       "logit_bias": {str(probs["top_logprobs"][2]["id"]): 100}})
        self.assertEqual(wanted["choices"][0]["logprobs"]["tokens"], [probs["top_logprobs"][2]["token"]])

    def test_constraints(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 22]}, "b": {"type": "boolean"}},
                  "required": ["a", "b"], "additionalProperties": False}
        asked = {"prompt": "Once", "n_predict": 64, "temperature": 2, "seed": 3}
        reply = self.good("POST", "/completion", {**asked, "grammar": 'root ::= "yes" | "no" "!"'})
        self.assertIn(reply["content"], ("yes", "no!"))
        self.assertEqual(reply["stop_type"], "eos")
        reply = self.good("POST", "/completion", {**asked, "json_schema": schema})
        self.assertEqual(set(json.loads(reply["content"])), {"a", "b"})
        for form in ({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
                     {"type": "json_object", "schema": schema}):
            reply = self.good("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 64, "temperature": 2,
                                                               "response_format": form})
            self.assertIn(json.loads(reply["choices"][0]["message"]["content"])["a"], (1, 22))
            self.assertEqual(reply["choices"][0]["finish_reason"], "stop")
        reply = self.good("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 64, "temperature": 2, "text": {
            "format": {"type": "json_schema", "name": "x", "schema": schema}}})
        self.assertIn(json.loads(reply["output"][-1]["content"][0]["text"])["a"], (1, 22))

    def test_openai_completions(self):
        reply = self.good("POST", "/v1/completions", {"prompt": ["The", "A"], "max_tokens": 4, "n": 2, "echo": True,
                                                      **GREEDY})
        self.assertEqual([c["index"] for c in reply["choices"]], [0, 1, 2, 3])
        self.assertTrue(reply["choices"][0]["text"].strip().startswith("The"))
        self.assertEqual(reply["choices"][0]["text"], reply["choices"][1]["text"])
        self.assertEqual(reply["usage"]["completion_tokens"], 16)
        self.assertEqual(reply["choices"][0]["finish_reason"], "length")

    def test_a_full_context_is_told_from_a_limit(self):
        for n, is_full in ((4, False), (-1, True)):
            body = {"prompt": "The", "n_predict": n, "ignore_eos": True, **GREEDY}
            end = self.good("POST", "/completion", body)
            self.assertEqual((end["stop_type"], end["truncated"]), ("limit", is_full))
            end = json.loads(self.server.events("/completion", body)[-1])
            self.assertEqual((end["stop_type"], end["truncated"]), ("limit", is_full))
        endless = {"logit_bias": [["<|im_end|>", False], ["<|endoftext|>", False]], **GREEDY}
        for n, reason in ((4, "max_tokens"), (1000, "model_context_window_exceeded")):
            body = {"messages": HELLO, **endless, "max_tokens": n}
            self.assertEqual(self.good("POST", "/v1/messages", body)["stop_reason"], reason)
            deltas = [json.loads(e) for e in self.server.events("/v1/messages", body)]
            self.assertEqual([e["delta"]["stop_reason"] for e in deltas if e["type"] == "message_delta"], [reason])
            choice = self.good("POST", "/v1/chat/completions", body)["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")
        told = self.good("POST", "/v1/responses", {"input": "Hello", **endless})
        self.assertEqual(told["incomplete_details"], {"reason": "max_output_tokens"})

    def test_chat(self):
        body = {"messages": HELLO, "max_tokens": 6, **GREEDY}
        reply = self.good("POST", "/v1/chat/completions", body)
        message = reply["choices"][0]["message"]
        self.assertEqual((reply["object"], message["role"]), ("chat.completion", "assistant"))
        self.assertEqual(reply["usage"]["completion_tokens"], 6)
        events = self.server.events("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        chunks = [json.loads(e) for e in events[:-1]]
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
        self.assertEqual(text, message["content"])
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(chunks[-1]["usage"]["total_tokens"], reply["usage"]["total_tokens"])

    def test_what_continues_a_message_comes_as_generated(self):
        messages = [*HELLO, {"role": "assistant", "content": "The sky is"}]
        prompt = self.good("POST", "/apply-template", {"messages": messages})["prompt"]
        self.assertTrue(prompt.endswith("The sky is"))
        pieces = self.good("POST", "/tokenize", {"content": "one two", "with_pieces": True})["tokens"]
        wanted = next(p["id"] for p in pieces if p["piece"].startswith(" "))
        body = {"temperature": 0, "max_tokens": 2, "logit_bias": {str(wanted): 100}}
        text = self.good("POST", "/completion", {**body, "prompt": prompt})["content"]
        self.assertTrue(text.startswith(" "), text)
        chat = "/v1/chat/completions"
        self.assertEqual(self.good("POST", chat, {**body, "messages": messages})["choices"][0]["message"]["content"], text)
        chunks = [json.loads(e) for e in self.server.events(chat, {**body, "messages": messages})[:-1]]
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks), text)
        self.assertEqual(self.good("POST", "/v1/messages", {**body, "messages": messages})["content"][0]["text"], text)
        deltas = [json.loads(e) for e in self.server.events("/v1/messages", {**body, "messages": messages})]
        self.assertEqual("".join(d["delta"]["text"] for d in deltas if d["type"] == "content_block_delta"), text)
        response = self.good("POST", "/v1/responses", {**body, "input": messages, "max_output_tokens": 2})
        self.assertEqual(response["output"][0]["content"][0]["text"], text)
        fresh = self.good("POST", chat, {**body, "messages": HELLO})["choices"][0]["message"]["content"]
        self.assertEqual(fresh, text.lstrip())

    def test_chat_logprobs(self):
        reply = self.good("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 3, "logprobs": True,
                                                           "top_logprobs": 2, "n": 2, **GREEDY})
        for choice in reply["choices"]:
            self.assertGreaterEqual(len(choice["logprobs"]["content"]), 1)
            self.assertEqual(len(choice["logprobs"]["content"][0]["top_logprobs"]), 2)

    def test_messages_without_a_limit_end_by_themselves(self):
        body = {"messages": HELLO, **GREEDY}
        whole = self.good("POST", "/v1/messages", body)
        self.assertIn(whole["stop_reason"], ("end_turn", "model_context_window_exceeded"))
        chat = self.good("POST", "/v1/chat/completions", body)
        self.assertEqual(whole["content"][0]["text"], chat["choices"][0]["message"]["content"])
        self.assertEqual(whole["usage"]["output_tokens"], chat["usage"]["completion_tokens"])

    def test_neighbours_change_nothing(self):
        def ask(i):
            return self.good("POST", "/completion", {"prompt": f"Story {i % 3}", "n_predict": 24, **GREEDY})["content"]
        alone = [ask(i) for i in range(3)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(ask, range(12))), [alone[i % 3] for i in range(12)])

    def test_log_row(self):
        reply = self.good("POST", "/completion", {"prompt": "a row of its own " * 8, "n_predict": 3, "ignore_eos": True,
                                                  **GREEDY})
        # A row is written after its reply, so that it may come late; no other prompt is as long.
        n_prompt = reply["tokens_evaluated"]
        row = json.loads(self.server.wait_for(rf'^\{{.*"path":"/completion".*"prompt_tokens":{n_prompt},.*$')[0])
        self.assertEqual((row["method"], row["status"], row["tokens"], row["stop"]), ("POST", 200, 3, "limit"))
        self.assertGreater(row["tokens_per_second"], 0)


class BadRequests(ServerTest):
    def tearDown(self):
        self.good("GET", "/health")

    def test_bodies(self):
        chat = "/v1/chat/completions"
        self.bad(400, "messages", chat, {})
        self.bad(400, "no valid JSON", chat, "{\"messages\": ")
        self.bad(400, "no valid JSON", chat, b"\xff\xfe")
        self.bad(400, "must be a JSON object", chat, [])
        self.bad(400, "nested", chat, "[" * 50000)
        self.bad(400, "nested", chat, '{"a":' * 10000)
        self.bad(400, "members", chat, {str(i): 0 for i in range(3000)})
        self.bad(400, '"messages" is a string; it must be an array', chat, {"messages": "x"})
        self.bad(400, r'"messages\[0\]" is a number; it must be an object', chat, {"messages": [5]})
        self.bad(400, r'"messages\[0\]\.role" is missing', chat, {"messages": [{"content": "no role"}]})
        self.bad(400, "prompt", "/completion", {})
        for path in (chat, "/chat/completions", "/apply-template"):
            self.bad(400, '"messages" is empty', path, {"messages": []})
        self.bad(400, '"input" is an array.*at least one item', "/v1/responses", {"input": []})
        self.assertEqual(self.server.call("POST", "/v1/messages", {"messages": [], "max_tokens": 1})[0], 400)
        self.bad(501, '"suffix".*/infill', "/v1/completions", {"prompt": "a", "suffix": "b"}, "not_supported_error")
        _, headers, _ = self.server.call("POST", "/v1/completions", {"prompt": "a", "suffix": "b"})
        self.assertEqual(headers["x-should-retry"], "false", "clients' libraries ask again after a server's error")

    def test_echo_has_no_logprobs(self):
        body = {"prompt": "The", "max_tokens": 1, **GREEDY}
        for more in ({"logprobs": 1}, {"logprobs": 0}, {"logprobs": 1, "max_tokens": 0}, {"logprobs": 2, "stream": True}):
            self.bad(501, 'fields "echo" and "logprobs".*tessera perplexity', "/v1/completions",
                     {**body, "echo": True, **more}, "not_supported_error")
        for more in ({"echo": True}, {"echo": True, "logprobs": None}, {"echo": False, "logprobs": 1}):
            self.good("POST", "/v1/completions", {**body, **more})

    def test_fields_that_would_change_the_answer(self):
        chat = {"messages": HELLO, "max_tokens": 1}
        text = {"prompt": "a", "max_tokens": 1}
        for path, body, field, values, ignored in (
                ("/completion", text, "lora", ([{"id": 0, "scale": 0.5}],), ([], None)),
                ("/v1/chat/completions", chat, "lora", ([{"id": 0, "scale": 0.5}],), ([], None)),
                ("/v1/completions", text, "best_of", (2, 20), (1, None)),
                ("/v1/completions", {**text, "n": 2}, "best_of", (3,), (2, 1)),
                ("/v1/chat/completions", chat, "modalities", (["text", "audio"], ["audio"], "image"), (["text"], None)),
                ("/v1/chat/completions", chat, "audio", ({"voice": "alloy", "format": "wav"},), (None,)),
                ("/v1/chat/completions", chat, "chat_template", ("{{ messages[0].content }}", "chatml"), (None,)),
                ("/apply-template", chat, "chat_template", ("chatml",), (None,)),
                ("/v1/chat/completions", chat, "functions", ([{"name": "f"}], 5), ([], None)),
                ("/v1/chat/completions", chat, "function_call", ({"name": "f"},), ("auto", "none", None))):
            for value in values:
                self.bad(501, f'"{field}".*; .*', path, {**body, field: value}, "not_supported_error")
            for value in ignored:
                self.good("POST", path, {**body, field: value})
        for field, now in (("functions", "tools"), ("function_call", "tool_choice")):
            self.bad(501, f'use "{now}"', "/v1/chat/completions", {**chat, field: "x"}, "not_supported_error")
        self.bad(400, '"lora".*an array', "/completion", {**text, "lora": 5})
        self.bad(400, '"best_of"', "/v1/completions", {**text, "best_of": "many"})
        self.bad(400, '"modalities"', "/v1/chat/completions", {**chat, "modalities": [5]})

    def test_every_field_of_a_wrong_type(self):
        wrong = [[], {}, "text", True, -7.5, 1e308, [[[]]], {"a": {"b": []}}]
        fields = ["n_predict", "max_tokens", "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty",
                  "repeat_last_n", "seed", "stop", "stream", "logit_bias", "samplers", "n_probs", "id_slot", "n_keep",
                  "n_discard", "ignore_eos", "cache_prompt", "dry_sequence_breakers", "mirostat", "t_max_predict_ms",
                  "sse_ping_interval", "post_sampling_probs", "return_tokens", "return_progress", "timings_per_token",
                  "priority", "prompt", "n", "json_schema", "grammar", "response_format"]
        for field in fields:
            n_bad = 0
            for value in wrong:
                body = {"prompt": "a", "n_predict": 1, field: value}
                status, _, reply = self.server.call("POST", "/completion", body)
                self.assertIn(status, (200, 400, 501), (body, reply))
                n_bad += status != 200
                if status == 400:
                    self.assertRegex(reply["error"]["message"], r"\w+ .*\w+")
            self.assertGreaterEqual(n_bad, 3, field)

    def test_chat_fields_of_a_wrong_type(self):
        for field in ("messages", "tools", "tool_choice", "stream_options", "logprobs", "top_logprobs", "model",
                      "chat_template_kwargs", "reasoning_format", "parallel_tool_calls"):
            for value in (5, "text", [5], {"a": 5}, [[]], True):
                body = {"messages": HELLO, "max_tokens": 1, field: value}
                status, _, reply = self.server.call("POST", "/v1/chat/completions", body)
                self.assertIn(status, (200, 400, 501), (body, reply))
        self.bad(400, "top_logprobs", "/v1/chat/completions", {"messages": HELLO, "top_logprobs": 3})

    def test_too_long(self):
        """What clients know it by, also those that asked for a stream: llama.cpp's, OpenAI's, Anthropic's."""
        long = {"messages": [{"role": "user", "content": "x" * 300}]}
        for path, body in (("/completion", {"prompt": [5] * 300}), ("/v1/completions", {"prompt": [[5], [5] * 300]}),
                           ("/v1/chat/completions", long), ("/v1/responses", {"input": "x" * 300}),
                           ("/completion", {"prompt": [5] * 300, "context_shift": True, "n_keep": -1})):
            for stream in (False, True):
                self.bad(400, r"^the prompt has 3\d\d tokens and the context holds 256, one of them for the answer; raise "
                         r"--ctx-size or shorten the prompt \(context_length_exceeded: this model's maximum context length "
                         r"is 256 tokens\)$", path, {**body, "stream": stream}, "exceed_context_size_error")
                error = self.server.call("POST", path, {**body, "stream": stream})[2]["error"]
                self.assertEqual((error["n_ctx"], 300 <= error["n_prompt_tokens"] < 400), (256, True))
        for stream in (False, True):
            status, _, reply = self.server.call("POST", "/v1/messages", {**long, "max_tokens": 1, "stream": stream})
            self.assertEqual((status, reply["type"], reply["error"]["type"]), (400, "error", "invalid_request_error"))
            self.assertRegex(reply["error"]["message"], r"^prompt is too long: 3\d\d tokens > 255 maximum; raise .*\(-c\)")

    def test_too_much(self):
        self.bad(400, "vocabulary|token id", "/completion", {"prompt": [1, 99999999], "n_predict": 1})
        self.bad(413, "longer than 65536", "/completion", {"prompt": "x" * 70000})

    def test_constraints(self):
        for body, pattern in (({"grammar": "root ::= ("}, "line 1"), ({"grammar": 3}, "grammar"),
                              ({"json_schema": 3}, "json_schema"),
                              ({"grammar": 'root ::= "a"', "json_schema": {}}, "not both"),
                              ({"response_format": {"type": "xml"}}, "json_schema"),
                              ({"response_format": {"type": "json_schema"}}, "no schema")):
            self.bad(400, pattern, "/completion", {"prompt": "a", **body})
        self.bad(501, "uniqueItems", "/completion", {"prompt": "a", "json_schema": {"uniqueItems": True}},
                 "not_supported_error")


class HostileClients(ServerTest):
    def tearDown(self):
        self.good("GET", "/health")

    def test_no_http(self):
        self.assertIn(b" 400 ", self.server.raw(b"\x16\x03\x01\x02\x00 hello\r\n\r\n").split(b"\r\n")[0])
        self.assertIn(b" 400 ", self.server.raw(b"GET / HTTP/9.9\r\n\r\n").split(b"\r\n")[0])
        self.assertIn(b" 400 ", self.server.raw(b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n").split(b"\r\n")[0])

    def test_huge_headers(self):
        answer = self.server.raw(b"GET /health HTTP/1.1\r\nX: " + b"a" * 100000 + b"\r\n\r\n")
        self.assertIn(b" 431 ", answer.split(b"\r\n")[0])

    def test_announced_body_is_too_long(self):
        answer = self.server.raw(b"POST /tokenize HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
        self.assertIn(b" 413 ", answer.split(b"\r\n")[0])

    def test_half_closed_and_pipelined(self):
        ask = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        self.assertIn(b'{"status":"ok"}', self.server.raw(ask, half_close=True))
        self.assertEqual(self.server.raw(ask + ask + ask.replace(b"Host: x", b"Connection: close")).count(b'"ok"'), 3)

    def test_http_1_0(self):
        answer = self.server.raw(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertIn(b"Connection: close", answer)

    def test_body_in_chunks(self):
        body = b'{"content": "Hi"}'
        answer = self.server.raw(b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                                 b"5\r\n" + body[:5] + b"\r\n" + b"%x\r\n" % (len(body) - 5) + body[5:] + b"\r\n0\r\n\r\n")
        self.assertIn(b'"tokens":[', answer)

    def test_keep_alive(self):
        with contextlib.closing(self.server.connect()) as connection:
            for _ in range(3):
                connection.request("GET", "/health")
                self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
            connection.request("POST", "/completion", json.dumps({"prompt": "a", "n_predict": 2, "stream": True}))
            self.assertIn(b'"stop":true', connection.getresponse().read())
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().status, 200)

    def test_client_leaves(self):
        for streams in (True, False):
            with socket.create_connection(("127.0.0.1", self.server.port)) as s:
                body = json.dumps({"prompt": "a", "n_predict": -1, "stream": streams, "ignore_eos": True,
                                   "context_shift": True}).encode()
                s.sendall(b"POST /completion HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                if streams:
                    s.recv(10)
        end = time.monotonic() + TIMEOUT_S
        while any(slot["is_processing"] for slot in self.good("GET", "/slots")):
            self.assertLess(time.monotonic(), end)
        # A stream had begun, and that was its status; the other client got none.
        self.server.wait_for(r'^\{.*"path":"/completion".*"status":200,.*"stop":"cancelled".*$')
        self.server.wait_for(r'^\{.*"path":"/completion".*"status":499,.*"stop":"cancelled".*$')


class Lifecycle(unittest.TestCase):
    def start(self, *flags, **options):
        server = Server(*flags, **options)
        self.addCleanup(lambda: server.log.closed or server.stop())
        return server

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("from-file\n")
            file.flush()
            server = self.start("--api-key", "one,two", "--api-key-file", file.name)
            for headers, status in (({}, 401), ({"Authorization": "Bearer nope"}, 401), ({"Authorization": "Bearer one"}, 200),
                                    ({"authorization": "bearer two"}, 200), ({"X-Api-Key": "from-file"}, 200)):
                self.assertEqual(server.call("GET", "/props", headers=headers)[0], status, headers)
            self.assertEqual(server.call("GET", "/health")[0], 200)
            self.assertEqual(server.call("GET", "/v1/models")[0], 200)
            _, _, reply = server.call("POST", "/v1/messages", {})
            self.assertEqual(reply["error"]["type"], "authentication_error")
            self.assertRegex(reply["error"]["message"], "Authorization: Bearer KEY.*x-api-key")

    def test_an_address_that_all_can_reach_without_a_key(self):
        warning = r"^warning: whoever reaches http://0\.0\.0\.0:\d+ can use this server; --api-key-file FILE restricts it$"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        hosts = ("--host", "127.0.0.1,0.0.0.0")
        self.start(*hosts).wait_for(warning)
        for flags in ((), (*hosts, "--api-key", "one"), ("--host", f"127.0.0.1,{folder.name}/s.sock")):
            self.assertNotIn("whoever reaches", self.start(*flags).text())

    def test_full_queue(self):
        server = self.start("-np", "1", "--queue-size", "1", "--context-shift", "--metrics")
        endless = json.dumps({"prompt": "a", "n_predict": -1, "stream": True, "ignore_eos": True})
        with contextlib.closing(server.connect()) as busy, contextlib.closing(server.connect()) as waiting:
            busy.request("POST", "/completion", endless)
            busy.getresponse().read(1)
            waiting.request("POST", "/completion", endless)
            while "requests_deferred 1" not in server.call("GET", "/metrics")[2]:
                time.sleep(0.01)
            status, headers, error = server.call("POST", "/completion", {"prompt": "b", "n_predict": 1})
            self.assertEqual((status, headers["Retry-After"]), (429, "1"), error)

    def test_running_requests_finish_after_sigterm(self):
        server = self.start("--shutdown-grace", str(TIMEOUT_S))
        with contextlib.closing(server.connect()) as busy, contextlib.closing(server.connect()) as late:
            busy.request("POST", "/completion", json.dumps({"prompt": "a", "n_predict": 200, "stream": True, "ignore_eos": True}))
            reply = busy.getresponse()
            reply.read(1)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("shutting down")
            with contextlib.suppress(ConnectionError, http.client.HTTPException):  # it may have finished by now
                late.request("POST", "/completion", json.dumps({"prompt": "b"}))
                self.assertEqual(late.getresponse().status, 503)
            self.assertIn(b'"tokens_predicted":200', reply.read())
        self.assertEqual(server.process.wait(TIMEOUT_S), 0)

    def test_second_signal_ends_at_once(self):
        server = self.start("--context-shift")
        with contextlib.closing(server.connect()) as busy:
            busy.request("POST", "/completion", json.dumps({"prompt": "a", "n_predict": -1, "stream": True, "ignore_eos": True}))
            busy.getresponse().read(1)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("shutting down")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(TIMEOUT_S), -signal.SIGTERM)
            self.assertIn("requests cut off: 1 running, 0 waiting\n", server.text())

    def test_port_opens_before_the_model_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s.sock")
            pipe = os.path.join(folder, "template")
            os.mkfifo(pipe)  # loading waits until somebody writes it
            server = self.start("--host", f"127.0.0.1,{path}", "--chat-template-file", pipe, wait=False)
            for route in ("/health", "/v1/models"):
                status, _, reply = server.call("GET", route)
                self.assertEqual((status, reply["error"]["message"], reply["error"]["type"]),
                                 (503, "Loading model", "unavailable_error"))
            pathlib.Path(pipe).write_text("{{ messages[0].content }}!", encoding="utf-8")
            server.wait_for("^ready$")
            self.assertEqual(server.call("POST", "/apply-template", {"messages": HELLO})[2]["prompt"], "Hello!")
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path)
                s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                self.assertIn(b"200 OK", s.recv(1000))
            self.assertEqual(server.stop(), 0)
            self.assertFalse(os.path.exists(path))

    def test_reasoning_is_told_apart(self):
        with tempfile.NamedTemporaryFile("w") as file:  # the prompt ends inside reasoning, and this model never ends it
            file.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}<think>\n")
            file.flush()
            server = self.start("--chat-template-file", file.name)
            chat = {"messages": HELLO, "max_tokens": 6, **GREEDY}
            message = server.call("POST", "/v1/chat/completions", chat)[2]["choices"][0]["message"]
            thought = message["reasoning_content"]
            self.assertEqual((message["content"], bool(thought.strip())), ("", True))
            chunks = [json.loads(e) for e in server.events("/v1/chat/completions", chat)[:-1]]
            self.assertEqual("".join(c["choices"][0]["delta"].get("reasoning_content", "") for c in chunks), thought)
            usage = server.call("POST", "/v1/chat/completions", chat)[2]["usage"]
            self.assertEqual(usage["completion_tokens_details"], {"reasoning_tokens": usage["completion_tokens"]})
            legacy = {**chat, "reasoning_format": "deepseek-legacy", "stream_options": {"include_usage": True}}
            self.assertEqual(server.call("POST", "/v1/chat/completions", legacy)[2]["choices"][0]["message"], message)
            chunks = [json.loads(e) for e in server.events("/v1/chat/completions", legacy)[:-1]]
            deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
            self.assertEqual("".join(d.get("content") or "" for d in deltas), "<think>" + thought)
            self.assertFalse(any("reasoning_content" in d for d in deltas))
            self.assertEqual(chunks[-1]["usage"], usage | {"prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]})
            plain = server.call("POST", "/v1/chat/completions", {**chat, "reasoning_format": "none"})[2]
            self.assertIn(thought.strip(), plain["choices"][0]["message"]["content"])
            block = server.call("POST", "/v1/messages", chat)[2]["content"][0]
            self.assertEqual((block["type"], block["thinking"]), ("thinking", thought))
            kinds = [json.loads(e)["type"] for e in server.events("/v1/messages", chat)]
            self.assertEqual((kinds[0], kinds[1], kinds[-1]), ("message_start", "content_block_start", "message_stop"))
            reply = server.call("POST", "/v1/responses", {"input": "Hello", "max_output_tokens": 6, **GREEDY})[2]
            item = reply["output"][0]
            self.assertEqual(reply["usage"]["output_tokens_details"], {"reasoning_tokens": reply["usage"]["output_tokens"]})
            self.assertEqual((item["type"], item["content"][0]["text"]), ("reasoning", thought))

    def test_reasoning_that_is_continued_goes_on(self):
        server = self.start("--chat-template-file", str(DATA.parent / "templates/qwen3.jinja"))
        messages = [*HELLO, {"role": "assistant", "reasoning_content": "I think", "content": ""}]
        body = {"messages": messages, "grammar": 'root ::= " so</think>" "yes"', "max_tokens": 50, **GREEDY}
        message = server.call("POST", "/v1/chat/completions", body)[2]["choices"][0]["message"]
        self.assertEqual((message["reasoning_content"], message["content"]), (" so", "yes"))
        messages[-1]["content"] = "It"
        message = server.call("POST", "/v1/chat/completions", {**body, "grammar": 'root ::= " is"'})[2]["choices"][0]["message"]
        self.assertEqual(message, {"role": "assistant", "content": " is"})

    def test_models_that_can_but_spell_the_end(self):
        """ChatML stands in for a template that the file lacks, and so does its end for a token that is not there."""
        body = {"messages": HELLO, "max_tokens": 64, "grammar": 'root ::= "Hi<|im_end|>there"', "logprobs": True, **GREEDY}
        server = self.start(model=str(DATA / "tiny-gemma3.gguf"))
        choice = server.call("POST", "/v1/chat/completions", body)[2]["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("Hi", "stop"))
        chunks = [json.loads(e) for e in server.events("/v1/chat/completions", body)[:-1]]
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks), "Hi")
        for own in ({"stop": ["<|im_end|>"]}, {"stop": "never", "ignore_eos": True}):  # what the client says of ends holds
            reply = server.call("POST", "/v1/chat/completions", {**body, **own})[2]
            self.assertEqual(reply["choices"][0]["message"]["content"][:15], "Hi" if "ignore_eos" not in own else "Hi<|im_end|>the")
        del body["grammar"]  # which Anthropic's API has no field for
        end = server.call("POST", "/v1/messages", {**body, "stop_sequences": ["never"], "output_config": {"format": {
            "type": "json_schema", "schema": {"const": "Hi<|im_end|>there"}}}})[2]
        self.assertEqual((end["content"][0]["text"], end["stop_reason"], end["stop_sequence"]), ('"Hi', "end_turn", None))
        self.assertEqual(server.stop(), 0)
        server = self.start()  # a vocabulary that has the token: what is spelled is text
        body["grammar"] = 'root ::= "Hi<|im_end|>there"'
        choice = server.call("POST", "/v1/chat/completions", body)[2]["choices"][0]
        self.assertEqual(choice["message"]["content"], "Hi<|im_end|>there")

    def test_conversation_with_tools_reaches_the_template(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}{{ m.role }}="
                       "{{ m.content }}{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %};{% endfor %}")
            file.flush()
            server = self.start("--chat-template-file", file.name)
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
            openai = {"tools": [tool], "messages": [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]},
                                                    {"role": "tool", "tool_call_id": "c", "content": "42"}]}
            prompt = server.call("POST", "/apply-template", openai)[2]["prompt"]
            self.assertEqual(prompt, "[f]user=Hello;assistant=(f);tool=42;")
            ids = server.call("POST", "/tokenize", {"content": prompt, "add_special": True})[2]["tokens"]
            anthropic = {"tools": [{"name": "f", "input_schema": {"type": "object"}}], "messages": [
                *HELLO, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "42"}]}]}
            counted = server.call("POST", "/v1/messages/count_tokens", anthropic)[2]
            self.assertEqual(counted, {"input_tokens": len(ids)})

    def test_what_cannot_start(self):
        for flags, pattern in ((["-m", "/nowhere.gguf"], "nowhere"), (["-m", MODEL, "--host", "256.1.2.3"], "--host"),
                               (["-m", MODEL, "--slot-save-path", "/nowhere"], "--slot-save-path /nowhere is no folder"),
                               (["-m", MODEL, "--api-key", ""], "key")):
            done = subprocess.run([program(), "serve", "--port", "0", *flags], capture_output=True, timeout=TIMEOUT_S)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.decode(), pattern)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_what_is_no_model_cannot_start(self):
        for model, pattern in ((__file__, "GGUF"), ("/nowhere.gguf", "No such file")):
            done = subprocess.run([program(), "serve", "--port", "0", "-m", model], capture_output=True, timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr.decode(), pattern)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            done = subprocess.run([program(), "serve", "--port", port, "-m", MODEL], capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), f"cannot listen on .*:{port}: Address already in use; --port with another number.* ss -ltnp")


class Clients(ServerTest):
    """What the packages make of it."""

    def test_prometheus(self):
        from prometheus_client.parser import text_string_to_metric_families
        self.good("POST", "/completion", {"prompt": "a", "n_predict": 3, **GREEDY})
        families = {family.name: family for family in text_string_to_metric_families(self.good("GET", "/metrics"))}
        self.assertEqual({family.type for family in families.values()} - {"counter", "gauge", "histogram"}, set())
        self.assertTrue(all(family.documentation for family in families.values()))
        self.assertGreaterEqual(families["llamacpp:tokens_predicted"].samples[0].value, 3)

    def test_openai(self):
        import openai
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        self.assertEqual(client.models.list().data[0].id, "tiny-llama.gguf")
        body = {"model": "m", "messages": HELLO, "max_tokens": 5, "temperature": 0}
        whole = client.chat.completions.create(**body)
        stream = list(client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(stream[-1].usage.completion_tokens, 5)
        legacy = client.completions.create(model="m", prompt="The", max_tokens=3, temperature=0)
        self.assertEqual(legacy.usage.completion_tokens, 3)
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**body, "temperature": "hot"})
        self.assertIn("temperature", str(caught.exception))
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**body, "messages": [{"role": "user", "content": "x" * 300}]})
        self.assertEqual((caught.exception.type, caught.exception.body["n_ctx"]), ("exceed_context_size_error", 256))
        self.assertIn("context_length_exceeded", str(caught.exception))

    def test_openai_responses(self):
        import openai
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        body = {"model": "m", "input": "Hello", "max_output_tokens": 5, "temperature": 0}
        whole = client.responses.create(**body)
        self.assertEqual((whole.status, whole.usage.output_tokens), ("incomplete", 5))
        self.assertEqual([item.status for item in whole.output], ["incomplete"])
        events = list(client.responses.create(**body, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        self.assertEqual([e.item.status for e in events if e.type == "response.output_item.done"], ["incomplete"])
        self.assertEqual([item.status for item in events[-1].response.output], ["incomplete"])
        done = client.responses.create(**{**body, "max_output_tokens": 50}, extra_body={
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"const": 1}}}})
        self.assertEqual((done.status, [item.status for item in done.output]), ("completed", ["completed"]))
        listed = client.responses.create(**{**body, "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "42"}]})
        self.assertEqual(listed.usage.output_tokens, 5)
        with self.assertRaises(openai.APIStatusError):
            client.responses.create(**body, previous_response_id="resp_1")

    def test_anthropic(self):
        import anthropic
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.server.port}", api_key="none", max_retries=0)
        body = {"model": "m", "messages": HELLO, "max_tokens": 5, "system": "Be brief.", "extra_body": GREEDY}
        whole = client.messages.create(**body)
        self.assertEqual((whole.stop_reason, whole.usage.output_tokens), ("max_tokens", 5))
        with client.messages.stream(**body) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual((final.stop_reason, final.content[0].text), ("max_tokens", text))
        counted = client.messages.count_tokens(model="m", messages=HELLO, system="Be brief.")
        self.assertEqual(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens)
        models = client.models.list()
        self.assertEqual((models.has_more, models.first_id, models.last_id), (False, "tiny-llama.gguf", "tiny-llama.gguf"))
        for model in (models.data[0], client.models.retrieve("tiny-llama.gguf")):
            self.assertEqual((model.type, model.id, model.display_name), ("model", "tiny-llama.gguf", "tiny-llama.gguf"))
            self.assertEqual((model.created_at.year > 2000, model.max_input_tokens), (True, 255))
        with self.assertRaises(anthropic.BadRequestError):
            client.messages.create(**{**body, "extra_body": {"top_k": "many"}})


if __name__ == "__main__":
    main()
