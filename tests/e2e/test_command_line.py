"""Commands, help and refusals."""

import pytest
from conftest import ROOT, one_line_error
from support import RUNNEL, documented, members, start

TEXT = ROOT / "tests/data/text.txt"
COMMANDS = {"run": ("-p", "a", "-n", 1), "tokenize": ("a",), "inspect": (), "plan": (),
            "eval": ("--perplexity", TEXT, "--window", 16, "--limit", 1),
            "bench": ("-p", 4, "-n", 2, "--repeat", 1, "--rows", "pp")}


def test_help_lists_the_commands(pelton):
    help_text = pelton("--help")
    assert help_text.code == 0
    for command in COMMANDS:
        assert command in help_text.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(pelton, command):
    help_text = pelton(command, "--help")
    assert help_text.code == 0
    assert "MODEL" in help_text.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_common_options(pelton, command):
    outcome = pelton(command, RUNNEL, *COMMANDS[command], "--threads", 1, "--device", "cpu", "--isa", "generic",
                     "--activations", "int8", "--invariant", "--memory", "1GiB", "--json")
    assert outcome.code == 0, outcome.err
    assert isinstance(outcome.json(), dict)


def test_unknown_command_and_option_are_refused(pelton):
    assert "'frobnicate'" in one_line_error(pelton("frobnicate"))
    assert len(one_line_error(pelton("run", RUNNEL, "--seed", "-1"))) < 100
    assert "--seed" in one_line_error(pelton("bench-serve", "--url", "http://127.0.0.1:1", "--seed", "-1"))
    assert len(one_line_error(pelton("run", RUNNEL, "--num-kv-blocks", "-1"))) < 150
    assert pelton("run", "--frobnicate").code > 0


def test_missing_model_is_one_line_naming_it(pelton):
    assert "no-such-model.gguf" in one_line_error(pelton("run", "no-such-model.gguf", "-p", "hi"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, b"<html>" * 100])
def test_bad_file_is_one_line_naming_it(pelton, tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    assert "broken.gguf" in one_line_error(pelton("run", path, "-p", "hi"))


@pytest.mark.parametrize("option", ["--seed", "-n", "--top-k", "--threads"])
def test_a_whole_number_beyond_64_bits_is_refused_not_cut(pelton, option):
    message = one_line_error(pelton("run", RUNNEL, "-p", "hi", option, 2**64))
    assert option in message


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help")])
def test_help_on_a_full_disk_is_an_error(arguments):
    with open("/dev/full", "wb") as full:
        process = start(*arguments, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode > 0 and err.startswith(b"pelton: ") and err.count(b"\n") == 1


@pytest.mark.parametrize(("answer", "arguments"), [
    ("`run`", ("run", RUNNEL, "-p", "hi", "-n", 2)), ("`run`", ("run", RUNNEL, "-p", "hi", "-n", 2, "--n", 2, "--logprobs", 2)),
    ("`tokenize`", ("tokenize", RUNNEL, "hi")), ("`inspect`", ("inspect", RUNNEL)),
    ("`eval --perplexity`", ("eval", RUNNEL, "--perplexity", TEXT, "--limit", 1)),
    ("`eval --kl`", ("eval", RUNNEL, "--kl", RUNNEL, "--text", TEXT, "--limit", 1)),
    ("`eval --prove`", ("eval", RUNNEL, "--prove")), ("`plan`", ("plan", RUNNEL)),
    ("`bench`", ("bench", RUNNEL, "--rows", "pp4,tg2,batching_4/4_r3", "--repeat", 1)),
], ids=lambda v: v.strip("`") if isinstance(v, str) else "")  # fmt: skip
def test_answers_hold_what_the_page_says(pelton, answer, arguments):
    outcome = pelton(*arguments, "--json")
    assert outcome.code == 0 and outcome.err == "", outcome.err
    must, may = documented(answer)
    got = members(outcome.json())
    assert must <= got, must - got
    assert got <= must | may, got - must - may
