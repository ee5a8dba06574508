"""The OpenAI API as its clients see it."""

import json
import threading

import pytest
from server_support import Server, joined
from support import RUNNEL

CONTROL = {"model": "runnel", "prompt": "The river is", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running
        running.settle()


def test_fixed_routes(server):
    for path in ("/health", "/ready", "/version", "/metrics", "/v1/models", "/openapi.json"):
        assert server.call("GET", path)[0] == 200, path
    assert server.call("HEAD", "/health")[0] == 200
    assert server.call("GET", "/v1/models")[2]["data"][0]["id"] == "runnel"
    assert server.call("GET", "/v1/models/runnel")[2]["id"] == "runnel"
    for path in ("/nothing", "/v1/models/other", "/v1/models/../x", "/v1/models/%2e%2e", "/v1//completions"):
        assert server.call("GET", path)[0] == 404, path
    assert server.call("GET", "/v1/completions")[0] == 405
    assert server.call("POST", "/health", "{}")[0] == 405
    assert server.call("DELETE", "/v1/models")[0] == 405


def test_completion_equals_run(server, pelton):
    answer = server.post("/v1/completions", CONTROL)
    choice = answer["choices"][0]
    alone = pelton("run", RUNNEL, "--raw", "-p", CONTROL["prompt"], "-n", 12, "--greedy", "--ignore-eos", "--json").json()
    assert choice["text"] == alone["text"]
    assert choice["finish_reason"] == "length" and choice["logprobs"] is None
    assert answer["object"] == "text_completion" and answer["model"] == "runnel"
    assert answer["usage"]["prompt_tokens"] == len(alone["prompt_ids"])
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["total_tokens"] == len(alone["prompt_ids"]) + 12


def test_chat_equals_run(server, pelton):
    answer = server.post("/v1/chat/completions", CHAT)
    alone = pelton("run", RUNNEL, "-p", "Hello", "-n", 12, "--greedy", "--ignore-eos", "--json").json()
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"] == alone["text"]
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["prompt_tokens"] == len(alone["prompt_ids"])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("more", [
    {}, {"stop": ["the", "\n"]}, {"n": 3}, {"stop": "a", "n": 2}, {"max_tokens": 1}, {"max_tokens": 0},
    {"temperature": 2.0}, {"temperature": 2.0, "stop": ["e", "abc"], "n": 2}, {"top_k": 3, "min_p": 0.1},
    {"ignore_eos": False, "max_tokens": 40}])
def test_streams_join_to_the_whole(server, more, seed):
    for path, body, field in (("/v1/completions", CONTROL, "text"), ("/v1/chat/completions", CHAT, "delta")):
        request = {**body, "temperature": 1.0, "max_tokens": 16, "seed": seed, **more}
        whole = server.post(path, request)
        texts, ends = joined(server.events(path, request), field)
        for choice in whole["choices"]:
            text = choice["text"] if field == "text" else choice["message"]["content"]
            assert texts[choice["index"]] == text
            assert ends[choice["index"]] == choice["finish_reason"]
            for stop in [more["stop"]] if isinstance(more.get("stop"), str) else more.get("stop", []):
                assert stop not in text
        assert len(whole["choices"]) == more.get("n", 1)
        assert whole["usage"]["completion_tokens"] <= request["max_tokens"] * request.get("n", 1)


def test_every_length_is_valid_and_exact(server):
    for tokens in range(0, 21):
        request = {"prompt": "名前は😀", "max_tokens": tokens, "temperature": 2, "seed": tokens, "ignore_eos": True}
        answer = server.post("/v1/completions", request)
        assert answer["usage"]["completion_tokens"] == tokens
        texts, _ = joined(server.events("/v1/completions", request), "text")
        assert texts.get(0, "") == answer["choices"][0]["text"]


def test_usage_in_streams_only_when_asked(server):
    for path, body in (("/v1/completions", CONTROL), ("/v1/chat/completions", CHAT)):
        for options in (None, {}, {"include_usage": False}):
            request = dict(body) if options is None else {**body, "stream_options": options}
            assert all("usage" not in e and e["choices"] for e in server.events(path, request))
        events = server.events(path, {**body, "stream_options": {"include_usage": True}})
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == 12
        assert all(e["usage"] is None for e in events[:-1])


def test_logprobs_in_both_shapes(server):
    for count in (0, 1, 5):
        answer = server.post("/v1/completions", {**CONTROL, "logprobs": count})
        lp = answer["choices"][0]["logprobs"]
        assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"]) == 12
        assert "".join(lp["tokens"]) == answer["choices"][0]["text"]
        assert all(value <= 0 for value in lp["token_logprobs"])
        assert all(len(top) >= max(1, count) - 1 for top in lp["top_logprobs"])
        chat = server.post("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": count})
        content = chat["choices"][0]["logprobs"]["content"]
        assert len(content) == 12 and all(len(token["top_logprobs"]) == count for token in content)
        assert "".join(token["token"] for token in content) == chat["choices"][0]["message"]["content"]
        events = server.events("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": count})
        streamed = [t for e in events for c in e["choices"] for t in (c.get("logprobs") or {"content": []})["content"]]
        assert streamed == content


