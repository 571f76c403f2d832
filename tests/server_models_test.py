#!/usr/bin/env python3
"""Several models in one `tessera serve`, from outside: names, loading on demand, making room, failures, shutdown.

  server_models_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from server_support import DATA, GREEDY, HELLO, MODEL, TIMEOUT_S, Server, ServerTest, main, program

OTHER = str(DATA / "tiny-qwen3.gguf")
PROMPT = {"prompt": "Once upon a time", "n_predict": 8, "return_tokens": True, **GREEDY}
TEMPLATE = "{{ messages[0].content }}!"


class ModelsServer(Server):
    """One that has several models; Server's own flags come first."""

    def __init__(self, *models, flags=()):
        more = [word for model in models[1:] for word in ("-m", model)]
        super().__init__(*more, *flags, model=models[0])

    def models(self):
        return {model["id"]: model for model in self.call("GET", "/v1/models")[2]["data"]}

    def status_of(self, name):
        return self.models()[name]["status"]

    def wait_for_status(self, name, value):
        end = time.monotonic() + TIMEOUT_S
        while self.status_of(name)["value"] != value:
            assert time.monotonic() < end, self.models()
            time.sleep(0.01)

    def tokens(self, name):
        status, _, reply = self.call("POST", "/completion", {**PROMPT, "model": name})
        assert status == 200, reply
        assert reply["model"] == name, reply
        return reply["tokens"]


def tokens_alone(path):
    server = Server(model=path)
    try:
        return server.call("POST", "/completion", PROMPT)[2]["tokens"]
    finally:
        server.stop()


def needs(*models):
    """MiB that each model takes of cpu:0, as the server says where it does not fit."""
    server = ModelsServer(*models, flags=("--device-memory", "64K"))
    try:
        found = []
        for name in (model.split("=")[0] for model in models):
            status, headers, reply = server.call("POST", "/tokenize", {"content": "a", "model": name})
            assert status == 503 and headers["Retry-After"] is None, reply
            assert headers["x-should-retry"] == "false", "clients' libraries ask again after a server's error"
            found.append(float(re.search(r"cpu:0 needs ([\d.]+) MiB", reply["error"]["message"])[1]))
        return found
    finally:
        server.stop()


@contextlib.contextmanager
def endless(server, name):
    """A request that runs as long as this."""
    with contextlib.closing(server.connect()) as busy:
        busy.request("POST", "/completion", json.dumps(
            {"model": name, "prompt": "a", "n_predict": -1, "stream": True, "ignore_eos": True}))
        busy.getresponse().read(1)
        yield


