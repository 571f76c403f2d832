#!/usr/bin/env python3
"""Placements from outside: switches between phases, plans of switches, fits.

  cli_placement_test.py [PROGRAM] [unittest arguments]     as cli_test.py
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import cli_support
from cli_support import CliTest, DATA, LLAMA, run, TIMEOUT_S, TINY


class Switches(CliTest):
    """Prompts under one placement, answers under another."""
    PAIR = ["-m", LLAMA, "--device", "cpu:0,cpu:1", "--cuts", "2", "-t", "2", "-c", "128"]
    ASK = ["run", *PAIR, "-p", "hello, who is there?", "-no-cnv", "-n", "16", "--temp", "0", "--ignore-eos", "--json"]

    @staticmethod
    def budgets(found):
        """--device-memory that holds just what a run has used."""
        parts = ("weight_bytes", "kv_bytes", "rec_bytes", "scratch_bytes")
        return ",".join(str(sum(device[part] for part in parts)) for device in found["devices"])

    def test_the_text_is_the_same_and_every_switch_is_reported(self):
        wanted = self.good_json(*self.ASK)
        self.assertEqual(wanted["switches"], [])
        for flags, ways in ((["-psm", "layer", "-sm", "tensor"], [("generation", "layer", "tensor")]),
                            (["-psm", "row", "-sm", "none"], [("generation", "tensor", "none")]),
                            (["-psm", "tensor", "-pts", "0,1", "-sm", "tensor", "-ts", "1,1", "--transition-staging", "64K"],
                             [("generation", "tensor", "tensor")]),
                            (["-psm", "layer", "-sm", "layer"], [])):
            found = self.good_json(*self.ASK, *flags)
            self.assertEqual(found["tokens"], wanted["tokens"], flags)
            self.assertEqual(found["text"], wanted["text"])
            self.assertEqual(found["timings"]["prompt_n"], len(found["prompt_tokens"]))
            self.assertEqual([(s["phase"], s["from"], s["to"]) for s in found["switches"]], ways)
            self.assertEqual(found["placement"]["split_mode"], ways[-1][2] if ways else "layer")
            for switch in found["switches"]:
                self.assertGreater(switch["moved_bytes"], 0)
                self.assertGreater(switch["ms"], 0)
                self.assertEqual(len(switch["peak_bytes"]), 2)
                self.assertEqual(switch["shares"], [1, 0] if switch["to"] == "none" else [0.5, 0.5])
            self.assertGreater(found["wall_ms"], sum(s["ms"] for s in found["switches"]))
        told = run(*self.ASK[:-1], "-psm", "tensor", "-sm", "layer").stderr.decode()
        self.assertRegex(told, r"switches +1 +[\d.]+ ms +[\d.]+ MiB between devices\n")
        self.assertIn("split layer, 2 cuts", told)

    def test_a_placement_that_does_not_fit_leaves_the_work_to_the_other(self):
        runs = {mode: self.good_json(*self.ASK, "-sm", mode) for mode in ("layer", "tensor")}
        for read, answer in (("layer", "tensor"), ("tensor", "layer")):
            # What holds the reading one alone, and what holds the answering one but not all on the second device.
            for holds, flags, pattern in (
                    (read, [], rf"warning: device cpu:\d lacks [\d.]+ .* for the {answer} placement .*{read} placement holds"),
                    (answer, ["-pts", "0,1"], rf"warning: .*does not fit: cpu:1 needs .* and has .*under the {answer} placement too")):
                done = run(*self.ASK, "-psm", read, "-sm", answer, *flags, "--device-memory", self.budgets(runs[holds]))
                message = done.stderr.decode()
                self.assertEqual(done.returncode, 0, message)
                self.assertEqual(message.count("warning: "), 1, message)
                self.assertRegex(message, pattern)
                found = json.loads(done.stdout)
                self.assertEqual(found["tokens"], runs["layer"]["tokens"])
                self.assertEqual(found["switches"], [])
                self.assertEqual(found["placement"]["split_mode"], holds)
                self.assertEqual((found["timings"]["cache_n"], found["timings"]["prompt_n"]), (0, len(found["prompt_tokens"])))

    def test_a_conversation_switches_at_every_boundary(self):
        args = ["chat", *self.PAIR[:-1], "512", "-n", "8", "--temp", "0", "--ignore-eos"]
        told = [run(*args, *flags, stdin=b"hello\nand more\nand then?\n") for flags in ([], ["-psm", "layer", "-sm", "tensor"])]
        self.assertEqual([done.returncode for done in told], [0, 0], told[1].stderr.decode())
        self.assertEqual(told[0].stdout, told[1].stdout)
        counts = re.findall(r"switches +(\d) ", told[1].stderr.decode())
        self.assertEqual(counts, ["1", "2", "2"])

    def test_the_policy_measures_once(self):
        wanted = self.good_json(*self.ASK)["tokens"]
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "tessera/split-policy.json"
            for start, measures in (("layer", 1), ("tensor", 0)):
                done = subprocess.run([cli_support.PROGRAM, *self.ASK, "-sm", start, "--split-policy", "auto", "-v"], capture_output=True,
                                      timeout=TIMEOUT_S, env={**os.environ, "XDG_CACHE_HOME": folder})
                message = done.stderr.decode()
                self.assertEqual(done.returncode, 0, message)
                self.assertEqual(json.loads(done.stdout)["tokens"], wanted)
                # Where the machine is busier now, or less, it measures anew, and says why.
                self.assertEqual(message.count("measuring both splits"), measures or message.count("do not hold: tensor generates"))
                self.assertEqual(message.count("measured in "), message.count("measuring both splits"))
                self.assertRegex(message, r"tokens/s: layer pp112 .* tensor pp112 .*; switches take [\d.]+ and [\d.]+ ms")
                self.assertRegex(message, r"\d+ tokens to read and about 16 to generate: the ")
            entries = json.loads(cache.read_text(encoding="utf-8"))["entries"]
            self.assertEqual(len(entries), 1)
            entry = next(iter(entries.values()))
            # Speeds that one look contradicts, and those of another day, are measured anew.
            generation = entry["splits"][0]["generation"]
            for change, reason in (({"splits": [{**entry["splits"][0], "generation": [[1, generation[0][1] * 1000]]}, entry["splits"][1]]},
                                    "layer generates .* tokens/s now, not"),
                                   ({"made_s": entry["made_s"] - 90000}, "not of the last day")):
                cache.write_text(json.dumps({"version": 2, "entries": {next(iter(entries)): {**entry, **change}}}), encoding="utf-8")
                done = run(*self.ASK, "-sm", "layer", "--split-policy", "auto", "--policy-cache", cache)
                self.assertRegex(done.stderr.decode(), f"the speeds in .* do not hold: {reason}.*\n.*measuring both splits")
            # With speeds made up, both decisions can be foretold; without a time they are not doubted.
            del entry["made_s"]
            entry["switch_s"] = [1e-6, 1e-6]
            for i, split in enumerate(entry["splits"]):
                split["prefill"], split["generation"] = [[112, (1000, 1)[i]]], [[1, (1, 1000)[i]]]
            cache.write_text(json.dumps({"version": 2, "entries": entries}), encoding="utf-8")
            ways = [(s["phase"], s["to"]) for s in self.good_json(*self.ASK, "-sm", "tensor", "--split-policy", "auto",
                                                                  "--policy-cache", cache)["switches"]]
            self.assertEqual(ways, [("prompt", "layer"), ("generation", "tensor")])
            entry["switch_s"] = [1e6, 1e6]
            cache.write_text(json.dumps({"version": 2, "entries": entries}), encoding="utf-8")
            self.assertEqual(self.good_json(*self.ASK, "--split-policy", "auto", "--policy-cache", cache)["switches"], [])

    def test_bench(self):
        args = ["switch", "-m", LLAMA, "--device", "cpu:0,cpu:1", "-t", "2", "--kv-tokens", "40", "-r", "2", "-p", "8", "-n", "4"]
        found = self.good_json("bench", *args, "--json")
        self.assertEqual(set(found["switch_ms"]), {"layer>tensor", "tensor>layer"})
        self.assertEqual({name: len(ms) for name, ms in found["samples_ms"].items()}, {"layer>tensor": 2, "tensor>layer": 2})
        ms = sum(found["switch_ms"].values())
        self.assertAlmostEqual(found["rate_gb_s"] * ms * 1e6 / (found["moved_bytes"] + found["moved_back_bytes"]), 1)
        self.assertEqual(found["moved_bytes"], found["moved_back_bytes"])
        self.assertGreater(found["copy_rate_gb_s"], 0)
        self.assertEqual(set(found["mode_bytes"]), {"layer", "tensor"})
        for peak, layer, tensor in zip(found["peak_bytes"], found["mode_bytes"]["layer"], found["mode_bytes"]["tensor"]):
            self.assertGreaterEqual(peak, max(layer, tensor))
            self.assertLessEqual(peak, max(layer, tensor) + found["staging_bytes"])
        self.assertGreaterEqual(found["resident_peak_bytes"], max(found["resident_bytes"].values()))
        self.assertGreater(found["resident_looks_per_s"], 0)
        for key in ("prefill_kept", "generation_kept"):
            self.assertGreater(found[key], 0)
        self.assertEqual(set(found["ahead_bytes"].values()), {0})
        ahead = self.good_json("bench", *args, "--transition-ahead", "64M", "--json")
        for name, n_bytes in ahead["ahead_bytes"].items():
            self.assertGreater(n_bytes, 0)
            self.assertGreater(ahead["ahead_ms"][name], 0)
            self.assertGreaterEqual(ahead["stall_ms"][name], ahead["switch_ms"][name])
        self.assertEqual(ahead["mode_bytes"], found["mode_bytes"])
        for peak, layer, tensor in zip(ahead["peak_bytes"], ahead["mode_bytes"]["layer"], ahead["mode_bytes"]["tensor"]):
            self.assertLessEqual(peak, max(layer, tensor) + ahead["staging_bytes"] + ahead["ahead_limit_bytes"])
        text = self.good("bench", *args, "--transition-ahead", "64M").decode()
        self.assertRegex(text, r"copied ahead +MiB +ms before +ms nobody decodes\nlayer>tensor +[\d.]+ +[\d.]+ +[\d.]+\n")
        text = self.good("bench-" + args[0], *args[1:], "-sm", "tensor", "--to", "none").decode()
        for pattern in (r"tensor>none +[\d.]+", r"none>tensor", r"rate [\d.]+ GB/s, \d+ % of two threads", r"prefill tokens/s +[\d.]+"):
            self.assertRegex(text, pattern)

    def test_errors(self):
        self.bad(2, "-psm.*layr.*did you mean layer", *self.ASK, "-psm", "layr")
        self.bad(2, "-psm.*tensors.*did you mean tensor", "chat", *self.PAIR, "-psm", "tensors")
        self.bad(2, "--prefill-tensor-split needs --prefill-split-mode", *self.ASK, "-pts", "1,1")
        self.bad(2, "leave --prefill-split-mode out", *self.ASK, "-psm", "layer", "--split-policy", "auto")
        self.bad(2, "--split-policy.*atuo.*did you mean auto", *self.ASK, "--split-policy", "atuo")
        self.bad(2, "between layer and tensor", "chat", *self.PAIR, "--split-policy", "auto", "-sm", "none")
        self.bad(2, "--policy-cache needs", *self.ASK, "--policy-cache", "x")
        self.bad(1, "tensor-split", *self.ASK, "-psm", "tensor", "-pts", "1,1,1")
        self.bad(2, "several devices", "bench", "switch", "-m", LLAMA)
        self.bad(2, "nothing would move", "bench", "switch", "-m", LLAMA, "--device", "cpu:0,cpu:1", "-sm", "tensor")
        self.bad(2, "--to.*tenser.*did you mean tensor", "bench-switch", "-m", LLAMA, "--device", "cpu:0,cpu:1", "--to", "tenser")


class Plan(CliTest):
    PAIR = ["--device", "cpu:0,cpu:1", "--device-memory", "64M", "-c", 64]

    def plan(self, *args):
        return self.good_json("plan", "-m", LLAMA, *self.PAIR, "--json", *args)

    def test_json_adds_up(self):
        report = self.plan("--from", "layer", "--to", "tensor", "--kv-tokens", 64, "--moves")
        self.assertEqual((report["from"], report["to"], report["n_cuts"]), ("layer", "tensor", 2))
        self.assertEqual(report["n_moves"], len(report["moves"]))
        crossing = [move for move in report["moves"] if move["from"] != move["to"]]
        self.assertEqual(report["moved_bytes"], sum(move["bytes"] for move in crossing))
        for link in report["links"]:
            self.assertEqual(link["bytes"], sum(move["bytes"] for move in report["moves"]
                                                if (move["from"], move["to"]) == (link["from"], link["to"])))
        self.assertEqual(sum(link["n_moves"] for link in report["links"]), report["n_moves"])
        self.assertIn("kv", {move["kind"] for move in report["moves"]})
        for device in report["devices"]:
            self.assertGreaterEqual(device["peak_bytes"], max(device["from"]["total_bytes"], device["to"]["total_bytes"]))
            self.assertLessEqual(device["peak_bytes"], device["budget_bytes"])
        self.assertGreater(report["predicted_ms"], 0)
        self.assertNotIn("moves", self.plan("--from", "layer", "--to", "tensor"))

    def test_counts_are_those_of_a_run(self):
        report = self.plan("--from", "layer", "--to", "tensor")
        for side, mode in (("from", "layer"), ("to", "tensor")):
            done = self.good_json("run", "-m", LLAMA, "-p", "x", "-n", 1, *self.PAIR, "-sm", mode, "--json")
            for planned, used in zip(report["devices"], done["devices"]):
                for key in ("weight_bytes", "kv_bytes", "rec_bytes", "scratch_bytes"):
                    self.assertEqual(planned[side][key], used[key])

    def test_a_faster_link_takes_less_time(self):
        slow, fast = (self.plan("--from", "layer", "--to", "tensor", "--sim-link", link)["predicted_ms"]
                      for link in ("10MB/s:0us", "1GB/s:0us"))
        self.assertAlmostEqual(slow / fast, 100, delta=1)

    def test_for_people(self):
        text = self.good("plan", "-m", LLAMA, *self.PAIR, "--from", "layer", "--to", "tensor", "--moves").decode()
        self.assertRegex(text, r"cpu:0 -> cpu:1 +\d+ +[\d.]+\n")
        self.assertRegex(text, r"predicted: [\d.]+ ms at 12.0 GB/s")
        self.assertRegex(text, r"attn layer 0 cut 1 +0 +\d+ +cpu:0\+\d+")
        same = self.good("plan", "-m", LLAMA, *self.PAIR, "--from", "tensor", "--to", "tensor").decode()
        self.assertIn("nothing moves\n", same)
        alone = self.good("plan", "-m", LLAMA, "--from", "layer", "--to", "tensor").decode()
        self.assertIn("nothing moves: there is one device; name several, such as --device cpu:0,cpu:1\n", alone)
        many = self.good("plan", "-m", LLAMA, "--device", "null:0,null:1,null:2", "--from", "none", "--to", "layer").decode()
        self.assertIn("null:0 -> null:2", many)

    def test_errors(self):
        def bad(status, pattern, *args):
            self.bad(status, pattern, "plan", "-m", LLAMA, *args)
        modes = ("--from", "layer", "--to", "tensor")
        bad(2, "needs the flag --from", "--to", "tensor")
        bad(2, "tensr.*did you mean tensor", "--from", "layer", "--to", "tensr")
        bad(2, "did you mean layer", "--from", "layers", "--to", "tensor")
        bad(2, "-5 is below 0", *modes, "--kv-tokens", "-5")
        bad(2, "not a number of bytes", *modes, "--device-memory", "-1G")
        bad(2, "not a number of bytes", *modes, "--transition-staging", "-64M")
        bad(2, "is no rate above 0", *modes, "--sim-link", "12:10us")
        bad(2, "is no time", *modes, "--sim-link", "12GB/s:soon")
        bad(2, "--tensor-split|-ts", *modes, "-ts", "-1,2")
        bad(1, "kv-tokens is 65", *modes, "-c", "64", "--kv-tokens", "65")
        bad(1, "raise --transition-staging", *modes, "--device", "cpu:0,cpu:1", "--transition-staging", "1K")
        bad(1, "--to-tensor-split has 3 shares for 2 devices", *modes, "--device", "cpu:0,cpu:1", "--to-tensor-split", "1,2,3")
        bad(1, "cpu:0 needs .* and has 0.1; cpu:1 needs .* and has 0.1", *modes, "--device", "cpu:0,cpu:1",
            "--device-memory", "100K")


class Fit(CliTest):
    MOE = TINY / "tiny-llama-moe.gguf"

    def fit(self, *args):
        done = run("run", "-p", "x", "-n", 1, "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return json.loads(done.stdout), done.stderr.decode()

    def test_the_context_is_what_the_budget_allows(self):
        f32 = ("-ctk", "f32", "-ctv", "f32")
        report, said = self.fit("-m", LLAMA, "--fit", "--device-memory", "1G", *f32)
        self.assertIn("fit: a context of 512 tokens; nothing else", said)
        whole = sum(report["devices"][0][key] for key in ("weight_bytes", "kv_bytes", "scratch_bytes"))
        report, said = self.fit("-m", LLAMA, "--fit", "on", "--fit-ctx", 64, "--device-memory", whole - 1, *f32)
        self.assertRegex(said, r"fit: a context of (64|256) tokens; the same as --ctx-size (64|256)\n")
        self.assertRegex(said, r"fit: cpu:0: layer: \d of \d layers, [\d.]+ MiB \(weights")
        report, said = self.fit("-m", LLAMA, "--fit", "-c", 100, "--device-memory", "1G")
        self.assertIn("fit: a context of 100 tokens", said)

    def test_it_says_the_flags_that_give_the_same(self):
        common = ("-m", self.MOE, "--device", "cpu:0,cpu:1", "-c", 64, "-ub", 32, "-sm", "tensor")
        even, _ = self.fit(*common, "--device-memory", "1G")
        needs = [sum(device[key] for key in ("weight_bytes", "kv_bytes", "scratch_bytes")) for device in even["devices"]]
        small = f"{needs[0] * 2 // 3},1G"
        self.bad(1, "does not fit", "run", "-p", "x", *common, "--device-memory", small)
        fitted, said = self.fit(*common, "--device-memory", small, "--fit")
        flags = re.search(r"the same as (.*)\n", said).group(1).replace("'", "").split()
        again, _ = self.fit(*common, "--device-memory", small, *flags)
        self.assertEqual(fitted["devices"], again["devices"])
        self.assertEqual(fitted["tokens"], again["tokens"])

    def test_every_command_that_loads_has_it(self):
        tight = ("--device", "cpu:0,cpu:1", "--device-memory", "1M,64M", "-sm", "layer", "--fit")
        text = (DATA / "tiny/make_tiny.py").read_bytes()[:4000]
        self.good("perplexity", "-m", LLAMA, "-f", "-", "-c", "64", *tight, stdin=text)
        self.good("logits", "-m", LLAMA, "--tokens", "1,2,3", *tight)
        self.good("chat", "-m", LLAMA, "-n", "1", *tight, stdin=b"hi\n")
        self.good("batched-bench", "-m", LLAMA, "-npp", "8", "-ntg", "2", "-npl", "2", *tight)
        self.good("bench", "-m", LLAMA, "-p", "8", "-n", "0", "-r", "1", "-dev", "cpu:0/cpu:1", *tight[2:])
        plan = self.good_json("plan", "-m", LLAMA, "--from", "layer", "--to", "tensor", "--json", *tight[:4], "--fit", "-c", 64)
        self.assertLessEqual(plan["devices"][0]["peak_bytes"], 1 << 20)

    def test_bench_fits_the_largest_of_its_contexts(self):
        """The first fits cpu:0 with a layer, the last does not."""
        rows = self.good_json("bench", "-m", LLAMA, "-p", "2048", "-n", "0", "-r", "1", "--no-warmup", "-o", "json", "-ub", "8,512",
                              "-ctk", "f16,f32", "-ctv", "f16,f32", "-dev", "cpu:0/cpu:1", "--device-memory", "1200K,64M",
                              "-sm", "layer", "--fit")
        self.assertEqual(len(rows), 8)

    def test_errors(self):
        self.bad(1, r"nothing fits with a context of 512 tokens; the smallest lack is [\d.]+ MiB on a device: cpu:0 needs",
                 "run", "-m", LLAMA, "-p", "x", "--fit", "--device-memory", "64K")
        self.bad(1, "--fit-target has 3 values for 2 devices", "run", "-m", LLAMA, "-p", "x", "--fit", "--fit-target", "1,2,3",
                 "--device", "cpu:0,cpu:1")
        self.bad(2, "-1 is below 0", "run", "-m", LLAMA, "-p", "x", "--fit-target", "-1")
        self.bad(2, "out of range", "run", "-m", LLAMA, "-p", "x", "--fit-ctx", "0")
        self.bad(2, "maybe.*is not one of on, off", "run", "-m", LLAMA, "-p", "x", "--fit=maybe")
        self.bad(2, "belongs to", "logits", "-m", LLAMA, "--tokens", "1", "--fit-ctx", "64")


if __name__ == "__main__":
    cli_support.main()