def test_echo_and_prompt_logprobs(server):
    answer = server.post("/v1/completions", {**CONTROL, "echo": True, "logprobs": 2, "max_tokens": 3})
    choice = answer["choices"][0]
    assert choice["text"].startswith(CONTROL["prompt"])
    lp = choice["logprobs"]
    assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert len(lp["tokens"]) == answer["usage"]["total_tokens"]
    assert all(value is not None for value in lp["token_logprobs"][1:])
    only = server.post("/v1/completions", {**CONTROL, "echo": True, "max_tokens": 0})
    assert only["choices"][0]["text"] == CONTROL["prompt"] and only["choices"][0]["finish_reason"] == "length"
    texts, _ = joined(server.events("/v1/completions", {**CONTROL, "echo": True}), "text")
    assert texts[0] == server.post("/v1/completions", {**CONTROL, "echo": True})["choices"][0]["text"]


def test_prompts_as_lists_and_ids(server):
    ids = server.post("/tokenize", {"prompt": CONTROL["prompt"]})["tokens"]
    text = server.post("/v1/completions", CONTROL)["choices"][0]["text"]
    for prompt in (ids, [ids, ids], [CONTROL["prompt"]] * 3):
        choices = server.post("/v1/completions", {**CONTROL, "prompt": prompt})["choices"]
        assert [c["text"] for c in choices] == [text] * len(choices)
        assert [c["index"] for c in choices] == list(range(len(choices)))
    assert server.post("/detokenize", {"tokens": ids})["prompt"] == CONTROL["prompt"]
    chat = server.post("/tokenize", {"messages": CHAT["messages"]})
    assert chat["count"] == server.post("/v1/chat/completions", CHAT)["usage"]["prompt_tokens"]


def test_control_tokens_are_the_templates_alone(server):
    def ends(content):
        tokens = server.post("/tokenize", {"messages": [{"role": "user", "content": content}]})["tokens"]
        return sum(1 for t in tokens if server.post("/detokenize", {"tokens": [t]})["prompt"] == "<|im_end|>")

    assert ends("x") == ends("x<|im_end|><|im_end|>") == 1


BAD = [
    ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": "5"}, "max_tokens"), ({"max_tokens": 2**31}, "max_tokens"),
    ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [""]}, "prompt"), ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [999999]}, "prompt"), ({"prompt": [8192]}, "prompt"), ({"prompt": "x " * 4000}, "prompt"),
    ({"n": 0}, "n"), ({"n": 10**6}, "n"), ({"logprobs": 21}, "logprobs"), ({"suffix": "x"}, "suffix"),
    ({"best_of": 2}, "best_of"), ({"stop": ["x"] * 10000}, "stop"), ({"stop": [""]}, "stop[0]"),
    ({"logit_bias": {str(i): 1 for i in range(2000)}}, "logit_bias"), ({"logit_bias": {"8192": 1}}, "logit_bias"),
    ({"logit_bias": {"1000000000": 1}}, "logit_bias"), ({"temperature": -1}, "temperature"), ({"min_tokens": 99}, "min_tokens"),
    ({"stop_token_ids": [8192]}, "stop_token_ids"), ({"unknown_thing": 1}, "unknown_thing"),
    ({"response_format": {"type": "json_object"}}, "response_format"), ({"guided_regex": "a"}, "guided_regex"),
    ({"chat_template": "{{ messages }}"}, "chat_template"),
]


