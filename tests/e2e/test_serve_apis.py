"""Tools, reasoning, Anthropic's messages and embeddings, as their clients see them."""

import base64
import json
import struct

import pytest
from conftest import find_model
from server_support import Server, joined
from support import RUNNEL, copy_folder

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city, now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
TEMPLATE = """{% if tools %}<tool_call> {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.city }}{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if enable_thinking %}<think>{% endif %}"""


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running
        running.settle()


@pytest.fixture(scope="module")
def tooled(tmp_path_factory):
    """The same model under a template that knows tools and reasoning."""
    folder = copy_folder(RUNNEL, tmp_path_factory.mktemp("models") / "tooled")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with Server(model=folder) as running:
        yield running
        running.settle()


@pytest.fixture(scope="module")
def qwen():
    # This one writes calls as bare JSON, whatever its template asks for.
    with Server("--max-model-len", 2048, "--max-num-seqs", 2, "--tool-call-parser", "llama3_json",
                model=find_model("qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf", fetched=False)) as running:
        yield running
        running.settle()


def count(server, **body):
    return server.post("/tokenize", body)["count"]


def test_tools_reach_the_prompt(tooled):
    messages = CHAT["messages"]
    assert count(tooled, messages=messages, tools=TOOLS) > count(tooled, messages=messages)
    answer = tooled.post("/v1/chat/completions", {**CHAT, "tools": TOOLS})
    assert answer["usage"]["prompt_tokens"] == count(tooled, messages=messages, tools=TOOLS)
    for more in ({"tools": TOOLS, "tool_choice": "none"}, {"tools": []}, {"tools": None, "tool_choice": "auto"}):
        answer = tooled.post("/v1/chat/completions", {**CHAT, **more})
        assert answer["usage"]["prompt_tokens"] == count(tooled, messages=messages)


def test_results_of_tools_go_through_the_template(tooled):
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Köln\"}"}}
    messages = CHAT["messages"] + [{"role": "assistant", "content": None, "tool_calls": [call]},
                                   {"role": "tool", "tool_call_id": "c1", "content": "rain"}]
    tokens = tooled.post("/tokenize", {"messages": messages})["tokens"]
    text = tooled.post("/detokenize", {"tokens": tokens})["prompt"]
    assert "Köln" in text and "tool\nrain" in text
    call["function"]["arguments"] = "{not json"
    status, _, answer = tooled.call("POST", "/v1/chat/completions", {**CHAT, "messages": messages})
    assert status == 400 and answer["error"]["param"] == "messages"


def test_tools_that_cannot_work_are_refused(server, tooled):
    status, _, answer = server.call("POST", "/v1/chat/completions", {**CHAT, "tools": TOOLS})
    assert status == 400 and answer["error"]["param"] == "tools" and "template" in answer["error"]["message"]
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        status, _, answer = tooled.call("POST", "/v1/chat/completions", {**CHAT, "tools": TOOLS, "tool_choice": choice})
        assert status == 400 and answer["error"]["param"] == "tool_choice", answer


def test_reasoning_that_the_prompt_opened(tooled):
    plain = tooled.post("/v1/chat/completions", CHAT)["choices"][0]["message"]
    assert plain["content"] and plain["reasoning_content"] is None
    body = {**CHAT, "chat_template_kwargs": {"enable_thinking": True}}
    message = tooled.post("/v1/chat/completions", body)["choices"][0]["message"]
    assert message["content"] == "" and message["reasoning_content"]
    streamed = "".join(c["delta"].get("reasoning_content", "") for e in tooled.events("/v1/chat/completions", body)
                       for c in e["choices"])
    assert streamed == message["reasoning_content"]
    thinking = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "messages": CHAT["messages"]}
    block = tooled.post("/v1/messages", {**thinking, "thinking": {"type": "enabled", "budget_tokens": 1024}})["content"]
    assert [b["type"] for b in block] == ["thinking"] and block[0]["thinking"] == message["reasoning_content"]
    assert [b["type"] for b in tooled.post("/v1/messages", thinking)["content"]] == ["text"]


