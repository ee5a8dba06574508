#!/usr/bin/env python3
"""Writes docs/commands.md from the program's own --help, and what its JSON holds behind it.

    tools/dev/make_commands.py build/dev/bin/pelton            write it
    tools/dev/make_commands.py build/dev/bin/pelton --check    only compare; exit code 1 when it is not current
"""
import os
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/commands.md"

HEAD = """# Commands

What each command's `--help` says, written by `tools/dev/make_commands.py` from the program itself: change the declarations in `src/cli/`, not this page.
Options may also stand in a TOML or INI file (`--config FILE`, before the command), one section a command; those with an `Env:` note are also read from the environment.
"""

# Held by tests/e2e/test_command_line.py: what answers hold is named here, and what is named is there.
ANSWERS = """## Answers as JSON
With `--json` the answer is one object on standard output; errors and warnings are lines on standard error, and where there is an error there is no answer.
It is valid JSON whatever the files and the model hold: text that is no UTF-8 has U+FFFD in its place, a number that is not finite is `null`.
`[]` stands for each element of a list; a name with `?` may be missing. Later versions may add members.

| answer | members |
|---|---|
| most commands | `schema` (`pelton.COMMAND.1`), `model.path`, `model.name`, `model.architecture`, `model.layers`, `model.hidden_size`, `model.vocab_size`, `model.quantization?`, `machine.cpu`, `machine.isa`, `machine.threads`, `machine.gpu` (`null` without one), `rows[].name`, `rows[].value`, `rows[].unit`, `rows[].limit`, `rows[].percent` (of the limit), `rows[].spread` (of repetitions, as a share); the last three `null` where there is nothing to say |
| `run` | `prompt_ids`, `ids`, `text`, `finish_reason` (`stop`, `length`, `cancelled`), `logprobs[].id?`, `logprobs[].logprob?`, `logprobs[].top[].id?`, `logprobs[].top[].logprob?` (natural logarithms), `usage.prompt_tokens`, `usage.completion_tokens` (of all answers), `usage.total_tokens`, `usage.cached_tokens`, `timings.load_s`, `timings.first_token_s`, `timings.decode_s`, `memory.planned_anonymous_bytes`, `memory.peak_anonymous_bytes`, `seed`; with `--n` also `choices[]?`, each as the answer itself: `choices[].ids?`, `choices[].text?`, `choices[].finish_reason?`, `choices[].logprobs[].id?`, `choices[].logprobs[].logprob?`, `choices[].logprobs[].top[].id?`, `choices[].logprobs[].top[].logprob?` |
| `tokenize` | `ids`, `pieces` (as the vocabulary spells them), `text` (of the ids) |
| `inspect`, and the first row | `model.container`, `model.parameters`, `model.tensor_bytes`, `model.mapped_bytes`, `model.runnable`, `model.error?` (why not), `model.model_type?`, `model.num_attention_heads?`, `model.num_key_value_heads?`, `model.head_dim?`, `model.intermediate_size?`, `model.max_position_embeddings?`, `rows[].tensors`, `rows[].parameters` (a row is a format), `metadata[].key`, `metadata[].type`, `metadata[].value`, `tensors[].name`, `tensors[].format`, `tensors[].shape`, `tensors[].bytes`, `tokenizer.kind`, `tokenizer.vocab_size`, `tokenizer.merges`, `chat_template.bytes`, `chat_template.first_line` |
| `eval --perplexity`, and the first row | `perplexity`, `loss` (nat a token), `tokens`, `window_losses` |
| `eval --kl`, and the first row | `mean_kl` (nat), `perplexity`, `base_perplexity` |
| `eval --prove`, and the first row | `proved`, `rows[].rows` (compared; `value` counts those that differ), `rows[].exercised`, `rows[].first_difference?` |
| `bench`, and the first row | `roofline.read_bytes_per_second`, `roofline.int8_ops_per_second`, `rows[].bound?` (`memory`, `compute`), `rows[].step_ms?`, `rows[].host_us_per_step?`, `rows[].gpu_idle_percent?`, `rows[].gain?` (over static batching) |
| `plan`, and the first row | `plan.fits`, `plan.available_bytes`, `plan.kv_blocks`, `plan.block_size`, `plan.kv_tokens`, `plan.full_contexts`, `plan.max_model_len`, `plan.max_num_seqs`, `plan.max_num_batched_tokens`, `plan.parameters` |
| `bench-serve` | `schema`, `model.name` (as the server calls it), `machine.cpu`, `machine.isa`, `machine.threads`, `machine.gpu` (the client's), `rows[].name`, `rows[].value`, `rows[].unit`, `rows[].limit`, `rows[].percent`, `rows[].spread`, `latency_ms.e2el.count`, `latency_ms.e2el.mean`, `latency_ms.e2el.std`, `latency_ms.e2el.min`, `latency_ms.e2el.p50`, `latency_ms.e2el.p90`, `latency_ms.e2el.p95`, `latency_ms.e2el.p99`, `latency_ms.e2el.max` (whole answers; the same for first tokens under ttft, time per output token under tpot, gaps between pieces under itl), `duration_s`, `most_at_once` (requests), `requests.sent`, `requests.completed`, `requests.failed`, `requests.good` (within `--goodput`, else `null`), `requests.errors?` (with failures: how many of each kind), `tokens.prompt`, `tokens.cached`, `tokens.output`, `tokens.counted_by_server` (false: by pieces of text, for some answers at least), and the options as `config.url`, `config.endpoint`, `config.dataset`, `config.num_prompts`, `config.input_len`, `config.output_len`, `config.output_cap`, `config.prefix_len`, `config.prefix_share`, `config.prefix_count`, `config.token_ids`, `config.request_rate`, `config.burstiness`, `config.max_concurrency`, `config.temperature`, `config.ignore_eos`, `config.seed` |

`bench --json-lines` gives the object without its rows, then a row a line.

Exit codes: 0; 1 what was asked for could not be done, `eval --prove` found a bit that differs, or a chat over a pipe left a message without an answer; 2 the command line, or a value in it, is wrong; 130 after Ctrl-C.
"""


def help_of(binary, *command):
    # Without the caller's settings, which some options show as their defaults.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PELTON_")}
    text = subprocess.run([binary, *command, "--help"], check=True, capture_output=True, text=True, env=environment).stdout
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def commands_of(text):
    """Names below the heading of subcommands, in the program's order."""
    section = re.split(r"^(?:SUBCOMMANDS|Subcommands):\s*$", text, flags=re.MULTILINE)
    if len(section) != 2:
        sys.exit("--help lists no subcommands")
    return re.findall(r"^  (\S+)", section[1], flags=re.MULTILINE)


def page(binary):
    whole = help_of(binary)
    parts = [HEAD, f"```text\n{whole}\n```\n"]
    for command in commands_of(whole):
        parts.append(f"## pelton {command}\n```text\n{help_of(binary, command)}\n```\n")
    parts.append(ANSWERS)
    return "\n".join(parts)


def main():
    binary, check = os.path.abspath(sys.argv[1]), "--check" in sys.argv[2:]
    text = page(binary)
    if not check:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        sys.exit(f"docs/commands.md is not what --help says: run tools/dev/make_commands.py {sys.argv[1]}")


if __name__ == "__main__":
    main()
