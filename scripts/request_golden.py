#!/usr/bin/python3
"""Asks the reference server what it makes of chat requests, and records it for the tests.

    request_golden.py COMMAND [FILE...]

COMMAND starts the server (llama.cpp's llama-server with --jinja) in the foreground; {template} and {port} in it are
replaced by the name of a template file, written to --folder, and by a port. FILEs are tests/data/requests/*.json, by
default all: `chat_template` and the `request`s are written by hand, `status` with `prompt` or `error_type` is recorded.
"""
import argparse
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "requests"


def post(url, body):
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return {"status": 200, "prompt": json.loads(answer.read())["prompt"]}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "error_type": json.loads(error.read())["error"]["type"]}


def wait_until_ready(url, server):
    for _ in range(200):
        if server.poll() is not None:
            raise SystemExit("the server ended; does it accept the template?")
        try:
            urllib.request.urlopen(url + "/health").read()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def record(path, command, folder):
    golden = json.loads(path.read_text(encoding="utf-8"))
    port = random.randint(20000, 40000)
    template = folder / f"template-{port}.jinja"
    template.write_text(golden["chat_template"], encoding="utf-8")
    line = [part.format(template=template.name, port=port) for part in shlex.split(command)]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url, server)
        for case in golden["cases"]:
            for key in ("status", "prompt", "error_type"):
                case.pop(key, None)
            case.update(post(url + "/apply-template", json.dumps(case["request"])))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
        template.unlink()
    head = {key: value for key, value in golden.items() if key != "cases"}
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in golden["cases"])
    path.write_text(json.dumps(head, ensure_ascii=False)[:-1] + ',\n"cases": [\n' + lines + "\n]}\n", encoding="utf-8")
    print(path.name, len(golden["cases"]), "cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."), help="where the server finds {template}")
    args = parser.parse_args()
    for path in args.files or sorted(DATA.glob("*.json")):
        record(path, args.command, args.folder)


if __name__ == "__main__":
    sys.exit(main())
