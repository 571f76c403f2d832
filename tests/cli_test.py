#!/usr/bin/env python3
"""The program from outside: every command on tiny models, exact outputs, errors and exit statuses, signals, pipes.

  cli_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import csv
import functools
import json
import math
import os
import pathlib
import pty
import re
import resource
import signal
import sqlite3
import subprocess
import tempfile

import cli_support
from cli_support import CliTest, comma, DATA, EXACT, GEMMA, golden, LLAMA, q8_0_model, ROOT, run, TIMEOUT_S, TINY, with_metadata


def is_sanitized():
    """Whether the program has the address or the thread sanitizer in it."""
    program = pathlib.Path(cli_support.PROGRAM).read_bytes()
    return any(name in program for name in (b"__asan_init", b"__tsan_init"))


class Tokenize(CliTest):
    def test_hex_lines_give_the_reference_ids(self):
        n_cases = 0
        for file in sorted(TINY.glob("*.tokens.jsonl")):
            head, *cases = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            # Bytes that are not UTF-8 keep their own tokens here; tokenizer_golden_test looks at those.
            cases = [case for case in cases if case["category"] not in ("invalid", "noise")]
            lines = "".join(case["hex"] + "\n" for case in cases).encode()
            for wanted, flags in (("special", []), ("plain", ["--no-parse-special"]), ("framed", ["--add-bos"])):
                out = self.good("tokenize", "-m", TINY / head["model"], "--hex-lines", "-", *flags, stdin=lines)
                found = [json.loads(line) for line in out.splitlines()]
                self.assertEqual([f["tokens"] for f in found], [case[wanted] for case in cases], file.name)
                if wanted == "special":
                    for f, case in zip(found, cases):
                        self.assertEqual(f["pieces"], case.get("pieces", f["pieces"]), file.name)
                n_cases += len(cases)
        self.assertGreater(n_cases, 1000)

    def test_detokenize_gives_the_exact_bytes(self):
        _, *cases = map(json.loads, (TINY / "tiny-llama.tokens.jsonl").read_text(encoding="utf-8").splitlines())
        cases = [case for case in cases if 0 < len(case["special"]) < 50 and case["category"] not in ("invalid", "noise")]
        for case in cases[::7]:
            out = self.good("tokenize", "-m", LLAMA, "--detokenize", comma(case["special"]))
            self.assertEqual(out.hex(), case["detok"])
        self.assertEqual(self.good_json("tokenize", "-m", LLAMA, "--detokenize", "104,105", "--json"), {"text": "hi"})

    def test_text_file_and_pipe_agree(self):
        text = "hi <|im_end|>\nü"
        as_text = self.good_json("tokenize", "-m", LLAMA, "--json", text)
        with tempfile.NamedTemporaryFile() as file:
            file.write(text.encode())
            file.flush()
            self.assertEqual(self.good_json("tokenize", "-m", LLAMA, "--json", "--file", file.name), as_text)
        self.assertEqual(self.good_json("tokenize", "-m", LLAMA, "--json", stdin=text.encode()), as_text)
        self.assertEqual(bytes.fromhex("".join(as_text["pieces"])), text.encode())

    def test_lines_for_people(self):
        self.assertEqual(self.good("tokenize", "-m", LLAMA, "h\n").decode(), "     104  'h'\n      10  '\\n'\n")

    def test_models_that_cannot_run_have_tokens_too(self):
        self.assertEqual(self.good_json("tokenize", "-m", TINY / "tiny-mamba2.gguf", "--json", "hi")["tokens"], [104, 105])

    def test_errors(self):
        self.bad(1, "standard input, line 2: 'zz' is no byte", "tokenize", "-m", LLAMA, "--hex-lines", "-", stdin=b"20\nzz\n")
        self.bad(1, "id 288 is not in the vocabulary of 288", "tokenize", "-m", LLAMA, "--detokenize", "1,288")
        self.bad(2, "more than one input", "tokenize", "-m", LLAMA, "--detokenize", "1", "text")


class Template(CliTest):
    def test_prompts_are_the_references(self):
        n_cases = 0
        with tempfile.TemporaryDirectory() as folder:
            template, request = pathlib.Path(folder, "t.jinja"), pathlib.Path(folder, "r.json")
            for name in ("plain", "macros"):
                data = json.loads((DATA / "goldens" / "jinja" / f"{name}.json").read_text(encoding="utf-8"))
                template.write_text(data["chat_template"], encoding="utf-8")
                for case in data["cases"]:
                    request.write_text(case.get("raw_request") or json.dumps(case["request"]), encoding="utf-8")
                    args = ("template", "-m", LLAMA, "--messages", request, "--chat-template-file", template)
                    if case["status"] == 200:
                        self.assertEqual(self.good(*args).decode(), case["prompt"], f"{name} {case['name']}")
                    else:
                        self.bad(1, "tessera: .", *args)
                    n_cases += 1
        self.assertGreater(n_cases, 40)

    def test_a_template_is_given_as_text_or_by_name(self):
        request = b'{"messages":[{"role":"user","content":"x"}]}'
        def prompt(*args):
            return self.good("template", "-m", LLAMA, "--messages", "-", *args, stdin=request).decode()
        self.assertEqual(prompt("--chat-template", "<{{ messages[0].content }}>"), "<x>")
        self.assertEqual(prompt("--chat-template", "chatml"), "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")
        refused = ("template", "-m", LLAMA, "--messages", "-", "--chat-template")
        self.bad(2, "--chat-template llama3: tessera knows the name chatml alone", *refused, "llama3", stdin=request)
        self.bad(2, "--chat-template: ", *refused, "{{ x", stdin=request)
        self.bad(2, "give one", *refused, "chatml", "--chat-template-file", "no/such", stdin=request)

    def test_a_templates_own_error_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            template = pathlib.Path(folder, "t.jinja")
            template.write_text("{{ raise_exception('only one message, please') }}", encoding="utf-8")
            self.bad(1, "only one message, please", "template", "-m", LLAMA, "--messages", "-", "--chat-template-file",
                     template, stdin=b'{"messages":[{"role":"user","content":"x"}]}')

    def test_errors(self):
        self.bad(1, "JSON", "template", "-m", LLAMA, "--messages", "-", stdin=b"not json")
        self.bad(2, "--messages", "template", "-m", LLAMA)
        self.bad(1, "no/such", "template", "-m", LLAMA, "--messages", "no/such")


class Logits(CliTest):
    def compare(self, found, wanted, bound):
        self.assertEqual(set(found) ^ set(wanted), set())
        for key in ("min", "max", "mean", "rms", "lse"):
            self.assertAlmostEqual(found[key], wanted[key], delta=bound)
        self.assertEqual([t[0] for t in found["top"]], [t[0] for t in wanted["top"]])
        for (_, a), (_, b) in zip(found["top"], wanted["top"]):
            self.assertAlmostEqual(a, b, delta=bound)

    def test_overridden_metadata(self):
        def digest(*flags):
            return self.good_json("logits", "-m", LLAMA, "--tokens", "1,2,3,4,5,6,7,8", *flags)["last"]["data"]
        plain = digest()
        self.assertEqual(digest("--rope-freq-base", "0", "--rope-scaling", "none", "--rope-scale", "8"), plain)
        for flags, override in ((["--rope-freq-base", "500"], ".rope.freq_base=float:500"),
                                (["--rope-freq-scale", "0.5"], ".rope.scaling.factor=float:2")):
            changed = digest(*flags)
            self.assertNotEqual(changed, plain)
            self.assertEqual(digest("--override-kv", override), changed)

    def test_schema_and_values_of_the_reference(self):
        for name in ("tiny-llama", "tiny-qwen3"):
            reference = golden(name)
            tokens = reference["greedy"]["tokens"]
            found = self.good_json("logits", "-m", TINY / f"{name}.gguf", "--tokens", comma(reference["prompt"]), "-n",
                                   len(tokens), *EXACT)
            self.assertEqual(found["format"], "logit-golden-1")
            for key in ("model", "arch", "n_vocab", "n_layer", "n_embd", "n_head", "n_head_kv", "kv", "prompt"):
                self.assertEqual(found[key], reference[key])
            self.assertEqual(len(found["positions"]), len(reference["prompt"]))
            for mine, its in zip(found["positions"], reference["positions"]):
                self.compare(mine, its, 1e-3)
                if "next" in its:
                    self.assertAlmostEqual(mine["next"], its["next"], delta=1e-3)
            self.assertEqual(found["last"]["encoding"], "f32le-base64")
            self.assertEqual(len(found["last"]["data"]), len(reference["last"]["data"]))
            self.assertEqual(found["greedy"]["tokens"], tokens)
            for mine, its in zip(found["greedy"]["steps"], reference["greedy"]["steps"], strict=True):
                self.compare(mine, its, 1e-3)
            self.assertEqual(found["n_rows"], len(reference["prompt"]) + len(tokens) - 1)
            self.assertRegex(found["logits_sha256"], "^[0-9a-f]{64}$")

    def test_every_placement_has_the_same_bits(self):
        args = ["logits", "-m", LLAMA, "--tokens", "1,2,3,4,5", "--tokens", "7,8", "-p", "hello", "-n", "4", "--cuts", "2"]
        whole = self.good_json(*args)
        self.assertEqual([len(s["greedy"]["tokens"]) for s in whole["sequences"]], [4, 4, 4])
        for split in ("layer", "tensor"):
            other = self.good_json(*args, "--device", "cpu:0,cpu:1", "-sm", split, "-t", "2")
            self.assertEqual(other["placement"]["split_mode"], split)
            self.assertEqual([d["name"] for d in other["devices"]], ["cpu:0", "cpu:1"])
            self.assertTrue(all(d["weight_bytes"] > 0 and d["kv_bytes"] > 0 for d in other["devices"]))
            self.assertGreater(other["stats"]["n_copies"], 0)
            self.assertEqual(other["stats"]["n_cuts"], 2)
            self.assertEqual(other["logits_sha256"], whole["logits_sha256"])
            self.assertEqual([s["logits_sha256"] for s in other["sequences"]],
                             [s["logits_sha256"] for s in whole["sequences"]])
        other_text = self.good_json(*args[:-3], "4", "--cuts", "2", "--force", "9")
        self.assertNotEqual(other_text["logits_sha256"], whole["logits_sha256"])

    def test_sequences_of_one_batch_do_not_see_each_other(self):
        alone = self.good_json("logits", "-m", LLAMA, "--tokens", "7,8,9", "-n", "3", *EXACT)
        both = self.good_json("logits", "-m", LLAMA, "--tokens", "1,2", "--tokens", "7,8,9", "-n", "3", *EXACT)
        self.assertEqual(both["sequences"][1]["greedy"]["tokens"], alone["greedy"]["tokens"])
        for mine, its in zip(both["sequences"][1]["positions"], alone["positions"]):
            self.compare(mine, its, 1e-4)

    def test_small_batches_change_nothing_that_matters(self):
        args = ["logits", "-m", LLAMA, "--tokens", comma(range(1, 41)), "-n", "3", *EXACT]
        whole, pieces = self.good_json(*args), self.good_json(*args, "-b", "7", "-ub", "3")
        self.assertEqual(pieces["n_rows"], whole["n_rows"])
        for mine, its in zip(pieces["positions"], whole["positions"], strict=True):
            self.compare(mine, its, 1e-4)

    def test_forced_ids_are_fed(self):
        prompt, forced = [1, 2, 3], [9, 8, 7, 6]
        steps = self.good_json("logits", "-m", LLAMA, "--tokens", comma(prompt), "-n", "4", "--force", comma(forced), *EXACT)
        self.assertEqual(steps["greedy"]["fed"], forced)
        at_once = self.good_json("logits", "-m", LLAMA, "--tokens", comma(prompt + forced[:3]), *EXACT)
        self.assertEqual(steps["greedy"]["tokens"], [p["argmax"] for p in at_once["positions"][2:]])
        partly = self.good_json("logits", "-m", LLAMA, "--tokens", "1,2,3", "-n", "3", "--force", "9", *EXACT)
        self.assertEqual(partly["greedy"]["fed"], [9] + partly["greedy"]["tokens"][1:])

    def test_inputs_and_output_as_files(self):
        with tempfile.TemporaryDirectory() as folder:
            ids, out = pathlib.Path(folder, "ids"), pathlib.Path(folder, "out.json")
            ids.write_text("1, 2\n3\t4", encoding="utf-8")
            self.assertEqual(self.good("logits", "-m", LLAMA, "--tokens-file", ids, "--top", "3", "--json", out), b"")
            found = json.loads(out.read_text(encoding="utf-8"))
            self.assertEqual(found["prompt"], [1, 2, 3, 4])
            self.assertEqual({len(p["top"]) for p in found["positions"]}, {3})
            self.assertEqual(found["greedy"], {"tokens": [], "steps": []})
            self.bad(1, "no/folder", "logits", "-m", LLAMA, "--tokens", "1", "--json", "no/folder/out.json")
            ids.write_text("1,-2", encoding="utf-8")
            self.bad(1, "'-2' at byte 2 is no token id", "logits", "-m", LLAMA, "--tokens-file", ids)

    def test_errors(self):
        self.bad(2, "nothing to decode", "logits", "-m", LLAMA)
        self.bad(2, "--force is given 2 times", "logits", "-m", LLAMA, "--tokens", "1", "--force", "1", "--force", "2")
        self.bad(1, "token id 288 is not in the vocabulary of 288", "logits", "-m", LLAMA, "--tokens", "1,288")
        self.bad(1, "token id 2147483647", "logits", "-m", LLAMA, "--tokens", "4294967295")
        self.bad(1, "--force: id 999", "logits", "-m", LLAMA, "--tokens", "1", "-n", "1", "--force", "999")
        self.bad(1, "raise --ctx-size", "logits", "-m", LLAMA, "--tokens", "1,2,3", "-c", "2")
        self.bad(1, "no tokens", "logits", "-m", LLAMA, "-p", "")


class Run(CliTest):
    GREEDY = ["--temp", "0", "--no-conversation", "-n", "24"]

    def test_json_has_what_programs_read(self):
        found = self.good_json("run", "-m", LLAMA, "-p", "hello", *self.GREEDY, *EXACT, "--json", "--ignore-eos")
        self.assertEqual(found["prompt_tokens"], self.good_json("tokenize", "-m", LLAMA, "--json", "hello")["tokens"])
        self.assertEqual(found["stop"], "limit")
        self.assertEqual(len(found["tokens"]), 24)
        timings = found["timings"]
        self.assertEqual((timings["cache_n"], timings["prompt_n"], timings["predicted_n"]), (0, 3, 24))
        for part in ("prompt", "predicted"):
            for name in ("ms", "per_token_ms", "per_second"):
                self.assertGreater(timings[f"{part}_{name}"], 0)
        self.assertEqual(found["placement"]["split_mode"], "layer")
        self.assertEqual(found["devices"][0]["name"], "cpu:0")
        for name in ("weight_bytes", "kv_bytes", "scratch_bytes", "n_tiles", "budget_bytes"):
            self.assertGreater(found["devices"][0][name], 0)
        steps = self.good_json("logits", "-m", LLAMA, "--tokens", comma(found["prompt_tokens"]), "-n", "24", *EXACT)
        if not any(t >= 284 for t in steps["greedy"]["tokens"]):  # no end token, which run was told to leave out
            self.assertEqual(found["tokens"], steps["greedy"]["tokens"])

    def test_streamed_text_is_the_text(self):
        # Bytes drawn nearly at random: most of them begin or end in the middle of characters.
        args = ["run", "-m", LLAMA, "-p", "x", "-no-cnv", "-n", "400", "--temp", "9", "--top-k", "0", "--top-p", "1",
                "--min-p", "0", "--seed", "5", "--ignore-eos"]
        streamed = self.good(*args)
        found = self.good_json(*args, "--json")
        self.assertEqual(len(found["tokens"]), 400)
        self.assertEqual(found["seed"], 5)
        self.assertEqual(streamed[-1:], b"\n")
        exact = self.good("tokenize", "-m", LLAMA, "--detokenize", comma(t for t in found["tokens"] if t < 284))
        self.assertTrue(exact.startswith(streamed[:-1]))
        self.assertLess(len(exact) - len(streamed[:-1]), 4)  # a character left unfinished at the end
        self.assertEqual(streamed, self.good(*args), "one seed, one text")

    def test_ends_told(self):
        done = run("run", "-m", LLAMA, "-p", "hello", *self.GREEDY)
        message = done.stderr.decode()
        for pattern in (r"loaded .*tiny-llama\.gguf \(llama", r"prompt +3 tokens", r"generation +\d+ tokens", "ended by: ",
                        r"device +weights MiB +KV MiB +state MiB +scratch MiB", r"cpu:0 +"):
            self.assertRegex(message, pattern)

    def test_prompt_from_file_and_pipe(self):
        wanted = self.good("run", "-m", LLAMA, "-p", "hello", *self.GREEDY)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"hello\n")
            file.flush()
            self.assertEqual(self.good("run", "-m", LLAMA, "-f", file.name, *self.GREEDY), wanted)
        self.assertEqual(self.good("run", "-m", LLAMA, *self.GREEDY, stdin=b"hello"), wanted)

    def test_conversation_uses_the_template(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}<|im_end|>")
            file.flush()
            args = ["run", "-m", LLAMA, "-p", "a<|im_end|>", "-n", "0", "--json", "--chat-template-file", file.name]
            ids = self.good_json(*args, "-sys", "be")["prompt_tokens"]
            text = self.good("tokenize", "-m", LLAMA, "--detokenize", comma(ids)).decode()
            self.assertEqual(text, "system=be;user=a<|im_end|>;<|im_end|>")
            self.assertEqual(sum(t >= 284 for t in ids), 1, "what a user writes is never a special token")

    def test_stop_words(self):
        args = ["run", "-m", LLAMA, "-p", "hello", *self.GREEDY, "--ignore-eos", "--json"]
        text = self.good_json(*args)["text"]
        word = re.search("[ -~]{2}", text)[0]
        found = self.good_json(*args, "--stop", "never to be seen", "--stop", word)
        self.assertEqual((found["stop"], found["stop_word"]), ("word", word))
        self.assertEqual(found["text"], text[:text.index(word)])
        escaped = "".join(f"\\x{ord(c):02x}" for c in word)
        self.assertEqual(self.good_json(*args, "-r", escaped)["text"], found["text"])
        self.assertEqual(self.good_json(*args, "-r", escaped, "--no-escape")["text"], text)

    def test_sampling_settings_are_reported_and_obeyed(self):
        args = ["run", "-m", LLAMA, "-p", "hello", "-no-cnv", "-n", "8", "--json"]
        settings = self.good_json(*args, "--seed", "1")["generation_settings"]
        self.assertEqual(settings["samplers"], ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p",
                                                "xtc", "temperature"])
        self.assertEqual((settings["top_k"], settings["repeat_penalty"]), (40, 1.0))
        found = self.good_json(*args, "-l", "65+1000", "--samplers", "top-k", "--top-k", "1", "--temp", "9")
        self.assertEqual(found["tokens"], [65] * 8)  # without its step the temperature has no effect
        self.assertEqual(found["generation_settings"]["logit_bias"], [[65, 1000.0]])
        found = self.good_json(*args, "--logit-bias", "65+1000", "--frequency-penalty", "2000", "--temp", "0")
        self.assertEqual(len(set(found["tokens"])), 8)
        self.bad(1, "--logit-bias: there is no token 99999", *args, "-l", "99999+1")
        self.bad(2, "--sampling-seq: 'q' is no sampling step", *args, "--sampling-seq", "kqt")

    def test_a_models_recommended_settings_come_before_the_defaults(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "m.gguf")
            model.write_bytes(with_metadata(LLAMA, {"general.sampling.temp": 0.0, "general.sampling.top_k": 7.0,
                                                    "general.sampling.top_p": 7.0}))
            args = ["run", "-m", model, "-p", "hello", "-no-cnv", "-n", "8", "--json", "--top-k", "40"]
            done = run(*args)
            self.assertIn(b"general.sampling.top_p is left out: top_p is 7", done.stderr)
            found = json.loads(done.stdout)
            settings = found["generation_settings"]
            self.assertEqual((settings["temperature"], settings["top_k"]), (0, 40))
            self.assertEqual(found["tokens"], self.good_json(*args, "--temp", "0")["tokens"])
            self.assertEqual(self.good_json(*args, "--temp", "0.5")["generation_settings"]["temperature"], 0.5)

    def test_two_devices_give_the_same_answer(self):
        answers = {self.good("run", "-m", LLAMA, "-p", "hello", *self.GREEDY, "--cuts", "2", *flags)
                   for flags in ([], ["--device", "cpu:0,cpu:1"], ["--device", "cpu:0,cpu:1", "-sm", "tensor"],
                                 ["--device", "cpu:0,cpu:1", "-sm", "tensor", "-ts", "0,1"])}
        self.assertEqual(len(answers), 1)

    def test_context_full(self):
        found = self.good_json("run", "-m", LLAMA, "-p", "hello", "-no-cnv", "-c", "32", "--ignore-eos", "--json")
        self.assertEqual(found["stop"], "context_full")
        self.bad(1, "the prompt has 40 tokens and the context holds 32.*raise --ctx-size", "run", "-m", LLAMA, "-p", "x" * 40,
                 "-no-cnv", "-c", "32")

    def test_a_full_context_is_shifted_where_asked(self):
        args = ("run", "-m", LLAMA, "-p", "hello there", "-no-cnv", "-c", "32", *self.GREEDY, "-n", "70", "--cuts", "2", "--keep", "3",
                "--ignore-eos", "--context-shift", "--json")
        found = self.good_json(*args)
        self.assertEqual((found["stop"], len(found["tokens"])), ("limit", 70))
        self.assertGreaterEqual(found["n_shifts"], 3)
        self.assertEqual(self.good_json(*args, "--device", "cpu:0,cpu:1", "-sm", "tensor")["tokens"], found["tokens"])
        self.assertNotEqual(self.good_json(*args, "--keep", "-1")["tokens"], found["tokens"])
        self.assertEqual(self.good_json(*args, "--no-context-shift")["stop"], "context_full")
        self.assertEqual(self.good_json(*args, "-n", "-2")["stop"], "context_full")

    def test_a_prompt_cache_spares_what_prompts_have_in_common(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "cache"
            def ask(prompt, *flags, model=LLAMA):
                found = self.good_json("run", "-m", model, "-p", prompt, "-no-cnv", *self.GREEDY, "-n", "6", "--ignore-eos", "--json",
                                       *flags)
                return found["tokens"], found["timings"]["cache_n"]
            cache = ("--prompt-cache", file)
            first = "once upon a time"
            plain, n_first = ask(first)[0], len(self.good_json("run", "-m", LLAMA, "-p", first, "-no-cnv", "-n", "0", "--json")
                                                ["prompt_tokens"])
            self.assertEqual(ask(first, *cache, "--prompt-cache-ro"), (plain, 0))
            self.assertFalse(file.exists())
            self.assertEqual(ask(first, *cache), (plain, 0))
            saved = file.read_bytes()
            self.assertEqual(ask(first, *cache), (plain, n_first - 1))  # the last one is read for its logits
            self.assertEqual(file.read_bytes(), saved)
            longer = first + ", far away"
            self.assertEqual(ask(longer, *cache, "--prompt-cache-ro"), (ask(longer)[0], n_first))
            self.assertEqual(file.read_bytes(), saved)
            # Saved under one placement, used under another.
            self.assertEqual(ask(longer, *cache, "--cuts", "2"), (ask(longer, "--cuts", "2")[0], n_first))
            self.assertGreater(len(file.read_bytes()), len(saved))
            other = ("--device", "cpu:0,cpu:1", "-sm", "tensor")
            self.assertGreater(ask(longer, *cache, *other)[1], n_first)
            before = len(file.read_bytes())
            ask(longer, *cache, "--prompt-cache-all")
            self.assertGreater(len(file.read_bytes()), before)
            good = file.read_bytes()
            command = ("run", "-p", first, *cache)
            self.bad(1, "--prompt-cache.*another model.*; delete the file or name another$", *command, "-m", GEMMA)
            self.bad(1, "keys as f16.*--cache-type-k", *command, "-m", LLAMA, "-ctk", "f32")
            file.write_bytes(good[:-8])
            self.bad(1, "cut short.*; delete the file or name another$", *command, "-m", LLAMA)
            file.write_bytes(b"something else that is long enough to have had a header of sixty-four bytes")
            self.bad(1, "no saved state.*; delete the file or name another$", *command, "-m", LLAMA)
            self.assertTrue(file.read_bytes().startswith(b"something else"))
            self.assertEqual(os.listdir(folder), ["cache"])
            nowhere = os.path.join(folder, "no", "cache")
            self.bad(1, f"--prompt-cache: cannot create '{nowhere}': No such file", "run", "-p", first, "-m", "no/such.gguf",
                     "--prompt-cache", nowhere)
            self.bad(2, "needs --prompt-cache", "run", "-m", LLAMA, "-p", "x", "--prompt-cache-all")
            self.bad(2, "use one", "run", "-m", LLAMA, "-p", "x", *cache, "--prompt-cache-all", "--prompt-cache-ro")

    def test_a_terminal_shows_how_far_a_long_prompt_is(self):
        def messages(prompt):
            ours, theirs = pty.openpty()
            with os.fdopen(ours, "rb", buffering=0) as terminal:
                with os.fdopen(theirs, "wb", buffering=0) as stderr:
                    subprocess.run([cli_support.PROGRAM, "run", "-m", LLAMA, "-p", prompt, "-no-cnv", "-n", "1", "-ub", "16"], stderr=stderr,
                                   stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True, timeout=TIMEOUT_S)
                seen = b""
                while b"kernels" not in seen:  # the last line
                    seen += terminal.read(1 << 16)
            return seen
        self.assertRegex(messages("word " * 20), rb"\rreading the prompt \[#+\.+\] +\d+ %(?s:.)*\r\x1b\[K(?s:.)*ended by")
        self.assertNotIn(b"reading the prompt", messages("word"))

    def test_threads_on_chosen_cpus_give_the_same_answer(self):
        cpus = sorted(os.sched_getaffinity(0))
        args = ["run", "-m", LLAMA, "-p", "hi", "-n", "8", "--seed", "1", "-c", "64", "--json"]
        wanted = self.good_json(*args)["tokens"]
        for flags in (["-C", f"{1 << cpus[0]:x}"], ["-Cr", f"{cpus[-1]}-{cpus[-1]}", "-t", "2"], ["--cpu-strict", "1"],
                      ["--numa", "distribute"], ["--numa", "isolate"], ["--numa", "numactl"]):
            self.assertEqual(self.good_json(*args, *flags)["tokens"], wanted, flags)
        one = str(cpus[0])
        for more, reason in (([], "those that share a CPU wait"), (["--cpu-strict", "1"], "--cpu-strict cannot give each a CPU")):
            done = run(*args, "-Cr", f"{one}-{one}", "-t", "2", *more)
            self.assertRegex(done.stderr.decode(), f"--threads asks for 2 threads, and 1 can run at once, CPUs {one}; {reason}")
        there_are = "there are CPUs [0-9,-]+$"
        self.bad(1, "--cpu-mask 0x1[0]+ names CPUs 4000; " + there_are, *args, "--cpu-mask", "0x1" + 1000 * "0")
        self.bad(1, "--cpu-mask 'all' is no hexadecimal number.*" + there_are, *args, "-C", "all")
        self.bad(1, "--cpu-range '1' is no range.*" + there_are, *args, "--cpu-range", "1")
        self.bad(2, "--numa.*everywhere", *args, "--numa", "everywhere")

    def test_threads_have_one_limit(self):
        run_args = ["run", "-m", LLAMA, "-p", "hi", "-n", "1", "-c", "64", "-t"]
        bench_args = ["bench", "-m", LLAMA, "-p", "4", "-n", "0", "-r", "1", "-o", "jsonl", "-t"]
        batched_args = ["batched-bench", "-m", LLAMA, "-npp", "4", "-ntg", "1", "-npl", "1", "--output-format", "jsonl", "-t"]
        self.bad(2, "1025 is out of range .*1024", *run_args, "1025")
        self.bad(2, "--threads is 1025; it must be at most 1024", *bench_args, "1025")
        usable = {json.loads(self.good(*args, n))["n_threads"] for args in (bench_args, batched_args) for n in ("-1", "0")}
        self.assertEqual(len(usable), 1)
        self.assertGreaterEqual(usable.pop(), 1)
        for args in (bench_args, batched_args):
            self.assertEqual(json.loads(self.good(*args, "3"))["n_threads"], 3)
        for n in ("-1", "0"):
            self.good(*run_args, n)

    def test_familiar_flags_are_explained(self):
        done = run("run", "-m", LLAMA, "-p", "x", "-n", "1", "-no-cnv", "-sm", "row", "-ngl", "99")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), "row is called tensor")
        self.assertRegex(done.stderr.decode(), "-ngl has no effect.*--device")

    def interrupted(self, *extra, streams=True):
        """The process after one Ctrl-C, sent once text comes, or else once it works."""
        args = [cli_support.PROGRAM, "run", "-m", LLAMA, "-p", "x", "-no-cnv", "-c", "1000000", "--ignore-eos", "--temp", "0", "-v", *extra]
        # Whoever started the tests may ignore the signal, and that is inherited.
        hears = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hears) as process:
            seen = b""
            while b"the prompt has" not in seen:
                line = process.stderr.readline()
                self.assertTrue(line, seen.decode())
                seen += line
            first = process.stdout.read(1) if streams else b""
            process.send_signal(signal.SIGINT)
            out, message = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, first + out, message.decode()

    def test_ctrl_c_ends_a_generation_cleanly(self):
        status, out, message = self.interrupted()
        self.assertEqual(status, 130, message)   # so that a script does not go on with half an answer
        self.assertEqual(out[-1:], b"\n")
        self.assertIn("ended by: cancelled", message)
        status, out, message = self.interrupted("--json", streams=False)
        self.assertEqual(status, 130, message)
        self.assertEqual(json.loads(out)["stop"], "cancelled")

    def test_a_file_without_a_vocabulary_is_an_error_where_text_is_needed(self):
        model = str(DATA / "models/llama-q4_k.gguf")
        pattern = "llama-q4_k.gguf.*tokenizer"
        self.bad(1, pattern, "run", "-m", model, "-p", "x", "-n", "2")
        self.bad(1, pattern, "chat", "-m", model, stdin=b"x\n")
        self.bad(1, pattern, "perplexity", "-m", model, "-f", "-", stdin=b"x" * 4000)
        self.bad(1, pattern, "logits", "-m", model, "-p", "x")
        self.assertEqual(len(self.good_json("logits", "-m", model, "--tokens", "1,2,3", "-n", "1")["positions"]), 3)

    def test_too_little_memory_or_threads_is_an_error(self):
        if is_sanitized():
            self.skipTest("a sanitizer reserves more address space than the limits allow")
        for limit in range(150, 1200, 150):
            limited = lambda: resource.setrlimit(resource.RLIMIT_AS, (limit << 20, limit << 20))
            done = subprocess.run([cli_support.PROGRAM, "logits", "-m", LLAMA, "--tokens", "1,2", "-n", "1", "-t", "32"],
                                  capture_output=True, timeout=TIMEOUT_S, preexec_fn=limited)
            self.assertIn(done.returncode, (0, 1), f"{limit} MiB: {done.stderr.decode(errors='replace')}")

    def test_a_pipe_is_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            writer = subprocess.Popen(["sh", "-c", f"printf hello > {path}"])
            self.assertEqual(self.good_json("tokenize", "-m", LLAMA, "--json", "-f", path),
                             self.good_json("tokenize", "-m", LLAMA, "--json", "hello"))
            writer.wait()

    def test_escapes_in_a_prompt(self):
        def ids(prompt, *flags):
            return self.good_json("run", "-m", LLAMA, "-no-cnv", "-n", "1", "--json", "-p", prompt, *flags)["prompt_tokens"]
        self.assertEqual(ids(r"a\nb\x41\q\\"), ids("a\nbA\\q\\", "--no-escape"))
        self.assertNotEqual(ids(r"a\nb"), ids(r"a\nb", "-no-e"))

    def test_an_empty_prompt_is_an_error(self):
        for args in (["-p", ""], ["-f", os.devnull], []):
            self.bad(1, "prompt is empty.*--prompt", "run", "-m", LLAMA, *args)

    def test_what_cannot_be_written_is_an_error(self):
        if os.path.exists("/dev/full"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([cli_support.PROGRAM, "run", "-m", LLAMA, "-p", "x", "-n", "4", "-no-cnv"], stdout=full,
                                      stderr=subprocess.PIPE, timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"cannot write to standard output", done.stderr)

    def test_what_cannot_be_written_ends_the_generation_and_is_kept_in_the_cache(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        with tempfile.TemporaryDirectory() as folder, open("/dev/full", "wb") as full:
            ask = ["run", "-m", LLAMA, "-p", "once upon a time", "-no-cnv", *self.GREEDY, "--ignore-eos",
                   "--prompt-cache", os.path.join(folder, "cache")]
            done = subprocess.run([cli_support.PROGRAM, *map(str, ask), "-n", "200", "--prompt-cache-all"], stdout=full,
                                  stderr=subprocess.PIPE, timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"cannot write to standard output", done.stderr)
            again = run(*ask, "-n", "0", "-v", "--prompt-cache-ro").stderr.decode()
            n_held, n_prompt = map(int, re.search(r"cache .* holds (\d+) tokens, of which (\d+) begin the prompt", again).groups())
            self.assertGreater(n_prompt, 4)
            self.assertLess(n_held, n_prompt + 20)


class Chat(CliTest):
    ARGS = ["-n", "8", "--temp", "0", "--ignore-eos"]

    def test_turns_reuse_what_the_context_holds(self):
        for model in (LLAMA, GEMMA):
            done = run("chat", "-m", model, *self.ARGS, stdin=b"hello\nand more\n/clear\n\nhello\n/exit\nnot reached\n")
            message = done.stderr.decode()
            self.assertEqual(done.returncode, 0, message)
            speeds = re.findall(r"prompt +(\d+) tokens.*?tokens/s(?:, (\d+) more from the cache)?\n", message)
            self.assertEqual(len(speeds), 3, message)
            self.assertEqual(speeds[0], speeds[2])  # /clear: as in the beginning
            self.assertGreater(int(speeds[1][1]), 10)
            self.assertEqual(message.count("ended by: limit"), 3)

    def test_first_answer_is_that_of_run(self):
        chat = self.good("chat", "-m", LLAMA, *self.ARGS, "-sys", "be brief", stdin=b"hello")
        self.assertEqual(chat, self.good("run", "-m", LLAMA, *self.ARGS, "-sys", "be brief", "-p", "hello", "-cnv"))

    def test_what_stands_in_for_a_template_ends_answers_that_spell_its_end(self):
        args = ["-m", GEMMA, "-n", "64", "--temp", "0", "--grammar", 'root ::= "Hi<|im_end|>there"']
        self.assertEqual(self.good("chat", *args, stdin=b"hello"), b"Hi\n")
        self.assertEqual(self.good("run", *args, "-p", "hello", "-cnv"), b"Hi\n")
        self.assertEqual(self.good("run", *args, "-p", "hello", "--chat-template", "chatml"), b"Hi\n")
        for flags in (("-no-cnv",), ("-cnv", "--ignore-eos"), ("--chat-template", "{{ messages[0].content }}")):
            self.assertEqual(self.good("run", *args, "-p", "hello", *flags)[:19], b"Hi<|im_end|>there\n")

    def test_a_full_context_is_an_error_in_a_pipe(self):
        done = run("chat", "-m", LLAMA, *self.ARGS, "-c", "32", stdin=b"a long message that does not fit\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"raise --ctx-size", done.stderr)


    def test_a_conversation_outgrows_the_context_where_shifts_are_allowed(self):
        done = run("chat", "-m", LLAMA, *self.ARGS, "-c", "96", "--context-shift", "--keep", "4", stdin=b"hello\n" * 5)
        message = done.stderr.decode()
        self.assertEqual(done.returncode, 0, message)
        self.assertEqual(message.count("ended by: limit"), 5)
        self.assertRegex(message, r"the conversation has \d+ tokens; \d+ behind the first \d are left out")


class Perplexity(CliTest):
    def test_is_that_of_the_logits(self):
        text = "".join(chr(97 + i * 7 % 26) for i in range(70))
        found = self.good_json("perplexity", "-m", LLAMA, "-f", "-", "-c", "32", "--json", *EXACT, stdin=text.encode())
        self.assertEqual((found["n_chunks"], found["n_scored"]), (2, 30))
        surprise = 0.0
        for chunk in (text[:32], text[32:64]):
            logits = self.good_json("logits", "-m", LLAMA, "--tokens", comma(chunk.encode()), *EXACT)
            surprise -= sum(p["next"] for p in logits["positions"][16:31])
        self.assertAlmostEqual(math.log(found["ppl"]), surprise / 30, delta=1e-4)
        self.assertEqual(found["running_ppl_by_chunk"][-1], found["ppl"])
        told = run("perplexity", "-m", LLAMA, "-f", "-", "-c", "32", "-v", stdin=text.encode()).stderr.decode()
        self.assertRegex(told, r"chunk 1 of 2; about \d+ s to go\n.*chunk 2 of 2; about 0 s to go\n")
        first = self.good_json("perplexity", "-m", LLAMA, "-f", "-", "-c", "32", "--chunks", "1", "--json", *EXACT, stdin=text.encode())
        self.assertEqual(first["running_ppl_by_chunk"], found["running_ppl_by_chunk"][:1])
        for all_of_them in ("-1", "3"):
            args = ("perplexity", "-m", LLAMA, "-f", "-", "-c", "32", "--chunks", all_of_them, *EXACT)
            printed = self.good(*args, stdin=text.encode()).decode()
            self.assertIn(f"\nFinal estimate: PPL = {found['ppl']:.4f} +/- {found['error']:.5f}\n", printed)

    def test_errors(self):
        self.bad(1, "the text has 3 tokens and one chunk 512", "perplexity", "-m", LLAMA, "-f", "-", stdin=b"hello")
        self.bad(2, "--file", "perplexity", "-m", LLAMA)
        self.bad(2, "--chunks 0 scores nothing", "perplexity", "-m", LLAMA, "-f", "-", "--chunks", "0", stdin=b"hello")


class Embedding(CliTest):
    GOLDEN = json.loads((ROOT / "tests/data/goldens/embeddings.jsonl").read_text(encoding="utf-8").split("\n")[0])
    ARGS = ["embedding", "-m", LLAMA, "-c", "64", *EXACT]

    def near(self, found, expected):
        self.assertEqual(len(found), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 1e-4)

    def test_is_the_references(self):
        text = self.GOLDEN["text"]
        for pooling in ("none", "mean", "last"):
            rows = self.good_json(*self.ARGS, "-p", text, "--pooling", pooling, "--embd-normalize", "-1",
                                  "--embd-output-format", "array", "-b", "4")
            self.assertEqual(len(rows), len(self.GOLDEN[pooling]))
            for found, expected in zip(rows, self.GOLDEN[pooling]):
                self.near(found, expected)

    def test_forms(self):
        found = self.good_json(*self.ARGS, "-f", "-", "--embd-output-format", "json+", stdin=b"one\ntwo\n\none\n")
        rows = [item["embedding"] for item in found["data"]]
        self.assertEqual([item["index"] for item in found["data"]], [0, 1, 2])
        self.assertEqual(rows[0], rows[2])
        self.assertAlmostEqual(sum(x * x for x in rows[0]), 1, delta=1e-5)
        self.assertAlmostEqual(found["cosineSimilarity"][0][1], sum(a * b for a, b in zip(*rows[:2])), delta=1e-5)
        text = self.good(*self.ARGS, "-p", "one;two", "--embd-separator", ";").decode().splitlines()
        self.assertRegex(text[1], "^embedding 1: ")
        self.near([float(x) for x in text[0].split()[2:]], rows[0])
        raw = self.good(*self.ARGS, "-p", "two", "--embd-output-format", "raw").decode()
        self.near([float(x) for x in raw.split()], rows[1])

    def test_errors(self):
        self.bad(1, "there is no text; give one with --prompt or --file", *self.ARGS)
        self.bad(1, r"has 1\d\d tokens and the context holds 64;", *self.ARGS, "-p", "~" * 120)
        self.bad(2, "none, mean, last", *self.ARGS, "-p", "x", "--pooling", "median")


class Bench(CliTest):
    def test_every_combination_once_with_the_familiar_fields(self):
        rows = self.good_json("bench", "-m", LLAMA, "-p", "8,16", "-n", "4", "-pg", "8,2", "-d", "0,20", "-r", "2", "-o", "json",
                              "-dev", "cpu:0,cpu:0/cpu:1", "-sm", "layer,tensor", "-ctk", "f16,f32", "-t", "2")
        self.assertEqual(len(rows), 2 * 2 * 2 * 2 * 4)
        tests = {(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in rows}
        self.assertEqual(tests, {(p, g, d) for p, g in ((8, 0), (16, 0), (0, 4), (8, 2)) for d in (0, 20)})
        for row in rows:
            self.assertEqual(len(row["samples_ns"]), 2)
            self.assertAlmostEqual(row["avg_ts"], sum(row["samples_ts"]) / 2, places=6)
            n = row["n_prompt"] + row["n_gen"]
            self.assertAlmostEqual(row["samples_ts"][0] * row["samples_ns"][0] / 1e9 / n, 1, places=3)
            for key in ("build_commit", "cpu_info", "model_filename", "model_type", "model_size", "model_n_params", "n_batch",
                        "n_ubatch", "n_threads", "type_k", "type_v", "split_mode", "devices", "tensor_split", "test_time", "stddev_ts"):
                self.assertIn(key, row)
        self.assertEqual({row["devices"] for row in rows}, {"cpu:0", "cpu:0/cpu:1"})

    def test_formats(self):
        args = ["bench", "-m", LLAMA, "-p", "4", "-n", "1-4*2", "-r", "1", "--no-warmup"]
        table, build = self.good(*args).decode().split("\n\n")
        self.assertEqual([line.split("|")[-3].strip() for line in table.splitlines()[2:]], ["pp4", "tg1", "tg2", "tg4"])
        self.assertRegex(build, r"^build: \S+ \(\d+\)$")
        head, *lines = csv.reader(self.good(*args, "-o", "csv").decode().splitlines())
        self.assertEqual([line[head.index("n_gen")] for line in lines], ["0", "1", "2", "4"])
        self.assertEqual(len([json.loads(line) for line in self.good(*args, "-o", "jsonl").splitlines()]), 4)
        with sqlite3.connect(":memory:") as database:
            database.executescript(self.good(*args, "-o", "sql").decode())
            self.assertEqual(database.execute("SELECT n_gen FROM llama_bench ORDER BY rowid").fetchall(),
                             [(0,), (1,), (2,), (4,)])
            kinds = database.execute("SELECT typeof(avg_ts), typeof(n_gen), typeof(flash_attn), typeof(cpu_info) FROM llama_bench")
            self.assertEqual(set(kinds), {("real", "integer", "integer", "text")})

    def test_the_table_shows_what_is_not_the_default(self):
        args = ["bench", "-m", LLAMA, "--override-kv", "general.file_type=int:15", "-p", "4", "-n", "0", "-r", "1", "--no-warmup"]
        head = self.good(*args).decode().splitlines()[0]
        self.assertEqual(head, "| model | size | params | backend | threads | test | t/s |")
        head, _, row, *_ = self.good(*args, "-ctk", "f32", "-ub", "16", "-b", "2048").decode().splitlines()
        self.assertEqual(head, "| model | size | params | backend | threads | n_ubatch | type_k | test | t/s |")
        self.assertIn("| 16 | f32 | pp4 |", row)
        self.assertRegex(row, r"^\| llama .* Q4_K - Medium \|")

    def test_verbose_says_each_run(self):
        args = ["bench", "-m", LLAMA, "-p", "4", "-n", "0", "-r", "2", "--no-warmup"]
        self.assertRegex(run(*args, "-v").stderr.decode(), r"pp4: run 1 of 2: .* tokens/s\n.*pp4: run 2 of 2: ")
        self.assertNotIn(b"run 1", run(*args).stderr)

    def test_advice_is_in_words_of_bench(self):
        args = ["bench", "-m", LLAMA, "-p", "4", "-n", "0", "-r", "1", "--no-warmup"]
        self.bad(1, "Lower --n-depth \\+ --n-prompt \\+ --n-gen", *args, "--device-memory", "64K")
        self.bad(2, "--tensor-split 3,1: .*join the shares", *args, "-dev", "cpu:0,cpu:1", "-ts", "3,1")

    def test_what_was_measured_is_written_before_an_error(self):
        args = ["bench", "-m", LLAMA, "-m", "no/such.gguf", "-p", "4", "-n", "0", "-r", "1", "--no-warmup"]
        for form, n_lines in (("md", 5), ("csv", 2), ("jsonl", 1)):
            done = run(*args, "-o", form)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(done.stdout.splitlines()), n_lines, form)
            self.assertIn(b"no/such.gguf", done.stderr)
        self.assertEqual([row["n_prompt"] for row in json.loads(run(*args, "-o", "json").stdout)], [4])
        self.assertEqual(run(*args[:1], *args[3:]).stdout, b"")

    def test_ctrl_c_leaves_what_was_measured(self):
        """The second test is long; that it runs is seen on a terminal."""
        master, slave = pty.openpty()
        hears = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        args = [cli_support.PROGRAM, "bench", "-m", LLAMA, "-p", "0", "-n", "1,1000000", "-r", "1", "--no-warmup", "-o", "json"]
        with os.fdopen(master, "rb", buffering=0) as terminal, \
             subprocess.Popen(args, stdout=subprocess.PIPE, stderr=slave, preexec_fn=hears) as process:
            os.close(slave)
            seen = b""
            while b"test 2 of 2" not in seen:
                seen += terminal.read(1)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, 130)
            self.assertEqual([row["n_gen"] for row in json.loads(out)], [1])

    def test_wrong_lists_are_named(self):
        for flag, value, pattern in (("-p", "x", "--n-prompt.*'x' is neither"), ("-p", "9-1", "neither"), ("-n", "-3", "at least 0"),
                                     ("-pg", "5", "two numbers"), ("-ctk", "q9", "--cache-type-k.*q9"),
                                     ("-ctv", "f16,q6_k", "--cache-type-v.*q6_k.*q8_0"), ("-ts", "1/y", "'y' is no number"),
                                     ("-b", "0", "at least 1"), ("-d", "1-2000000", "more than 1000")):
            self.bad(2, pattern, "bench", "-m", LLAMA, flag, value)
        self.bad(2, "nothing to time", "bench", "-m", LLAMA, "-p", "0", "-n", "0")
        self.bad(2, "-sm: \"diagonal\" is not one of none, layer, tensor", "bench", "-m", LLAMA, "-sm", "layer,diagonal")
        done = run("bench", "-m", LLAMA, "-p", "4", "-n", "0", "-r", "1", "--no-warmup", "-dev", "cpu:0/cpu:1", "-sm", "row")
        self.assertIn(b"row is called tensor here", done.stderr)
        self.assertIn(b"| tensor |", done.stdout)

    def test_batched(self):
        rows = [json.loads(line) for line in self.good("batched-bench", "-m", LLAMA, "-npp", "8,16", "-ntg", "4", "-npl", "1,3",
                                                       "--output-format", "jsonl").splitlines()]
        self.assertEqual([(row["pp"], row["tg"], row["pl"], row["n_kv"]) for row in rows],
                         [(8, 4, 1, 12), (8, 4, 3, 36), (16, 4, 1, 20), (16, 4, 3, 60)])
        shared = self.good("batched-bench", "-m", LLAMA, "-npp", "8", "-ntg", "4", "-npl", "3", "-pps").decode()
        self.assertEqual([cell.strip() for cell in shared.splitlines()[-1].split("|")[1:5]], ["8", "4", "3", "20"])
        self.bad(2, "-npl", "batched-bench", "-m", LLAMA, "-npp", "8", "-ntg", "4", "-npl", "0")
        prompts = self.good_json("batched-bench", "-m", LLAMA, "-npp", "16", "-ntg", "0", "-npl", "1", "--output-format", "jsonl")
        self.assertEqual((prompts["n_kv"], prompts["tg"]), (16, 0))

    def test_break_even_compares_layer_and_tensor(self):
        common = ("batched-bench", "-m", LLAMA, "-npp", "16", "-ntg", "4", "-t", "2", "--break-even")
        pair = ("--device", "cpu:0,cpu:1")
        out = self.good(*common, *pair, "--output-format", "jsonl", "--switch-ms", "5").decode()
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([row["pl"] for row in rows], [1, 2, 4, 8])
        for row in rows:
            self.assertEqual(row["switch_ms"], 5)
            gain_ms = (row["tensor"]["t_pp"] - row["layer"]["t_pp"]) / 16 * 1e3
            if gain_ms > 0:
                self.assertAlmostEqual(row["break_even_prompt"], 5 / gain_ms, delta=1e-6 * row["break_even_prompt"])
            else:
                self.assertIsNone(row["break_even_prompt"])
        table = self.good(*common, *pair, "-npl", "2", "--sim-link", "1GB/s:1us").decode().splitlines()
        self.assertEqual(len(table), 3)
        self.assertEqual({line.count("|") for line in table}, {13})
        self.bad(2, "several devices", *common)
        self.bad(2, "leave --split-mode out", *common, *pair, "-sm", "layer")
        self.bad(2, "-ntg above 0", *common, *pair, "-ntg", "0")
        self.bad(2, "is no rate", *common, *pair, "--sim-link", "fast")


class Memory(CliTest):
    def setUp(self):
        if is_sanitized():
            self.skipTest("a sanitizer takes memory of its own")

    def peak_bytes(self, *args):
        process = subprocess.Popen([cli_support.PROGRAM, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        message = process.stderr.read().decode(errors="replace")
        process.stderr.close()
        _, status, use = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, message)
        return use.ru_maxrss * 1024

    def test_a_model_takes_no_more_memory_than_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            model = f"{folder}/model.gguf"
            # Large enough that the program itself, some 10 MB of it by what the system maps at once, is no part of the answer.
            n_layer = 16
            file_bytes = q8_0_model(model, n_layer, 1024, 3072, 8192)
            self.assertGreater(file_bytes, 240e6)
            kv_bytes = 2 * n_layer * 64 * 1024 * 2  # K and V of each layer, f16
            peak_bytes = self.peak_bytes("logits", "-m", model, "--tokens", comma(range(16)), "-c", "64", "-t", "2")
        self.assertLess(peak_bytes, 1.1 * file_bytes + kv_bytes)

    def test_neither_does_a_small_one_with_a_large_vocabulary(self):
        n_seen = 0
        for name, n_layer, kv_width in (("smollm2-135m-instruct-q4_1", 30, 192), ("gemma3-270m-q4_k_m", 18, 256)):
            model = ROOT / f"models/{name}.gguf"
            if model.exists():
                n_seen += 1
                peak_bytes = self.peak_bytes("run", "-m", model, "-p", "hi", "-n", "8", "-c", "512", "-no-cnv", "-t", "2")
                self.assertLess(peak_bytes, 1.1 * model.stat().st_size + 2 * n_layer * 512 * kv_width * 2, name)
        if n_seen == 0:
            self.skipTest("no real model is here (scripts/demo.sh brings one)")


class Information(CliTest):
    def test_inspect_reads_every_file(self):
        for file in sorted(TINY.glob("*.gguf")):
            found = self.good_json("inspect", "-m", file, "--json")
            self.assertEqual(found["bytes"], file.stat().st_size)
            self.assertEqual(found["n_tensors"], len(found["tensors"]))
            self.assertIn("general.architecture", found["metadata"])
            self.assertIn(found["metadata"]["general.architecture"], self.good("inspect", "-m", file).decode())
        found = self.good_json("inspect", "-m", LLAMA, "--json")
        tokens = found["metadata"]["tokenizer.ggml.tokens"]
        self.assertEqual((tokens["type"], tokens["count"], len(tokens["first"])), ("string", 288, 8))
        embedding = next(t for t in found["tensors"] if t["name"] == "token_embd.weight")
        self.assertEqual((embedding["type"], embedding["shape"], embedding["bytes"]), ("f32", [64, 288], 64 * 288 * 4))
        self.assertRegex(self.good("inspect", "-m", LLAMA, "--tensors").decode(), r"'token_embd.weight' +f32 +64 x 288 +73728\n")

    def test_devices_and_version(self):
        self.assertEqual(self.good_json("devices", "--json")["devices"][0]["name"], "cpu:0")
        self.assertIn("cpu:0", self.good("devices").decode())
        version = self.good_json("version", "--json")
        self.assertIn("portable", version["cpu_isas"])
        self.assertIn("cpu-scalar", version["kernel_classes"])
        self.assertEqual(self.good("--version"), self.good("version"))
        self.assertIn(f"tessera {version['version']}\n", self.good("version").decode())
        if version["commit"] == "unknown":
            self.assertEqual(version["build_number"], 0)
        else:  # of the history that lies here
            count = subprocess.run(["git", "rev-list", "--count", version["commit"].removesuffix("-changed")],
                                   cwd=ROOT, capture_output=True, text=True, check=True)
            self.assertEqual(version["build_number"], int(count.stdout))

    def test_completions(self):
        script = self.good("help", "--completion", "bash").decode()
        ask = (script + 'COMP_WORDS=(tessera "$@"); COMP_CWORD=$#; _tessera_complete; printf "%s\\n" "${COMPREPLY[@]}"')
        def complete(*words):
            return subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(complete("ben"), ["bench", "bench-switch"])
        self.assertEqual(complete("run", "-m", "x", "-sm", "t"), ["tensor"])
        self.assertEqual(complete("run", "--chat-t"), ["--chat-template", "--chat-template-file"])
        self.assertIn("perplexity", complete("help", "p"))
        for shell in ("zsh", "fish"):
            self.assertIn("perplexity", self.good("help", "--completion", shell).decode())
        self.bad(2, "bash, zsh, fish", "help", "--completion", "tcsh")

    def test_manual_page(self):
        page = self.good("help", "--man").decode()
        self.assertTrue(page.startswith(".TH TESSERA 1"))
        self.assertIn("\\-\\-ctx\\-size", page)
        statuses = page[page.find(".SH EXIT STATUS"):]
        self.assertEqual(re.findall(r"(?m)^\.B (\d+)$", statuses), ["0", "1", "2", "130"])
        self.assertNotRegex(page, r"(?m)^['.](?!TH|SH|TP|PP|B\b)")

    def test_help(self):
        overview = self.good().decode()
        self.assertEqual(overview, self.good("help").decode())
        for command in ("run", "chat", "tokenize", "template", "logits", "embedding", "perplexity", "inspect", "plan", "devices",
                        "version"):
            self.assertIn(f"  {command} ", overview)
            self.assertIn(f"tessera {command}", self.good(command, "--help").decode())
            self.assertEqual(self.good(command, "--help"), self.good("help", command))
        self.assertEqual(self.good("bench", "switch", "--help"), self.good("help", "bench", "switch"))
        self.assertEqual(self.good("help", "bench", "switch"), self.good("help", "bench-switch"))
        self.assertEqual(self.good("help", "--markdown").decode(), (ROOT / "docs/flags.md").read_text(encoding="utf-8"))


class Errors(CliTest):
    def test_usage(self):
        self.bad(2, 'unknown command "rum"; did you mean `tessera run`', "rum")
        self.bad(2, "unknown flag --tmp; did you mean --temp", "run", "-m", LLAMA, "-p", "x", "--tmp", "0")
        self.bad(2, "--model", "run", "-p", "x")
        self.bad(2, "--prompt and --file", "run", "-m", LLAMA, "-p", "x", "-f", "y")
        self.bad(2, "--top-k", "run", "-m", LLAMA, "-p", "x", "--top-k", "many")
        self.bad(2, "--cuts", "run", "-m", LLAMA, "-p", "x", "--cuts", "9")
        self.bad(2, 'unknown command "nonsense"', "help", "nonsense")
        self.bad(2, 'unexpected argument "nonsense"', "help", "bench", "nonsense")

    def test_a_server_that_could_answer_nobody_does_not_begin(self):
        serve = ("serve", "-m", LLAMA, "--port", "0")
        for flag, value, error in (("--grammar", "root ::= <no-token>", "the model has no token"),
                                   ("--chat-template-kwargs", "x", "--chat-template-kwargs x is no JSON object"),
                                   ("--chat-template-file", "no/such", "--chat-template-file: cannot open 'no/such'")):
            done = run(*serve, flag, value)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(error, done.stderr.decode())
        self.bad(2, "the name chatml alone", *serve, "--chat-template", "llama3")
        self.bad(2, "did you mean --ctx-size?", *serve, "--ctx", "100")

    def test_what_is_wrong_with_a_model_is_said_once(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as damaged:
            damaged.write(pathlib.Path(LLAMA).read_bytes()[:3000])
            damaged.flush()
            for path in ("/nothing/there.gguf", damaged.name):
                for command in (["run", "-p", "x"], ["chat"], ["serve", "--port", "0"], ["inspect"], ["bench"]):
                    done = run(*command, "-m", path, stdin=b"")
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertEqual(done.stderr.decode().count(f"'{path}'"), 1, done.stderr)

    def test_flags_from_elsewhere_are_told_together(self):
        done = run("serve", "-hf", "a/b", "--mmproj", "c", "-ngl", "99", "--zzzzzz")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr.decode(), r'^tessera: flag -hf: .*-m FILE\ntessera: flag --mmproj: .*\n'
                                               r"tessera: unknown flag --zzzzzz.*\n$")

    def test_what_llama_cpp_has_is_answered(self):
        for command, words in (("bench", "-oe md --delay 1 --list-devices -embd 1"),
                               ("perplexity", "-f - --ppl-stride 4 --hellaswag --winogrande-tasks 3 --kl-divergence"),
                               ("run", "-p x -i -if -sp --verbose-prompt --in-prefix a -sysf f -bf f -mli --license --tfs 1 "
                                       "--print-token-count 3")):
            done = run(command, "-m", LLAMA, *words.split())
            self.assertEqual(done.returncode, 2)
            lines = done.stderr.decode().splitlines()
            asked = [word for word in words.split() if word.startswith("-") and word not in ("-", "-f", "-p")]
            self.assertEqual([line.split()[2].rstrip(":") for line in lines if "has none like it" in line], asked)
            self.assertEqual(len(lines), len(asked))
        done = run("run", "-m", LLAMA, "-p", "x", "--aaaaaa", "1", "--bbbbbb")
        self.assertEqual(done.stderr.decode().count("unknown flag"), 2)
        self.good("run", "-m", LLAMA, "-p", "x", "-n", "1", "--simple-io", "--no-perf", "-dio", "--no-host", "-fa", "auto")
        self.good("bench", "-m", LLAMA, "-p", "4", "-n", "0", "-r", "1", "--no-warmup", "--mmap", "0", "-mmp", "0,1", "-nkvo", "1", "-nopo",
                  "0", "-fa", "0,1", "--progress", "--no-host", "1", "-dio", "0")
        self.bad(2, "flag -fa: \"maybe\" is not one of on, off, auto", "run", "-m", LLAMA, "-p", "x", "-fa", "maybe")
        self.bad(2, "did you mean -p \"hello\"", "run", "-m", LLAMA, "hello")
        self.bad(2, "needs quotes", "run", "-m", LLAMA, "-p", "two", "words")
        self.bad(2, r"flag -c belongs to `tessera run\|chat\|", "bench", "-m", LLAMA, "-c", "512")

    def test_overrides(self):
        self.bad(2, "--override-kv a=i32:1: 'i32' is none of the types", "run", "-m", LLAMA, "-p", "x", "--override-kv", "a=i32:1")
        self.bad(2, "--override-kv a: wanted KEY=TYPE:VALUE", "serve", "-m", f"a={LLAMA},override-kv=a")
        self.bad(1, "--override-kv .block_count=str:1: the key 'llama.block_count' is u32", "tokenize", "-m", LLAMA,
                 "--override-kv", ".block_count=str:1", "x")

    def test_models(self):
        self.bad(1, "cannot open 'no/such.gguf': No such file", "run", "-m", "no/such.gguf", "-p", "x")
        self.bad(1, "is a folder", "run", "-m", ROOT, "-p", "x")
        self.bad(1, "not a GGUF file", "run", "-m", __file__, "-p", "x")
        self.bad(1, "architecture 'mamba2' is not supported", "run", "-m", TINY / "tiny-mamba2.gguf", "-p", "x")
        with tempfile.NamedTemporaryFile() as file:
            file.write(pathlib.Path(LLAMA).read_bytes()[:-1000])
            file.flush()
            self.bad(1, re.escape(file.name), "run", "-m", file.name, "-p", "x")

    def test_placements(self):
        self.bad(1, "does not fit: cpu:0 needs .* and has .*Lower --ctx-size", "run", "-m", LLAMA, "-p", "x",
                 "--device-memory", "64K")
        pair = ("run", "-m", TINY / "tiny-gemma3.gguf", "-p", "x", "-c", "512", "--device", "cpu:0,cpu:1", "--device-memory", "1900K")
        self.bad(1, "cpu:1 needs .* and has .*Try --fit on", *pair)  # --tensor-split 2,2 would be no other
        self.bad(1, "cpu:0 needs .* and has .*Try --tensor-split 2,2", *pair, "-ts", "3,1")
        self.bad(1, "tpu", "run", "-m", LLAMA, "-p", "x", "--device", "tpu:0")
        self.bad(1, "tensor-split", "run", "-m", LLAMA, "-p", "x", "-ts", "1,2,3")
        self.bad(1, "--system-prompt needs", "run", "-m", LLAMA, "-p", "x", "-sys", "y", "-no-cnv")


if __name__ == "__main__":
    cli_support.main()
