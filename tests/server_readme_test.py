#!/usr/bin/env python3
"""The README's curl lines, as they stand there, against small models: every one is answered with JSON that is no error.

  server_readme_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import json
import os
import re
import subprocess
import unittest

from server_support import DATA, MODEL, ROOT, TIMEOUT_S, Server, main

FLAGS = ("-c", "4096", "--embeddings", "--device", "cpu:0,cpu:1", "--cuts", "4", "--override-kv",
         ",".join(f"tokenizer.ggml.fim_{name}_token_id=int:{id}" for name, id in (("pre", 270), ("suf", 271), ("mid", 272))))


def curl_lines():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [line.strip() for line in text.split("\n") if line.startswith("    curl ") and "localhost:8080" in line]


def replies(text):
    """The JSON values of a text, one behind the other."""
    decoder, values = json.JSONDecoder(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


class ReadmeLines(unittest.TestCase):
    def run_line(self, server, line):
        done = subprocess.run(["bash", "-c", line.replace("localhost:8080", f"127.0.0.1:{server.port}")], capture_output=True,
                              timeout=TIMEOUT_S, check=True, env={**os.environ, "no_proxy": "127.0.0.1"})
        return done.stdout.decode()

    def check(self, server, line):
        text = self.run_line(server, line)
        if '"stream": true' in line:
            self.assertTrue(text.startswith("data: {") and text.rstrip().endswith("data: [DONE]"), text)
            text = "".join(re.findall(r"^data: (\{.*)$", text, re.MULTILINE))
        values = replies(text)
        self.assertGreaterEqual(len(values), len(re.findall(r"\bcurl ", line)), line)
        for value in values:
            self.assertFalse(isinstance(value, dict) and "error" in value and value["error"], f"{line}\n{value}")

    def test_one_model(self):
        server = Server(*FLAGS, model=MODEL)
        self.addCleanup(server.stop)
        lines = [line for line in curl_lines() if '"large"' not in line and "model=" not in line]
        self.assertGreater(len(lines), 8)
        for line in lines:
            with self.subTest(line):
                self.check(server, line)

    def test_several_models(self):
        server = Server("-m", f"large={DATA / 'tiny-qwen3.gguf'}", model=f"small={MODEL}")
        self.addCleanup(server.stop)
        lines = [line for line in curl_lines() if '"large"' in line or "model=" in line]
        self.assertGreater(len(lines), 2)
        for line in lines:
            with self.subTest(line):
                self.check(server, line)


if __name__ == "__main__":
    main()
