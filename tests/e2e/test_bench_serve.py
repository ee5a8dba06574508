"""The load generator against the server, and against servers that misbehave in every way it has a name for."""

import contextlib
import csv
import http.server
import json
import re
import threading

import pytest
from server_support import Server
from support import documented, members, refused

FEW = ("--num-prompts", 6, "--input-len", 5, "--output-len", 4, "--ignore-eos")


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running
        running.settle()


def measure(pelton, url, *arguments, code=0):
    outcome = pelton("bench-serve", "--url", url, "--json", *arguments)
    assert outcome.code == code, outcome.err
    answer = json.loads(outcome.out)
    assert answer["schema"] == "pelton.bench-serve.1"
    assert answer["requests"]["sent"] == answer["requests"]["completed"] + answer["requests"]["failed"]
    assert sum(answer["requests"]["errors"].values()) == answer["requests"]["failed"]
    return answer


def url_of(server):
    return f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("loop", [("--max-concurrency", 2), ("--request-rate", 100), ()])
def test_counts_what_the_server_counts(server, pelton, endpoint, loop, tmp_path):
    before = server.settle()
    answer = measure(pelton, url_of(server), *FEW, *loop, "--endpoint", endpoint, "--goodput", "e2el:600000",
                     "--csv", tmp_path / "out.csv")
    after = server.settle()
    assert answer["requests"] == {"sent": 6, "completed": 6, "failed": 0, "good": 6, "errors": {}}
    assert answer["model"]["name"] == "runnel"
    assert answer["tokens"]["counted_by_server"] is True
    assert answer["tokens"]["output"] == 24
    for name, key in (("generation_tokens", "output"), ("prompt_tokens", "prompt")):
        assert after[f"pelton_{name}_total"] - before[f"pelton_{name}_total"] == answer["tokens"][key]
    if loop[:1] == ("--max-concurrency",):
        assert answer["most_at_once"] <= 2
    rows = {row["name"]: row["value"] for row in answer["rows"]}
    assert {f"{kind}_{part}" for kind in ("ttft", "tpot", "itl", "e2el") for part in ("p50", "p99")} <= set(rows)
    assert rows["output_throughput"] > 0 and rows["request_goodput"] == pytest.approx(rows["request_throughput"])
    assert answer["latency_ms"]["ttft"]["count"] == answer["latency_ms"]["tpot"]["count"] == 6
    with open(tmp_path / "out.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 and all(line["outcome"] == "ok" and line["output_tokens"] == "4" for line in lines)
    assert all(float(line["ttft_ms"]) <= float(line["e2e_ms"]) for line in lines)


@pytest.mark.parametrize("goals", [(), ("--goodput", "ttft:5000")])
def test_answers_hold_what_the_page_says(server, pelton, goals):
    answer = measure(pelton, url_of(server), *FEW, *goals)
    must, may = documented("`bench-serve`")
    got = {re.sub(r"^latency_ms\.(ttft|tpot|itl|e2el)\.", "latency_ms.e2el.", name) for name in members(answer)}
    assert must <= got, must - got
    assert got <= must | may, got - must - may
    assert set(answer["latency_ms"]) == {"ttft", "tpot", "itl", "e2el"}


def test_token_ids_are_exact_and_prefixes_are_found_again(server, pelton):
    answer = measure(pelton, url_of(server), "--num-prompts", 4, "--input-len", 8, "--output-len", 4, "--token-ids",
                     "10-200", "--prefix-len", 64, "--ignore-eos", "--max-concurrency", 1, "--seed", 5)
    assert answer["tokens"]["prompt"] == 4 * 72
    assert answer["tokens"]["cached"] == 3 * 64


def test_dataset_files(server, pelton, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "The river", "output_len": 3}\n{"prompt": "A", "output_len": 2}\n')
    answer = measure(pelton, url_of(server), "--dataset", file, "--num-prompts", 4, "--ignore-eos")
    assert answer["tokens"]["output"] == 10
    file.write_text('{"prompt": 7}\n')
    refused(pelton("bench-serve", "--url", url_of(server), "--dataset", file), f"{file}:1", "prompt")


def test_refused_requests_are_errors_by_their_status(server, pelton):
    answer = measure(pelton, url_of(server), *FEW, "--model", "other", code=1)
    assert answer["requests"]["errors"] == {"http 404": 6}
    answer = measure(pelton, url_of(server), *FEW, "--extra-body", '{"temperature": -1}', code=1)
    assert answer["requests"]["errors"] == {"http 400": 6}


def test_keys_come_from_a_file(pelton, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-right 2\n")
    wrong = tmp_path / "wrong"
    wrong.write_text("sk-wrong\n")
    with Server("--api-key-file", keys) as server:
        assert measure(pelton, url_of(server), *FEW, "--api-key-file", keys)["requests"]["completed"] == 6
        answer = measure(pelton, url_of(server), *FEW, "--model", "runnel", "--api-key-file", wrong, code=1)
        assert answer["requests"]["errors"] == {"http 401": 6}


GOOD = b'data: {"choices":[{"text":"a"}]}\n\n'
END = b'data: {"choices":[{"text":"","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}}\n\n'


@contextlib.contextmanager
def stub(status=200, kind="text/event-stream", body=b"", length=None, close=False, wait=None):
    """A server that gives every request the same answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            if wait is not None:
                wait.wait(20)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)
            # Closed without having said so: a kept connection that turns out to be gone.
            self.close_connection = close

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_address[1]}"
    finally:
        if wait is not None:
            wait.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


STUB = ("--num-prompts", 3, "--max-concurrency", 1, "--model", "x", "--input-len", 5, "--output-len", 4)


@pytest.mark.parametrize("answer, kind", [
    ({"status": 503, "body": b'{"error":{"message":"busy"}}'}, "http 503"),
    ({"body": GOOD + END[:20], "length": 500, "close": True}, "cut"),
    ({"body": GOOD}, "cut"),
    ({"body": b"data: {not json}\n\n"}, "malformed"),
    ({"body": b"<html>", "kind": "text/html"}, "malformed"),
    ({"body": GOOD + b'data: {"error":{"message":"engine"}}\n\ndata: [DONE]\n\n'}, "error"),
    ({"body": END}, "empty"),
])
def test_every_fault_has_its_kind(pelton, answer, kind):
    with stub(**answer) as url:
        assert measure(pelton, url, *STUB, code=1)["requests"]["errors"] == {kind: 3}


def test_tokens_are_counted_from_pieces_when_there_is_no_usage(pelton):
    with stub(body=GOOD * 5 + END) as url:
        answer = measure(pelton, url, *STUB)
        assert answer["tokens"] == {"prompt": 15, "cached": 0, "output": 15, "counted_by_server": False}
        assert "no usage" in pelton("bench-serve", "--url", url, *STUB).out
    with stub(body=GOOD * 5 + USAGE + END) as url:
        assert measure(pelton, url, *STUB)["tokens"] == {"prompt": 9, "cached": 0, "output": 27, "counted_by_server": True}


def test_a_kept_connection_that_is_gone_is_no_error(pelton):
    with stub(body=GOOD + END, close=True) as url:
        assert measure(pelton, url, *STUB)["requests"]["completed"] == 3


def test_patience_ends(pelton):
    with stub(body=GOOD + END, wait=threading.Event()) as url:
        assert measure(pelton, url, *STUB, "--timeout", 0.2, code=1)["requests"]["errors"] == {"timeout": 3}


def test_nobody_listens(pelton):
    with stub() as url:
        pass
    answer = measure(pelton, url, *STUB, code=1)
    assert answer["requests"]["errors"] == {"connect": 3}
    refused(pelton("bench-serve", "--url", url), "127.0.0.1")


@pytest.mark.parametrize("arguments, words", [
    (("--url", "https://"), ["--url"]),
    (("--url", "http://127.0.0.1:1", "--insecure"), ["--insecure"]),
    (("--url", "https://127.0.0.1:1", "--cacert", "/nowhere.pem"), ["--cacert", "/nowhere.pem"]),
    (("--url", "http://x:0"), ["port"]),
    ((), ["--url"]),
    (("--url", "h:1", "--endpoint", "x"), ["--endpoint"]),
    (("--url", "h:1", "--num-prompts", 0), ["--num-prompts"]),
    (("--url", "h:1", "--goodput", "ttft"), ["--goodput"]),
    (("--url", "h:1", "--token-ids", "5"), ["--token-ids"]),
    (("--url", "h:1", "--token-ids", "9-5"), ["--token-ids"]),
    (("--url", "h:1", "--token-ids", "1-5", "--endpoint", "chat"), ["--token-ids"]),
    (("--url", "h:1", "--extra-body", "[1]"), ["--extra-body"]),
    (("--url", "h:1", "--request-rate", "-1"), ["--request-rate"]),
    (("--url", "h:1", "--api-key-file", "/nowhere"), ["/nowhere"]),
    (("--url", "h:1", "--dataset", "/nowhere"), ["/nowhere"]),
])
def test_refusals(pelton, arguments, words):
    refused(pelton("bench-serve", *arguments), *words)


def test_a_shape_has_a_server(pelton):
    """Its tokenizer has no text: prompts are token ids, and answers are counted."""
    with Server("--layers", 1, "--max-model-len", 64, model="--shape=smollm2-135m") as server:
        answer = measure(pelton, url_of(server), *FEW, "--token-ids", "1000-40000")
        assert answer["requests"]["completed"] == 6 and answer["tokens"]["output"] == 24
