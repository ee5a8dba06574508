"""`pelton run` with one prompt: the JSON object, lengths, seeds, stops, several answers, beams."""

import json
import math
import re

import pytest
from support import ANSWER_KEYS, GOLDEN, RUNNEL, golden, refused

PROMPT = "The river is"
FINISH = ("stop", "length")


def answer(pelton, *arguments, model=RUNNEL, **options):
    outcome = pelton("run", model, "--json", *arguments, **options)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    return outcome.json()


def test_object_has_the_documented_keys_and_types(pelton):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", 6, "--seed", 1)
    assert set(a) == ANSWER_KEYS
    assert a["prompt_ids"] and all(isinstance(i, int) for i in a["prompt_ids"])
    assert len(a["ids"]) <= 6 and all(isinstance(i, int) for i in a["ids"])
    assert isinstance(a["text"], str) and a["finish_reason"] in FINISH
    usage = a["usage"]
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"}
    assert usage["prompt_tokens"] == len(a["prompt_ids"])
    assert usage["completion_tokens"] == len(a["ids"])
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["cached_tokens"] < usage["prompt_tokens"]
    for key in ("load_s", "first_token_s", "decode_s"):
        assert isinstance(a["timings"][key], float) and math.isfinite(a["timings"][key]) and a["timings"][key] >= 0
    assert a["seed"] == 1


def test_json_is_one_line_and_nothing_else(pelton):
    outcome = pelton("run", RUNNEL, "--raw", "-p", PROMPT, "-n", 4, "--greedy", "--json")
    assert outcome.out.count("\n") == 1 and outcome.out.endswith("\n")
    json.loads(outcome.out)


def test_text_is_that_of_the_ids(pelton):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", 24, "--greedy")
    decoded = pelton("tokenize", RUNNEL, "--decode", " ".join(map(str, a["ids"])), "--json").json()
    assert decoded["text"] == a["text"]


def test_streamed_text_is_that_of_the_object(pelton):
    arguments = ("--raw", "-p", PROMPT, "-n", 40, "--temperature", "1", "--seed", 5)
    streamed = pelton("run", RUNNEL, *arguments)
    assert streamed.code == 0 and streamed.err == ""
    assert streamed.out == answer(pelton, *arguments)["text"] + "\n"


def test_no_escape_codes_or_progress_in_a_pipe(pelton):
    outcome = pelton("run", RUNNEL, "--raw", "-p", PROMPT, "-n", 8, "--greedy")
    assert not re.search(r"[\x1b\r]", outcome.out + outcome.err)
    assert outcome.err == ""


ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3", "gpt2", "gpt_bigcode")
GREEDY = [GOLDEN / name / file for name in ARCHITECTURES for file in ("", "model.gguf")]


@pytest.mark.parametrize("model", [m for m in GREEDY if m.exists()], ids=lambda m: str(m.relative_to(GOLDEN)))
def test_greedy_is_that_of_the_reference(pelton, model):
    expected = golden(model.relative_to(GOLDEN).parts[0])["greedy"]
    prompt = pelton("tokenize", model, "--decode", " ".join(map(str, expected["prompt"])), "--json").json()["text"]
    a = answer(pelton, "--raw", "-p", prompt, "-n", len(expected["ids"]), "--greedy", "--ignore-eos",
               "--activations", "f32", model=model)
    assert a["prompt_ids"] == expected["prompt"]
    assert a["ids"] == expected["ids"]
    assert a["finish_reason"] == "length"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_never_more_tokens_than_asked_for(pelton, count):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", count, "--greedy", "--ignore-eos")
    assert len(a["ids"]) == count
    assert a["usage"]["completion_tokens"] == count
    assert a["finish_reason"] == "length"


def test_answer_without_a_bound_ends_at_the_context(pelton):
    a = answer(pelton, "--raw", "-p", PROMPT, "--greedy", "--ignore-eos", "--ctx-size", 64)
    assert len(a["prompt_ids"]) + len(a["ids"]) == 64
    assert a["finish_reason"] == "length"


def test_a_prompt_beyond_the_context_is_refused(pelton):
    refused(pelton("run", RUNNEL, "--raw", "-p", "water " * 200, "-n", 1, "--ctx-size", 64), "64")


def test_same_seed_same_text_another_seed_another_text(pelton):
    arguments = ("--raw", "-p", PROMPT, "-n", 32, "--temperature", "1.2", "--ignore-eos", "--seed")
    first, again, other = (answer(pelton, *arguments, seed) for seed in (11, 11, 12))
    assert first["ids"] == again["ids"] and first["text"] == again["text"]
    assert first["ids"] != other["ids"]


