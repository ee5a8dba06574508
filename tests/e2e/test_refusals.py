"""Everything a user or a file can get wrong: one line, a non-zero exit, nothing on stdout, at once."""

import json
import random
import struct

import pytest
from support import GOLDEN, RUNNEL, copy_folder, refused, replace

RUN = ("--raw", "-p", "hi", "-n", 1)
QUICK = {"timeout": 30}
GGUF = GOLDEN / "qwen3/model.gguf"
COMMANDS = ("run", "tokenize", "inspect", "eval", "plan")


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_model(pelton, command):
    text = ("text",) if command == "tokenize" else ("--prove",) if command == "eval" else ()
    refused(pelton(command, "no-such-model", *text, **QUICK), "no-such-model")


@pytest.mark.parametrize("command", ["run", "tokenize", "plan", "inspect"])
def test_folder_without_a_model(pelton, tmp_path, command):
    text = ("text",) if command == "tokenize" else ()
    refused(pelton(command, tmp_path, *text, **QUICK), str(tmp_path))


@pytest.mark.parametrize(("architecture", "model_type"), [("BertModel", "bert"), ("XLMRobertaModel", "xlm-roberta"),
                                                          ("T5ForConditionalGeneration", "t5")])
@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("run", *RUN), ("plan",)], ids=lambda a: a[0])
def test_models_that_do_not_decode_never_start(pelton, tmp_path, arguments, architecture, model_type):
    folder = copy_folder(RUNNEL, tmp_path / "encoder")
    config = json.loads((RUNNEL / "config.json").read_text()) | {"architectures": [architecture], "model_type": model_type}
    replace(folder / "config.json", json.dumps(config))
    refused(pelton(arguments[0], folder, *arguments[1:], **QUICK), "config.json", f"'{model_type}' is not supported")


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("run",), ("run", RUNNEL, "--frobnicate"), ("tokenize",),
                                       ("--frobnicate",), ("run", RUNNEL, "-n"), ("plan", RUNNEL, "extra"),
                                       ("run", RUNNEL, "-p", "a", "-p", "b")])
def test_command_lines_that_say_nothing(pelton, arguments):
    refused(pelton(*arguments, **QUICK))


def test_config_file(pelton, tmp_path):
    refused(pelton("--config", tmp_path / "none.toml", "run", RUNNEL, *RUN, **QUICK))


@pytest.mark.parametrize("content", [b"\xff\0garbage[[[\n=====", b"[rum]\nn = 3\n", b"[run]\nno_such_option = 3\n",
                                     b"threads = abc\n", b"[run\nseed = 1\n", b"#" * (1 << 21)],
                         ids=["garbage", "command", "option", "nowhere", "section", "large"])
def test_config_file_that_says_nothing(pelton, tmp_path, content):
    (tmp_path / "c.toml").write_bytes(content)
    refused(pelton("--config", tmp_path / "c.toml", "run", RUNNEL, *RUN, **QUICK))


def test_config_file_without_end(pelton):
    refused(pelton("--config", "/dev/zero", "run", RUNNEL, *RUN, **QUICK), "1 MiB")


def test_config_file_sets_options_of_a_command(pelton, tmp_path):
    (tmp_path / "c.toml").write_text("# a comment\n\n[run]\nthreads = 100000\n")
    refused(pelton("--config", tmp_path / "c.toml", "run", RUNNEL, *RUN, **QUICK), "threads")


def test_results_are_written_over_nothing_but_results(pelton, tmp_path):
    model = copy_folder(RUNNEL, tmp_path / "model")
    ids = tmp_path / "ids.txt"
    ids.write_text("1 2 3")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    weights = (model / "model.safetensors").read_bytes()
    for target in (model / "model.safetensors", model / "new.f32", tmp_path / "link", tmp_path):
        refused(pelton("eval", model, "--dump-logits", target, "--ids", ids, **QUICK))
    # By its bare name, too.
    refused(pelton("eval", "model", "--dump-logits", model / "new.f32", "--ids", ids, env={"PELTON_MODELS": str(tmp_path)}, **QUICK))
    assert not (model / "new.f32").exists()
    assert (model / "model.safetensors").read_bytes() == weights


