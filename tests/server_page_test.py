#!/usr/bin/env python3
"""The page at `/`: its files over HTTP, and what a person does with it in a headless Chromium.

  server_page_test.py [PROGRAM] [unittest arguments]     PROGRAM or $TESSERA_BIN; else build/release/tessera
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import browser_support
from browser_support import Browser
from server_support import MODEL, ROOT, TIMEOUT_S, Server, main, program

PAGE = ROOT / "src/server/page"
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><b>bold</b>'
CHAT = "/v1/chat/completions"


class Files(unittest.TestCase):
    def start(self, *flags):
        server = Server(*flags)
        self.addCleanup(server.stop)
        return server

    def test_page_is_served(self):
        server = self.start("--api-key", "secret")
        for path in ["", *(p.name for p in PAGE.iterdir())]:
            status, headers, body = server.call("GET", f"/{path}")
            self.assertEqual((status, body), (200, (PAGE / (path or "index.html")).read_text()), path)
            self.assertEqual(headers["Cache-Control"], "no-cache")
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertRegex(headers["Content-Security-Policy"], r"^default-src 'none'; script-src 'self';")
            self.assertEqual(server.call("HEAD", f"/{path}")[1]["Content-Length"], str(len(body.encode())))
            self.assertEqual(server.call("HEAD", f"/{path}")[2], "")
            status, again, body = server.call("GET", f"/{path}", headers={"If-None-Match": headers["ETag"]})
            self.assertEqual((status, body, again["ETag"], again["Content-Length"]), (304, "", headers["ETag"], None))
        self.assertEqual(server.call("GET", "/app.js")[1]["Content-Type"], "text/javascript; charset=utf-8")
        # Everything else asks for the key, also what is not there.
        self.assertEqual([server.call("GET", path)[0] for path in ("/props", "/slots", "/nothing.js")], [401] * 3)
        self.assertEqual(server.call("POST", "/")[0], 401)

    def test_page_comes_from_this_server_alone(self):
        for file in PAGE.iterdir():
            for address in re.findall(r"(?:src|href|from|url)\s*[=(]?\s*[\"']([^\"']+)[\"']", file.read_text()):
                self.assertFalse(re.match(r"\w+:|//", address), f"{file.name}: {address}")
                is_file = address.endswith((".js", ".css", ".svg"))
                self.assertTrue(not is_file or (PAGE / address).is_file(), f"{file.name}: {address}")

    def test_no_such_folder(self):
        done = subprocess.run([program(), "serve", "-m", MODEL, "--path", "/nothing"], capture_output=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--path /nothing is no folder", done.stderr.decode())

    def test_folder_instead(self):
        with tempfile.TemporaryDirectory() as base:
            www = pathlib.Path(base, "www")
            (www / "sub").mkdir(parents=True)
            pathlib.Path(base, "secret").write_text("secret")
            (www / "index.html").write_text("mine")
            (www / "sub/index.html").write_text("below")
            (www / ".env").write_text("secret")
            (www / "out").symlink_to("../secret")
            (www / "up").symlink_to("..")
            (www / "in.txt").symlink_to("index.html")
            os.mkfifo(www / "pipe")
            server = self.start("--path", str(www), "--api-key", "k")
            for path in ("/", "/index.html", "/in.txt", "/%69n.txt"):
                self.assertEqual(server.call("GET", path)[2], "mine")
            self.assertEqual(server.call("GET", "/sub/")[2], "below")
            self.assertEqual(server.call("GET", "/app.js")[0], 401)
            for path in ("/../secret", "/%2e%2e/secret", "/..%2fsecret", "/sub/../../secret", "/sub/%2e%2e/%2e%2e/secret",
                         "/out", "/up/secret", "/.env", "/%2eenv", "//secret", "/%2f" + base + "/secret", "/index.html%00",
                         "/index.html%00.css", "/pipe", "/sub", "/..%5csecret", "/%252e%252e/secret", "/" + "a" * 5000, "/" + "a/" * 3000, "secret"):
                reply = server.raw(f"GET {path} HTTP/1.0\r\nAuthorization: Bearer k\r\n\r\n".encode())
                self.assertRegex(reply, rb"^HTTP/1.1 40[04] ", path)
                self.assertNotIn(b"\r\n\r\nsecret", reply)

    def test_without_page(self):
        server = self.start("--no-webui")
        self.assertEqual([server.call("GET", path)[0] for path in ("/", "/index.html", "/app.js")], [404] * 3)
        self.assertEqual(server.call("GET", "/health")[0], 200)


# Answers of a server that is not there: {"METHOD path": [status, body], ...}; the bodies of requests are kept.
MOCK = """
const replies = arguments[0];
window.asked = [];
window.fetch = async (path, options) => {
  const missing = [404, JSON.stringify({error: {message: `there is no ${path}`}})];
  const [status, body] = replies[`${options.method} ${path.split("?")[0]}`] ?? missing;
  window.asked.push({path, method: options.method, body: options.body && JSON.parse(options.body)});
  return new Response(body, {status});
};
"""


def events(*chunks):
    return "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"


PROGRESS = {"choices": [], "prompt_progress": {"total": 90, "cache": 0, "processed": 30, "time_ms": 1}}


def delta(reason=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def placement(mode, version, **switches):
    def home(layer, cut):
        return f"cpu:{0 if mode == 'none' else layer // 2 if mode == 'layer' else cut}"
    tiles = [{"name": f"blk.{layer}.{part}.{cut}", "kind": "kv" if part == "kv" else "weight", "layer": layer, "cut": cut,
              "bytes": 1 << 20, "device": home(layer, cut), "version": version}
             for layer in range(4) for part in ("attn", "ffn", "kv") for cut in range(2)]
    tiles.append({"name": HOSTILE, "kind": HOSTILE, "layer": None, "cut": 0, "bytes": 5, "device": "file", "version": version})
    devices = [{"name": f"cpu:{i}", "kind": "cpu", "capacity_bytes": (1 << 30) if i else None, "used_bytes": 300 << 20,
                "weights_bytes": 200 << 20, "kv_bytes": 100 << 20, "state_bytes": 0, "scratch_bytes": 0} for i in range(2)]
    return json.dumps({"model": "m", "split_mode": mode, "tensor_split": [], "version": version, "devices": devices,
                       "tiles": tiles, "policy": {"mode": "off"}, "switches": {"count": 0, "failed": 0, "last": None, **switches}})


@unittest.skipIf(browser_support.missing(), browser_support.missing())
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", "2048", "--context-shift")
        cls.addClassCleanup(cls.server.stop)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def start(self, settings=None, conversations=None, server=None):
        """The page as one finds it who has these in the browser."""
        b = self.browser
        b.open(f"http://127.0.0.1:{(server or self.server).port}/favicon.svg")
        b.script("""localStorage.clear();
            localStorage.setItem('tessera.settings', JSON.stringify(arguments[0]));
            localStorage.setItem('tessera.conversations', JSON.stringify(arguments[1]));""", settings or {}, conversations or [])
        b.open(f"http://127.0.0.1:{(server or self.server).port}/")
        b.wait("document.querySelector('#conversations li')")
        return b

    def ready(self, **sampling):
        b = self.start({"sampling": {"temperature": 0, "max_tokens": 8, **sampling}})
        b.wait("document.querySelector('#model option')")
        b.wait("document.querySelector('#setting-top-k')")  # comes after the models: it shows the server's defaults
        return b

    def tearDown(self):
        self.assertEqual(self.browser.console(), [])
        self.assertIsNone(self.browser.script("return window.hacked"))

    def ask(self, text):
        """Sends it, and waits for the whole answer."""
        self.browser.type("#prompt", text)
        self.browser.press("enter")
        self.wait_idle()

    def wait_idle(self):
        self.browser.wait("!document.getElementById('send').hidden")

    def test_answer_streams(self):
        b = self.ready(max_tokens=-1, ignore_eos=True)
        b.script("""window.lengths = new Set();
            new MutationObserver(() => window.lengths.add(document.querySelector('article.assistant .text')?.textContent.length))
                .observe(document.getElementById('messages'), {subtree: true, childList: true})""")
        b.type("#prompt", "Hello")
        b.press("shift", "enter")
        b.type("#prompt", "there")
        self.assertEqual(b.text("article"), "")
        b.press("enter")
        b.wait("window.lengths.size > 3")
        b.press("escape")
        self.wait_idle()
        self.assertEqual(b.text("article.user .text"), "Hello\nthere")

    def test_answer_ends_with_its_numbers(self):
        b = self.ready(max_tokens=5, ignore_eos=True)
        self.ask("Hello")
        prompt = r"prompt \d+ tokens, \d+ of them cached, read in [\d.]+ m?s"
        self.assertRegex(b.text("article.assistant .note"), rf"^5 tokens, [\d.]+ tokens/s · {prompt} · stopped at the limit of tokens$")

    def test_stop(self):
        for stop in (lambda: self.browser.press("escape"), lambda: self.browser.click("#stop")):
            b = self.ready(max_tokens=-1, ignore_eos=True)
            b.type("#prompt", "Go on for ever")
            b.press("enter")
            b.wait("document.querySelector('article.assistant .text')?.textContent.length > 20")
            stop()
            self.wait_idle()
            self.assertEqual(b.text("article.assistant .note"), "Stopped")
            b.until(lambda: not any(slot["is_processing"] for slot in self.server.call("GET", "/slots")[2]), "idle slots")

    def test_regenerate_edit_and_keep(self):
        b = self.ready()
        self.ask("First")
        text = b.text("article.assistant .text")
        b.script("window.answer = document.querySelector('article.assistant')")
        b.script("[...document.querySelectorAll('article.assistant button')].find((e) => e.textContent === 'Regenerate').click()")
        self.wait_idle()
        self.assertFalse(b.script("return window.answer.isConnected"))
        self.assertEqual(b.text("article.assistant .text"), text)
        self.ask("Second")
        b.script("[...document.querySelectorAll('article.user button')].find((e) => e.textContent === 'Edit').click()")
        b.type("article.user textarea", " and more")
        b.press("enter")
        self.wait_idle()
        self.assertEqual(b.text("article.user .text"), "First and more")
        b.click("#new-chat")
        self.assertEqual(b.text("article"), "")
        b.open(f"http://127.0.0.1:{self.server.port}/")
        b.wait("document.querySelectorAll('#conversations li').length === 2")
        b.click("#conversations li:nth-child(2) .title")
        self.assertEqual(b.text("article.user .text"), "First and more")

    def test_export_import_and_delete(self):
        chats = [{"id": "1", "title": "Kept", "messages": [{"role": "user", "content": "words"}]}]
        b = self.start(conversations=chats)
        b.script("URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return '#'; }")
        b.click("#export-all")
        self.assertEqual(json.loads(b.wait("window.saved")), chats)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps([{**chats[0], "title": "Brought"}, {"title": 5}]))
            file.flush()
            b.type("#import-file", file.name)
            b.wait_text("#conversations", "Brought")
            self.assertEqual(b.text("article.user .text"), "words")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            b.type("#import-file", file.name)
            b.wait_text("#status", "no JSON")
        b.script("window.confirm = () => true")
        b.click("#conversations [aria-label='Delete Kept']")
        b.open(f"http://127.0.0.1:{self.server.port}/")
        b.wait_text("#conversations", "Brought")
        self.assertNotIn("Kept", b.text("#conversations"))

    def test_tabs_keep_each_others_conversations(self):
        b = self.ready()
        first = b.call("GET", "/window")
        second = b.call("POST", "/window/new", {"type": "tab"})["handle"]
        b.call("POST", "/window", {"handle": second})
        b.open(f"http://127.0.0.1:{self.server.port}/")
        b.wait("document.querySelector('#model option')")
        self.ask("In the second")
        b.call("POST", "/window", {"handle": first})
        b.wait_text("#conversations", "In the second")
        self.ask("In the first")
        b.call("POST", "/window", {"handle": second})
        b.wait_text("#conversations", "In the first")
        self.assertIn("In the second", b.text("#conversations"))
        b.call("DELETE", "/window")
        b.call("POST", "/window", {"handle": first})

    def test_markup_stays_text(self):
        bad = (f"{HOSTILE} [click](javascript:window.hacked=1) [data](data:text/html,x) **<i>x</i>** `<u>`\n\n"
               f"```<img>\n{HOSTILE}\n```\n| {HOSTILE} |\n|---|\n")
        calls = [{"id": "1", "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}]
        b = self.start({"model": HOSTILE, "system": HOSTILE}, [{"id": HOSTILE, "title": HOSTILE, "messages": [
            {"role": "user", "content": HOSTILE},
            {"role": "assistant", "content": bad, "reasoning_content": bad, "tool_calls": calls, "note": HOSTILE, "error": HOSTILE},
            {"role": "tool", "content": HOSTILE, "name": HOSTILE}]}])
        b.wait("document.querySelector('#model option')")
        b.script(MOCK, {f"POST {CHAT}": [200, events(delta(content=bad), {"error": {"message": HOSTILE, "code": 500}})]})
        b.click("#conversations li:nth-child(2) .title")
        self.assertEqual(b.text("article.user .text"), HOSTILE)
        self.ask(HOSTILE)
        b.script("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
        self.assertEqual(b.count("#messages :is(img, script, b, i, u, a), #sidebar li :is(img, script, b)"), 0)
        self.assertIn(HOSTILE, b.text("article.assistant .text p"))
        self.assertIn(HOSTILE, b.text("article.assistant pre code"))
        self.assertEqual(b.text("article:last-child .notice"), f"{HOSTILE}.")

    def test_markdown(self):
        text = ("# Head\ntext **bold *both*** `a**b**c` 2 * 3 * 4 snake_case_name https://a.example/x_y. "
                "[link](https://b.example/?a=1&b=2)\n- one\n  - two\n\n    more\n- three\n\n3. third\n4. fourth\n\n> quoted\n\n"
                "| a | b |\n|---|:-:|\n| 1 | 2 |\n\n```py\nx = '<'\n\n# no head\n")
        b = self.start(conversations=[{"id": "1", "title": "t", "messages": [{"role": "assistant", "content": text}]}])
        b.click("#conversations li:nth-child(2) .title")
        wanted = {"h3": 1, "strong": 1, "strong em": 1, "em": 1, "ul": 2, "ul ul": 1, "ol[start='3'] > li": 2, "blockquote p": 1,
                  "td": 2, "pre": 1, "a": 2}
        self.assertEqual({selector: b.count(f".text {selector}") for selector in wanted}, wanted)
        self.assertEqual(b.text(".text pre code"), "x = '<'\n\n# no head\n")
        self.assertEqual(b.all(".text a", "e.href"), ["https://a.example/x_y", "https://b.example/?a=1&b=2"])
        self.assertIn("2 * 3 * 4 snake_case_name", b.text(".text p"))

    def test_reasoning_progress_and_tools(self):
        b = self.ready()
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
        b.click("#tab-settings")
        b.type("#setting-tools", json.dumps(tools)[:-1])
        self.assertTrue(b.script("return document.querySelector('#setting-tools').validationMessage"))
        b.type("#setting-tools", "]")
        self.assertEqual(b.script("return document.querySelector('#setting-tools').validationMessage"), "")
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}}
        b.script(MOCK, {f"POST {CHAT}": [200, events(PROGRESS, delta(reasoning_content="I **think**"), delta(tool_calls=[call]),
                                                     delta(tool_calls=[{"index": 0, "function": {"arguments": '"Rome"}'}}]),
                                                     delta("tool_calls"))]})
        self.ask("Weather?")
        self.assertEqual(b.text(".reasoning strong"), "think")
        self.assertEqual(b.text(".call pre"), '{\n  "city": "Rome"\n}')
        self.assertEqual(b.script("return window.asked[0].body.tools"), tools)
        self.assertTrue(b.script("return window.asked[0].body.return_progress"))
        b.type(".call textarea", "sunny")
        b.script(MOCK, {f"POST {CHAT}": [200, events(PROGRESS)]})
        b.click(".tools .primary")
        self.wait_idle()
        self.assertEqual(b.script("return window.asked[0].body.messages.slice(1)"), [
            {"role": "assistant", "content": "", "reasoning_content": "I **think**", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}]},
            {"role": "tool", "content": "sunny", "tool_call_id": "c1", "name": "weather"}])
        self.assertEqual(b.text("article:last-child .note"), "Reading the prompt: 30 of 90 tokens (33 %)")

    def test_settings(self):
        b = self.ready()
        b.click("#tab-settings")
        self.assertEqual(b.all("#setting-top-k, #setting-top-p", "e.placeholder"), ["40", "0.95"])
        b.type("#setting-top-k", "7")
        b.type("#setting-system-prompt", "Be brief")
        b.script(MOCK, {f"POST {CHAT}": [200, events(delta("stop", content="Yes"))]})
        self.ask("Well?")
        body = b.script("return window.asked[0].body")
        self.assertEqual((body["top_k"], body["temperature"], body["model"], body["stream"]), (7, 0, "tiny-llama.gguf", True))
        self.assertNotIn("top_p", body)
        self.assertEqual(body["messages"], [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Well?"}])

    def test_errors_are_sentences(self):
        b = self.start({"extra": '{"temperature": "hot"}'})
        b.wait("document.querySelector('#model option')")
        self.ask("Hello")
        self.assertRegex(b.text("article .notice"), r'^field "temperature" .*\.$')
        b.script("window.fetch = async () => { throw new TypeError('x'); }")
        self.ask("Hello?")
        self.assertEqual(b.text("article:last-child .notice"), "The server cannot be reached; does it still run?")

    def test_key(self):
        server = Server("--api-key", "right key")
        self.addCleanup(server.stop)
        b = self.start(server=server)
        b.wait_text("#status", "API key is missing or wrong; type it into Settings")
        b.click("#tab-settings")
        for key, pattern in (("wrong", "missing or wrong"), ("right key", "^$")):
            b.script("document.querySelector('#setting-api-key').value = ''")
            b.type("#setting-api-key", key)
            b.press("enter")
            b.wait_text("#status", pattern)
        self.ask("Hello")
        self.assertEqual(b.text(".notice"), "")
        b.click("#tab-inspector")
        self.assertNotIn("right key", self.curl_line(CHAT))
        self.assertIn("Bearer $API_KEY", self.curl_line(CHAT))
        self.check_curl(CHAT, "right key")

    def test_the_answer_to_an_earlier_key_comes_too_late(self):
        b = self.ready()
        b.click("#tab-settings")
        b.script("""const real = window.fetch;
            const late = {ok: false, status: 401, text: async () => { window.is_read = true; return ''; }};
            window.fetch = (path, options) => {
              if (window.release || !path.startsWith('/props')) return real(path, options);
              return new Promise((done) => { window.release = () => done(late); });
            };
            window.field = document.querySelector('#setting-api-key');""")
        b.type("#setting-api-key", "early")
        b.press("enter")
        b.wait("Boolean(window.release)")
        b.type("#setting-api-key", "er")
        b.press("enter")
        b.wait("!window.field.isConnected")  # the later one's answer has drawn the settings anew
        b.script("window.release()")
        b.wait("window.is_read")
        self.assertEqual(b.text("#status"), "")

    def curl_line(self, path):
        """Opens the entry of that path."""
        b = self.browser
        b.script("""[...document.querySelectorAll('.entry')]
            .find((e) => e.querySelector('summary').textContent.includes(arguments[0])).open = true""", path)
        lines = b.until(lambda: [t for t in b.all(".entry[open] pre", "e.textContent") if t.startswith("curl") and path in t],
                        f"a curl line of {path}")
        return lines[0]

    def check_curl(self, path, key=""):
        if not shutil.which("curl"):
            self.skipTest("curl is not installed")
        done = subprocess.run(["sh", "-c", self.curl_line(path)], env={**os.environ, "API_KEY": key}, capture_output=True,
                              timeout=TIMEOUT_S, check=True)
        self.assertIn(b"data: [DONE]", done.stdout)

    def test_inspector(self):
        b = self.ready()
        b.click("#tab-inspector")
        self.ask("It's \"quoted\", $HOME `x` \\n 100 % é")
        self.check_curl(CHAT)
        parts = b.text(".entry[open]")
        self.assertIn('"role": "user"', parts)
        self.assertIn("chat.completion.chunk", parts)
        self.assertRegex(parts, r"200 POST /v1/chat/completions.*first byte .* · whole ")
        self.assertRegex(b.text(".entries"), "200 GET /props")

    def test_placement_of_this_server(self):
        server = Server("--device", "cpu:0,cpu:1", "-sm", "layer", "--context-shift")
        self.addCleanup(server.stop)
        b = self.start({"sampling": {"max_tokens": -1, "ignore_eos": True}}, server=server)
        b.wait("document.querySelector('#model option')")
        b.click("#tab-placement")
        b.wait_text("#panel-placement .slots", "2 of 2 slots are idle")
        b.type("#prompt", "Go on")
        b.press("enter")
        b.wait_text("#panel-placement .slots", "answers, [1-9]")
        if "does not show its placement" not in b.text("#panel-placement"):
            b.click(".segmented button:nth-child(3)")
            b.wait_text("#panel-placement", "1 switch. Last: layer → tensor in .* and moved [1-9]")
            self.assertEqual(b.text(".segmented [aria-pressed=true]"), "tensor")
        b.press("escape")
        self.wait_idle()
        self.assertEqual(b.text(".notice:not([hidden])").replace("This server does not show its placement.", ""), "")

    def test_placement_and_switch(self):
        b = self.start()
        slots = [200, json.dumps([{"id": 0, "n_ctx": 256, "is_processing": True, "n_held": 64, "next_token": {"n_decoded": 9}},
                                  {"id": 1, "n_ctx": 256, "is_processing": False, "n_held": 5}])]
        replies = {"GET /placement": [200, placement("layer", 1)], "GET /slots": slots}
        b.script(MOCK, replies)
        b.click("#tab-placement")
        b.wait("document.querySelectorAll('.device').length === 3")
        self.assertEqual(b.all(".device", "e.querySelectorAll('.cells i').length"), [12, 12, 1])
        self.assertRegex(b.text(".device .use"), r"300 MiB used, no limit set\n300 MiB used, 724 MiB free\n5 B, read when needed")
        self.assertEqual(b.text(".segmented [aria-pressed=true]"), "layer")
        b.wait_text(".slots", "Slot 0answers, 9 tokens641 of 2 slots are idle and keep 5 tokens")
        self.assertEqual(b.count("#side :is(img, script, b)"), 0)
        refusal = "device cpu:0 lacks 5 MiB; kept the layer placement"
        b.script(MOCK, {**replies, "POST /placement": [409, json.dumps({"error": {"message": refusal}})]})
        b.type("#shares", "3, 1")
        b.click(".segmented button:nth-child(3)")
        b.wait_text("#panel-placement", f"Not switched: {refusal}")
        asked = b.script("return window.asked.find((r) => r.method === 'POST').body")
        self.assertEqual(asked, {"split_mode": "tensor", "tensor_split": [3, 1]})
        last = {"from": "layer", "to": "tensor", "ms": 42.3, "waited_ms": 3, "moved_bytes": 1 << 20, "error": None}
        after = [200, placement("tensor", 2, count=1, last=last)]
        b.script(MOCK, {"GET /placement": after, "POST /placement": after, "GET /slots": slots})
        b.click(".segmented button:nth-child(3)")
        b.wait_text("#panel-placement", "1 switch. Last: layer → tensor in 42 ms; it waited 3 ms .* and moved 1.0 MiB")
        self.assertEqual(b.count(".cells i.moved"), 12)
        b.script(MOCK, {"GET /slots": slots})
        b.wait_text("#panel-placement .notice", "This server does not show its placement")
        # Nobody is asked while the panel is closed.
        b.click("#tab-placement")
        b.script("window.asked.length = 0; window.closed_at = performance.now()")
        b.wait("performance.now() > window.closed_at + 1500")
        self.assertEqual(b.script("return window.asked"), [])

    def test_phone(self):
        b = self.ready()
        self.addCleanup(b.call, "POST", "/goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
        b.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}})
        self.ask("A word that is too long for a phone: " + "x" * 200)
        for tab in ("", "#tab-placement", "#tab-inspector", "#tab-settings"):
            if tab:
                b.click(tab)
            self.assertLessEqual(b.script("return document.documentElement.scrollWidth"), 360, tab)
        self.assertTrue(b.script("const list = document.getElementById('messages'); return list.scrollWidth <= list.clientWidth"))
        b.click("#tab-settings")
        b.click("#toggle-sidebar")
        b.wait("document.querySelector('#sidebar').getBoundingClientRect().left === 0")
        b.press("escape")
        b.wait("document.querySelector('#sidebar').getBoundingClientRect().right <= 0")

    def test_everything_has_a_name(self):
        b = self.ready()
        for tab in ("placement", "inspector", "settings"):
            b.click(f"#tab-{tab}")
        nameless = b.script("""return [...document.querySelectorAll('button, input, select, textarea')]
            .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map((e) => e.outerHTML)""")
        self.assertEqual(nameless, [])


if __name__ == "__main__":
    main()
