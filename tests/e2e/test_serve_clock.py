"""A wall clock that jumps by hours, or that begins in 1970: nothing waits for it and nothing is late by it."""

import http.client
import json
import pathlib
import shutil
import struct
import subprocess
import threading
import time

import pytest
from conftest import BINARY
from server_support import Server

REQUEST = {"prompt": "The river is", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "timeout": 50}
JUMPS = [3600, -3600, 0, 86400 * 400, -86400 * 400, 1]

pytestmark = pytest.mark.skipif("asan" in str(BINARY), reason="a sanitizer wants to be loaded first")


class WallClock:
    """The offset that the preloaded library reads."""

    def __init__(self, folder):
        if shutil.which("cc") is None:
            pytest.fail("a C compiler is missing")
        library = folder / "clock.so"
        source = pathlib.Path(__file__).with_name("clock_shim.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        self.file = folder / "offset"
        self.set(0)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(self.file)}

    def set(self, seconds):
        self.offset = seconds
        mode = "r+b" if self.file.exists() else "wb"  # in place: it is mapped
        with open(self.file, mode) as file:
            file.write(struct.pack("=q", seconds))


@pytest.fixture
def clock(tmp_path):
    return WallClock(tmp_path)


def test_jumps_change_nothing_but_time_stamps(clock, tmp_path):
    log = tmp_path / "requests.jsonl"
    with Server("--max-num-seqs", 2, "--queue-timeout", 30, "--step-watchdog", 10, "--request-log", log,
                environment=clock.environment) as server:
        expected = server.post("/v1/completions", REQUEST)["choices"][0]["text"]
        idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        idle.request("GET", "/health")
        idle.getresponse().read()
        wrong, done = [], threading.Event()

        def ask():
            while not done.is_set():
                text = "".join(c["text"] for e in server.events("/v1/completions", REQUEST) for c in e["choices"])
                if text != expected:
                    wrong.append(text)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for jump in JUMPS * 3:
            clock.set(jump)
            created = server.post("/v1/completions", {**REQUEST, "max_tokens": 1})["created"]
            assert abs(created - (time.time() + jump)) < 30, "the library is not in use"
            assert server.call("GET", "/health")[0] == 200
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        idle.request("GET", "/health")
        assert idle.getresponse().status == 200
        metrics = server.settle()
        assert metrics["pelton_engine_failed_total"] == metrics["pelton_engine_cancelled_total"] == 0
        for name in ("pelton_time_to_first_token_seconds_sum", "pelton_queue_wait_seconds_sum"):
            assert 0 <= metrics[name] < 600, name
        assert 0 <= server.call("GET", "/status")[2]["uptime_s"] < 600
    for line in log.read_text().splitlines():
        assert 0 <= json.loads(line)["timings"]["total_ms"] < 60_000


def test_a_machine_without_a_clock_of_its_own(clock):
    clock.set(5 - int(time.time()))
    with Server(environment=clock.environment) as server:
        assert 0 < server.post("/v1/completions", {**REQUEST, "max_tokens": 2})["created"] < 3600
        assert server.call("GET", "/v1/models")[2]["data"][0]["created"] < 3600
        server.settle()
