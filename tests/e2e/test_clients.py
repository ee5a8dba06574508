"""The vendors' own Python clients against every route, and what a generator of requests makes of /openapi.json."""

import json
import os
import subprocess
import sys

import pytest
from conftest import find_model
from server_support import Server
from support import RUNNEL, copy_folder

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")

USER = [{"role": "user", "content": "Hello"}]
EMOJI = [{"role": "user", "content": "名前は😀👩‍👩‍👧 e\u0301"}]


@pytest.fixture(scope="module")
def server():
    with Server("--max-num-seqs", 4) as running:
        yield running
        running.settle()


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def messages_client(server):
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0) as made:
        yield made


def stops_of(text):
    """Stop strings that lie across every border of a text's characters."""
    return sorted({text[i:i + n] for i in range(len(text)) for n in (1, 2, 5) if text[i:i + n].strip()})[:24]


def chat(client, **fields):
    return client.chat.completions.create(**{"model": "runnel", "messages": USER, "temperature": 0, "max_tokens": 16,
                                             "extra_body": {"ignore_eos": True}, **fields})


def streamed_chat(client, **fields):
    texts, ends, usage = {}, {}, None
    for chunk in chat(client, stream=True, stream_options={"include_usage": True}, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert choice.index not in ends
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    return texts, ends, usage


def assert_same_chat(client, **fields):
    whole = chat(client, **fields)
    texts, ends, usage = streamed_chat(client, **fields)
    assert texts == {c.index: c.message.content for c in whole.choices}
    assert ends == {c.index: c.finish_reason for c in whole.choices}
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(usage, name) == getattr(whole.usage, name)
    return whole


def test_models(client):
    assert [m.id for m in client.models.list()] == ["runnel"]
    assert client.models.retrieve("runnel").id == "runnel"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chats_stream_what_they_answer(client):
    for tokens in (1, 2, 7, 31):
        for messages in (USER, EMOJI):
            whole = assert_same_chat(client, max_tokens=tokens, messages=messages)
            assert whole.usage.completion_tokens == tokens
    assert_same_chat(client, n=3, temperature=1.5, seed=5)
    assert_same_chat(client, max_completion_tokens=5, max_tokens=None)
    assert_same_chat(client, temperature=2, seed=1, presence_penalty=1, frequency_penalty=-1, top_p=0.9,
                     logit_bias={"5": -100}, messages=EMOJI)


def test_every_stop_string_cuts_streams_as_answers(client):
    text = chat(client, max_tokens=24).choices[0].message.content
    for stop in stops_of(text):
        whole = assert_same_chat(client, max_tokens=24, stop=[stop, "\u0001never"])
        assert whole.choices[0].message.content == text[:text.index(stop)]
        assert whole.choices[0].finish_reason == "stop"


def test_logprobs(client):
    content = chat(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert len(content) == 16 and all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in content)


def test_completions(client):
    request = {"model": "runnel", "prompt": ["The river is", "A mill"], "max_tokens": 9, "temperature": 0, "n": 1,
               "extra_body": {"ignore_eos": True, "top_k": 5, "min_p": 0.0}}
    whole = client.completions.create(**request)
    texts = {}
    for chunk in client.completions.create(**request, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == {c.index: c.text for c in whole.choices}
    assert whole.usage.completion_tokens == 18
    echo = client.completions.create(model="runnel", prompt="The river is", echo=True, logprobs=2, max_tokens=2)
    assert echo.choices[0].text.startswith("The river is") and echo.choices[0].logprobs.token_logprobs[0] is None


def test_errors_reach_the_client_as_its_own(client, messages_client):
    with pytest.raises(openai.NotFoundError) as unknown:
        chat(client, model="other")
    assert unknown.value.code == "model_not_found"
    for fields, param in (({"temperature": 9e9}, "temperature"), ({"response_format": {"type": "json_object"}}, "response_format"),
                          ({"n": 99}, "n"), ({"messages": []}, "messages")):
        with pytest.raises(openai.BadRequestError) as refused:
            chat(client, **fields)
        assert refused.value.param == param
    with pytest.raises(anthropic.BadRequestError):
        messages_client.messages.create(model="runnel", max_tokens=0, messages=USER)
    with pytest.raises(anthropic.NotFoundError):
        messages_client.messages.create(model="other", max_tokens=1, messages=USER)


def test_embeddings(client):
    floats = client.embeddings.create(model="runnel", input=["A mill.", "😀"], encoding_format="float")
    packed = client.embeddings.create(model="runnel", input=["A mill.", "😀"])
    for a, b in zip(floats.data, packed.data):
        assert a.embedding == pytest.approx(b.embedding, abs=1e-7)
        assert sum(v * v for v in a.embedding) == pytest.approx(1, abs=1e-5)


def test_anthropics_messages(messages_client):
    request = {"model": "runnel", "max_tokens": 20, "messages": EMOJI, "system": "Be brief.",
               "extra_body": {"ignore_eos": True, "temperature": 0}}
    whole = messages_client.messages.create(**request)
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 20
    with messages_client.messages.stream(**request) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == 20
    counted = messages_client.messages.count_tokens(model="runnel", messages=EMOJI, system="Be brief.").input_tokens
    assert whole.usage.input_tokens + whole.usage.cache_read_input_tokens == counted
    for stop in stops_of(text)[:6]:
        cut = messages_client.messages.create(**request, stop_sequences=[stop])
        assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop
        assert "".join(b.text for b in cut.content) == text[:text.index(stop)]


@pytest.fixture(scope="module")
def clients_of(tmp_path_factory):
    """Both clients of a server that is started for one model."""
    made = []

    def start(*arguments, model):
        made.append(Server(*arguments, model=model))
        url = f"http://127.0.0.1:{made[-1].port}"
        return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0), \
            anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)

    yield start
    for server in made:
        with server:
            server.settle()


