"""Prompts that come again: what is read of them, from slots, host memory and files. Of a dense model, one with windows
and a hybrid.
"""
import contextlib
import glob
import os
import pathlib
import shutil
import signal
import tempfile
import time
import unittest

from server_support import DATA, GREEDY, TIMEOUT_S, Server, main

MODELS = {kind: str(DATA / f"tiny-{name}.gguf")
          for kind, name in {"dense": "llama", "window": "gemma3", "hybrid": "qwen35"}.items()}
PAGE = 32  # tokens; fewer are not worth keeping


@contextlib.contextmanager
def serving(kind, *flags):
    server = Server("-c", "4096", "--metrics", *flags, model=MODELS[kind])
    try:
        yield server
    finally:
        server.stop()


def prompt(number, n=150):
    """Token ids that no other number begins with."""
    return [20 + (number * 31 + i * 7) % 200 for i in range(n)]


def complete(server, tokens, n=6, **fields):
    status, _, reply = server.call("POST", "/completion", {"prompt": tokens, "n_predict": n, "return_tokens": True,
                                                           "ignore_eos": True, **GREEDY, **fields})
    assert status == 200, reply
    return reply


def cached(server, tokens, **fields):
    return complete(server, tokens, **fields)["timings"]["cache_n"]


def metric(server, name):
    _, _, text = server.call("GET", "/metrics")
    return next(float(line.split()[1]) for line in text.split("\n") if line.startswith(f"llamacpp:{name} "))


def wait_until(condition, what):
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(TIMEOUT_S)
    server.log.close()


class CacheTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def states(self):
        return sorted(glob.glob(self.folder + "/*.state"))

    # ---- slots

    def test_a_chat_of_20_turns_reads_only_what_is_new(self):
        for kind in MODELS:
            with self.subTest(kind), serving(kind, "-np", "2") as server:
                messages = [{"role": "system", "content": "You answer in few words. " * 4}]
                before = 0
                for turn in range(20):
                    messages.append({"role": "user", "content": f"Question {turn}?"})
                    status, _, reply = server.call("POST", "/v1/chat/completions",
                                                   {"messages": messages, "max_tokens": 6, **GREEDY})
                    self.assertEqual(status, 200, reply)
                    messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"] or "-"})
                    timings = reply["timings"]
                    n_prompt = timings["cache_n"] + timings["prompt_n"]
                    if turn > 0:
                        # What is behind the last prompt, and its last token: the answer may have merged with that, and
                        # recurrent state lies before it. Behind a window the last state may be so much older.
                        slack = 1 + (max(PAGE, before // 16) if kind == "window" else 0)
                        self.assertLessEqual(timings["prompt_n"], n_prompt - before + slack, f"turn {turn}")
                    before = n_prompt

    def test_two_chats_share_a_system_prompt(self):
        system = {"role": "system", "content": "You answer in few words, and never in verse. " * 6}
        for kind in MODELS:
            with self.subTest(kind), serving(kind, "-np", "2") as server:
                status, _, reply = server.call("POST", "/tokenize", {"content": system["content"]})
                self.assertEqual(status, 200)
                n_system = len(reply["tokens"])

                def ask(path, body):
                    status, _, reply = server.call("POST", path, {**body, **GREEDY})
                    self.assertEqual(status, 200, reply)
                    return reply

                def user(text):
                    return [{"role": "user", "content": text}]

                first = ask("/v1/chat/completions", {"messages": [system] + user("Who are you? " * 9), "max_tokens": 40})
                self.assertLess(first["timings"]["cache_n"], n_system)
                second = ask("/v1/chat/completions", {"messages": [system] + user("What is it?"), "max_tokens": 4})
                self.assertGreaterEqual(second["timings"]["cache_n"], n_system)
                third = ask("/v1/messages", {"model": "any", "system": system["content"], "max_tokens": 4,
                                             "messages": user("To whom?")})
                self.assertGreaterEqual(third["usage"]["cache_read_input_tokens"], n_system)
                fourth = ask("/v1/responses", {"model": "any", "instructions": system["content"],
                                               "input": "Since when?", "max_output_tokens": 4})
                self.assertGreaterEqual(fourth["usage"]["input_tokens_details"]["cached_tokens"], n_system)

    # ---- host memory

    def test_what_leaves_its_slot_comes_back_from_memory(self):
        for kind in MODELS:
            with self.subTest(kind), serving(kind, "-np", "1") as server:
                first = complete(server, prompt(1))
                self.assertEqual(cached(server, prompt(2)), 0)
                self.assertGreater(metric(server, "prompt_cache_ram_bytes"), 0)
                again = complete(server, prompt(1))
                self.assertEqual(again["timings"]["cache_n"], 149)
                self.assertEqual(again["tokens"], first["tokens"])
                self.assertEqual(metric(server, "prompt_cache_restored_total"), 1)
                self.assertGreaterEqual(metric(server, "prompt_cache_restored_tokens_total"), 149)
                # Who does not want it does not get it.
                self.assertEqual(cached(server, prompt(2), cache_prompt=False), 0)

    def test_two_conversations_take_turns_on_one_slot(self):
        for kind in MODELS:
            with self.subTest(kind), serving(kind, "-np", "1") as server:
                histories = {1: prompt(1, 60), 2: prompt(2, 60)}
                known = {1: 0, 2: 0}
                for turn in range(5):
                    for name, tokens in histories.items():
                        reply = complete(server, tokens)
                        self.assertEqual(reply["timings"]["cache_n"], known[name], f"turn {turn} of {name}")
                        # The last token of an answer is not read, and a windowed prompt is kept where it ends: the
                        # few tokens of its answer are not worth another state.
                        known[name] = len(tokens) + (0 if kind == "window" else 5)
                        histories[name] = tokens + reply["tokens"] + prompt(100 * name + turn, 40)

    def test_short_of_pages_what_is_idle_comes_back_later(self):
        with serving("dense", "-c", "256", "-np", "3") as server:
            for number in (1, 2, 3):
                self.assertEqual(cached(server, prompt(number)), 0)
            self.assertEqual(cached(server, prompt(1)), 149)
            self.assertGreater(metric(server, "sequences_evicted_total"), 0)

    def test_without_memory_nothing_is_kept(self):
        for kind in MODELS:
            with self.subTest(kind), serving(kind, "-np", "1", "--cache-ram", "0") as server:
                complete(server, prompt(1))
                complete(server, prompt(2))
                self.assertEqual(cached(server, prompt(1)), 0)
                self.assertEqual(metric(server, "prompt_cache_kept_total"), 0)

    def test_memory_has_its_limit(self):
        with serving("dense", "-np", "1", "-cram", "1") as server:
            for number in range(1, 31):
                complete(server, prompt(number), n=1)
                self.assertLessEqual(metric(server, "prompt_cache_ram_bytes"), 1 << 20)
            self.assertGreater(metric(server, "prompt_cache_states"), 4)
            self.assertEqual(cached(server, prompt(1)), 0)
            self.assertEqual(cached(server, prompt(29)), 149)

    # ---- files

    def test_prompts_outlive_the_server(self):
        for kind in MODELS:
            for ram in ("0", "64"):
                with self.subTest(kind, ram=ram), tempfile.TemporaryDirectory() as folder:
                    flags = ["-np", "1", "--cache-dir", folder + "/made/here", "--cache-ram", ram]
                    with serving(kind, *flags) as server:
                        first = complete(server, prompt(1))
                        complete(server, prompt(2))
                    with serving(kind, *flags) as server:
                        again = complete(server, prompt(1))
                        self.assertEqual(again["timings"]["cache_n"], 149)
                        self.assertEqual(again["tokens"], first["tokens"])
                        self.assertEqual(cached(server, prompt(2)), 149)

    def test_prompts_outlive_a_server_that_is_killed(self):
        for kind in MODELS:
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder:
                server = Server("-c", "4096", "--metrics", "--cache-dir", folder, model=MODELS[kind])
                try:
                    complete(server, prompt(1))
                    # Two of a window: when its prompt was read, and when it was idle.
                    wait_until(lambda: glob.glob(folder + "/*.state"), "no file was written")
                finally:
                    kill(server)
                with serving(kind, "--cache-dir", folder) as server:
                    self.assertEqual(cached(server, prompt(1)), 149)

    def test_damaged_files_cost_what_they_held_and_no_more(self):
        flags = ["-np", "1", "--cache-dir", self.folder]
        with serving("dense", *flags) as server:
            first = complete(server, prompt(1))["tokens"]
        whole = pathlib.Path(self.states()[0]).read_bytes()

        def damage(content, said):
            path = pathlib.Path(self.states()[0])
            path.write_bytes(content)
            with serving("dense", *flags) as server:
                reply = complete(server, prompt(1))
                self.assertEqual((reply["timings"]["cache_n"], reply["tokens"]), (0, first))
                server.wait_for(said)
            self.assertEqual(path.read_bytes(), whole)  # written anew

        damage(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:], "a kept prompt is lost: .*checksum")
        damage(whole[:1000], "removed .*cut short")
        damage(b"", "removed .*no saved state")
        damage(os.urandom(len(whole)), "removed .*no saved state")

    def test_what_is_not_this_models_is_left_alone(self):
        with serving("hybrid", "--cache-dir", self.folder) as server:
            complete(server, prompt(1))
        [foreign] = self.states()
        pathlib.Path(self.folder, "notes.state").write_text("mine")
        pathlib.Path(self.folder, "folder.state").mkdir()
        with serving("dense", "--cache-dir", self.folder) as server:
            self.assertEqual(cached(server, prompt(1)), 0)
            self.assertNotRegex(server.text(), "lost|removed")
        # Other cache types are other states.
        with serving("dense", "--cache-dir", self.folder, "-ctk", "f32") as server:
            self.assertEqual(cached(server, prompt(1)), 0)
        self.assertIn(foreign, self.states())
        self.assertEqual(len(self.states()), 5)
        with serving("dense", "--cache-dir", self.folder) as server:
            self.assertEqual(cached(server, prompt(1)), 149)

    def test_a_kept_file_is_a_slot_file(self):
        with serving("dense", "--cache-dir", self.folder) as server:
            complete(server, prompt(1))
        with serving("dense", "--slot-save-path", self.folder) as server:
            status, _, reply = server.call("POST", "/slots/0?action=restore",
                                           {"filename": os.path.basename(self.states()[0])})
            self.assertEqual((status, reply["n_restored"]), (200, 155))

    def test_the_folder_has_its_limit(self):
        with serving("dense", "-np", "1", "--cache-dir", self.folder, "--cache-dir-max", "1", "-cram", "0") as server:
            for number in range(1, 31):
                complete(server, prompt(number), n=1)
        self.assertLessEqual(sum(map(os.path.getsize, self.states())), 1 << 20)
        self.assertGreater(len(self.states()), 4)
        with serving("dense", "--cache-dir", self.folder) as server:
            self.assertEqual(cached(server, prompt(30)), 149)

    def test_a_folder_that_cannot_be_used_is_said_at_the_start(self):
        path = pathlib.Path(self.folder, "file")
        path.write_text("")
        for folder in (str(path), str(path / "below")):
            server = Server("--cache-dir", folder, wait=False)
            self.assertNotEqual(server.process.wait(TIMEOUT_S), 0)
            self.assertRegex(server.text(), "--cache-dir.*" + folder)
            server.stop()

    def test_a_folder_that_goes_away_costs_no_request(self):
        folder = self.folder + "/below"
        with serving("dense", "-np", "1", "--cache-dir", folder) as server:
            complete(server, prompt(1))
            wait_until(lambda: glob.glob(folder + "/*.state"), "no file was written")
            shutil.rmtree(folder)
            complete(server, prompt(2))
            self.assertEqual(cached(server, prompt(1)), 149)  # from memory
            wait_until(lambda: metric(server, "prompt_cache_failed_total") > 0, "no failure is counted")
            server.wait_for("a kept prompt is lost: .*below")

    def test_two_servers_share_a_folder(self):
        flags = ["-np", "1", "--cache-dir", self.folder, "--cache-dir-max", "1"]
        with serving("dense", *flags) as one, serving("dense", *flags) as other:
            for number in range(1, 12):
                a = complete(one, prompt(number))
                b = complete(other, prompt(number))
                self.assertEqual(a["tokens"], b["tokens"])
            for path in self.states()[:2]:
                pathlib.Path(path).unlink(missing_ok=True)  # as another server would, and may have by now
            for number in range(1, 12):
                self.assertIn(cached(other, prompt(number)), (0, 149))
        with serving("dense", *flags) as server:
            self.assertEqual(cached(server, prompt(11)), 149)
            self.assertNotIn("lost", server.text())


if __name__ == "__main__":
    main()