def test_a_real_model_calls_a_tool(qwen):
    body = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": TOOLS,
            "temperature": 0, "max_tokens": 80}
    answer = qwen.post("/v1/chat/completions", body)["choices"][0]
    whole = answer["message"]
    deltas = [c for e in qwen.events("/v1/chat/completions", body) for c in e["choices"]]
    calls, content = [], ""
    for choice in deltas:
        content += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", []):
            if call["index"] == len(calls):
                calls.append({"name": call["function"]["name"], "arguments": "", "id": call["id"]})
            calls[call["index"]]["arguments"] += call["function"]["arguments"]
    assert content == (whole["content"] or "")
    assert deltas[-1]["finish_reason"] == answer["finish_reason"]
    assert [(c["name"], c["arguments"]) for c in calls] == \
        [(c["function"]["name"], c["function"]["arguments"]) for c in whole.get("tool_calls", [])]
    assert answer["finish_reason"] == "tool_calls" and whole["content"] is None
    assert json.loads(calls[0]["arguments"])["city"] == "Paris"
    other = qwen.post("/v1/messages", {"max_tokens": 80, "temperature": 0, "messages": body["messages"], "tools": [
        {"name": "get_weather", "description": TOOLS[0]["function"]["description"],
         "input_schema": TOOLS[0]["function"]["parameters"]}]})
    assert other["stop_reason"] == "tool_use" and other["content"][0]["input"] == {"city": "Paris"}