class TwoModels(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.server = ModelsServer(f"a={MODEL}", f"b={OTHER},ctx-size=128,np=3", flags=("--metrics",))

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_each_answers_by_its_name(self):
        alone = {"a": tokens_alone(MODEL), "b": tokens_alone(OTHER)}
        self.assertNotEqual(alone["a"], alone["b"])
        for name in ("a", "b", "a"):
            self.assertEqual(self.server.tokens(name), alone[name])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            names = ["a", "b"] * 8
            self.assertEqual(list(pool.map(self.server.tokens, names)), [alone[name] for name in names])

    def test_every_api_says_whose_answer_it_is(self):
        for path, body in (("/v1/completions", {"prompt": "a", "max_tokens": 2}),
                           ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2}),
                           ("/v1/messages", {"messages": HELLO, "max_tokens": 2}),
                           ("/v1/responses", {"input": "Hello", "max_output_tokens": 2})):
            for name in ("a", "b"):
                self.assertEqual(self.good("POST", path, {**body, "model": name})["model"], name, path)

    def test_the_first_is_the_default(self):
        self.assertEqual(self.good("POST", "/completion", PROMPT)["model"], "a")
        self.assertEqual(self.good("POST", "/completion?model=b", PROMPT)["model"], "b")

    def test_unknown_names(self):
        self.bad(404, "no model \"c\"; this server has a, b", "/completion", {**PROMPT, "model": "c"}, "not_found_error")
        self.bad(404, "a, b", "/tokenize?model=c", {"content": "a"}, "not_found_error")
        self.bad(400, "field `model`|field \"model\"", "/completion", {**PROMPT, "model": 5})
        self.bad(400, "JSON", "/completion", "{")
        status, _, reply = self.server.call("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 1, "model": "c"})
        self.assertEqual((status, reply["type"], reply["error"]["type"]), (404, "error", "not_found_error"))
        self.assertEqual(self.server.call("GET", "/props?model=c")[0], 404)

    def test_one_by_its_name(self):
        for name, listed in self.server.models().items():
            for path in ("/v1/models/", "/models/"):
                self.assertEqual(self.good("GET", path + name), listed)
        status, _, reply = self.server.call("GET", "/v1/models/c")
        self.assertEqual((status, reply["error"]["message"]), (404, "there is no model \"c\"; this server has a, b"))
        reply = self.server.call("GET", "/v1/models/c", headers={"anthropic-version": "2023-06-01"})[2]
        self.assertEqual((reply["type"], reply["error"]["type"]), ("error", "not_found_error"))
        self.assertEqual(self.server.call("POST", "/v1/models/a", {})[0], 405)

    def test_flags_of_one_model(self):
        for name, n_ctx, n_slots in (("a", 256, 2), ("b", 128, 3)):
            self.server.tokens(name)
            props = self.good("GET", f"/props?model={name}")
            self.assertEqual((props["model_alias"], props["default_generation_settings"]["n_ctx"], props["total_slots"]),
                             (name, n_ctx, n_slots))
            self.assertEqual(len(self.good("GET", f"/slots?model={name}")), n_slots)
        self.assertTrue(self.good("GET", "/props?model=b")["model_path"].endswith("tiny-qwen3.gguf"))

    def test_metrics_have_a_label(self):
        self.server.tokens("a")
        self.server.tokens("b")
        text = self.good("GET", "/metrics")
        for name in ("a", "b"):
            found = re.search(rf'^llamacpp:tokens_predicted_total{{model="{name}"}} (\S+)$', text, re.MULTILINE)
            self.assertGreaterEqual(float(found[1]), 8)
        self.assertEqual(text.count("# TYPE llamacpp:tokens_predicted_total "), 1)

    def test_load_and_unload(self):
        self.server.tokens("b")
        self.assertEqual(self.good("POST", "/models/unload", {"model": "b"}), {"success": True})
        self.assertEqual(self.server.status_of("b"), {"value": "unloaded"})
        self.assertNotIn("meta", self.server.models()["b"])
        self.bad(400, "not loaded", "/models/unload", {"model": "b"})
        status, _, reply = self.server.call("GET", "/props?model=b")
        self.assertEqual(status, 503)
        self.assertIn("model b is not loaded", reply["error"]["message"])
        self.assertEqual(self.good("POST", "/models/load", {"model": "b"}), {"success": True})
        self.server.wait_for_status("b", "loaded")
        self.assertGreater(self.server.models()["b"]["meta"]["n_params"], 0)
        self.bad(400, "loaded already", "/models/load", {"model": "b"})
        self.bad(404, "a, b", "/models/load", {"model": "c"}, "not_found_error")
        self.bad(400, "missing", "/models/load", {})

    def test_unload_lets_a_running_request_end(self):
        with contextlib.closing(self.server.connect()) as busy:
            busy.request("POST", "/completion", json.dumps({"model": "a", "prompt": "a", "n_predict": 200, "stream": True,
                                                            "ignore_eos": True}))
            reply = busy.getresponse()
            reply.read(1)
            self.good("POST", "/models/unload", {"model": "a"})
            self.assertIn(b'"tokens_predicted":200', reply.read())


class Demand(unittest.TestCase):
    def start(self, *models, flags=()):
        server = ModelsServer(*models, flags=flags)
        self.addCleanup(server.stop)
        return server

    def fifo(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pipe = os.path.join(folder.name, "template")
        os.mkfifo(pipe)
        return pipe

    def test_nothing_is_loaded_before_it_is_asked_for(self):
        server = self.start(f"a={MODEL}", f"b={OTHER}")
        self.assertEqual(server.call("GET", "/health")[2], {"status": "ok"})
        self.assertEqual({m["status"]["value"] for m in server.models().values()}, {"unloaded"})
        server.tokens("b")
        self.assertEqual([m["status"]["value"] for m in server.models().values()], ["unloaded", "loaded"])

    def test_idle_models_make_room(self):
        models = [f"a={MODEL}", f"b={OTHER}", f"c={MODEL}"]
        a, b, c = needs(*models)
        memory = f"{int((max(a + b, b + c) + 0.25) * 1024)}K"
        server = self.start(*models, flags=("--device-memory", memory, "--models-wait", "0", "--context-shift"))
        first = server.tokens("a")
        server.tokens("b")
        self.assertEqual(server.tokens("c"), first)
        self.assertEqual([m["status"]["value"] for m in server.models().values()], ["unloaded", "loaded", "loaded"])
        server.wait_for("^unloaded a to make room for c$")
        with contextlib.ExitStack() as streams:
            for name in ("b", "c"):
                streams.enter_context(endless(server, name))
            status, headers, reply = server.call("POST", "/completion", {**PROMPT, "model": "a"})
            self.assertEqual((status, headers["Retry-After"]), (503, "1"))
            self.assertRegex(reply["error"]["message"], r"no room for model a .* needs [\d.]+ MiB of cpu:0, which has")
        end = time.monotonic() + TIMEOUT_S
        while server.call("POST", "/completion", {**PROMPT, "model": "a"})[0] != 200:
            self.assertLess(time.monotonic(), end)
        self.assertEqual(server.tokens("a"), first)

    def test_a_load_waits_for_room(self):
        server = self.start(f"a={MODEL}", f"b={OTHER}", flags=("--models-max", "1", "--models-wait", str(TIMEOUT_S)))
        with contextlib.closing(server.connect()) as busy:
            busy.request("POST", "/completion", json.dumps(
                {"model": "a", "prompt": "a", "n_predict": 200, "stream": True, "ignore_eos": True}))
            reply = busy.getresponse()
            reply.read(1)
            self.assertEqual(len(server.tokens("b")), 8)
            self.assertIn(b'"tokens_predicted":200', reply.read())
        self.assertEqual(server.status_of("a")["value"], "unloaded")

    def test_a_damaged_file_spoils_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "b.gguf")
            pathlib.Path(path).write_bytes(pathlib.Path(OTHER).read_bytes()[:1000])
            server = self.start(f"a={MODEL}", f"b={path}", f"c={folder}/none.gguf")
            first = server.tokens("a")
            for name in ("b", "c"):
                status, _, reply = server.call("POST", "/completion", {**PROMPT, "model": name})
                self.assertEqual((status, reply["error"]["type"]), (500, "server_error"))
                self.assertIn(f"{folder}/", reply["error"]["message"])
                failed = server.status_of(name)
                self.assertEqual((failed["value"], failed["failed"]), ("unloaded", True))
                self.assertEqual(failed["error"], reply["error"]["message"])
            self.assertEqual(server.tokens("a"), first)
            pathlib.Path(path).write_bytes(pathlib.Path(OTHER).read_bytes())
            self.assertEqual(len(server.tokens("b")), 8)
            self.assertEqual(server.status_of("b"), {"value": "loaded"})

    def test_others_go_on_while_one_loads(self):
        pipe = self.fifo()  # loading waits until somebody writes it
        server = self.start(f"a={MODEL}", f"b={OTHER},chat-template-file={pipe}")
        first = server.tokens("a")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # more than there are handler threads
            waiting = [pool.submit(server.call, "POST", "/apply-template", {"model": "b", "messages": HELLO})
                       for _ in range(8)]
            server.wait_for_status("b", "loading")
            for _ in range(3):
                self.assertEqual(server.tokens("a"), first)
            self.assertFalse(any(future.done() for future in waiting))
            pathlib.Path(pipe).write_text(TEMPLATE, encoding="utf-8")
            for future in waiting:
                self.assertEqual(future.result()[2]["prompt"], "Hello!")

    def test_what_a_loaded_model_is_asked_holds_up_no_load(self):
        with tempfile.TemporaryDirectory() as slots:
            pipe = os.path.join(slots, "pipe")
            os.mkfifo(pipe)
            server = self.start(f"a={MODEL}", f"b={OTHER}", flags=("--slot-save-path", slots))
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                # It loads a, and then waits for somebody to read the file.
                waiting = pool.submit(server.call, "POST", "/slots/0?action=save&model=a", {"filename": "pipe"})
                server.wait_for_status("a", "loaded")
                self.assertEqual(len(server.tokens("b")), 8)
                self.assertFalse(waiting.done())
                self.assertGreater(len(pathlib.Path(pipe).read_bytes()), 0)
                self.assertEqual(waiting.result()[0], 200)

    def test_load_errors_are_not_for_strangers(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(f"a={folder}/none.gguf", f"b={OTHER}", flags=("--api-key", "k"))
            key = {"Authorization": "Bearer k"}
            self.assertEqual(server.call("POST", "/tokenize", {"model": "a", "content": "a"}, key)[0], 500)
            for path in ("/v1/models", "/models", "/v1/models/a"):
                told = server.call("GET", path, headers=key)[2]
                status = told["data"][0]["status"] if "data" in told else told["status"]
                self.assertIn(folder, status["error"])
                self.assertNotIn(folder, json.dumps(server.call("GET", path)[2]))
            self.assertEqual(server.status_of("a"), {"value": "unloaded", "failed": True})

    def test_models_share_the_memory_for_prompts(self):
        def metric(server, name, model):
            text = server.call("GET", "/metrics")[2]
            return float(re.search(rf'^llamacpp:{name}{{model="{model}"}} (\S+)$', text, re.MULTILINE)[1])

        def fill(server, model):  # with more prompts than there are slots, so that most must leave them
            for first in range(40, 60):
                body = {"model": model, "prompt": [first] * 200, "n_predict": 1, **GREEDY}
                self.assertEqual(server.call("POST", "/completion", body)[0], 200)

        server = self.start(f"a={MODEL}", f"b={MODEL}", flags=("--metrics", "--cache-ram", "1"))
        fill(server, "a")
        self.assertGreater(metric(server, "prompt_cache_ram_bytes", "a"), 1 << 19)
        fill(server, "b")
        held = [metric(server, "prompt_cache_ram_bytes", model) for model in ("a", "b")]
        self.assertGreater(held[1], 1 << 19)
        self.assertLessEqual(sum(held), 1 << 20)

    def test_clients_that_leave_load_nothing(self):
        server = self.start(f"a={MODEL}", f"b={OTHER}",
                            flags=("--context-shift", "--models-max", "1", "--models-wait", "86400"))
        with endless(server, "a"):
            with contextlib.closing(server.connect()) as leaves:
                leaves.request("POST", "/tokenize", json.dumps({"model": "b", "content": "a"}))
                server.wait_for_status("b", "loading")
            server.wait_for(r'^POST "/tokenize" 499 ')
            self.assertEqual(server.status_of("b"), {"value": "unloaded"})

    def test_a_signal_during_a_load_ends_it(self):
        pipe = self.fifo()
        server = self.start(f"a={MODEL}", f"b={OTHER},chat-template-file={pipe}")
        server.tokens("a")
        with concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.closing(server.connect()) as queued:
            waiting = pool.submit(server.call, "POST", "/tokenize", {"model": "b", "content": "a"})
            server.wait_for("^loaded .*tiny-qwen3")  # and now it waits for the template
            # Sent before the signal is: a thread could come too late, when nobody listens any more.
            queued.request("POST", "/models/unload", json.dumps({"model": "a"}))
            server.process.send_signal(signal.SIGTERM)
            end = time.monotonic() + TIMEOUT_S
            while server.call("GET", "/health")[0] != 503:
                self.assertLess(time.monotonic(), end)
            pathlib.Path(pipe).write_text(TEMPLATE, encoding="utf-8")
            status, _, reply = waiting.result()
            self.assertEqual((status, reply["error"]["message"]), (503, "the server is shutting down"))
            self.assertIn(queued.getresponse().status, (200, 503))
        self.assertEqual(server.process.wait(TIMEOUT_S), 0)


class CommandLine(unittest.TestCase):
    def refused(self, pattern, *flags):
        done = subprocess.run([program(), "serve", *flags], capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr.decode(), pattern)

    def test_what_is_wrong_with_a_model(self):
        self.refused("unknown flag --ctx-sise; did you mean --ctx-size", "-m", f"a={MODEL},ctx-sise=5")
        self.refused("holds for the whole server", "-m", f"a={MODEL},port=5")
        self.refused("each needs a name", "-m", MODEL, "-m", f"b={OTHER}")

    def test_one_with_a_name_is_the_only_one(self):
        server = ModelsServer(f"mine={MODEL}")
        try:
            self.assertEqual(server.status_of("mine"), {"value": "loaded"})
            self.assertEqual(server.call("POST", "/completion", {**PROMPT, "model": "whatever"})[2]["model"], "mine")
            self.assertEqual(server.call("POST", "/models/unload", {"model": "mine"})[0], 200)
            self.assertEqual(len(server.tokens("mine")), 8)
        finally:
            self.assertEqual(server.stop(), 0)


class MissingFile(unittest.TestCase):
    def test_it_is_said_at_the_start(self):
        server = ModelsServer(f"a={MODEL}", "b=nosuch.gguf")
        self.addCleanup(server.stop)
        self.assertIn("warning: b: there is no file 'nosuch.gguf'\n", server.text())
        self.assertNotIn("a: there is no file", server.text())


class SharedDevices(unittest.TestCase):
    def start(self, *flags):
        server = ModelsServer(f"a={MODEL}", f"b={OTHER}", flags=("--device", "cpu:0,cpu:1", "-c", "512", *flags))
        self.addCleanup(server.stop)
        return server

    def used(self, server, name):
        """Bytes of each device that the model holds; it is loaded for that."""
        server.tokens(name)
        return [device["used_bytes"] for device in server.call("GET", f"/placement?model={name}")[2]["devices"]]

    def move(self, server, shares):
        return server.call("POST", "/placement", {"model": "a", "split_mode": "layer", "tensor_split": shares})

    def test_what_a_switch_took_the_other_model_lacks(self):
        free = self.start()
        b = self.used(free, "b")[1]
        self.used(free, "a")
        whole = [device["used_bytes"] for device in self.move(free, [0, 1])[2]["devices"]][1]
        server = self.start("--device-memory", str(whole + b - 4096), "--models-wait", "0", "--context-shift")
        alone = server.tokens("a")
        status, _, reply = self.move(server, [0, 1])
        self.assertEqual(status, 200, reply)
        with endless(server, "a"):
            status, _, reply = server.call("POST", "/completion", {**PROMPT, "model": "b"})
            self.assertEqual(status, 503, reply)
            self.assertRegex(reply["error"]["message"], r"no room for model b .* it needs [\d.]+ MiB of cpu:1, which has")
        end = time.monotonic() + TIMEOUT_S
        while server.call("POST", "/completion", {**PROMPT, "model": "b"})[0] != 200:  # a goes when it is idle
            self.assertLess(time.monotonic(), end)
        server.wait_for("^unloaded a to make room for b$")
        self.assertEqual(server.tokens("a"), alone)
        status, _, reply = self.move(server, [0, 1])
        self.assertEqual(status, 409, reply)
        self.assertEqual(server.tokens("a"), alone)


if __name__ == "__main__":
    main()