@pytest.mark.parametrize("change, param", BAD, ids=[f"{p}-{i}" for i, (_, p) in enumerate(BAD)])
def test_bad_fields_are_named_twice_and_harm_nobody(server, change, param):
    control = server.post("/v1/completions", CONTROL)["choices"]
    answers = [server.call("POST", "/v1/completions", {**CONTROL, **change}) for _ in range(2)]
    for status, _, answer in answers:
        assert status == 400, answer
        assert answer["error"]["param"] == param, answer
        assert answer["error"]["type"] == "invalid_request_error"
    assert server.post("/v1/completions", CONTROL)["choices"] == control


def test_context_overflow_has_its_code(server):
    for path, body in (("/v1/completions", {"prompt": "x " * 4000}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 4000}]})):
        status, _, answer = server.call("POST", path, body)
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    ids = [5] * 1024
    assert server.call("POST", "/v1/completions", {"prompt": ids})[0] == 400
    assert server.call("POST", "/v1/completions", {"prompt": ids, "max_tokens": 0})[0] == 200
    answer = server.post("/v1/completions", {"prompt": ids[1:], "max_tokens": 500, "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 1 and answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("bad", [b"\xe5", b"\xc0\x80", b"\xed\xa0\x80", b"\xb0\xa1", b"\xf5\x80\x80\x80", b"\\ud800", b"\\udc00x"])
@pytest.mark.parametrize("path, body", [
    ("/v1/completions", b'{"prompt":"a","max_tokens":1,"stop":["@"]}'), ("/v1/completions", b'{"prompt":"a","user":"@"}'),
    ("/v1/completions", b'{"prompt":"a","model":"@"}'), ("/v1/completions", b'{"prompt":"a","cache_salt":"@"}'),
    ("/v1/completions", b'{"prompt":"a","@":1}'), ("/v1/chat/completions", b'{"messages":[{"role":"user","content":"@"}]}'),
    ("/v1/chat/completions", b'{"messages":[{"role":"@","content":"a"}]}'), ("/v1/embeddings", b'{"input":["a","@"]}'),
    ("/v1/messages", b'{"max_tokens":1,"system":"@","messages":[{"role":"user","content":"a"}]}'), ("/tokenize", b'{"prompt":"@"}')],
    ids=range(10))
def test_text_that_is_no_text_is_refused_in_every_field(server, path, body, bad):
    for _ in range(2):
        status, _, answer = server.call("POST", path, body.replace(b"@", bad))
        assert status == 400 and answer["error"]["message"], answer
    assert server.post("/tokenize", {"prompt": "é"})["count"] > 0


def test_unknown_model_is_404(server):
    for name in ("other", "../runnel", "/etc/passwd", "x" * 256, "run\u0000nel"):
        status, _, answer = server.call("POST", "/v1/completions", {**CONTROL, "model": name})
        assert status == 404 and answer["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("body", [
    b"", b"[]", b"{", b"\xff\xfe", b'{"prompt":"\xc0\x80"}', b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\xe5"}',
    b'{"prompt":"\xb0\xa1"}', b'{"prompt":"\\ud800"}', b'{"prompt":"a","prompt":"b"}', b'{"prompt":"a","temperature":NaN}',
    b"[" * 100000, b'{"prompt":"a","logit_bias":' + b'{"a":' * 100 + b"1" + b"}" * 101, b'\xef\xbb\xbf{"prompt":"a"}'])
def test_broken_json_is_400(server, body):
    for _ in range(2):
        status, _, answer = server.call("POST", "/v1/completions", body)
        assert status == 400 and answer["error"]["message"]
    assert server.call("GET", "/health")[0] == 200


def test_same_tokens_whatever_the_company(server):
    alone = server.post("/v1/completions", CONTROL)["choices"][0]["text"]
    seen = []

    def one(i):
        request = dict(CONTROL) if i % 2 == 0 else {**CONTROL, "prompt": f"Mill number {i}", "n": 3, "temperature": 1}
        answer = server.post("/v1/completions", request)
        if i % 2 == 0:
            seen.append(answer["choices"][0]["text"])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [alone] * 12


def test_cache_hits_change_nothing_and_are_counted(server):
    request = {**CONTROL, "prompt": "A mill by the river. " * 20}
    first = server.post("/v1/completions", request)
    again = server.post("/v1/completions", request)
    salted = server.post("/v1/completions", {**request, "cache_salt": "mine"})
    assert first["choices"] == again["choices"] == salted["choices"]
    details = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in (first, again, salted)]
    assert details[0] == 0 and details[1] > 0 and details[2] == 0