def anthropic_events(server, body):
    status, headers, text = server.call("POST", "/v1/messages", {**body, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    out = []
    for block in text.split("\n\n")[:-1]:
        event, data = block.split("\n")
        out.append(json.loads(data.removeprefix("data: ")))
        assert out[-1]["type"] == event.removeprefix("event: ")
    return out


@pytest.mark.parametrize("more", [{}, {"stop_sequences": ["a"]}, {"max_tokens": 1}, {"top_k": 5, "temperature": 1, "seed": 3},
                                  {"system": "Be brief."}, {"system": [{"type": "text", "text": "Be brief."}]}])
def test_messages_and_their_streams(server, more):
    body = {"model": "runnel", "max_tokens": 24, "temperature": 0, "messages": CHAT["messages"], **more}
    answer = server.post("/v1/messages", body)
    assert answer["type"] == "message" and answer["role"] == "assistant" and answer["model"] == "runnel"
    usage = answer["usage"]
    sent = {key: body[key] for key in ("messages", "system") if key in body}
    counted = server.post("/v1/messages/count_tokens", sent)["input_tokens"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == counted
    assert answer["stop_reason"] in ("end_turn", "max_tokens", "stop_sequence")
    if more.get("max_tokens") == 1:
        assert answer["stop_reason"] == "max_tokens" and usage["output_tokens"] == 1
    if answer["stop_reason"] == "stop_sequence":
        assert answer["stop_sequence"] == "a" and all("a" not in b["text"] for b in answer["content"])
    events = anthropic_events(server, body)
    kinds = [e["type"] for e in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == len(answer["content"])
    text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
    assert text == "".join(b["text"] for b in answer["content"])
    assert events[-2]["delta"]["stop_reason"] == answer["stop_reason"]
    assert events[-2]["usage"]["output_tokens"] == usage["output_tokens"]


def test_a_system_prompt_of_either_api_is_the_same(server):
    messages = [{"role": "system", "content": "Be brief."}] + CHAT["messages"]
    chat = server.post("/v1/chat/completions", {**CHAT, "messages": messages})
    other = server.post("/v1/messages", {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "system": "Be brief.",
                                         "messages": CHAT["messages"]})
    assert other["content"][0]["text"] == chat["choices"][0]["message"]["content"]


@pytest.mark.parametrize("change, status, kind", [
    ({"max_tokens": None}, 400, "invalid_request_error"), ({"messages": []}, 400, "invalid_request_error"),
    ({"model": "other"}, 404, "not_found_error"), ({"unknown": 1}, 400, "invalid_request_error"),
    ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error"),
    ({"messages": [{"role": "user", "content": "x " * 4000}]}, 400, "invalid_request_error")])
def test_errors_of_messages_have_their_shape(server, change, status, kind):
    for stream in (False, True):
        got, _, answer = server.call("POST", "/v1/messages", {"max_tokens": 5, "messages": CHAT["messages"],
                                                              "stream": stream, **change})
        assert got == status and answer["type"] == "error" and answer["error"]["type"] == kind, answer
        assert answer["error"]["message"]
    got, _, answer = server.call("GET", "/v1/messages")
    assert got == 405 and answer["type"] == "error"


def test_keys_of_anthropics_clients(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-some-length\n")
    body = {"max_tokens": 2, "messages": CHAT["messages"]}
    with Server("--api-key-file", keys, "--api-key", "another-long-enough-key") as server:
        status, _, answer = server.call("POST", "/v1/messages", body)
        assert status == 401 and answer["error"]["type"] == "authentication_error"
        for key in ("a-key-of-some-length", "another-long-enough-key"):
            assert server.call("POST", "/v1/messages", body, {"x-api-key": key})[0] == 200
            assert server.call("POST", "/v1/messages", body, {"Authorization": f"Bearer {key}"})[0] == 200


def test_embeddings_in_every_form(server):
    text = "The mill by the river."
    ids = server.post("/tokenize", {"prompt": text})["tokens"]
    answer = server.post("/v1/embeddings", {"input": text, "model": "runnel"})
    assert answer["object"] == "list" and answer["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}
    vector = answer["data"][0]["embedding"]
    assert abs(sum(v * v for v in vector) - 1) < 1e-5
    for given in (ids, [ids], [text]):
        assert server.post("/v1/embeddings", {"input": given})["data"][0]["embedding"] == vector
    packed = server.post("/v1/embeddings", {"input": text, "encoding_format": "base64"})["data"][0]["embedding"]
    raw = base64.b64decode(packed)
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == pytest.approx(vector, abs=1e-7)
    assert server.post("/v1/embeddings", {"input": text, "dimensions": len(vector)})["data"][0]["embedding"] == vector
    many = server.post("/v1/embeddings", {"input": ["A mill. " * 30, text, "x"], "pooling": "mean"})
    assert [d["index"] for d in many["data"]] == [0, 1, 2]
    mean = server.post("/v1/embeddings", {"input": text, "pooling": "mean"})["data"][0]["embedding"]
    assert many["data"][1]["embedding"] == mean != vector
    assert many["usage"]["prompt_tokens"] == sum(
        server.post("/tokenize", {"prompt": t})["count"] for t in ("A mill. " * 30, text, "x"))


@pytest.mark.parametrize("change, param", [
    ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [[]]}, "input[0]"), ({"input": 5}, "input"),
    ({"input": [999999]}, "input"), ({"input": "x " * 4000}, "input"), ({"dimensions": 3}, "dimensions"),
    ({"dimensions": 0}, "dimensions"), ({"encoding_format": "hex"}, "encoding_format"), ({"pooling": "cls"}, "pooling"),
    ({"temperature": 1}, "temperature")])
def test_bad_embeddings_are_refused(server, change, param):
    status, _, answer = server.call("POST", "/v1/embeddings", {"input": "x", **change})
    assert status == 400 and answer["error"]["param"] == param, answer


def test_long_prompts_may_want_all_their_logprobs(server):
    answer = server.post("/v1/completions", {"prompt": "The mill by the river turns. " * 40, "echo": True, "logprobs": 1,
                                             "max_tokens": 2, "n": 2})
    logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert logprobs[0] is None and all(value is not None for value in logprobs[1:]) and len(logprobs) > 200


def test_special_tokens_may_be_seen(server):
    end = server.post("/tokenize", {"prompt": "<|im_end|>"})["tokens"][-1]
    body = {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "ignore_eos": True, "logit_bias": {str(end): 100}}
    assert server.post("/v1/completions", body)["choices"][0]["text"] == ""
    shown = server.post("/v1/completions", {**body, "skip_special_tokens": False})["choices"][0]["text"]
    assert shown == "<|im_end|>" * 3


def test_a_vllm_start_line_is_told_what_is_left_alone():
    with Server("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
                "--enable-prefix-caching", "--trust-remote-code", "--swap-space", 4, "--disable-log-stats",
                "--uvicorn-log-level", "warning") as server:
        assert len(server.warnings) == 1
        assert all(name in server.warnings[0] for name in ("--enable-auto-tool-choice", "--swap-space", "--trust-remote-code"))
        assert "--tool-call-parser" not in server.warnings[0]
        assert server.call("GET", "/v1/models")[0] == 200
        texts, _ = joined(server.events("/v1/chat/completions", CHAT), "delta")
        assert texts[0] == server.post("/v1/chat/completions", CHAT)["choices"][0]["message"]["content"]


def test_parsers_that_do_not_exist_are_named(pelton):
    for arguments, word in ((("--tool-call-parser", "x"), "hermes"), (("--reasoning-parser", "x"), "qwen3"),
                            (("--pooling", "x"), "mean"), (("--api-key", "short"), "--api-key")):
        outcome = pelton("serve", RUNNEL, *arguments)
        assert outcome.code != 0 and word in outcome.err and len(outcome.err.splitlines()) == 1, outcome.err
