"""What /metrics and the request log say under load, and that nothing asks them for what they do not say."""

import json
import re
import signal
import threading

import pytest
from conftest import ROOT
from server_support import Server
from support import RUNNEL, refused

SHORT = {"model": "runnel", "prompt": [5] * 40, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
COUNTERS = re.compile(r"_total|_bucket|_count")


def families(text):
    return set(re.findall(r"^# TYPE (\S+)", text, flags=re.MULTILINE))


def test_counters_only_grow_under_preemption_cancelling_and_cache_hits():
    # A pool for about two sequences, clients that leave half-way, prompts that share their beginning.
    with Server("--num-kv-blocks", 8, "--block-size", 16, "--max-num-seqs", 4, "--max-model-len", 112) as server:
        done = threading.Event()

        def client(number):
            for turn in range(6):
                body = {**SHORT, "prompt": [5] * 32 + [number + 6, turn + 6], "max_tokens": 60}
                if (number + turn) % 3 == 0:
                    server.raw(raw_request(body), timeout=30) if turn == 0 else leave(server, body)
                else:
                    server.post("/v1/completions", body)

        clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        watcher = threading.Thread(target=lambda: [c.join() for c in clients] and done.set() or done.set())
        for thread in (*clients, watcher):
            thread.start()
        before = server.metrics()
        while not done.is_set():
            now = server.metrics()
            for name, value in before.items():
                if COUNTERS.search(name):
                    assert now[name] >= value, name
            assert now["pelton_prefix_cache_hits_total"] <= now["pelton_prefix_cache_queries_total"]
            assert 0 <= now["pelton_kv_cache_usage"] <= 1
            assert 0 <= now["pelton_batch_efficiency"] <= 1
            before = now
        watcher.join()
        after = server.settle()
        assert after["pelton_preemptions_total"] > 0 and after["pelton_recomputed_tokens_total"] > 0
        assert after["pelton_prefix_cache_hits_total"] > 0
        ended = sum(v for k, v in after.items() if k.startswith("pelton_requests_ended_total"))
        assert ended == 24


def raw_request(body):
    text = json.dumps(body).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(text)) + text


def leave(server, body):
    """Asks for a stream and goes away after its first bytes."""
    import socket
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(raw_request({**body, "stream": True}))
        connection.recv(64)


def test_vllm_names_are_aliases():
    with Server("--metrics-names", "vllm") as server:
        server.post("/v1/completions", SHORT)
        text = server.call("GET", "/metrics")[2]
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
                     "generation_tokens_total", "request_success_total", "time_to_first_token_seconds",
                     "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                     "num_preemptions_total", "prefix_cache_hits_total", "prefix_cache_queries_total"):
            assert f"vllm:{name}" in families(text), name
        assert 'vllm:generation_tokens_total{model_name="runnel"} 24' in text
    with Server() as server:
        assert not any(name.startswith("vllm:") for name in families(server.call("GET", "/metrics")[2]))


def test_bad_names_are_refused(pelton):
    refused(pelton("serve", ROOT / "tests/data/runnel-2m", "--port", 0, "--metrics-names", "x"), "--metrics-names")
    refused(pelton("serve", ROOT / "tests/data/runnel-2m", "--port", 0, "--request-log", "/nowhere/log"), "--request-log")


def test_the_dashboard_asks_only_for_what_there_is():
    with Server() as server:
        server.post("/v1/completions", SHORT)
        have = families(server.call("GET", "/metrics")[2])
    text = (ROOT / "deploy/grafana/pelton.json").read_text()
    board = json.loads(text)
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 15
    for query in queries:
        asked = re.findall(r"\b(?:pelton_|vllm:)\w+", query)
        assert asked, query
        for name in asked:
            assert re.sub(r"_(bucket|sum|count)$", "", name) in have or name in have, name
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_request_log_has_a_line_a_request(tmp_path):
    log = tmp_path / "requests.jsonl"
    odd = 'a"b\\' + "\x7f"
    with Server("--request-log", log, "--max-num-batched-tokens", 16) as server:
        server.call("POST", "/v1/completions", SHORT, {"X-Request-Id": 'odd"\\id'})
        server.events("/v1/completions", SHORT)
        server.call("POST", "/v1/completions", {**SHORT, "prompt": odd, "max_tokens": 1})
        server.call("POST", "/v1/completions", {**SHORT, "temperature": -1})
        server.settle()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 3  # what never became a request for text is not one
    first = lines[0]
    assert first["client_request"] == 'odd"\\id' and first["request"].startswith("req-")
    assert first["finish_reason"] == "length" and first["stream"] is False and lines[1]["stream"] is True
    assert first["completion_tokens"] == 24 and first["prompt_tokens"] >= 40
    chunks = first["timings"]["waterfall"][0]["prefill_chunks"]
    assert len(chunks) >= 3 and sum(chunk["tokens"] for chunk in chunks) == first["prompt_tokens"]
    assert all(a["start_ms"] <= b["start_ms"] for a, b in zip(chunks, chunks[1:]))
    assert odd not in log.read_text()


def test_a_request_log_that_cannot_be_written_harms_no_request(pelton, tmp_path):
    with Server("--request-log", "/dev/full") as server:  # a disk without room
        answers = [server.post("/v1/completions", SHORT)["choices"] for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        server.settle()
    refused(pelton("serve", RUNNEL, "--port", 0, "--request-log", tmp_path), "--request-log")


def test_nobody_reads_the_log(tmp_path):
    """Whoever started it is gone, and the lines that it writes have no reader: requests go on."""
    with Server("--request-log", "-") as server:
        server.process.stderr.close()
        answers = [server.post("/v1/completions", SHORT)["choices"] for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=40) == 0


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_padding_is_only_static(batching):
    with Server("--batching", batching, "--max-num-seqs", 2) as server:
        threads = [threading.Thread(target=server.post, args=("/v1/completions", {**SHORT, "max_tokens": n}))
                   for n in (2, 30, 3, 60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        m = server.settle()
        assert (m["pelton_padding_tokens_total"] > 0) == (batching == "static")