def test_unset_seed_is_reported_and_repeats_the_text(pelton):
    arguments = ("--raw", "-p", PROMPT, "-n", 16, "--temperature", "1.2")
    first = answer(pelton, *arguments)
    assert answer(pelton, *arguments, "--seed", first["seed"])["ids"] == first["ids"]


@pytest.mark.parametrize("options", [("--threads", 1), ("--threads", 3), ("--max-num-batched-tokens", 16),
                                     ("--no-enable-prefix-caching",), ("--block-size", 64), ("--invariant",)])
def test_tokens_do_not_depend_on_how_the_work_is_cut(pelton, options):
    arguments = ("--raw", "-p", "def wheel(jet, bucket):\n" * 8, "-n", 24, "--temperature", "1", "--seed", 3)
    assert answer(pelton, *arguments, *options)["ids"] == answer(pelton, *arguments, "--threads", 2)["ids"]


@pytest.mark.parametrize("temperature", ["0", "1e-9", "1e-4", "100"])
@pytest.mark.parametrize("top_p", ["1e-9", "1e-4", "1"])
def test_extreme_temperatures_stay_finite(pelton, temperature, top_p):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", 3, "--temperature", temperature, "--top-p", top_p, "--logprobs", 2,
               "--ignore-eos")
    assert len(a["ids"]) == 3
    for token in a["logprobs"]:
        assert all(math.isfinite(t["logprob"]) for t in [token, *token["top"]])
    if temperature != "100":
        assert a["ids"] == answer(pelton, "--raw", "-p", PROMPT, "-n", 3, "--greedy", "--ignore-eos")["ids"]


def test_logprobs_are_sorted_and_belong_to_the_tokens(pelton):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", 5, "--greedy", "--logprobs", 4, "--ignore-eos")
    assert [t["id"] for t in a["logprobs"]] == a["ids"]
    for token in a["logprobs"]:
        top = [t["logprob"] for t in token["top"]]
        assert len(top) == 4 and top == sorted(top, reverse=True) and top[0] <= 0
        assert token["top"][0] == {"id": token["id"], "logprob": token["logprob"]}


def test_stop_string_is_not_shown(pelton):
    whole = answer(pelton, "--raw", "-p", PROMPT, "-n", 40, "--greedy", "--ignore-eos")["text"]
    # Inside a word, so that it also begins and ends within tokens.
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    cut = whole[: whole.index(stop)]
    arguments = ("--raw", "-p", PROMPT, "-n", 40, "--greedy", "--ignore-eos", "--stop", stop)
    a = answer(pelton, *arguments)
    assert a["text"] == cut and a["finish_reason"] == "stop"
    assert pelton("run", RUNNEL, *arguments).out == cut + "\n"


def test_half_a_stop_string_at_the_end_is_shown(pelton):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", 12, "--greedy", "--ignore-eos")
    stop = a["text"][-2:] + "\x01"
    arguments = ("--raw", "-p", PROMPT, "-n", 12, "--greedy", "--ignore-eos", "--stop", stop)
    assert answer(pelton, *arguments)["text"] == a["text"]
    assert pelton("run", RUNNEL, *arguments).out == a["text"] + "\n"


def test_several_stop_strings_take_the_first_to_come(pelton):
    whole = answer(pelton, "--raw", "-p", PROMPT, "-n", 40, "--greedy", "--ignore-eos")["text"]
    early, late = whole[4:7], whole[30:33]
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", 40, "--greedy", "--ignore-eos", "--stop", late, "--stop", early)
    assert a["text"] == whole[: min(whole.index(early), whole.index(late))]


def test_several_answers_of_one_prompt(pelton):
    arguments = ("--raw", "-p", PROMPT, "-n", 12, "--temperature", "1.3", "--seed", 4, "--ignore-eos")
    a = answer(pelton, *arguments, "--n", 4)
    assert len(a["choices"]) == 4
    assert len({tuple(c["ids"]) for c in a["choices"]}) > 1
    assert a["choices"][0]["ids"] == a["ids"] == answer(pelton, *arguments)["ids"]
    assert a["usage"]["completion_tokens"] == sum(len(c["ids"]) for c in a["choices"])
    shown = pelton("run", RUNNEL, *arguments, "--n", 2).out
    assert shown.startswith("--- 1 ---\n" + a["choices"][0]["text"]) and "\n--- 2 ---\n" in shown


