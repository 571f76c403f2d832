#!/usr/bin/env python3
"""Takes docs/page.png: the page after a question to the demo's model, during which the placement was switched.

  page_picture.py [URL]   URL: of a server that runs; without, one is started on two logical devices
"""
import base64
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser_support import Browser  # noqa: E402
from server_support import Server  # noqa: E402

MODEL = ROOT / "models/smollm2-135m-instruct-q4_1.gguf"
QUESTION = "Write a Python function that says whether a number is prime, and explain it in three short points."


def take(url):
    browser = Browser(1360, 1040)
    try:
        browser.open(url)
        browser.wait("document.querySelector('#model option')")
        browser.script("localStorage.setItem('tessera.settings', JSON.stringify({sampling: {temperature: 0, max_tokens: 300}}))")
        browser.open(url)
        browser.wait("document.querySelector('#model option')")
        browser.click("#tab-placement")
        browser.type("#prompt", QUESTION)
        browser.press("enter")
        browser.wait("document.querySelector('article.assistant .text').textContent.length > 100")
        browser.click(".segmented button:nth-child(3)")
        browser.wait("!document.getElementById('send').hidden && document.querySelector('.note')")
        browser.wait_text("#panel-placement", "Last: layer → tensor in")
        browser.script("document.getElementById('messages').scrollTop = 0; document.activeElement.blur()")
        return base64.b64decode(browser.picture())
    finally:
        browser.close()


def main():
    if len(sys.argv) > 1:
        picture = take(sys.argv[1])
    else:
        server = Server("--device", "cpu:0,cpu:1", "--device-memory", "192M,256M", "-sm", "layer", "-c", "4096", model=str(MODEL))
        picture = take(f"http://127.0.0.1:{server.port}/")
        server.stop()
    (ROOT / "docs/page.png").write_bytes(picture)
    print(f"docs/page.png, {len(picture)} bytes")


main()
