#!/usr/bin/env python3
"""What people try who come from other programs: the answer says what to type instead, before anything is loaded.

  cli_newcomer_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import os
import pathlib
import pty
import re
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

if __name__ == "__main__":
    cli_support.main()
