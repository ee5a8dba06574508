"""Features two by two: whatever a request combines, its stream is its whole answer, its cache hit its miss, and its counts are
exact; or it is refused, naming a field."""

import itertools

import pytest
from server_support import Server, joined

BASE = {"prompt": "The river is", "max_tokens": 10, "temperature": 0, "ignore_eos": True, "seed": 5}
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
FEATURES = {
    "n": {"n": 3, "temperature": 1.0}, "stop": {"stop": ["e", " the"]}, "kept stop": {"stop": "a", "include_stop_str_in_output": True},
    "logprobs": {"logprobs": 2}, "echo": {"echo": True}, "warm": {"temperature": 1.5}, "top_k": {"top_k": 4}, "min_p": {"min_p": 0.2},
    "top_p": {"top_p": 0.5}, "typical_p": {"typical_p": 0.6}, "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 1.0, "frequency_penalty": 0.5}, "dry": {"dry_multiplier": 0.8}, "bias": {"logit_bias": {"11": -100}},
    "end ids": {"stop_token_ids": [11, 12]}, "min_tokens": {"min_tokens": 6, "stop_token_ids": [11]}, "eos": {"ignore_eos": False},
    "nothing": {"max_tokens": 0}, "one": {"max_tokens": 1}, "several": {"prompt": ["The river is", "A mill"]},
    "ids": {"prompt": [5, 6, 7, 8]}, "long": {"prompt": "A mill by the river. " * 12}, "salt": {"cache_salt": "s"},
    "priority": {"priority": -2}, "timings": {"timings": True}, "special": {"skip_special_tokens": False},
    "usage": {"stream_options": {"include_usage": True}},
}
CHAT_FEATURES = ("n", "stop", "warm", "min_p", "repetition", "dry", "bias", "end ids", "min_tokens", "eos", "nothing", "one", "salt",
                 "timings", "usage")


@pytest.fixture(scope="module")
def server():
    # Few slots and blocks, small steps: choices and chunks are spread over several.
    with Server("--max-num-seqs", 4, "--max-num-batched-tokens", 24, "--max-model-len", 256) as running:
        yield running
        running.settle()


def texts_of(answer):
    return {c["index"]: (c["text"] if "text" in c else c["message"]["content"], c["finish_reason"]) for c in answer["choices"]}


def check(server, path, request):
    whole_request = {key: value for key, value in request.items() if key != "stream_options"}
    status, _, whole = server.call("POST", path, whole_request)
    if status == 400:
        assert whole["error"]["param"] in request, whole
        assert server.call("POST", path, {**request, "stream": True})[0] == 400
        return False
    assert status == 200, whole
    again = server.post(path, whole_request)
    assert texts_of(again) == texts_of(whole)
    assert [c["logprobs"] for c in again["choices"]] == [c["logprobs"] for c in whole["choices"]]
    events = server.events(path, request)
    usage = [e["usage"] for e in events if e.get("usage")]
    joined_texts, ends = joined(events, "text" if path == "/v1/completions" else "delta")
    assert {i: (joined_texts.get(i, ""), ends[i]) for i in ends} == texts_of(whole)
    counted = whole["usage"]
    prompts = len(request["prompt"]) if isinstance(request.get("prompt"), list) and isinstance(request["prompt"][0], str) else 1
    assert len(whole["choices"]) == prompts * request.get("n", 1)
    assert counted["completion_tokens"] <= request["max_tokens"] * len(whole["choices"])
    if all(c["finish_reason"] == "length" for c in whole["choices"]):
        assert counted["completion_tokens"] == request["max_tokens"] * len(whole["choices"])
    assert counted["total_tokens"] == counted["prompt_tokens"] + counted["completion_tokens"]
    if usage:
        assert {k: usage[-1][k] for k in ("prompt_tokens", "completion_tokens")} == \
            {k: counted[k] for k in ("prompt_tokens", "completion_tokens")}
    for choice in whole["choices"]:
        lines = choice["logprobs"]
        if lines and "tokens" in lines and not request.get("stop"):
            expected = counted["total_tokens"] if request.get("echo") else counted["completion_tokens"]
            if len(whole["choices"]) == 1:
                assert len(lines["tokens"]) == len(lines["token_logprobs"]) == expected
    return True


def pairs(names):
    return [*((name, name) for name in names), *itertools.combinations(names, 2)]


def test_every_pair_of_features_of_completions(server):
    control = server.post("/v1/completions", BASE)["choices"]
    accepted = 0
    for one, other in pairs(FEATURES):
        for first, second in ((one, other), (other, one)) if FEATURES[one].keys() & FEATURES[other].keys() else ((one, other),):
            try:
                accepted += check(server, "/v1/completions", {**BASE, **FEATURES[first], **FEATURES[second]})
            except AssertionError as error:
                raise AssertionError(f"{first} with {second}: {error}") from error
    assert accepted > 350
    assert server.post("/v1/completions", BASE)["choices"] == control


def test_every_pair_of_features_of_chats(server):
    base = {key: value for key, value in BASE.items() if key != "prompt"} | CHAT
    for one, other in pairs(CHAT_FEATURES):
        try:
            check(server, "/v1/chat/completions", {**base, **FEATURES[one], **FEATURES[other]})
        except AssertionError as error:
            raise AssertionError(f"{one} with {other}: {error}") from error
