#!/usr/bin/env python3
"""What people try who come from other programs: the answer says what to type instead, before anything is loaded.

  cli_newcomer_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile

import cli_support
from cli_support import CliTest, LLAMA, ROOT, run, TIMEOUT_S, TINY

NO_MODEL = ["-m", "no/such.gguf"]  # whatever names it was not found out before loading


class Words(CliTest):
    def hint(self, *args):
        """What the last line asks whether it was meant."""
        done = run(*args)
        self.assertEqual(done.returncode, 2)
        found = re.search(r"; did you mean (.*)\?$", done.stderr.decode().rstrip("\n").split("\n")[-1])
        return found[1] if found else done.stderr.decode()

    def test_words_without_flags_are_model_and_prompt(self):
        self.assertEqual(self.hint("run", "smollm2", "hi"), '-m smollm2 -p "hi"')
        self.assertEqual(self.hint("run", "smollm2", "why", "is it so"), '-m smollm2 -p "why is it so"')
        self.assertEqual(self.hint("run", "-m", LLAMA, "two", "words"), '-p "two words"')
        self.assertEqual(self.hint("run", "why is it so?"), '-m FILE -p "why is it so?"')
        self.assertEqual(self.hint("inspect", "my model.gguf"), '-m "my model.gguf"')
        self.assertEqual(self.hint("run", "-p", "hi", "./m.gguf"), "-m ./m.gguf")
        self.assertEqual(self.hint("chat", "smollm2"), "-m smollm2")
        self.assertEqual(self.hint("serve", "smollm2"), "-m smollm2")
        self.assertEqual(self.hint("tokenize", "smollm2", "hi"), '-m smollm2 "hi"')
        self.assertEqual(self.hint("perplexity", "m.gguf", "text.txt"), "-m m.gguf -f text.txt")
        self.assertEqual(self.hint("plan", "-m", LLAMA, "layer", "tensor"), "--from layer --to tensor")

    def test_help_behind_a_command(self):
        overview = self.good("help").decode()
        commands = re.findall(r"(?m)^  ([a-z][a-z-]*)  ", overview)
        self.assertIn("bench-switch", commands)
        for command in commands:
            if command != "help":
                self.assertEqual(self.hint(command, "help"), f"`tessera {command} --help`")
        self.bad(2, "needs the flag -m, --model FILE$", "tokenize", "hello")

    def test_commands_of_other_programs(self):
        for command, instead in (("list", "-m FILE"), ("pull", "curl"), ("ps", "/v1/models"), ("quantize", "as they are"),
                                 ("llama-bench", "tessera bench"), ("cli", "tessera chat")):
            self.bad(2, f"^tessera: command {command} is another program's: .*{instead}", command, "x")


class Completion(CliTest):
    def complete(self, line, breaks=True):
        """What bash offers for the last word, with the words as bash would make them: = is one of its own, or not."""
        words = re.findall(r"=|[^\s=]+", line) if breaks else line.split()
        if line[-1] == " ":
            words.append("")
        script = self.good("help", "--completion", "bash").decode()
        ask = script + 'COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _tessera_complete; printf "%s\\n" "${COMPREPLY[@]}"'
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tail").touch()
            return subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=True, cwd=folder,
                                  timeout=TIMEOUT_S).stdout.split()

    def test_values_behind_an_equals_sign(self):
        self.assertEqual(self.complete("tessera run --split-mode=t"), ["tensor"])
        self.assertEqual(self.complete("tessera run --split-mode="), ["none", "layer", "tensor"])
        self.assertEqual(self.complete("tessera run -sm="), ["none", "layer", "tensor"])
        self.assertEqual(self.complete("tessera run --split-mode t"), ["tensor"])
        self.assertEqual(self.complete("tessera run --split-mode=t", breaks=False), ["--split-mode=tensor"])
        self.assertEqual(self.complete("tessera run --model=t"), ["tail"])
        self.assertEqual(self.complete("tessera run --split-mode=tensor --chat-template-f"), ["--chat-template-file"])

    def test_the_command_of_two_words(self):
        self.assertEqual(self.complete("tessera bench sw"), ["switch"])
        self.assertEqual(self.complete("tessera bench switch --kv-t"), ["--kv-tokens"])
        self.assertEqual(self.complete("tessera bench switch --to "), ["none", "layer", "tensor"])
        self.assertEqual(self.complete("tessera bench --kv-t"), [])
        self.assertEqual(self.complete("tessera bench-switch --kv-t"), ["--kv-tokens"])
        fish = self.good("help", "--completion", "fish").decode()
        self.assertRegex(fish, r"(?m)^complete -c tessera -n '__fish_seen_subcommand_from bench' -a switch ")
        self.assertRegex(fish, r"-n '__fish_seen_subcommand_from bench; and not __fish_seen_subcommand_from switch' -l n-prompt ")


class Values(CliTest):
    def test_sampling_is_checked_before_loading(self):
        for command in (["run", "-p", "x"], ["chat"], ["serve", "--port", "0"]):
            for flag, value, error in (("--samplers", "foo", "--samplers: 'foo' is no sampling step"),
                                       ("--sampler-seq", "kz", "--sampling-seq: 'z' is no sampling step"),
                                       ("--logit-bias", "abc", "--logit-bias: 'abc' is no logit bias"),
                                       ("--json-schema", "{", "--json-schema: the JSON schema is no JSON text: .*line 1, column 2"),
                                       ("--json-schema", '{"type": "objekt"}', "--json-schema: .*objekt"),
                                       ("--grammar", "root ::= foo", "--grammar: .*there is no rule"),
                                       ("--grammar-file", "no/such", "--grammar-file: cannot open 'no/such'"),
                                       ("--top-k", "3000000000", "--top-k")):
                self.bad(2, error, *command, *NO_MODEL, flag, value)

    def test_what_needs_the_vocabulary_waits_for_it(self):
        ask = ("run", "-p", "x", "-n", "1")
        # A token's name, and a grammar that can be read but once.
        self.bad(1, "cannot open 'no/such.gguf'", *ask, *NO_MODEL, "--grammar", "root ::= <think>")
        self.assertEqual(self.good(*ask, "-m", LLAMA, "--grammar-file", "-", stdin=b'root ::= "a"'), b"a\n")
        self.bad(1, "no rule", *ask, "-m", LLAMA, "--grammar-file", "-", stdin=b"root ::= foo")

    def test_steps_of_sampling_with_commas(self):
        for line in ("top_k,top_p,temperature", "top_k, top_p, temperature", "top_k top_p;temperature"):
            self.bad(2, '--samplers "top_k;top_p;temperature"$', "run", *NO_MODEL, "-p", "x", "--samplers", line)
        self.bad(2, "'top_k,foo' is no sampling step", "run", *NO_MODEL, "-p", "x", "--samplers", "top_k,foo")

    def test_contexts_have_the_engines_limit(self):
        for command in (["run", "-p", "x"], ["chat"], ["perplexity", "-f", "-"], ["serve"], ["batched-bench"], ["doctor"],
                        ["logits"], ["plan", "--from", "layer", "--to", "tensor"]):
            done = run(*command, *NO_MODEL, "-c", "16777217")
            self.assertEqual(done.returncode, 2, command)
            self.assertRegex(done.stderr.decode(), r"\Atessera: flag -c: 16777217 is out of range \(.*16777216\)\n\Z")
        self.bad(1, "no/such.gguf", "run", *NO_MODEL, "-p", "x", "-c", "16777216")

    def test_what_has_no_effect_is_a_number_all_the_same(self):
        for flag, value in (("-ngl", "abc"), ("--poll", "x"), ("-mg", "first"), ("-tb", "x"), ("-dt", "x")):
            self.bad(2, f"flag {flag}: \"{value}\" is not a", "run", *NO_MODEL, "-p", "x", flag, value)
        for flag, value in (("-ngl", "auto"), ("-ngl", "all"), ("-ngl", "-1"), ("--poll", "50"), ("-dt", "0.1")):
            self.bad(1, "no/such.gguf", "run", *NO_MODEL, "-p", "x", flag, value)
        self.bad(1, "no/such.gguf", "bench", *NO_MODEL, "-ngl", "0-99+33", "--poll", "0,50")

    def test_a_key_that_is_added_is_a_note(self):
        done = run("run", "-m", LLAMA, "-p", "x", "-n", "1", "--override-kv", "foo=int:3")
        self.assertRegex(done.stderr.decode(), "(?m)^note: --override-kv foo=int:3: the file has no such key")

    def test_placements_without_a_choice(self):
        def notes(*flags, model=LLAMA):
            done = run("run", "-m", model, "-p", "x", "-n", "1", "-c", "64", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            return re.findall(r"(?m)^note: (?:flag )?(--[a-z-]+).* no effect", done.stderr.decode())
        self.assertEqual(notes("-sm", "tensor"), ["--split-mode"])
        self.assertEqual(notes("-psm", "layer", "-sm", "tensor"), ["--prefill-split-mode", "--split-mode"])
        self.assertEqual(notes("--split-policy", "auto"), ["--split-policy"])
        self.assertEqual(notes("-sm", "layer"), [])
        self.assertEqual(notes("-sm", "tensor", "-sm", "layer"), [])
        self.assertEqual(notes("-sm", "tensor", "--device", "cpu:0,cpu:1"), [])
        self.assertEqual(notes("--cpu-moe"), ["--n-cpu-moe"])
        self.assertEqual(notes("--cpu-moe", model=TINY / "tiny-qwen3moe.gguf"), [])


class Files(CliTest):
    def test_what_to_do_where_a_file_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            cut = pathlib.Path(folder, "cut.gguf")
            cut.write_bytes(pathlib.Path(LLAMA).read_bytes()[:-1000])
            for path, found, advice in (("no/such.gguf", "No such file", "give --model the path of a GGUF file"),
                                        ("", "cannot open ''", "give --model the path of a GGUF file"),
                                        (folder, "is a folder", "give --model a file"),
                                        (cut, "cut.gguf", "download or convert it again"),
                                        (ROOT / "README.md", "it is a text file, not a GGUF file", "give a GGUF file"),
                                        ("https://x/y.gguf", "No such file", "no network connection is opened; fetch the file")):
                for command in (["run", "-p", "x"], ["inspect"], ["tokenize", "x"], ["bench"]):
                    self.bad(1, f"{found}.*[;?] {advice}", *command, "-m", path)
                report = run("doctor", "--port", "0", "-m", path).stdout.decode()
                self.assertRegex(report, rf"(?m)^bad +file +.*{found}.*\n +-> {advice}")
            self.bad(1, "No such file or directory; give --model the path", "serve", "--port", "0", *NO_MODEL)

    def test_other_failures_have_no_such_advice(self):
        self.bad(1, "tpu.*and so on$", "run", "-m", LLAMA, "-p", "x", "--device", "tpu:0")


class Interrupt(CliTest):
    def setUp(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            try:
                os.execv(cli_support.PROGRAM, [cli_support.PROGRAM, "chat", "-m", LLAMA, "-n", "4", "-c", "256"])
            finally:
                os._exit(127)
        self.seen = b""

    def tearDown(self):
        os.close(self.terminal)
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def read(self):
        """What the program writes next; nothing once it has ended."""
        if not select.select([self.terminal], [], [], TIMEOUT_S)[0]:
            self.fail(f"silent after {self.seen.decode(errors='replace')!r}")
        try:
            return os.read(self.terminal, 4096)
        except OSError:
            return b""

    def wait_for(self, text):
        """Reads until the text comes, and forgets what was read."""
        while text not in self.seen:
            more = self.read()
            if not more:
                self.fail(self.seen.decode(errors="replace"))
            self.seen += more
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def status(self):
        """What the program exits with; a signal is negative."""
        while self.read():
            pass
        pid, self.pid = self.pid, None
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_twice_at_the_prompt_ends(self):
        self.wait_for(b"\n> ")
        os.write(self.terminal, b"never asked\x03")
        self.wait_for(b"/exit or Ctrl-D ends")
        self.wait_for(b"> ")
        os.write(self.terminal, b"nor this\x03")  # clears a line again, and ends nothing
        self.wait_for(b"/exit or Ctrl-D ends")
        self.wait_for(b"> ")
        os.write(self.terminal, b"\x03")
        self.assertEqual(self.status(), 130)

    def test_once_only_clears_the_line(self):
        for _ in range(2):  # what is said between makes the next one the first again
            self.wait_for(b"> ")
            os.write(self.terminal, b"never asked\x03")
            self.wait_for(b"/exit or Ctrl-D ends")
            self.wait_for(b"> ")
            os.write(self.terminal, b"hello\r")
            self.wait_for(b"ended by:")
        self.wait_for(b"> ")
        os.write(self.terminal, b"/exit\r")
        self.assertEqual(self.status(), 0)


if __name__ == "__main__":
    cli_support.main()
