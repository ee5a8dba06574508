"""Commands, help and refusals."""
import pytest
from conftest import one_line_error


def test_help_lists_the_commands(pelton):
    help_text = pelton("--help")
    assert help_text.code == 0
    for command in ("run", "tokenize", "eval", "plan"):
        assert command in help_text.out


@pytest.mark.parametrize("command", ["run", "tokenize", "eval", "plan"])
def test_each_command_explains_itself(pelton, command):
    help_text = pelton(command, "--help")
    assert help_text.code == 0
    assert "MODEL" in help_text.out


def test_unknown_command_and_option_are_refused(pelton):
    assert pelton("frobnicate").code > 0
    assert pelton("run", "--frobnicate").code > 0


def test_missing_model_is_one_line_naming_it(pelton):
    assert "no-such-model.gguf" in one_line_error(pelton("run", "no-such-model.gguf", "-p", "hi"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 64, b"<html>" * 100])
def test_bad_file_is_one_line_naming_it(pelton, tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    assert "broken.gguf" in one_line_error(pelton("run", path, "-p", "hi"))
