"""Files that change, lack or exceed what a model needs; prompts that begin twice; names of models."""

import json
import struct
import subprocess

import pytest
from support import GOLDEN, RUNNEL, copy_folder, refused, replace, start

RUN = ("--raw", "-p", "The river", "-n", 2, "--greedy")


def with_tensors(path, change):
    """Rewrites a safetensors file after `change` of its tensors: name to [dtype, shape, bytes]."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    tensors = {name: [t["dtype"], t["shape"], body[slice(*t["data_offsets"])]]
               for name, t in header.items() if name != "__metadata__"}
    change(tensors)
    header, body = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    replace(path, struct.pack("<Q", len(text)) + text + body)


def configured(folder, **values):
    config = json.loads((folder / "config.json").read_text()) | values
    replace(folder / "config.json", json.dumps(config))


def test_tensor_that_the_model_does_not_use_is_a_warning(pelton, tmp_path):
    folder = copy_folder(RUNNEL, tmp_path / "more")
    with_tensors(folder / "model.safetensors", lambda t: t.update({"spare.weight": ["F32", [2], b"\0" * 8]}))
    outcome = pelton("run", folder, *RUN)
    assert outcome.code == 0
    assert outcome.out == pelton("run", RUNNEL, *RUN).out
    assert "spare.weight" in outcome.err and len(outcome.err.splitlines()) == 1


def test_head_that_is_tied_or_not(pelton, tmp_path):
    """A tied head is the embedding whatever the file holds beside it; one that is not tied must be there."""
    folder = copy_folder(RUNNEL, tmp_path / "untied")
    configured(folder, tie_word_embeddings=False)
    refused(pelton("run", folder, *RUN), "lm_head.weight")

    def add_head(tensors):
        tensors["lm_head.weight"] = list(tensors["model.embed_tokens.weight"])

    with_tensors(folder / "model.safetensors", add_head)
    expected = pelton("run", RUNNEL, *RUN).out
    assert pelton("run", folder, *RUN).out == expected

    def spoil_head(tensors):
        dtype, shape, content = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = [dtype, shape, bytes(len(content))]

    with_tensors(folder / "model.safetensors", spoil_head)
    configured(folder, tie_word_embeddings=True)
    assert pelton("run", folder, *RUN).out == expected


def test_model_cut_while_in_use_is_an_error_and_no_crash(tmp_path):
    """Float weights are used where the file is mapped."""
    folder = copy_folder(GOLDEN / "gpt2", tmp_path / "cut")
    weights = folder / "model.safetensors"
    replace(weights, (GOLDEN / "gpt2/model.safetensors").read_bytes())
    process = start("run", folder, "--raw", "-p", "a", "--ignore-eos", "--greedy", "-n", 64,
                    stdin=subprocess.PIPE)
    assert process.stdout.read(1)
    with weights.open("r+b") as file:
        file.truncate(16)
    _, err = process.communicate(timeout=60)
    assert 0 <= process.returncode < 128
    assert process.returncode == 0 or b"became shorter" in err, err


@pytest.mark.parametrize("add_bos", [False, True])
def test_prompts_begin_once(pelton, tmp_path, add_bos):
    """A template that writes the begin token and a tokenizer that adds it make one of it."""
    folder = copy_folder(GOLDEN / "llama", tmp_path / "begins")
    config = json.loads((GOLDEN / "llama/tokenizer_config.json").read_text())
    config |= {"add_bos_token": add_bos,
               "chat_template": "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"}
    replace(folder / "tokenizer_config.json", json.dumps(config))
    bos = config["bos_token"] if isinstance(config["bos_token"], str) else config["bos_token"]["content"]
    begin = pelton("tokenize", folder, bos, "--parse-special", "--no-special", "--json").json()["ids"]
    assert len(begin) == 1
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "the mill"}]))
    ids = pelton("tokenize", folder, "--chat", chat, "--json").json()["ids"]
    assert ids[0] == begin[0] and ids.count(begin[0]) == 1
    plain = pelton("tokenize", folder, "the mill", "--no-special", "--json").json()["ids"]
    assert ids[1:] == plain


@pytest.fixture
def shelf(tmp_path):
    """A folder of models: a, and two whose names begin alike."""
    for name in ("alpha.Q4_1", "beta-1b", "beta-2b"):
        (tmp_path / f"{name}.gguf").symlink_to(GOLDEN / "llama/model.gguf")
    copy_folder(RUNNEL, tmp_path / "gamma-chat")
    return {"PELTON_MODELS": f"/no/such/folder:{tmp_path}"}


@pytest.mark.parametrize("command", ["run", "tokenize", "inspect", "plan"])
def test_the_beginning_of_a_models_name_is_enough(pelton, shelf, command):
    rest = {"run": ("--raw", "-p", "a", "-n", 1), "tokenize": ("a",)}.get(command, ())
    for name in ("alpha", "ALPHA", "beta-1b", "gamma"):
        outcome = pelton(command, name, *rest, env=shelf)
        assert outcome.code == 0, outcome.err
    refused(pelton(command, "beta", *rest, env=shelf), "beta-1b.gguf", "beta-2b.gguf")
    refused(pelton(command, "alp", *rest, env=shelf), "alp", "no such file")


def test_a_machine_without_a_gpu_says_so_and_its_processor_works(pelton):
    on_gpu = pelton("run", RUNNEL, *RUN, "--device", "cuda")
    if on_gpu.code != 0:
        refused(on_gpu, *(("no CUDA backend",) if "no CUDA" in on_gpu.err else ("NVIDIA",)))
    on_cpu = pelton("run", RUNNEL, *RUN, "--device", "cpu")
    assert on_cpu.code == 0 and on_cpu.out, on_cpu.err
    planned = pelton("plan", "--shape", "llama-3.1-8b", "--device", "cuda", "--json")
    assert planned.code == 0, planned.err