@pytest.mark.parametrize("count", [1, 2, 8])
def test_beams_keep_to_the_length(pelton, count):
    a = answer(pelton, "--raw", "-p", PROMPT, "-n", count, "--beams", 4, "--ignore-eos")
    assert len(a["ids"]) == count


def test_beams_repeat_and_differ_between_answers(pelton):
    arguments = ("--raw", "-p", PROMPT, "-n", 8, "--beams", 4, "--n", 3)
    a = answer(pelton, *arguments)
    assert a["choices"] == answer(pelton, *arguments)["choices"]
    assert len({tuple(c["ids"]) for c in a["choices"]}) == 3


def test_one_beam_is_greedy(pelton):
    arguments = ("--raw", "-p", PROMPT, "-n", 8, "--ignore-eos")
    assert answer(pelton, *arguments, "--beams", 1, "--greedy")["ids"] == answer(pelton, *arguments, "--greedy")["ids"]


def test_prompt_from_file_and_standard_input(pelton, tmp_path):
    text = "Zwei Räder\nund ein Fluss 水"
    file = tmp_path / "prompt.txt"
    file.write_text(text)
    tail = ("-n", 4, "--greedy", "--raw")
    from_option = answer(pelton, "-p", text, *tail)
    for other in (answer(pelton, "-f", file, *tail), answer(pelton, "-f", "-", *tail, stdin=text)):
        assert other["prompt_ids"] == from_option["prompt_ids"]
        assert other["ids"] == from_option["ids"]


def test_file_follows_the_prompt(pelton):
    both = answer(pelton, "-p", "Review:", "-f", "-", "-n", 1, "--raw", stdin="some text")
    assert both["prompt_ids"] == answer(pelton, "-p", "Review:\nsome text", "-n", 1, "--raw")["prompt_ids"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_last_line_end_of_a_file_is_not_part_of_the_prompt(pelton, tmp_path, end):
    file = tmp_path / "prompt.txt"
    file.write_bytes(("a wheel\n" + end).encode())
    tail = ("-n", 1, "--greedy", "--raw")
    assert answer(pelton, "-f", file, *tail)["prompt_ids"] == answer(pelton, "-p", "a wheel\n", *tail)["prompt_ids"]


@pytest.mark.parametrize("options", [("-n", 0), ("-n", 4), ("-n", 12, "--beams", 3), ("-n", 1, "--beams", 2)])
def test_timings_tell_prompt_and_answer_apart(pelton, options):
    timings = answer(pelton, "--raw", "-p", PROMPT, "--ignore-eos", "--greedy", *options)["timings"]
    assert timings["first_token_s"] > 0
    assert timings["decode_s"] >= 0
    if options[1] == 0:
        assert timings["decode_s"] == 0
    if options[1] == 12:  # eleven steps of three rows are no instant
        assert timings["decode_s"] > timings["first_token_s"] / 100


def test_backslash_n_stays_two_characters(pelton):
    written = answer(pelton, "--raw", "-p", "a\\nb", "-n", 1)["prompt_ids"]
    newline = answer(pelton, "--raw", "-p", "a\nb", "-n", 1)["prompt_ids"]
    assert written != newline
    assert pelton("tokenize", RUNNEL, "--decode", " ".join(map(str, written)), "--json").json()["text"] == "a\\nb"


@pytest.mark.parametrize("count", range(1, 9))
def test_limit_inside_a_character_gives_valid_json(pelton, count):
    """A random model emits any byte; the text of cut characters is replaced, never broken."""
    model = GOLDEN / "llama"
    arguments = ("--raw", "-p", "水轮机🌊", "-n", count, "--temperature", "2", "--seed", count, "--ignore-eos")
    a = answer(pelton, *arguments, model=model)
    a["text"].encode()  # no lone surrogate
    streamed = pelton("run", model, *arguments)  # decodes as UTF-8 or the test fails
    assert streamed.out == a["text"] + "\n"


def test_empty_prompt_is_refused_or_begins_the_text(pelton):
    outcome = pelton("run", RUNNEL, "--raw", "-p", "", "-n", 2)
    if outcome.code != 0:
        refused(outcome, "empty")


def test_refused_requests_do_not_depend_on_the_try(pelton):
    bad = ("run", RUNNEL, "-p", "hi", "-n", 1, "--top-p", "7")
    first, second = pelton(*bad), pelton(*bad)
    refused(first, "top_p")
    assert (first.code, first.err) == (second.code, second.err)


def test_json_without_a_prompt_is_refused(pelton):
    refused(pelton("run", RUNNEL, "--json"), "prompt")
