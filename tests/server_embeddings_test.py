#!/usr/bin/env python3
"""Embeddings and filling in, from outside.

  server_embeddings_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import base64
import concurrent.futures
import json
import math
import pathlib
import struct
import tempfile
import unittest

from cli_support import with_metadata
from server_support import GREEDY, MODEL, ROOT, Server, main

EXACT = ["--kernels", "scalar", "-ctk", "f32", "-ctv", "f32"]


def length(vector):
    return math.sqrt(sum(x * x for x in vector))


def unit(vector):
    return [x / length(vector) for x in vector]


def golden(model):
    with open(ROOT / "tests/data/goldens/embeddings.jsonl", encoding="utf-8") as file:
        return next(found for found in map(json.loads, file) if found["model"] == model)


class Case(unittest.TestCase):
    """With a server of FLAGS for MODEL."""
    FLAGS = ["--embeddings", *EXACT]
    MODEL = MODEL

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS, model=cls.MODEL)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def good(self, path, body):
        status, _, reply = self.server.call("POST", path, body)
        self.assertEqual(status, 200, reply)
        return reply

    def bad(self, status, pattern, path, body):
        found, _, reply = self.server.call("POST", path, body)
        self.assertEqual(found, status, reply)
        self.assertRegex(reply["error"]["message"], pattern)

    def near(self, found, expected, tolerance=1e-5):
        self.assertEqual(len(found), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), tolerance)

    def tokens(self, text):
        return self.good("/tokenize", {"content": text, "add_special": True})["tokens"]


class OpenAi(Case):
    def test_is_the_references_last_row_normalised(self):
        expected = golden("tiny-llama")
        reply = self.good("/v1/embeddings", {"input": expected["text"], "model": "any"})
        self.assertEqual((reply["object"], reply["model"]), ("list", "tiny-llama.gguf"))
        self.assertEqual(reply["usage"], {"prompt_tokens": len(expected["none"]), "total_tokens": len(expected["none"])})
        item = reply["data"][0]
        self.assertEqual((item["object"], item["index"], len(reply["data"])), ("embedding", 0, 1))
        self.near(item["embedding"], unit(expected["last"][0]))

    def test_every_form_of_input(self):
        texts = ["Hello", "a longer text", "x"]
        ids = [self.tokens(text) for text in texts]
        alone = [self.good("/v1/embeddings", {"input": text})["data"][0]["embedding"] for text in texts]
        for many in (texts, ids):
            reply = self.good("/v1/embeddings", {"input": many})
            self.assertEqual([item["index"] for item in reply["data"]], [0, 1, 2])
            self.assertEqual([item["embedding"] for item in reply["data"]], alone)
            self.assertEqual(reply["usage"]["prompt_tokens"], sum(map(len, ids)))
        self.assertEqual(self.good("/v1/embeddings", {"input": ids[1]})["data"][0]["embedding"], alone[1])

    def test_base64_and_dimensions(self):
        whole = self.good("/v1/embeddings", {"input": "Hello"})["data"][0]["embedding"]
        packed = self.good("/v1/embeddings", {"input": "Hello", "encoding_format": "base64"})["data"][0]["embedding"]
        self.near(struct.unpack(f"<{len(whole)}f", base64.b64decode(packed)), whole, 1e-7)
        short = self.good("/v1/embeddings", {"input": "Hello", "dimensions": 8})["data"][0]["embedding"]
        self.near(short, unit(whole[:8]))

    def test_more_texts_than_the_queue_takes(self):
        server = Server("--embeddings", "--queue-size", "2", "-np", "1")
        try:
            texts = [f"text {i}" for i in range(40)]
            status, _, reply = server.call("POST", "/v1/embeddings", {"input": texts})
            self.assertEqual(status, 200, reply)
            self.assertEqual([item["index"] for item in reply["data"]], list(range(40)))
            self.assertEqual(server.call("POST", "/v1/embeddings", {"input": texts[33]})[2]["data"][0]["embedding"],
                             reply["data"][33]["embedding"])
        finally:
            server.stop()

    def test_log_row(self):
        server = Server("--embeddings", "--log-format", "json")
        try:
            n_prompt = server.call("POST", "/v1/embeddings", {"input": ["a row", "of its own"]})[2]["usage"]["prompt_tokens"]
            row = json.loads(server.wait_for(r'^\{.*"path":"/v1/embeddings".*$')[0])
            self.assertEqual((row["prompt_tokens"], row["stop"]), (n_prompt, "embedded"))
            self.assertFalse({"tokens", "tokens_per_second", "first_token_ms"} & row.keys())
        finally:
            server.stop()

    def test_errors(self):
        path = "/v1/embeddings"
        self.bad(400, '"input" is missing', path, {})
        for nothing in ("", []):
            self.bad(400, '"input" is empty', path, {"input": nothing})
        for nothing in (["a", ""], [[]], [[1], []]):
            self.bad(400, '"input" has an empty text', path, {"input": nothing})
        self.bad(400, '"input" is an object', path, {"input": {"a": 1}})
        self.bad(400, "from 0 to 287", path, {"input": [1, 288]})
        self.bad(400, '"input" has 2049 prompts; one request may have 2048', path, {"input": ["a"] * 2049})
        for long in ([5] * 300, [[5], [5] * 300]):
            status, _, reply = self.server.call("POST", path, {"input": long})
            self.assertIn("has 300 tokens and the context holds 256; raise --ctx-size", reply["error"]["message"])
            self.assertEqual((status, reply["error"]["type"], reply["error"]["n_prompt_tokens"], reply["error"]["n_ctx"]),
                             (400, "exceed_context_size_error", 300, 256))
        self.bad(400, '"encoding_format" is "hex"; it must be float or base64', path, {"input": "a", "encoding_format": "hex"})
        for n in (0, 65, "8"):
            self.bad(400, '"dimensions" is', path, {"input": "a", "dimensions": n})
        self.bad(400, "no valid JSON", path, "{")
        self.assertEqual(self.server.call("GET", path)[0], 405)
        # What fits exactly is taken, and nothing above was left behind.
        self.assertEqual(self.good(path, {"input": [5] * 256})["usage"]["prompt_tokens"], 256)
        self.assertTrue(all(not slot["is_processing"] for slot in self.server.call("GET", "/slots")[2]))

    def test_beside_chats(self):
        texts = [f"the text number {i} " * (1 + i % 5) for i in range(24)]
        alone = [self.good("/v1/embeddings", {"input": text})["data"][0]["embedding"] for text in texts]
        chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24, **GREEDY}
        answer = self.good("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            found = [pool.submit(self.good, "/v1/embeddings", {"input": text}) for text in texts]
            answers = [pool.submit(self.good, "/v1/chat/completions", chat) for _ in range(8)]
            self.assertEqual([f.result()["data"][0]["embedding"] for f in found], alone)
            self.assertEqual({a.result()["choices"][0]["message"]["content"] for a in answers}, {answer})

    def test_client_of_record(self):
        import openai
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        plain = client.embeddings.create(model="any", input="Hello", encoding_format="float")
        packed = client.embeddings.create(model="any", input=["Hello", "there"])  # base64 by itself
        self.near(packed.data[0].embedding, plain.data[0].embedding, 1e-7)
        self.assertEqual(len(packed.data), 2)
        self.assertEqual(packed.usage.total_tokens, len(self.tokens("Hello")) + len(self.tokens("there")))
        short = client.embeddings.create(model="any", input=self.tokens("Hello"), dimensions=4, encoding_format="float")
        self.near(short.data[0].embedding, unit(plain.data[0].embedding[:4]))
        with self.assertRaises(openai.BadRequestError) as caught:
            client.embeddings.create(model="any", input="")
        self.assertIn("is empty", str(caught.exception))


class Mean(Case):
    FLAGS = ["--embedding", "--pooling", "mean", "-ub", "4", *EXACT]

    def test_both_forms(self):
        expected = golden("tiny-llama")
        found = self.good("/v1/embeddings", {"input": expected["text"]})["data"][0]["embedding"]
        self.near(found, unit(expected["mean"][0]))
        for path in ("/embedding", "/embeddings"):
            for field in ("content", "input"):
                reply = self.good(path, {field: expected["text"], "embd_normalize": -1})
                self.assertEqual([item["index"] for item in reply], [0])
                self.near(reply[0]["embedding"][0], expected["mean"][0])
        largest = self.good("/embedding", {"content": expected["text"], "embd_normalize": 0})[0]["embedding"][0]
        self.assertAlmostEqual(max(map(abs, largest)), 32760, delta=0.01)
        self.bad(400, '"embd_normalize" is -2', "/embedding", {"content": "a", "embd_normalize": -2})

    def test_the_cache_is_of_no_help_and_no_harm(self):
        ids = [7, 9, 11, 200, 31, 5, 77, 12]
        first = self.good("/v1/embeddings", {"input": ids})
        self.assertEqual(self.good("/v1/embeddings", {"input": ids})["data"], first["data"])
        self.assertEqual(self.good("/v1/embeddings", {"input": [*ids, 3]})["usage"]["prompt_tokens"], 9)
        self.assertEqual(self.good("/v1/embeddings", {"input": ids})["data"], first["data"])


class NoPooling(Case):
    FLAGS = ["--embeddings", "--pooling", "none", *EXACT]

    def test_rows_of_tokens(self):
        expected = golden("tiny-llama")
        rows = self.good("/embedding", {"content": expected["text"]})[0]["embedding"]
        self.assertEqual(len(rows), len(expected["none"]))
        for found, wanted in zip(rows, expected["none"]):
            self.near(found, wanted)
        self.bad(400, "--pooling none; ask /embeddings", "/v1/embeddings", {"input": "a"})


class WithMetadata(unittest.TestCase):
    def serve(self, keys, *flags):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "model.gguf"
        path.write_bytes(with_metadata(MODEL, keys))
        server = Server(*flags, model=str(path))
        self.addCleanup(server.stop)
        return server

    def ask(self, server, path, body):
        return server.call("POST", path, body)[::2]

    def test_without_the_flag(self):
        server = self.serve({})
        status, reply = self.ask(server, "/v1/embeddings", {"input": "a"})
        self.assertEqual((status, reply["error"]["type"]), (501, "not_supported_error"))
        self.assertIn("--embeddings", reply["error"]["message"])

    def test_a_file_that_says_how_to_pool(self):
        expected = golden("tiny-llama")
        server = self.serve({"llama.pooling_type": 1}, *EXACT)
        status, reply = self.ask(server, "/v1/embeddings", {"input": expected["text"]})
        self.assertEqual(status, 200, reply)
        found = reply["data"][0]["embedding"]
        self.assertLess(max(abs(a - b) for a, b in zip(found, unit(expected["mean"][0]))), 1e-5)

    FIM = {"pre": 270, "suf": 271, "mid": 272}

    def fim_keys(self, ids):
        return {f"tokenizer.ggml.fim_{name}_token_id": id for name, id in ids.items()}

    def fill(self, server, **fields):
        body = {"input_prefix": "AAA", "input_suffix": "BBB", "n_predict": 3, **GREEDY, **fields}
        status, reply = self.ask(server, "/infill", body)
        self.assertEqual(status, 200, reply)
        return reply

    def written(self, server, **fields):
        """The prompt but for its first token, which the reference does not write."""
        return self.fill(server, **fields)["prompt"].removeprefix("<s>").strip()

    # What the reference's server answers in its field prompt for the same model and request; ids 270 to 274 are written
    # "The", "ha", "te", " The", " and".
    def test_infill_is_the_references(self):
        extra = [{"filename": "f.c", "text": "XXX"}]
        plain = self.serve(self.fim_keys(self.FIM))
        self.assertEqual(self.written(plain, prompt="PPP"), "TheAAAPPPhaBBBte")
        self.assertEqual(self.written(plain, prompt="PPP", input_extra=extra), "--- snippet ---\n\nXXXTheAAAPPPhaBBBte")
        spm = self.serve(self.fim_keys({**self.FIM, "rep": 273, "sep": 274}), "--spm-infill")
        self.assertEqual(self.written(spm, prompt="PPP", input_extra=extra),
                         "Themyproject\n andf.c\nXXX andfilename\nhaBBBTheAAAPPPte")

    def test_infill_goes_on_as_completion_does(self):
        server = self.serve(self.fim_keys(self.FIM))
        filled = self.fill(server, prompt="x", return_tokens=True)
        self.assertEqual(filled["tokens_predicted"], 3)

        def tokenize(text, bos=False):
            return self.ask(server, "/tokenize", {"content": text, "parse_special": False, "add_special": bos})[1]["tokens"]

        ids = [*tokenize("", True), 270, *tokenize("AAA"), *tokenize("x"), 271, *tokenize("BBB"), 272]
        self.assertEqual(filled["tokens_evaluated"], len(ids))
        same = self.ask(server, "/completion", {"prompt": ids, "n_predict": 3, "return_tokens": True, **GREEDY})[1]
        self.assertEqual(filled["tokens"], same["tokens"])
        events = server.events("/infill", {"input_prefix": "AAA", "input_suffix": "BBB", "prompt": "x", "n_predict": 3, **GREEDY})
        self.assertEqual("".join(json.loads(e)["content"] for e in events), same["content"])

    def test_long_texts_are_cut_to_what_is_near(self):
        server = self.serve(self.fim_keys(self.FIM))
        long = "".join(chr(97 + i % 26) for i in range(900))
        reply = self.fill(server, input_prefix=long, input_suffix=long, input_extra=[{"text": long}])
        self.assertLessEqual(reply["tokens_evaluated"], 256 - 3)
        before, after = reply["prompt"].split("ha", 1)
        self.assertTrue(before.endswith(long[-20:]))
        self.assertTrue(after.strip().startswith(long[:20]))
        reply = self.fill(server, input_extra=[{"text": long}])
        self.assertLessEqual(reply["tokens_evaluated"], 256 - 3)
        self.assertTrue(reply["prompt"].split("The")[0].endswith(long[-20:]))

    def test_infill_errors(self):
        server = self.serve(self.fim_keys(self.FIM))
        for body, pattern in (
                ({"input_suffix": "b"}, '"input_prefix" is missing'),
                ({"input_prefix": "a"}, '"input_suffix" is missing'),
                ({"input_prefix": 5, "input_suffix": "b"}, '"input_prefix" is 5; it must be a string'),
                ({"input_prefix": "a", "input_suffix": "b", "input_extra": "c"}, "an array of objects with filename and text"),
                ({"input_prefix": "a", "input_suffix": "b", "input_extra": ["c"]}, "an array of objects"),
                ({"input_prefix": "a", "input_suffix": "b", "input_extra": [{}]}, '"input_extra.text" is missing'),
                ({"input_prefix": "a", "input_suffix": "b", "prompt": "x" * 999}, "tokens and the context holds 256")):
            status, reply = self.ask(server, "/infill", body)
            self.assertEqual(status, 400, reply)
            self.assertIn(pattern, reply["error"]["message"])
        status, reply = self.ask(self.serve({}), "/infill", {"input_prefix": "a", "input_suffix": "b"})
        self.assertEqual((status, reply["error"]["type"]), (501, "not_supported_error"))
        self.assertIn("has no tokens for prefix, suffix and middle", reply["error"]["message"])


class Samplers(Case):
    FLAGS = []

    def test_the_two_that_no_chain_has_by_itself(self):
        body = {"prompt": "Hello", "n_predict": 12, "seed": 5}
        plain = self.good("/completion", body)
        self.assertEqual(plain["generation_settings"]["adaptive_target"], -1)
        aimed = {**body, "samplers": ["min_p", "adaptive_p"], "adaptive_target": 0.3, "adaptive_decay": 0.5}
        first = self.good("/completion", aimed)
        self.assertEqual(first["generation_settings"]["samplers"], ["min_p", "adaptive_p"])
        self.assertEqual(self.good("/completion", aimed)["content"], first["content"])
        self.assertLessEqual(self.good("/completion", {**body, "samplers": "kpi"})["tokens_predicted"], 12)
        self.bad(400, "adaptive_decay is 1; it is a number from 0 to 0.99", "/completion", {**aimed, "adaptive_decay": 1})


if __name__ == "__main__":
    main()
