"""pelton serve --self-test: a server that asks itself."""

import json

from support import RUNNEL, copy_folder, replace


def test_it_passes_and_says_what(pelton):
    outcome = pelton("serve", RUNNEL, "--self-test", "--threads", 1)
    assert outcome.code == 0, outcome.out + outcome.err
    lines = [line.split() for line in outcome.out.splitlines()]
    assert [line[0] for line in lines] == ["health", "ready", "models", "completion", "chat", "stream", "refusal", "metrics"]
    assert all(line[1] == "passed" for line in lines)


def test_with_keys_it_uses_one_of_its_own(pelton, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("somebodys-key\n")
    outcome = pelton("serve", RUNNEL, "--self-test", "--threads", 1, "--api-key-file", keys, "--port", 1)
    assert outcome.code == 0, outcome.out + outcome.err
    assert outcome.out.splitlines()[-1].startswith("wrong key    passed")


def test_without_a_usable_template_there_is_no_chat(pelton, tmp_path):
    folder = copy_folder(RUNNEL, tmp_path / "model")
    config = json.loads((RUNNEL / "tokenizer_config.json").read_text())
    replace(folder / "tokenizer_config.json", json.dumps({**config, "chat_template": "{% if %}"}))
    outcome = pelton("serve", folder, "--self-test", "--threads", 1)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "chat" not in outcome.out and "completion   passed" in outcome.out


def test_a_failure_is_named_and_ends_with_1(pelton):
    # No context for eight more tokens after the prompt: completion, chat and stream are refused.
    outcome = pelton("serve", RUNNEL, "--self-test", "--threads", 1, "--max-model-len", 4)
    assert outcome.code == 1
    assert "completion   FAILED  status 400 instead of 200" in outcome.out
    assert "the self-test failed: completion" in outcome.err
