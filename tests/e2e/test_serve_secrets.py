"""What must not leave a server: prompts, keys and paths; and what must not enter its logs as it is: control characters."""

import json
import re
import signal

from server_support import Server
from support import RUNNEL, copy_folder, replace

SHORT = {"prompt": "The river is", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
# Whatever a terminal or a log reader would act on.
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
ESCAPE = "\x1b[2J\x1b]0;gotcha\x07"


def end(server):
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=20)
    return server.process.stderr.read()


def test_logs_hold_no_control_characters_and_no_canaries(tmp_path):
    """Prompts, answers, keys and strange ids, said in every place that a client has."""
    keys, log = tmp_path / "keys", tmp_path / "requests.jsonl"
    keys.write_text("canary-key-1234\n")
    with Server("--api-key-file", keys, "--request-log", log) as server:
        key = {"Authorization": "Bearer canary-key-1234"}
        odd = "canary-prompt " + ESCAPE + "\u0085\u202e\r\nforged: line"
        bodies = []
        for path, body in (("/v1/completions", {**SHORT, "prompt": odd, "echo": True}),
                           ("/v1/completions", {**SHORT, "prompt": odd, "stream": True}),
                           ("/v1/completions", {**SHORT, "prompt": odd, "user": odd, "metadata": {odd: odd}}),
                           ("/v1/completions", {**SHORT, "prompt": odd, "cache_salt": odd, "stop": [odd]}),
                           ("/v1/completions", {**SHORT, "model": odd}), ("/v1/completions", {**SHORT, odd: 1}),
                           ("/v1/completions", {**SHORT, "prompt": odd, "n": 0}),
                           ("/v1/chat/completions", {"messages": [{"role": odd, "content": odd}]}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": odd}], "max_tokens": 3}),
                           ("/v1/messages", {"messages": [{"role": "user", "content": odd}], "max_tokens": 3}),
                           ("/v1/embeddings", {"input": [odd]}), ("/tokenize", {"prompt": odd})):
            status, headers, answer = server.call("POST", path, body, {**key, "X-Request-Id": "canary-id\t1"})
            bodies.append(json.dumps(answer) + json.dumps(headers))
            assert status in (200, 400, 404), answer
        for data in (b"GET /canary-path\x1b[2J HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\x1b[31mcanary-id\r\n\r\n",
                     b"GET /v1/models/%1b%5b2J HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
            assert CONTROL.search(server.raw(data).replace(b"\r\n", b"")) is None
        assert server.call("POST", "/v1/completions", SHORT, {"Authorization": "Bearer canary-key-wrong"})[0] == 401
        text = end(server)
    lines = log.read_bytes()
    assert all(json.loads(line) for line in lines.splitlines()) and len(lines.splitlines()) >= 7
    for written in (text.encode(), lines):
        assert CONTROL.search(written) is None
        assert b"canary-prompt" not in written and b"canary-key" not in written and b"forged" not in written
    assert all("canary-key" not in body for body in bodies)


def test_control_characters_of_a_models_name_are_escaped(tmp_path, pelton):
    """The name of a file is a stranger's text too: where the server tells it, and where it is refused."""
    folder = copy_folder(RUNNEL, tmp_path / ("m" + ESCAPE.replace("/", "") + "x"))
    with Server(model=folder) as server:
        text = server.first_line + end(server)
    assert CONTROL.search(text.encode()) is None, text
    replace(folder / "config.json", "{")
    outcome = pelton("serve", folder, "--port", 0)
    assert outcome.code != 0 and CONTROL.search(outcome.err.encode()) is None and len(outcome.err.splitlines()) == 1


def ways_to_fail():
    """One request for each kind of refusal that a route has."""
    odd = "/etc/passwd"
    yield "GET", "/v1/models/" + odd, None
    yield "GET", "/nothing", None
    yield "DELETE", "/v1/models", None
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/messages", "/v1/messages/count_tokens",
                 "/tokenize", "/detokenize"):
        yield "GET", path, None
        for body in (b"", b"{", b"\xff", b"[" * 1000, {}, {"model": odd}, {odd: 1}, {"messages": 5}, {"prompt": [[]], "input": 5},
                     {"prompt": "a", "model": "../../model.gguf"}, {"tokens": [10**6]},
                     {"prompt": "x " * 4000}, {"input": "x " * 4000},
                     {"messages": [{"role": "user", "content": "x " * 4000}], "max_tokens": 1},
                     {"messages": [{"role": "tool", "content": "x"}], "max_tokens": 1}):
            yield "POST", path, body


def test_errors_name_no_path_and_no_user(tmp_path):
    (tmp_path / "secret-folder").mkdir()
    folder = copy_folder(RUNNEL, tmp_path / "secret-folder" / "m")
    with Server(model=folder) as server:
        failed = 0
        for method, path, body in ways_to_fail():
            status, _, answer = server.call(method, path, body)
            failed += status >= 400
            said = json.dumps(answer)
            for secret in ("secret-folder", str(tmp_path), "/home", "/root", "safetensors", ".cc:", "std::", "simdjson"):
                assert secret not in said, (method, path, body, said)
        assert failed > 80
        for path in ("/v1/models", "/version", "/status", "/openapi.json", "/metrics", "/health"):
            assert "secret-folder" not in json.dumps(server.call("GET", path)[2]), path


def test_what_breaks_inside_is_told_to_the_log_alone(tmp_path):
    """Weights that are not finite: the client hears of a failure, the log of its cause and of the file; others go on."""
    folder = copy_folder(RUNNEL, tmp_path / "secret-folder")
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    size = int.from_bytes(data[:8], "little")
    begin, end_ = json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"]
    data[8 + size + begin:8 + size + end_] = b"\xff" * (end_ - begin)  # NaN in every format
    replace(weights, bytes(data))
    with Server(model=folder) as server:
        for stream in (False, True):
            status, headers, answer = server.call("POST", "/v1/completions", {**SHORT, "stream": stream})
            assert status == 500 and answer["error"]["code"] == "internal_error"
            assert "secret-folder" not in json.dumps(answer)
        assert server.call("GET", "/health")[0] == 200
        assert server.call("POST", "/tokenize", {"prompt": "a"})[0] == 200
        server.settle()
        text = end(server)
    assert text.count(" failed: ") == 2 and headers["x-request-id"] in text and "secret-folder" in text, text
