#!/usr/bin/env python3
"""GET and POST /placement of `tessera serve`: what it tells, switches under load, refusals, the policy.

  server_placement_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import signal
import tempfile
import threading
import time
import unittest

from server_support import DATA, GREEDY, TIMEOUT_S, Server, ServerTest, main

PAIR = ("--device", "cpu:0,cpu:1")
MODES = ("tensor", "layer", "none")


def metrics(server):
    text = server.call("GET", "/metrics")[2]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.split("\n")
                                                   if line and not line.startswith("#"))}


class PlacementTest(ServerTest):
    flags = ()
    model = str(DATA / "tiny-llama.gguf")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*PAIR, "--metrics", *cls.flags, model=cls.model)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def post(self, **body):
        return self.good("POST", "/placement", body)


class Told(PlacementTest):
    model = str(DATA / "tiny-qwen35.gguf")  # it has a KV cache, and recurrent state

    def test_every_byte_has_a_home(self):
        for mode in MODES:
            told = self.post(split_mode=mode)
            self.assertEqual({key: told[key] for key in ("model", "split_mode", "tensor_split")},
                             {"model": "tiny-qwen35.gguf", "split_mode": mode, "tensor_split": []})
            self.assertEqual([(d["name"], d["kind"]) for d in told["devices"]], [("cpu:0", "cpu"), ("cpu:1", "cpu")])
            self.assertEqual(len({tile["name"] for tile in told["tiles"]}), len(told["tiles"]))
            held = {}
            for tile in told["tiles"]:
                kind = tile["kind"] if tile["kind"] in ("kv", "state") else "weights"
                held[tile["device"], kind] = held.get((tile["device"], kind), 0) + tile["bytes"]
                self.assertEqual(tile["version"], told["version"])
            self.assertEqual({device for device, _ in held} - {"cpu:0", "cpu:1"}, {"file"})
            for device in told["devices"]:
                parts = [device[key] for key in ("weights_bytes", "kv_bytes", "state_bytes", "scratch_bytes")]
                self.assertEqual(device["used_bytes"], sum(parts))
                self.assertLessEqual(device["used_bytes"] + device["spare_bytes"], device["capacity_bytes"])
                for kind, key in (("weights", "weights_bytes"), ("kv", "kv_bytes"), ("state", "state_bytes")):
                    bytes_ = held.get((device["name"], kind), 0)
                    self.assertLessEqual(bytes_, device[key])
                    self.assertEqual(bytes_ == 0, device[key] == 0)
            del told["switch"]
            self.assertEqual(self.good("GET", "/placement"), told)
        self.assertEqual({d["name"]: d["used_bytes"] == 0 for d in told["devices"]}, {"cpu:0": False, "cpu:1": True})

    def test_shares_are_kept(self):
        self.assertEqual(self.post(split_mode="layer", tensor_split=[3, 1])["switch"]["shares"], [0.75, 0.25])
        self.assertEqual(self.post(split_mode="tensor")["tensor_split"], [3, 1])
        self.assertEqual(self.post(tensor_split=[])["split_mode"], "tensor")

    def test_rounded_shares_are_said(self):
        self.assertEqual(self.post(split_mode="layer", tensor_split=[])["shares_note"], None)
        told = self.post(split_mode="tensor", tensor_split=[3, 1])
        note = "rounded to what 2 cuts express: cpu:0 gets 2 of 2, cpu:1 gets 0 of 2"
        self.assertEqual([told[key] for key in ("cuts", "shares", "shares_note")], [2, [1, 0], note])
        self.assertEqual(self.good("GET", "/placement")["shares_note"], note)
        self.assertIn(f"tensor_split is {note}", self.server.text())
        told = self.post(tensor_split=[1, 1])
        self.assertEqual([told["shares"], told["shares_note"]], [[0.5, 0.5], None])

    def test_switches_are_counted(self):
        self.post(split_mode="layer", tensor_split=[])
        before, metrics_before = self.good("GET", "/placement"), metrics(self.server)
        told = self.post(split_mode="tensor", deadline_ms=TIMEOUT_S * 1000)
        self.assertEqual(told["version"], before["version"] + 1)
        switch = told["switch"]
        self.assertEqual((switch["from"], switch["to"], switch["by"], switch["error"]), ("layer", "tensor", "request", None))
        self.assertGreater(switch["moved_bytes"], 0)
        self.assertAlmostEqual(switch["ms"], sum(switch[part] for part in ("reserve_ms", "move_ms", "commit_ms", "trim_ms")), 3)
        self.assertEqual(told["switches"]["last"], {key: switch[key] for key in told["switches"]["last"]})
        status, _, reply = self.server.call("POST", "/placement", {"split_mode": "layer", "deadline_ms": 1e-6})
        self.assertEqual(status, 409, reply)
        after, metrics_after = self.good("GET", "/placement"), metrics(self.server)
        self.assertEqual((after["version"], after["split_mode"]), (told["version"], "tensor"))
        self.assertEqual(after["switches"]["last"]["error"], reply["error"]["message"])
        for key, name in (("count", "switches_total"), ("failed", "switch_failures_total")):
            self.assertEqual(after["switches"][key] - before["switches"][key], 1)
            self.assertEqual(metrics_after[f"llamacpp:placement_{name}"], after["switches"][key])
        grown = {name: metrics_after[f"llamacpp:placement_{name}"] - metrics_before[f"llamacpp:placement_{name}"]
                 for name in ("switch_bytes_total", "switch_seconds_total", "version")}
        self.assertEqual((grown["switch_bytes_total"], grown["version"]), (switch["moved_bytes"], 1))
        self.assertAlmostEqual(grown["switch_seconds_total"], switch["ms"] / 1000, 6)

    def test_bad_bodies(self):
        before = self.good("GET", "/placement")
        for pattern, body in (
                ("JSON", "{"), ("object", [1]), ("split_mode, tensor_split and policy", {}),
                ("split_mode.*sideways.*none, layer or tensor", {"split_mode": "sideways"}),
                ("split_mode.* is 1.*a string", {"split_mode": 1}), ("split_mode.*an array", {"split_mode": ["layer"]}),
                ("tensor_split.*array of 2", {"tensor_split": 1}), ("tensor_split.*array of 2", {"tensor_split": [1]}),
                ("tensor_split.*array of 2", {"tensor_split": [1, 2, 3]}), ("tensor_split.*sum 0", {"tensor_split": [0, 0]}),
                ("tensor_split.*-1", {"tensor_split": [1, -1]}), ("tensor_split.*1e\\+300", {"tensor_split": [1, 1e300]}),
                ("tensor_split.*a string", {"tensor_split": ["1", 1]}), ("tensor_split.*null", {"tensor_split": [None, 1]}),
                ("deadline_ms", {"split_mode": "layer", "deadline_ms": -1}),
                ("deadline_ms", {"split_mode": "layer", "deadline_ms": "1s"}),
                ('"policy" is "on"; it must be "off" or "auto"', {"policy": "on"}), ('"policy" is true', {"policy": True}),
                ("leave split_mode", {"policy": "auto", "split_mode": "layer"})):
            self.bad(400, pattern, "/placement", body)
        self.bad(501, "--split-policy auto", "/placement", {"policy": "auto"}, "not_supported_error")
        self.assertEqual(self.good("GET", "/placement"), before)
        self.assertEqual(self.server.call("DELETE", "/placement")[0], 405)


class ToldAhead(Told):
    """The same where weights are copied ahead."""

    flags = ("--transition-ahead", "64M")

    def test_weights_are_copied_ahead(self):
        self.post(split_mode="layer", tensor_split=[])
        switch = self.post(split_mode="tensor")["switch"]
        self.assertGreater(switch["ahead_bytes"], 0)
        self.assertLessEqual(switch["ahead_bytes"], switch["moved_bytes"])
        self.assertGreater(switch["ahead_ms"], 0)
        self.assertGreaterEqual(switch["stall_ms"], switch["ms"])


class UnderLoad(PlacementTest):
    flags = ("--batch-invariant", "-np", "8", "-c", "2048")
    ASKS = [{"prompt": f"{i} " * (5 + 13 * i), "n_predict": 48, "ignore_eos": True, **GREEDY} for i in range(8)]

    def answer(self, ask):
        events = [json.loads(event) for event in self.server.events("/completion", ask)]
        self.assertEqual(events[-1]["tokens_predicted"], 48)
        return [token for event in events for token in event["tokens"]]

    def test_replies_do_not_notice(self):
        wanted = [self.answer(ask) for ask in self.ASKS]
        before = self.good("GET", "/placement")["switches"]
        stop = threading.Event()

        def switch_to_and_fro(modes):
            n = 0
            while not stop.is_set() or n < 6:
                self.post(split_mode=modes[n % len(modes)])
                n += 1
            return n

        def watch():
            while not stop.is_set():
                self.good("GET", "/placement")
                self.good("GET", "/metrics")
        with concurrent.futures.ThreadPoolExecutor(11) as pool:
            # Two that switch at once, with no regard for each other.
            switchers = [pool.submit(switch_to_and_fro, modes) for modes in (MODES, ("tensor", "layer"))]
            watcher = pool.submit(watch)
            try:
                for _ in range(2):
                    self.assertEqual(list(pool.map(self.answer, self.ASKS)), wanted)
            finally:
                stop.set()
            n_switches = sum(switcher.result() for switcher in switchers)
            watcher.result()
        after = self.good("GET", "/placement")["switches"]
        self.assertEqual((after["count"], after["failed"]), (before["count"] + n_switches, before["failed"]))

    def test_refusals_harm_nobody(self):
        wanted = [self.answer(ask) for ask in self.ASKS[:2]]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(self.answer, ask) for ask in self.ASKS[:2]]
            for _ in range(5):
                self.bad(409, "deadline|time", "/placement", {"split_mode": "none", "deadline_ms": 1e-3})
            self.assertEqual([answer.result() for answer in answers], wanted)


class UnderLoadAhead(UnderLoad):
    """The same where weights are copied ahead of each switch, while requests are answered."""

    flags = (*UnderLoad.flags, "--transition-ahead", "64M")


class Limits(unittest.TestCase):
    def start(self, *flags):
        server = Server(*PAIR, *flags)
        self.addCleanup(lambda: server.log.closed or server.stop())
        return server

    def test_what_does_not_fit_is_refused_with_the_bytes(self):
        used = [device["used_bytes"] for device in self.start().call("GET", "/placement")[2]["devices"]]
        server = self.start("--device-memory", ",".join(str(n + 4096) for n in used))
        ask = {"prompt": "The", "n_predict": 16, "ignore_eos": True, **GREEDY}
        wanted = server.call("POST", "/completion", ask)[2]["content"]
        before = server.call("GET", "/placement")[2]
        status, _, reply = server.call("POST", "/placement", {"split_mode": "none"})
        self.assertEqual((status, reply["error"]["code"]), (409, 409), reply)
        self.assertRegex(reply["error"]["message"], r"device cpu:0 lacks [\d.]+ MiB for the none placement.*the layer placement holds")
        after = server.call("GET", "/placement")[2]
        self.assertEqual(after["switches"].pop("last")["error"], reply["error"]["message"])
        self.assertEqual(after["switches"], {"count": 0, "failed": 1})
        for told in (before, after):
            del told["switches"]
        self.assertEqual(after, before)
        self.assertEqual(server.call("POST", "/completion", ask)[2]["content"], wanted)

    def test_each_switch_is_answered_when_the_server_ends(self):
        server = self.start("--shutdown-grace", str(TIMEOUT_S))
        statuses = []

        def switch(i):
            while not statuses or statuses[-1] == 200:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    statuses.append(server.call("POST", "/placement", {"split_mode": MODES[i % 2]})[0])
                    continue
                return  # the port is closed
        with contextlib.closing(server.connect()) as busy, concurrent.futures.ThreadPoolExecutor(4) as pool:
            busy.request("POST", "/completion", json.dumps({"prompt": "a", "n_predict": 200, "stream": True, "ignore_eos": True}))
            reply = busy.getresponse()
            reply.read(1)
            switchers = [pool.submit(switch, i) for i in range(4)]
            while not statuses:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            self.assertIn(b'"tokens_predicted":200', reply.read())
            for switcher in switchers:
                switcher.result()
        self.assertEqual(server.process.wait(TIMEOUT_S), 0)
        self.assertLessEqual(set(statuses), {200, 503})


class NotLoaded(unittest.TestCase):
    """Of several models, one that is not loaded."""

    def test_a_model_is_loaded_as_it_is_asked_for(self):
        server = Server("-m", f"b={DATA / 'tiny-qwen3.gguf'}", *PAIR, model=f"a={DATA / 'tiny-llama.gguf'}")
        self.addCleanup(server.stop)

        def post(**body):
            status, _, reply = server.call("POST", "/placement", body)
            return status, reply

        def loaded():
            models = server.call("GET", "/v1/models")[2]["data"]
            return [model["id"] for model in models if model["status"]["value"] == "loaded"]

        status, told = post(model="b", split_mode="tensor", tensor_split=[3, 1])
        self.assertEqual((status, told["split_mode"], told["tensor_split"]), (200, "tensor", [3, 1]))
        self.assertEqual((told["cuts"], told["switch"]["from"], told["switch"]["moved_bytes"]), (4, "tensor", 0))
        self.assertEqual(loaded(), ["b"])
        # What is wrong with the wish loads nothing, and spoils nothing.
        for body in ({"split_mode": "rows"}, {"tensor_split": "1,2"}, {"tensor_split": [1, 2, 3]}, {}):
            status, reply = post(model="a", **body)
            self.assertEqual((status, reply["error"]["type"]), (400, "invalid_request_error"), reply)
        self.assertEqual(loaded(), ["b"])
        self.assertEqual(server.call("GET", "/v1/models")[2]["data"][0]["status"], {"value": "unloaded"})
        status, told = post(model="a", policy="off")
        self.assertEqual((status, told["split_mode"], loaded()), (200, "layer", ["a", "b"]))


class Policy(unittest.TestCase):
    """With speeds made up, decisions can be foretold."""
    ASK = {"prompt": "a " * 100, "n_predict": 24, "ignore_eos": True, **GREEDY, "cache_prompt": False}

    def start(self, cache, *flags):
        server = Server(*PAIR, "--split-policy", "auto", "--policy-cache", cache, "-v", *flags)
        self.addCleanup(lambda: server.log.closed or server.stop())
        return server

    def test_phases(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "speeds.json"
            server = self.start(str(cache))
            self.assertIn("measuring both splits", server.text())
            wanted = server.call("POST", "/completion", self.ASK)[2]["content"]
            policy = server.call("GET", "/placement")[2]["policy"]
            self.assertEqual((policy["mode"], [s["split_mode"] for s in policy["splits"]]), ("auto", ["layer", "tensor"]))
            server.stop()
            entries = json.loads(cache.read_text(encoding="utf-8"))["entries"]
            entry = next(iter(entries.values()))
            del entry["made_s"]  # what somebody states is not measured anew

            def with_speeds(prefill, generation, switch_s, *flags):
                entry["switch_s"] = [switch_s, switch_s]
                for i, split in enumerate(entry["splits"]):
                    split["prefill"], split["generation"] = [[112, prefill[i]]], [[1, generation[i]]]
                cache.write_text(json.dumps({"version": 2, "entries": entries}), encoding="utf-8")
                return self.start(str(cache), *flags)

            # Reading pays under layer, generating under tensor.
            server = with_speeds((1000, 1), (1, 1000), 1e-6, "-sm", "tensor")
            for _ in range(2):
                self.assertEqual(server.call("POST", "/completion", self.ASK)[2]["content"], wanted)
            told = server.call("GET", "/placement")[2]
            self.assertEqual((told["split_mode"], told["switches"]["count"]), ("tensor", 4))
            self.assertEqual((told["switches"]["last"]["by"], told["switches"]["last"]["from"]), ("policy", "layer"))
            self.assertNotIn("measuring", server.text())
            self.assertRegex(server.text(), "--split-policy auto: .* the prompt under layer, the answer under tensor")
            # Who asks for a placement gets it, until the policy is wanted again.
            self.assertEqual(server.call("POST", "/placement", {"split_mode": "none"})[2]["policy"]["mode"], "off")
            self.assertEqual(server.call("POST", "/completion", self.ASK)[2]["content"], wanted)
            self.assertEqual(server.call("GET", "/placement")[2]["split_mode"], "none")
            told = server.call("POST", "/placement", {"policy": "auto"})[2]
            self.assertEqual((told["policy"]["mode"], told["split_mode"]), ("auto", "layer"))
            self.assertEqual(server.call("POST", "/completion", self.ASK)[2]["content"], wanted)
            self.assertEqual(server.call("GET", "/placement")[2]["split_mode"], "tensor")
            # Where switches take for ever it stays, and says why.
            server = with_speeds((1000, 1), (1, 1000), 1e6)
            self.assertEqual(server.call("POST", "/completion", self.ASK)[2]["content"], wanted)
            self.assertEqual(server.call("GET", "/placement")[2]["switches"]["count"], 0)
            self.assertRegex(server.text(), "--split-policy auto: .* the layer split stays")

    def test_a_signal_ends_the_measurement(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "speeds.json"
            server = Server(*PAIR, "--split-policy", "auto", "--policy-cache", str(cache), "-v", wait=False, context=4096)
            server.wait_for("measuring both splits")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(TIMEOUT_S), 0)
            # It may have been quicker than the signal.
            self.assertEqual(cache.exists(), "tokens/s:" in server.text())
            server.log.close()

    def test_one_device_has_no_choice(self):
        server = Server("--split-policy", "auto", "-v")
        self.addCleanup(server.stop)
        self.assertIn("with one device there is nothing to choose", server.text())
        told = server.call("GET", "/placement")[2]
        self.assertEqual(told["policy"], {"mode": "off"})
        self.assertEqual(server.call("POST", "/placement", {"split_mode": "tensor"})[0], 200)


if __name__ == "__main__":
    main()
