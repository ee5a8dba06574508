"""Chat over pipes, interrupts and outputs that close early."""

import signal
import time

import pytest
from support import RUNNEL, start

LONG = ("--raw", "-p", "The river is", "--greedy", "--ignore-eos")


def chat(pelton, *lines, model=RUNNEL, arguments=("-n", 6, "--greedy", "--ignore-eos")):
    return pelton("run", model, *arguments, stdin="".join(line + "\n" for line in lines))


def test_each_message_gets_an_answer(pelton):
    outcome = chat(pelton, "Hello", "And then?")
    assert outcome.code == 0 and outcome.err == ""
    assert outcome.out.strip()
    one = chat(pelton, "Hello").out
    assert outcome.out.startswith(one) and len(outcome.out) > len(one)


def test_conversation_is_remembered_until_cleared(pelton):
    first = chat(pelton, "Hello").out
    assert chat(pelton, "Hello", "/clear", "Hello").out == first + first
    assert chat(pelton, "Hello", "Hello").out != first + first


def test_system_prompt_by_option_and_by_command(pelton):
    plain = chat(pelton, "Hello").out
    by_option = chat(pelton, "Hello", arguments=("-n", 6, "--greedy", "--ignore-eos", "--system", "Speak of mills."))
    assert by_option.out == chat(pelton, "/system Speak of mills.", "Hello").out
    assert by_option.out != plain


def test_again_answers_the_last_question(pelton):
    first = chat(pelton, "Hello").out
    assert chat(pelton, "Hello", "/again").out == first + first


def test_commands_answer_on_stderr(pelton):
    outcome = chat(pelton, "/help", "/stats")
    assert outcome.code == 0 and outcome.out == ""
    assert "/clear" in outcome.err and "/exit" in outcome.err


def test_stats_tell_the_speed_of_the_last_answer(pelton):
    assert "tok/s" in chat(pelton, "Hello", "/stats").err


def test_exit_leaves_at_once(pelton):
    outcome = chat(pelton, "/exit", "Hello")
    assert outcome.code == 0 and outcome.out == ""


def test_end_of_input_leaves(pelton):
    assert chat(pelton).code == 0


def test_line_that_ends_in_a_backslash_goes_on(pelton):
    joined = chat(pelton, "Hello\\", "world")
    assert joined.out.count("\n") == chat(pelton, "Hello world").out.count("\n")
    assert joined.code == 0


def test_message_beyond_the_context_is_an_error_and_the_chat_goes_on(pelton):
    arguments = ("-n", 6, "--greedy", "--ignore-eos", "--ctx-size", 64)
    outcome = chat(pelton, "water " * 200, "Hi", arguments=arguments)
    assert outcome.code == 1  # somebody's question has no answer
    assert [line for line in outcome.err.splitlines() if line.startswith("pelton: ")]
    assert outcome.out == chat(pelton, "Hi", arguments=arguments).out


def test_interrupt_stops_the_answer_and_the_process_ends_by_itself():
    process = start("run", RUNNEL, *LONG)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert out.endswith(b"\n") and err == b"pelton: cancelled: the answer is not whole\n"


def test_interrupt_in_a_chat_stops_the_answer_only(tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("Hello\n/stats\n")
    with lines.open() as stdin:
        process = start("run", RUNNEL, "--greedy", "--ignore-eos", stdin=stdin)
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out.endswith(b" [stopped]\n")
    assert b"tok/s" in err


def test_two_interrupts_end_the_process():
    process = start("run", RUNNEL, *LONG)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode in (0, 130)


@pytest.mark.parametrize("command", [("run", RUNNEL, *LONG), ("run", RUNNEL, *LONG, "-n", "64", "--json"),
                                     ("inspect", RUNNEL), ("plan", RUNNEL)])
def test_output_that_closes_early_is_no_crash(command):
    """What `| head -c 5` does: the reader takes a little and leaves."""
    process = start(*command)
    process.stdout.read(1)
    process.stdout.close()
    began = time.monotonic()
    err = process.stderr.read()
    code = process.wait(timeout=30)
    # Ended by SIGPIPE, or by the write error; never by anything else, nor after the whole answer.
    assert code in (0, 1, -signal.SIGPIPE), err
    assert time.monotonic() - began < 30
    for line in err.decode().splitlines():
        assert line.startswith("pelton: ")


def test_full_disk_is_an_error(pelton):
    with open("/dev/full", "wb") as full:
        process = start("run", RUNNEL, *LONG, "-n", "8", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode > 0
    assert err.decode().startswith("pelton: ") and err.decode().count("\n") == 1