def test_replacements_that_would_grow_without_end(pelton, tmp_path):
    model = copy_folder(RUNNEL, tmp_path / "model")
    data = json.loads((model / "tokenizer.json").read_text())
    step = {"type": "Replace", "pattern": {"String": "l"}, "content": "l" * 1000}
    for part, steps in (("normalizer", "normalizers"), ("decoder", "decoders")):
        bad = {**data, part: {"type": "Sequence", steps: [step] * 3}}
        replace(model / "tokenizer.json", json.dumps(bad))
        refused(pelton("tokenize", model, "hello", **QUICK), part)


def test_numbers_beyond_their_meaning(pelton, tmp_path):
    refused(pelton("run", RUNNEL, *RUN, "--n", "-1", **QUICK), "--n")
    refused(pelton("run", RUNNEL, "--n", 2, stdin="hello\n", **QUICK), "--n")
    refused(pelton("tokenize", RUNNEL, "--decode", "99999999", **QUICK), "99999999")
    refused(pelton("eval", RUNNEL, "--perplexity", RUNNEL / "config.json", "--window", 1, **QUICK), "--window")
    refused(pelton("bench", RUNNEL, "-c", 64, "--rows", "offline", "--prompts", "nosuch", **QUICK), "nosuch")
    model = copy_folder(RUNNEL, tmp_path / "model")
    replace(model / "generation_config.json", '{"eos_token_id": 99999}')
    refused(pelton("run", model, *RUN, **QUICK), "99999")


@pytest.mark.parametrize(("option", "value"), [
    ("--memory", "1K"), ("--memory", "lots"), ("--memory", "-1"), ("--memory", "nan"), ("--memory", "1e300"),
    ("--kv-cache-dtype", "int3"), ("--isa", "z80"), ("--threads", "-1"), ("--threads", "100000"), ("--threads", "many"),
    ("--device", "cuda"), ("--device", "toaster"), ("--activations", "int1"), ("--block-size", "7"),
    ("--block-size", "0"), ("--ctx-size", "-1"), ("--ctx-size", "1000000"), ("--max-num-seqs", "-1"),
    ("--max-num-seqs", "1000000"), ("--max-num-batched-tokens", "-1"), ("-n", "-2"), ("-n", "2147483648"),
    ("--temperature", "-1"), ("--temperature", "nan"), ("--temperature", "warm"), ("--top-p", "0"), ("--top-p", "7"),
    ("--top-k", "-2"), ("--min-p", "2"), ("--typical-p", "0"), ("--repeat-penalty", "0"), ("--presence-penalty", "inf"),
    ("--seed", "-1"), ("--seed", "x"), ("--n", "0"), ("--n", "1000"), ("--beams", "0"), ("--beams", "1000"),
    ("--early-stopping", "maybe"), ("--min-tokens", "-1"), ("--stop", ""),
])  # fmt: skip
def test_values_out_of_range(pelton, option, value):
    refused(pelton("run", RUNNEL, "--raw", "-p", "hi", *(() if option == "-n" else ("-n", 1)), option, value, **QUICK))


@pytest.mark.parametrize(("options", "word"), [
    (("--raw", "--system", "Speak."), "--system"), (("--greedy", "--temperature", "0.5"), "--greedy"),
    (("--logprobs", 3), "--json"), (("--length-penalty", 2), "--beams"), (("--early-stopping", "never"), "--beams"),
    (("--beams", 2, "--temperature", "0.5"), "temperature"), (("--beams", 2, "--top-k", 3), "top_k"),
    (("--beams", 2, "--top-p", "0.5"), "top_p"), (("--beams", 2, "--min-p", "0.5"), "min_p"), (("--n", 129), "128"),
    (("--system", "Speak."), "template"),
])  # fmt: skip
def test_options_that_would_do_nothing(pelton, tmp_path, options, word):
    """They are refused rather than passed over."""
    model = RUNNEL
    if word == "template":
        model = copy_folder(RUNNEL, tmp_path / "plain")
        replace(model / "tokenizer_config.json", "{}")
    refused(pelton("run", model, "-p", "hi", "-n", 1, *options, **QUICK), word)


