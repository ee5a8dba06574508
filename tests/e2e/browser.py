"""A headless Chromium driven over a pipe by its DevTools protocol: no package beside the browser."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, profile, language="en"):
        to_child, self.output = os.pipe()
        self.input, from_child = os.pipe()

        def place_pipes():
            # The browser reads 3 and writes 4; copies first, so that neither overwrites the other.
            reading, writing = os.dup(to_child), os.dup(from_child)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.log = open(profile / "browser.log", "w+")
        self.process = subprocess.Popen(
            [find_browser(), "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={profile}", f"--accept-lang={language}", f"--lang={language}"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=place_pipes, close_fds=False)
        os.close(to_child)
        os.close(from_child)
        self.buffer = b""
        self.number = 0
        self.listeners = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            pass
        os.close(self.output)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        self.log.close()

    def receive(self, timeout):
        """The next message, or None when none comes in time."""
        deadline = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.input, 1 << 20)
            if not data:
                self.log.seek(0)
                raise AssertionError("the browser ended: " + self.log.read()[-2000:])
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def pump(self, timeout=0.0, wanted=None):
        """Hands events to their pages; the answer of number `wanted` when it comes."""
        deadline = time.monotonic() + timeout
        while True:
            message = self.receive(max(0, deadline - time.monotonic()))
            if message is None:
                return None
            if wanted is not None and message.get("id") == wanted:
                return message
            listener = self.listeners.get(message.get("sessionId"))
            if listener and "method" in message:
                listener(message["method"], message["params"])

    def call(self, method, session=None, timeout=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        answer = self.pump(timeout, self.number)
        assert answer is not None, f"{method}: no answer"
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]


class Page:
    """One tab in a context of its own: storage is empty at first."""

    def __init__(self, browser, url, width=1280, height=800, phone=False, dark=False):
        self.browser = browser
        self.problems = []  # of the console: exceptions, errors, what the policy blocked
        self.requests = []  # every address that was asked for
        self.bodies = []  # what was posted
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.listeners[self.session] = self.on_event
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.go(url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.listeners.pop(self.session, None)
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def on_event(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
            if "postData" in parameters["request"]:
                self.bodies.append(json.loads(parameters["request"]["postData"]))

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement?.dataset.started === 'yes'")

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"does not come true: {condition}\n{self.text('body')[-2000:]}\n{self.problems}")
            self.browser.pump(0.02)

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector):
        """As a pointer does: what lies over the element gets the click instead."""
        place = self.evaluate(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "nearest"}});
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, " ": 32}
        extra = {"text": "\r"} if name == "Enter" else {"text": " "} if name == " " else {}
        common = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name], "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