def test_reasoning_reaches_both_clients(clients_of, tmp_path):
    folder = copy_folder(RUNNEL, tmp_path / "thinker")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
        "{% if enable_thinking %}<think>{% endif %}")
    client, messages_client = clients_of(model=folder)
    fields = {"extra_body": {"ignore_eos": True, "chat_template_kwargs": {"enable_thinking": True}}}
    whole = chat(client, **fields).choices[0].message
    assert not whole.content and whole.reasoning_content
    deltas = [c.delta for chunk in chat(client, stream=True, **fields) for c in chunk.choices]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == whole.reasoning_content
    request = {"model": "runnel", "max_tokens": 16, "messages": USER, "thinking": {"type": "enabled", "budget_tokens": 1024},
               "extra_body": {"ignore_eos": True, "temperature": 0}}
    with messages_client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    for message in (messages_client.messages.create(**request), streamed):
        assert [(b.type, b.thinking) for b in message.content] == [("thinking", whole.reasoning_content)]


def test_tools_reach_both_clients(clients_of):
    client, messages_client = clients_of("--max-model-len", 2048, "--max-num-seqs", 2, "--tool-call-parser", "llama3_json",
                                model=find_model("qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf", fetched=False))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    about = {"name": "get_weather", "description": "The weather in a city, now."}
    fields = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "max_tokens": 80, "extra_body": None,
              "tools": [{"type": "function", "function": {**about, "parameters": schema}}]}
    whole = chat(client, **fields).choices[0]
    [call] = whole.message.tool_calls
    assert whole.finish_reason == "tool_calls" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    choices = [c for chunk in chat(client, stream=True, **fields) for c in chunk.choices]
    pieces = [piece for c in choices for piece in c.delta.tool_calls or []]
    assert choices[-1].finish_reason == "tool_calls" and pieces[0].id and {piece.index for piece in pieces} == {0}
    assert pieces[0].function.name == "get_weather"
    assert "".join(piece.function.arguments or "" for piece in pieces) == call.function.arguments
    request = {"model": "runnel", "max_tokens": 80, "messages": fields["messages"], "tools": [{**about, "input_schema": schema}],
               "extra_body": {"temperature": 0}}
    with messages_client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    for message in (messages_client.messages.create(**request), streamed):
        assert message.stop_reason == "tool_use"
        assert [(b.type, b.name, b.input) for b in message.content] == [("tool_use", "get_weather", {"city": "Paris"})]


# 503 says when to come again, also where the request's own timeout asked for it.
HOOKS = """
import schemathesis

@schemathesis.check
def only_what_was_asked_for(context, response, case):
    if response.status_code == 503:
        assert "retry-after" in {name.lower() for name in response.headers}, response.text
    else:
        assert response.status_code < 500, response.text
"""


def test_generated_requests_find_no_server_error(tmp_path):
    """Bounded, and the same requests every time."""
    pytest.importorskip("schemathesis")
    (tmp_path / "hooks.py").write_text(HOOKS)
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    with Server("--max-model-len", 64, "--max-num-seqs", 4) as server:
        done = subprocess.run(
            [program, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--checks", "only_what_was_asked_for",
             "--phases", "examples,fuzzing", "--max-examples", "12", "--generation-deterministic",
             "--no-shrink", "--request-timeout", "30", "--warnings", "off",
             "--continue-on-failure", "--no-color"],
            capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path)})
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert server.call("GET", "/health")[0] == 200
        server.settle()
