"""What clients do wrong, and what happens to the others."""

import http.client
import json
import signal
import socket
import threading
import time

import pytest
from server_support import Server

LONG = {"prompt": "The river is", "max_tokens": 900, "temperature": 0, "ignore_eos": True}
SHORT = {**LONG, "max_tokens": 8}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running
        running.settle()


def request_bytes(body, path="/v1/completions", extra=""):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


HEADS = [
    (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\nHost: a\n\n", 400), (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /health HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40000, 431),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"h%d: 1\r\n" % i for i in range(120)) + b"\r\n", 431),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nXYZ\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415),
]


@pytest.mark.parametrize("data, status", HEADS, ids=range(len(HEADS)))
def test_malformed_requests_get_an_answer_and_a_close(server, data, status):
    out = server.raw(data)
    assert out.startswith(b"HTTP/1.1 %d " % status), out[:200]
    assert b"Connection: close" in out
    assert json.loads(out.split(b"\r\n\r\n", 1)[1])["error"]["message"]
    assert server.call("GET", "/health")[0] == 200


def head_of(size=None, headers=1, target=1):
    """A request whose head has exactly these measures."""
    lines = [b"GET /" + b"a" * (target - 1) + b" HTTP/1.1", b"Host: localhost"]
    lines += [b"h%d: 1" % i for i in range(headers - 1)]
    data = b"\r\n".join(lines) + b"\r\n"
    if size is not None:
        data = data[:-2] + b"x" * (size - len(data) - 2) + b"\r\n"
    return data + b"\r\n"


@pytest.mark.parametrize("inside, beyond, status", [
    (head_of(headers=100), head_of(headers=101), 431), (head_of(target=8 << 10), head_of(target=(8 << 10) + 1), 414),
    (head_of(size=32 << 10, headers=5), head_of(size=(32 << 10) + 1, headers=5), 431)], ids=["headers", "target", "bytes"])
def test_limits_of_heads_are_sharp(server, inside, beyond, status):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(inside)
        assert connection.recv(100).startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 404 "))
    assert server.raw(beyond).startswith(b"HTTP/1.1 %d " % status)


def test_depth_of_json_is_bounded(server):
    """64 levels, of which the innermost may be empty."""
    for depth, inner, status in ((64, b"", 200), (63, b"1", 200), (64, b"1", 400), (65, b"1", 400)):
        # The body itself is the first level.
        body = b'{"prompt":"a","max_tokens":1,"metadata":' + b"[" * (depth - 1) + inner + b"]" * (depth - 1) + b"}"
        assert server.call("POST", "/v1/completions", body)[0] == status, (depth, inner)


def test_pipelined_requests_are_answered_in_order(server):
    first = request_bytes({"prompt": "one"}, "/tokenize")
    last = request_bytes({"prompt": "one two"}, "/tokenize", "Connection: close\r\n")
    out = server.raw(first + first + last)
    counts = [json.loads(part.split(b"\r\n\r\n", 1)[1])["count"] for part in out.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert counts == [1, 1, 2] or (len(counts) == 3 and counts[0] == counts[1] < counts[2])


def test_chunked_bodies_and_expectations(server):
    body = b'{"prompt":"one"}'
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, body[i:i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
    out = server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    assert out.startswith(b"HTTP/1.1 200 ")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 16\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_old_clients_get_streams_until_the_close(server):
    data = json.dumps({**SHORT, "stream": True}).encode()
    out = server.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    assert b"Transfer-Encoding" not in out and out.endswith(b"data: [DONE]\n\n")


def test_bodies_beyond_the_limit_are_413(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/tokenize", json.dumps({"prompt": "a" * (8 << 20)}))
    assert connection.getresponse().status == 413
    assert server.call("POST", "/tokenize", {"prompt": "ab " * 100000})[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_work_stops_when_clients_leave(server, stream):
    before = server.settle()
    control = server.post("/v1/completions", SHORT)["choices"]
    for i in range(30):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(request_bytes({**LONG, "stream": stream, "n": 1 + i % 3}))
            if i % 2 and stream:
                connection.recv(10)
            time.sleep(0.002 * (i % 5))
    after = server.settle()
    assert after["pelton_engine_cancelled_total"] > before["pelton_engine_cancelled_total"]
    assert server.post("/v1/completions", SHORT)["choices"] == control


def test_a_full_queue_refuses_at_once_and_everybody_is_answered():
    with Server("--max-num-seqs", 1, "--max-queue", 2) as server:
        statuses = []

        def one():
            status, headers, _ = server.call("POST", "/v1/completions", {**LONG, "max_tokens": 100})
            statuses.append(status)
            if status != 200:
                assert status == 429 and int(headers["retry-after"]) >= 1

        threads = [threading.Thread(target=one) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(statuses) == 24 and set(statuses) == {200, 429}
        server.settle()


def test_waiting_and_running_have_their_limits():
    with Server("--max-num-seqs", 1, "--queue-timeout", 0.2) as server:
        hold = [threading.Thread(target=lambda: server.call("POST", "/v1/completions", {**LONG, "n": 3})) for _ in range(3)]
        for thread in hold:
            thread.start()
        time.sleep(0.2)
        status, headers, answer = server.call("POST", "/v1/completions", SHORT)
        assert status in (200, 503)
        if status == 503:
            assert "retry-after" in headers and answer["error"]["type"] == "overloaded_error"
        for thread in hold:
            thread.join()
        status, headers, answer = server.call("POST", "/v1/completions", {**LONG, "timeout": 0.05})
        assert status == 503 and answer["error"]["param"] == "timeout" and answer["error"]["type"] == "timeout_error"
        assert int(headers["retry-after"]) >= 1
        server.settle()


def test_keys_guard_every_route_but_two(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nfirst-key-1234\nsecond-key-1234 2\n")
    with Server("--api-key-file", keys) as server:
        for path in ("/health", "/ready"):
            assert server.call("GET", path)[0] == 200
        wrong = [{}, {"Authorization": "Bearer first-key-123"}, {"Authorization": "Bearer FIRST-KEY-1234"},
                 {"Authorization": "first-key-1234"}, {"x-api-key": "first-key-1234x"}, {"Authorization": "Bearer "}]
        described = server.call("GET", "/openapi.json", headers={"x-api-key": "second-key-1234"})[2]["paths"]
        routes = {(method.upper(), path) for path, methods in described.items() for method in methods}
        routes |= {("GET", path) for path in ("/metrics", "/status", "/version", "/openapi.json", "/v1/models", "/v1/models/runnel",
                                              "/not-a-route")}
        routes -= {("GET", "/health"), ("GET", "/ready"), ("GET", "/")}
        assert {("POST", "/v1/messages"), ("POST", "/v1/embeddings"), ("POST", "/detokenize")} <= routes
        for method, path in sorted(routes):
            for headers in wrong:
                status, _, answer = server.call(method, path, "{}" if method == "POST" else None, headers)
                assert status == 401 and "key-1234" not in json.dumps(answer), (method, path)
        for headers in ({"Authorization": "Bearer first-key-1234"}, {"x-api-key": "second-key-1234"}):
            assert server.call("POST", "/v1/completions", SHORT, headers)[0] == 200
        # Two that disagree are one: the bearer's.
        for bearer, other, status in (("first-key-1234", "nobodys-key", 200), ("nobodys-key", "first-key-1234", 401)):
            both = {"Authorization": f"Bearer {bearer}", "x-api-key": other}
            assert server.call("POST", "/v1/completions", SHORT, both)[0] == status
        # Refused before the body is read.
        out = server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        assert out.startswith(b"HTTP/1.1 401 ")


def test_browsers_from_elsewhere_are_refused(server):
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}, {"Host": "127.evil.example"}):
        status, answer_headers, _ = server.call("POST", "/v1/completions", SHORT, headers)
        assert status == 403 and "access-control-allow-origin" not in answer_headers
        assert server.call("OPTIONS", "/v1/completions", None, headers)[0] in (403, 405)
    own = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert server.call("POST", "/v1/completions", SHORT, own)[0] == 200
    with Server("--allowed-origins", "https://chat.example") as other:
        status, headers, _ = other.call("OPTIONS", "/v1/completions", None, {"Origin": "https://chat.example"})
        assert status == 204 and headers["access-control-allow-origin"] == "https://chat.example"
        assert other.call("POST", "/v1/completions", SHORT, {"Origin": "https://evil.example"})[0] == 403


def test_sigterm_lets_streams_end():
    with Server() as server:
        outs = []

        def one():
            outs.append(server.raw(request_bytes({**LONG, "max_tokens": 300, "stream": True})))

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        while server.metrics()["pelton_engine_requests_total"] < 8:
            time.sleep(0.01)
        idle = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert all(b"data: [DONE]\n\n" in out and out.endswith(b"0\r\n\r\n") for out in outs)
        assert all(b'"finish_reason":"length"' in out for out in outs)
        assert server.process.wait(timeout=20) == 0
        assert idle.recv(10) == b""
        with pytest.raises(OSError):
            server.call("GET", "/health")


def test_the_drain_has_an_end_and_a_second_signal_cuts_it():
    with Server("--drain-timeout", 0.1, "--max-model-len", 1024) as server:
        out = []
        thread = threading.Thread(target=lambda: out.append(server.raw(request_bytes({**LONG, "n": 16, "stream": True}))))
        thread.start()
        while server.metrics()["pelton_engine_requests_total"] < 1:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        assert server.process.wait(timeout=20) == 0
        assert b"data: [DONE]\n\n" in out[0] or b"HTTP/1.1 503" in out[0]
    with Server() as server:
        thread = threading.Thread(target=lambda: server.raw(request_bytes({**LONG, "n": 16, "stream": True})))
        thread.start()
        while server.metrics()["pelton_engine_requests_total"] < 1:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=10) != 0
        thread.join()


def test_metrics_agree_with_what_was_done(server):
    before = server.settle()
    for _ in range(3):
        server.post("/v1/completions", SHORT)
    server.call("POST", "/v1/completions", {**SHORT, "n": 0})
    server.post("/v1/completions", {**SHORT, "stop": "e", "max_tokens": 200})
    after = server.settle()

    def rise(name):
        return after["pelton_" + name] - before["pelton_" + name]

    assert rise("engine_requests_total") == rise("engine_finished_total") == 4
    assert rise('requests_ended_total{finish_reason="length"}') >= 3
    assert rise("request_generation_tokens_sum") == rise("generation_tokens_total")
    assert rise("time_to_first_token_seconds_count") == 4
    names = {name.split("{")[0] for name in after}
    for i in range(500):
        assert server.call("POST", "/v1/completions", {**SHORT, "model": f"made-up-{i}"})[0] == 404
        assert server.call("GET", f"/made-up-{i}?{i}", headers={"User-Agent": f"made-up-{i}"})[0] == 404
        server.call(f"MADEUP{i}", "/health")
    assert {name.split("{")[0] for name in server.metrics()} == names
    assert len(server.metrics()) == len(after)
    assert all(after[name] >= before[name] for name in before if name.endswith("_total"))


def test_prompts_do_not_reach_the_log():
    with Server() as server:
        server.post("/v1/completions", {**SHORT, "prompt": "canary-8d1f"})
        server.call("POST", "/v1/completions", {**SHORT, "prompt": "canary-8d1f", "n": 0})
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=20)
        assert "canary" not in server.process.stderr.read()


def test_a_client_that_does_not_read_is_dropped_alone(server):
    before = server.settle()
    control = server.post("/v1/completions", SHORT)["choices"]
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        # Far more than its buffers hold: 16 answers with 20 alternatives a token.
        slow.sendall(request_bytes({**LONG, "n": 16, "temperature": 1, "logprobs": 20, "stream": True}))
        while server.metrics()["pelton_engine_cancelled_total"] == before["pelton_engine_cancelled_total"]:
            assert server.post("/v1/completions", SHORT)["choices"] == control
    server.settle()


def test_few_files_mean_few_connections_and_it_says_so():
    with Server(files=128) as server:
        assert any("at most 64 connections" in line for line in server.warnings), server.warnings
        first = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        others = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(120)]
        assert others[-1].recv(1) == b""  # closed at once
        first.sendall(request_bytes(SHORT))
        assert first.recv(100).startswith(b"HTTP/1.1 200 ")
        for connection in [first, *others]:
            connection.close()
        # As many as it can hold, again and again.
        for _ in range(3):
            deadline = time.monotonic() + 20
            while True:
                try:
                    if server.call("POST", "/v1/completions", SHORT)[0] == 200:
                        break
                except (OSError, http.client.HTTPException):
                    pass
                assert time.monotonic() < deadline
        server.settle()


def test_idle_connections_hold_nobody_up(server):
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(500)]
    for connection in idle[::2]:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: loc")
    assert server.post("/v1/completions", SHORT)["usage"]["completion_tokens"] == 8
    assert server.metrics()["pelton_connections_open"] > 500
    for connection in idle:
        connection.close()
    while server.metrics()["pelton_connections_open"] > 1:
        time.sleep(0.02)
