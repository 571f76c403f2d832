"""A headless Chromium for tests, driven over chromedriver's own protocol (W3C WebDriver): JSON over HTTP, so that no client
library is needed. Debian's packages chromium and chromium-driver.
"""
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

TIMEOUT_S = 120  # only against hanging for ever
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's key of an element's id
KEYS = {"enter": "\ue007", "shift": "\ue008", "escape": "\ue00c"}


def missing():
    """Why there is no browser to test with; empty when there is one."""
    lacking = [p for p in ("chromium", "chromedriver") if not shutil.which(p)]
    return f"{' and '.join(lacking)} not installed (scripts/install_deps.sh brings them)" if lacking else ""


class Browser:
    """One window. Elements are named by CSS selectors; what is not there yet is waited for."""

    def __init__(self, width=1280, height=900):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # Read by its name: the position of a descriptor would be shared with the program, which writes there.
        self.log = tempfile.NamedTemporaryFile()
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=self.log, stderr=subprocess.STDOUT)
        self.port = int(self.until(lambda: self.logged(r"successfully on port (\d+)"), "chromedriver's port")[1])
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     f"--window-size={width},{height}", f"--user-data-dir={self.profile.name}"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"},
                   "unhandledPromptBehavior": "accept"}
        self.session = ""
        self.session = "/session/" + self.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]

    def logged(self, pattern):
        return re.search(pattern, pathlib.Path(self.log.name).read_text(errors="replace"))

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self.call("DELETE", "")
        self.driver.terminate()
        self.driver.wait(TIMEOUT_S)
        self.log.close()
        self.profile.cleanup()

    def call(self, method, path, body=None):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)) as connection:
            connection.request(method, self.session + path, None if method != "POST" else json.dumps(body or {}))
            value = json.loads(connection.getresponse().read())["value"]
        assert not (isinstance(value, dict) and "error" in value), f"{path}: {value['message']}"
        return value

    @staticmethod
    def until(condition, what):
        """The first true result of condition()."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if result := condition():
                return result
            time.sleep(0.03)
        raise AssertionError(f"waited in vain for {what}")

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def script(self, text, *arguments):
        """What the function body returns."""
        return self.call("POST", "/execute/sync", {"script": text, "args": arguments})

    def wait(self, expression):
        """The first true value of a JavaScript expression."""
        return self.until(lambda: self.script(f"return {expression}"), expression)

    def all(self, selector, expression):
        """Value of a JavaScript expression of e, for each such element e."""
        return self.script(f"return [...document.querySelectorAll(arguments[0])].map((e) => {expression})", selector)

    def count(self, selector):
        return self.script("return document.querySelectorAll(arguments[0]).length", selector)

    def text(self, selector):
        """Text of all such elements, as it stands in the page; "" for none."""
        return "\n".join(self.all(selector, "e.textContent"))

    def wait_text(self, selector, pattern):
        return self.until(lambda: re.search(pattern, self.text(selector)), f"{pattern} in {selector}: {self.text(selector)!r}")

    def element(self, selector):
        self.wait(f"document.querySelector({json.dumps(selector)})")
        return "/element/" + self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", self.element(selector) + "/click")

    def type(self, selector, text):
        self.call("POST", self.element(selector) + "/value", {"text": text})

    def press(self, *keys):
        """Keys of KEYS, held together."""
        down = [{"type": "keyDown", "value": KEYS[k]} for k in keys]
        up = [{"type": "keyUp", "value": KEYS[k]} for k in reversed(keys)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": down + up}]})

    def picture(self):
        """The window as PNG, in base64."""
        return self.call("GET", "/screenshot")

    def console(self):
        """What the page complained of since the last call, network errors aside."""
        rows = self.call("POST", "/se/log", {"type": "browser"})
        return [row["message"] for row in rows if row["level"] == "SEVERE" and row["source"] != "network"]
