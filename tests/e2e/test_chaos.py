"""Chaos against one server, and servers that are killed: nothing of it changes what others are told, and nothing is left behind.
Longer with PELTON_LONG_TESTS; hours with tools/soak.sh."""

import os
import pathlib
import random
import signal
import socket
import subprocess
import threading
import time

import pytest
from chaos import CONTROLS, Accountant, ControlStream, connector, run_chaos
from chaos_client import ChaosClient, Reader, encode, reset
from conftest import BINARY
from server_support import Server
from support import RUNNEL

# Slots for few, blocks for fewer: preemption is part of it.
MIXES = {"roomy": ("--max-num-seqs", 16), "tight": ("--max-num-seqs", 3, "--max-model-len", 512, "--max-queue", 24)}
LONG = bool(os.environ.get("PELTON_LONG_TESTS"))
SHORT = {"prompt": "The river is", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


# Two minutes; ten more on one server when there is time.
RUNS = [(mix, seed, 30) for seed in (1, 2) for mix in MIXES] + [("tight", 3, 600)] * LONG


@pytest.mark.parametrize(("mix", "seed", "seconds"), RUNS)
def test_chaos_changes_nothing_for_others(mix, seed, seconds):
    with Server(*MIXES[mix]) as server:
        summary = run_chaos(server, seed, seconds)
        print(summary.text())
        assert 500 not in summary.statuses
        # Memory is a plateau, not a slope; a sanitizer keeps what was freed for a while.
        if "asan" not in str(BINARY):
            half = summary.rss_mb[len(summary.rss_mb) // 2]
            assert summary.rss_mb[-1] < half + 40, summary.rss_mb


def test_every_action_is_drawn_again_from_its_seed():
    class Recorder(ChaosClient):
        def __init__(self, seed):
            super().__init__(None, seed)
            self.bytes = []

        def once(self, data, head_only=False):
            self.bytes.append(data)
            raise InterruptedError

    def first(seed):
        client = Recorder(seed)
        with pytest.raises(InterruptedError):
            client.normal()
        return client.bytes

    assert first(7) == first(7) != first(8)


def test_a_request_cut_at_every_byte():
    with Server() as server:
        accountant = Accountant(server)
        data = encode({**SHORT, "stream": True})
        for at in range(len(data) + 1):
            for how in (reset, socket.socket.close):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                connection.sendall(data[:at])
                how(connection)
        accountant.check()


def test_an_answer_cut_at_every_chunk():
    with Server() as server:
        accountant = Accountant(server)
        control = server.post("/v1/completions", SHORT)["choices"]
        for at in range(0, 4000, 97):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            connection.sendall(encode({**SHORT, "max_tokens": 60, "stream": True}))
            left = at
            while left > 0 and (got := connection.recv(left)):
                left -= len(got)
            reset(connection)
        assert server.post("/v1/completions", SHORT)["choices"] == control
        accountant.check()


def test_two_thousand_idle_connections_take_less_than_50_mb():
    with Server("--max-connections", 2200) as server:
        accountant = Accountant(server)
        before, idle = accountant.rss_mb(), []
        try:
            for i in range(2000):
                idle.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                if i % 4 == 0:  # some have been served before
                    idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert Reader(idle[-1]).answer().status == 200
            while server.metrics()["pelton_connections_open"] < 2000:
                time.sleep(0.05)
            taken = accountant.rss_mb() - before
            assert server.post("/v1/completions", SHORT)["usage"]["completion_tokens"] == 8
        finally:
            for connection in idle:
                connection.close()
        if "asan" not in str(BINARY):
            assert taken < 50, f"{taken:.1f} MB"
        accountant.check()


def test_clients_that_do_not_read_take_bounded_memory():
    """64 answers that nobody reads: each holds its buffer and no more, then ends, and the control's gap stays small."""
    with Server("--max-num-seqs", 16) as server:
        accountant = Accountant(server)
        control = ControlStream(server, connector(server))
        before, peak, slow = accountant.rss_mb(), 0, []
        try:
            for i in range(4):
                connection = socket.socket()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", server.port))
                connection.sendall(encode({**SHORT, "max_tokens": 900, "n": 16, "temperature": 1, "logprobs": 20, "stream": True,
                                           "seed": i}))
                slow.append(connection)
            for which in range(6):
                control.step(which)
                peak = max(peak, accountant.rss_mb())
        finally:
            for connection in slow:
                connection.close()
        assert control.served > 0
        if "asan" not in str(BINARY):
            assert peak - before < 60, f"{peak - before:.1f} MB"
        accountant.check()


def test_slow_heads_bodies_and_idle_connections_have_their_time():
    with Server("--header-timeout", 0.3, "--body-timeout", 0.3, "--idle-timeout", 0.3) as server:
        assert server.raw(b"") == b""
        assert server.raw(b"POST /tokenize HTTP/1.1\r\nHost: local").startswith(b"HTTP/1.1 408 ")
        assert server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{").startswith(b"HTTP/1.1 408 ")
        # A byte now and then does not keep a head or a body alive.
        for data in (b"GET /health HTTP/1.1\r\nHost: " + b"a" * 400,
                     b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n\r\n" + b"a" * 400):
            head = data[:-400]
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(head)
                try:
                    for _ in range(100):
                        connection.sendall(b"a")
                        time.sleep(0.02)
                except ConnectionError:
                    pass
                assert Reader(connection).answer().status in (408, None)
        assert server.call("GET", "/health")[0] == 200


def test_two_thousand_requests_at_once_are_all_answered():
    with Server("--max-num-seqs", 4, "--max-queue", 64, "--max-connections", 2200) as server:
        before = server.settle()
        connections = [socket.create_connection(("127.0.0.1", server.port), timeout=120) for _ in range(2000)]
        statuses = []
        for connection in connections:
            connection.sendall(encode({**SHORT, "max_tokens": 1}))
        for connection in connections:
            statuses.append(Reader(connection).answer().status)
            connection.close()
        assert set(statuses) <= {200, 429} and statuses.count(200) > 0
        after = server.settle()
        ended = sum(after[name] - before[name] for name in after if name.startswith("pelton_requests_ended_total"))
        assert ended == 2000


def test_killed_at_any_moment_and_started_again(tmp_path):
    """SIGKILL and SIGTERM while it loads and while it serves: the next start finds its port and nothing in its way."""
    rng = random.Random(11)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = [tmp_path, pathlib.Path("/dev/shm")]
    before = [sorted(place.iterdir()) for place in places]
    expected = None
    for round_ in range(100 if LONG else 12):
        process = subprocess.Popen([str(BINARY), "serve", str(RUNNEL), "--port", str(port), "--threads", "1"], cwd=tmp_path,
                                   env={**os.environ, "TMPDIR": str(tmp_path)}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        how = rng.choice([signal.SIGKILL, signal.SIGTERM])
        if rng.random() < 0.3:  # while it loads
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(how)
            process.communicate(timeout=60)
            assert process.returncode in (-how, 0)
            continue
        line = process.stderr.readline()
        assert f":{port}/" in line, line + process.stderr.read()
        connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.sendall(encode(CONTROLS[0]))
        texts = [c["text"] for c in Reader(connection).answer().json()["choices"]]
        expected = expected or texts
        assert texts == expected
        streams = []
        for _ in range(3):
            streams.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            streams[-1].sendall(encode({**SHORT, "max_tokens": 300, "stream": True}))
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(how)
        outs = []
        for stream in streams:
            out = b""
            try:
                while chunk := stream.recv(65536):
                    out += chunk
            except ConnectionError:
                pass
            outs.append(out)
            stream.close()
        connection.close()
        process.communicate(timeout=60)
        assert process.returncode == (0 if how == signal.SIGTERM else -how), round_
        if how == signal.SIGTERM:
            # Accepted: told to the end. Not yet read when it closed: not a byte, or refused.
            for out in outs:
                assert out == b"" or b"data: [DONE]\n\n" in out or out.startswith(b"HTTP/1.1 503 "), out[-200:]
    assert expected is not None
    assert [sorted(place.iterdir()) for place in places] == before


def test_threads_of_clients_and_signals_do_not_deadlock():
    """SIGTERM in the middle of chaos: it ends by itself, with exit code 0."""
    with Server("--drain-timeout", 5) as server:
        chaos = [ChaosClient(lambda **_: socket.create_connection(("127.0.0.1", server.port), timeout=60), i) for i in range(4)]

        def run(client):
            try:
                for _ in range(1000):
                    client.step()
            except (OSError, AssertionError, KeyError):
                pass  # the server goes away under it

        threads = [threading.Thread(target=run, args=(client,)) for client in chaos]
        for thread in threads:
            thread.start()
        time.sleep(1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=40) == 0
        for thread in threads:
            thread.join()