@pytest.mark.parametrize("arguments", [("hi", "-f", RUNNEL / "config.json"), ("hi", "--chat", RUNNEL / "config.json"),
                                       ("--decode", "--chat", RUNNEL / "config.json")])
def test_tokenize_takes_one_source(pelton, arguments):
    refused(pelton("tokenize", RUNNEL, *arguments, **QUICK), "one of them")


def test_prompt_file_that_is_missing_or_a_folder(pelton, tmp_path):
    refused(pelton("run", RUNNEL, "-f", "no-such-file", "-n", 1, **QUICK), "no-such-file")
    refused(pelton("run", RUNNEL, "-f", tmp_path, "-n", 1, **QUICK), str(tmp_path))


def test_gguf_cut_anywhere(pelton, tmp_path):
    data = GGUF.read_bytes()
    path = tmp_path / "cut.gguf"
    for i in range(20):
        at = i * (len(data) - 1) // 19
        path.write_bytes(data[:at])
        refused(pelton("run", path, *RUN, **QUICK), "cut.gguf")


def test_safetensors_cut_anywhere(pelton, tmp_path):
    data = (GOLDEN / "qwen3/model.safetensors").read_bytes()
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "cut")
    for i in range(10):
        replace(folder / "model.safetensors", data[: i * (len(data) - 1) // 9])
        refused(pelton("run", folder, *RUN, **QUICK), "model.safetensors")


def test_random_bytes(pelton, tmp_path):
    path = tmp_path / "random.gguf"
    for seed in range(8):
        rng = random.Random(seed)
        head = (b"", b"GGUF", b"GGUF\x03\x00\x00\x00")[seed % 3]
        path.write_bytes(head + rng.randbytes(rng.choice((1, 24, 100, 5000))))
        refused(pelton("run", path, *RUN, **QUICK), "random.gguf")


@pytest.mark.parametrize("count", [1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_few_bytes_that_announce_many(pelton, tmp_path, count):
    path = tmp_path / "giant.gguf"
    key = b"tokenizer.ggml.tokens"
    array = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, count)
    for body in (struct.pack("<QQ", 0, 1) + array, struct.pack("<QQ", count, 0), struct.pack("<QQ", 0, count)):
        path.write_bytes(b"GGUF" + struct.pack("<I", 3) + body)
        refused(pelton("run", path, *RUN, **QUICK), "giant.gguf")


@pytest.mark.parametrize(("name", "key", "old", "new"), [
    # integers as floats; the name of a list that must be there changed
    ("llama", "token_type", b"", (5, 6)), ("llama", "merges", b"merges", b"mergex"),
])  # fmt: skip
def test_lists_of_a_vocabulary_that_are_of_another_type(pelton, tmp_path, name, key, old, new):
    data = bytearray((GOLDEN / name / "model.gguf").read_bytes())
    at = data.index(b"tokenizer.ggml." + key.encode())
    if old:
        data[at + 15 : at + 15 + len(old)] = new
    else:
        kind = at + 15 + len(key) + 4  # behind the key: 9 for a list, then what of
        assert data[kind] == new[0]
        data[kind] = new[1]
    (tmp_path / "list.gguf").write_bytes(data)
    refused(pelton("tokenize", tmp_path / "list.gguf", "hi", **QUICK), key)


def test_flipped_bytes_never_crash(pelton, tmp_path):
    """A changed header is refused or, where the byte does not matter, runs."""
    data = GGUF.read_bytes()
    path = tmp_path / "flipped.gguf"
    rng = random.Random(7)
    for _ in range(24):
        changed = bytearray(data)
        changed[rng.randrange(4, 9000)] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        outcome = pelton("run", path, *RUN, **QUICK)
        assert 0 <= outcome.code < 128, outcome.err
        if outcome.code:
            refused(outcome, "flipped.gguf")


LIES = [
    ("hidden_size", 0), ("hidden_size", -64), ("hidden_size", 1 << 62), ("hidden_size", "64"), ("hidden_size", None),
    ("hidden_size", 128), ("num_hidden_layers", 0), ("num_hidden_layers", 9), ("num_hidden_layers", 1 << 31),
    ("num_attention_heads", 0), ("num_attention_heads", 5), ("num_key_value_heads", 3), ("num_key_value_heads", 1),
    ("head_dim", 15), ("head_dim", 1 << 40), ("intermediate_size", 96), ("vocab_size", 100000), ("vocab_size", 300),
    ("max_position_embeddings", 0), ("rms_norm_eps", 0.0), ("rms_norm_eps", -1e-5), ("rms_norm_eps", 1e3),
    ("rope_theta", 0.0), ("rope_scaling", {"rope_type": "mystery", "factor": 2.0}), ("eos_token_id", 1 << 20),
    ("eos_token_id", "2"), ("hidden_act", "mystery"), ("model_type", "mystery"),
    ("quantization_config", {"quant_method": "gptq", "bits": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), LIES, ids=[f"{k}={str(v)[:24]}" for k, v in LIES])
def test_configurations_that_lie(pelton, tmp_path, key, value):
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "lying")
    config = json.loads((GOLDEN / "qwen3/config.json").read_text()) | {key: value}
    if key == "model_type":
        config["architectures"] = ["MysteryForCausalLM"]
    if key == "rope_theta" or key == "rope_scaling":
        config.pop("rope_parameters", None)
    replace(folder / "config.json", json.dumps(config))
    refused(pelton("run", folder, *RUN, **QUICK), "lying")


BROKEN_JSON = ["", "{", "[]", "null", "1", '{"a": ' * 100000, "\0", '{"hidden_size": 1e999}']


@pytest.mark.parametrize("content", BROKEN_JSON, ids=range(len(BROKEN_JSON)))
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_broken_json(pelton, tmp_path, file, content):
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "broken")
    replace(folder / file, content)
    refused(pelton("run", folder, *RUN, **QUICK), file)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_parts(pelton, tmp_path, file):
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "partial")
    (folder / file).unlink()
    refused(pelton("run", folder, *RUN, **QUICK), "partial")


def rewrite_header(path, change):
    """The same data under a changed safetensors header."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    replace(path, struct.pack("<Q", len(text)) + text + data[8 + size :])


@pytest.mark.parametrize("part", ["model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.up_proj.weight"])
def test_missing_tensors_are_named(pelton, tmp_path, part):
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "renamed")

    def rename(header):
        header["renamed"] = header.pop(part)

    rewrite_header(folder / "model.safetensors", rename)
    refused(pelton("run", folder, *RUN, **QUICK), part)


@pytest.mark.parametrize(("field", "value"), [
    ("shape", [1 << 62, 1 << 62]), ("shape", [-1]), ("shape", "x"), ("dtype", "F17"), ("dtype", None),
    ("data_offsets", [0, 1 << 60]), ("data_offsets", [8, 0]), ("data_offsets", [-8, 8]), ("data_offsets", []),
])  # fmt: skip
def test_tensors_that_lie(pelton, tmp_path, field, value):
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "lying")

    def change(header):
        header["model.norm.weight"][field] = value

    rewrite_header(folder / "model.safetensors", change)
    refused(pelton("run", folder, *RUN, **QUICK), "model.safetensors")


def test_names_from_files_cannot_reach_the_terminal(pelton, tmp_path):
    """Escape codes inside of names are shown escaped."""
    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "escape")

    def change(header):
        header["\x1b[31mred\n\x07"] = {"dtype": "F17", "shape": [1], "data_offsets": [0, 2]}

    rewrite_header(folder / "model.safetensors", change)
    outcome = pelton("run", folder, *RUN, **QUICK)
    refused(outcome)
    assert "\x1b" not in outcome.err and "\x07" not in outcome.err
