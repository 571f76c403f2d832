"""What the tests of the server from outside share.

The PyPI packages openai, anthropic and prometheus_client are looked for in build/clients, where scripts/install_clients.sh puts them.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, os.environ.get("TESSERA_CLIENTS", str(ROOT / "build/clients")))
DATA = ROOT / "tests/data/tiny"
MODEL = str(DATA / "tiny-llama.gguf")
TIMEOUT_S = 120  # only against hanging for ever
GREEDY = {"temperature": 0, "cache_prompt": True}
HELLO = [{"role": "user", "content": "Hello"}]


def program():
    """Of the environment, which main() sets from the command line."""
    return os.environ.get("TESSERA_BIN", str(ROOT / "build/release/tessera"))


class Server:
    """A server on a free port; its standard error is kept in lines."""

    def __init__(self, *flags, model=MODEL, wait=True, context=256):
        # Read by its name: the position of a descriptor would be shared with the program, which writes there.
        self.log = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen([program(), "serve", "-m", model, "--port", "0", "-c", str(context), "-np", "2", "-t", "2",
                                         *flags], stdout=subprocess.DEVNULL, stderr=self.log)
        self.port = int(self.wait_for(r"listening on http://127\.0\.0\.1:(\d+)")[1])
        if wait:
            self.wait_for(r"^ready$")

    def text(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def wait_for(self, pattern):
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if found := re.search(pattern, self.text(), re.MULTILINE):
                return found
            if self.process.poll() is not None and not re.search(pattern, self.text(), re.MULTILINE):
                break
            time.sleep(0.01)
        raise AssertionError(f"{pattern} is not in {self.text()}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(TIMEOUT_S)
        self.log.close()
        return status

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def call(self, method, path, body=None, headers=None):
        """Status, headers and body; JSON is parsed."""
        with contextlib.closing(self.connect()) as connection:
            data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            reply = connection.getresponse()
            text = reply.read().decode()
            is_json = reply.getheader("Content-Type", "").startswith("application/json")
            return reply.status, reply.headers, json.loads(text) if is_json else text

    def events(self, path, body):
        """The data of every server-sent event."""
        status, headers, text = self.call("POST", path, {**body, "stream": True})
        assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), text
        return [line[len("data: "):] for line in text.split("\n") if line.startswith("data: ")]

    def raw(self, data, half_close=False):
        """What comes back for these bytes until the server closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            answer = b""
            while part := s.recv(65536):
                answer += part
            return answer


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slots = tempfile.TemporaryDirectory()
        cls.server = Server("--metrics", "--slot-save-path", cls.slots.name, "--max-body", "64K", "--log-format", "json")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.slots.cleanup()

    def good(self, method, path, body=None):
        status, _, reply = self.server.call(method, path, body)
        self.assertEqual(status, 200, reply)
        return reply

    def bad(self, status, pattern, path, body, kind="invalid_request_error"):
        found, _, reply = self.server.call("POST", path, body)
        self.assertEqual(found, status, reply)
        self.assertEqual(reply["error"]["code"], status)
        self.assertEqual(reply["error"]["type"], kind)
        self.assertRegex(reply["error"]["message"], pattern)


def main():
    """For every test file: [PROGRAM] [unittest arguments]."""
    if len(sys.argv) > 1 and os.access(sys.argv[1], os.X_OK):
        os.environ["TESSERA_BIN"] = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
