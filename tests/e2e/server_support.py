"""A server as a process of the tests, and the least client that can talk to it."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time

from conftest import BINARY
from support import RUNNEL


class Server:
    """`pelton serve` on a port of its own. Ended by SIGTERM, and that it ends well is part of every test."""

    def __init__(self, *arguments, model=RUNNEL, environment=None, files=None):
        self.process = subprocess.Popen(
            [str(BINARY), "serve", str(model), "--port", "0", "--threads", "1", "--served-model-name", "runnel",
             *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})},
            preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))))
        self.warnings = []
        line = self.process.stderr.readline()
        while line.startswith("pelton: warning: "):
            self.warnings.append(line)
            line = self.process.stderr.readline()
        found = re.search(r"https?://127\.0\.0\.1:(\d+)", line)
        assert found, line + self.process.stderr.read()
        self.first_line = line
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is not None:
            assert kind is not None or self.process.returncode is not None
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if kind is None:
            assert code == 0, self.process.stderr.read()

    def call(self, method, path, body=None, headers=None, timeout=60):
        """Status, headers (lower case), parsed JSON or text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        if method != "HEAD" and names.get("content-type", "").startswith("application/json"):
            return response.status, names, json.loads(text)
        return response.status, names, text

    def post(self, path, body, **headers):
        status, _, answer = self.call("POST", path, body, headers)
        assert status == 200, answer
        return answer

    def events(self, path, body):
        """The JSON objects of a stream, without its [DONE], which must come last."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        assert response.status == 200, text
        assert response.getheader("Content-Type").startswith("text/event-stream")
        blocks = text.split("\n\n")
        assert blocks[-1] == "" and blocks[-2] == "data: [DONE]", text[-200:]
        assert all(block.startswith("data: ") and "\n" not in block for block in blocks[:-1])
        return [json.loads(block[6:]) for block in blocks[:-2]]

    def raw(self, data, timeout=30):
        """Everything that comes back for these bytes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            out = b""
            while chunk := connection.recv(65536):
                out += chunk
            return out

    def metrics(self):
        status, _, text = self.call("GET", "/metrics")
        assert status == 200
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if line and not line.startswith("#")}

    def settle(self):
        """Waits until nothing runs; the metrics then."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            m = self.metrics()
            ended = m["pelton_engine_finished_total"] + m["pelton_engine_cancelled_total"] + m["pelton_engine_failed_total"]
            if m["pelton_requests_running"] == 0 and m["pelton_requests_waiting"] == 0 and \
                    ended == m["pelton_engine_requests_total"]:
                assert m["pelton_kv_blocks_free"] == m["pelton_kv_blocks"]
                return m
            time.sleep(0.05)
        raise AssertionError(f"the server does not come to rest: {m}")


def joined(events, field):
    """Texts of a stream by choice, and finish reasons; each choice must end exactly once, in its last chunk."""
    texts, ends = {}, {}
    for event in events:
        for choice in event["choices"]:
            index = choice["index"]
            assert index not in ends, "a chunk after the finish"
            piece = choice["delta"].get("content", "") if field == "delta" else choice["text"]
            texts[index] = texts.get(index, "") + piece
            assert "finish_reason" in choice
            if choice["finish_reason"] is not None:
                assert piece == ""
                ends[index] = choice["finish_reason"]
    assert ends.keys() == texts.keys()
    return texts, ends
