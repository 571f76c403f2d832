#!/usr/bin/python3
"""Makes tests/data/goldens/embeddings.jsonl anew from the reference engine.

    embedding_golden.py COMMAND MODELS

COMMAND runs the reference's llama-server; MODELS is the folder in which it finds tests/data/tiny/*.gguf. One line a
model: its name, the text, and for each pooling the vectors; without pooling the tokens' own, else normalised by -1.
"""
import json
import pathlib
import shlex
import subprocess
import sys
import time
import urllib.request

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/goldens/embeddings.jsonl"
MODELS = ["tiny-llama", "tiny-qwen3", "tiny-gemma3", "tiny-gpt-oss", "tiny-qwen35"]
TEXT = "The quick brown fox"
# As for the logits. Flash attention, on by default, rounds to half precision.
EXACT = ["-ctk", "f32", "-ctv", "f32", "-fa", "off", "--no-repack", "-t", "1"]
PORT = 18779


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.loads(reply.read())


def wait_until_ready(process):
    while True:
        try:
            return ask("/health")
        except OSError:
            if process.poll() is not None:
                raise
            time.sleep(0.05)


def embed(command, model, pooling):
    process = subprocess.Popen([*shlex.split(command), *EXACT, "-m", model, "--embeddings", "--pooling", pooling, "-c", "256",
                                "-np", "1", "--port", str(PORT)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(process)
        return ask("/embedding", {"content": TEXT, "embd_normalize": -1})[0]["embedding"]
    finally:
        process.terminate()
        process.wait()


def main():
    command, folder = sys.argv[1:]
    lines = []
    for model in MODELS:
        found = {"model": model, "text": TEXT}
        for pooling in ("none", "mean", "last"):
            rows = embed(command, f"{folder}/{model}.gguf", pooling)
            found[pooling] = [[float(f"{x:.8g}") for x in row] for row in rows]
        lines.append(json.dumps(found, separators=(",", ":")) + "\n")
    OUT.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