def test_request_ids_are_the_servers(server):
    ids = set()
    for client in ("same", "same", "x" * 5000, "a\tb"):
        _, headers, _ = server.call("GET", "/version", headers={"X-Request-Id": client})
        ids.add(headers["x-request-id"])
        assert len(headers["x-client-request-id"]) <= 128
    assert len(ids) == 4


def test_timings_when_asked(server):
    answer = server.post("/v1/completions", {**CONTROL, "timings": True})
    timings = answer["timings"]
    parts = ("tokenize_ms", "queue_ms", "budget_wait_ms", "prefill_ms", "decode_ms")
    assert set(timings) == {*parts, "detokenize_ms", "total_ms", "waterfall"}
    assert all(timings[part] >= 0 for part in parts)
    assert sum(timings[part] for part in parts) == pytest.approx(timings["total_ms"], abs=0.01)
    [line] = timings["waterfall"]
    assert sum(chunk["tokens"] for chunk in line["prefill_chunks"]) <= answer["usage"]["prompt_tokens"]
    assert line["decode_steps"] == answer["usage"]["completion_tokens"] - 1
    assert line["preemptions"] == line["recomputed_tokens"] == 0
    assert "timings" not in server.post("/v1/completions", CONTROL)
    json.dumps(answer)


def test_a_vllm_start_line_works():
    with Server("--max-model-len", 512, "--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--kv-cache-dtype", "auto",
                "--gpu-memory-utilization", 0.9, "--tensor-parallel-size", 1, "--dtype", "auto", "--enforce-eager",
                "--disable-log-requests", "--host", "127.0.0.1") as server:
        assert server.call("GET", "/v1/models")[2]["data"][0]["max_model_len"] == 512
        assert server.post("/v1/completions", CONTROL)["usage"]["completion_tokens"] == 12


def test_static_batching_gives_the_same_tokens(server):
    with Server("--batching", "static", "--max-num-seqs", 2) as other:
        for request in (CONTROL, {**CONTROL, "n": 3, "temperature": 1, "seed": 3}):
            assert other.post("/v1/completions", request)["choices"] == server.post("/v1/completions", request)["choices"]


def test_start_errors_are_one_line(pelton, tmp_path):
    empty = tmp_path / "keys"
    empty.write_text("short\n")
    for arguments, word in ((("--api-key-file", empty), "line 1"), (("--host", "example.org"), "--host"),
                            (("--batching", "other"), "--batching"), (("--max-model-len", 5000), "max_model_len"),
                            (("--tensor-parallel-size", 2), "--tensor-parallel-size"), (("--port", 70000), "--port")):
        outcome = pelton("serve", RUNNEL, *arguments)
        assert outcome.code != 0 and word in outcome.err and len(outcome.err.splitlines()) == 1, outcome.err
    with Server() as running:
        outcome = pelton("serve", RUNNEL, "--port", running.port)
        assert outcome.code != 0 and "cannot listen" in outcome.err
