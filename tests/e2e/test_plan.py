"""`pelton plan` and `pelton inspect`: figures that add up, and memory that keeps to them."""

import json

import pytest
from support import GOLDEN, RUNNEL, refused

KV_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1, "int8": 1}


def plan(pelton, model, *arguments):
    outcome = pelton("plan", model, "--json", *arguments)
    assert outcome.code == 0 and outcome.err == "", outcome.err
    answer = outcome.json()
    return answer, {row["name"]: row["value"] for row in answer["rows"]}


def kv_bytes_per_token(config, dtype):
    """Keys and values of every layer and KV head; int8 adds a float32 scale to each."""
    heads = config.get("num_key_value_heads", config["num_attention_heads"])
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_hidden_layers"] * heads * (head * KV_BYTES[dtype] + (4 if dtype == "int8" else 0))


@pytest.mark.parametrize("model", [RUNNEL, GOLDEN / "qwen3", GOLDEN / "qwen3/model.gguf", GOLDEN / "gemma3/model.gguf"],
                         ids=lambda m: "/".join(m.parts[-2:]))
def test_parts_add_up(pelton, model):
    answer, rows = plan(pelton, model)
    assert answer["schema"] == "pelton.plan.1"
    assert rows["anonymous"] == rows["weights"] + rows["kv_cache"] + rows["scratch"] + rows["host"]
    p = answer["plan"]
    assert p["kv_tokens"] == p["kv_blocks"] * p["block_size"]
    assert p["full_contexts"] == p["kv_tokens"] // p["max_model_len"]
    assert rows["kv_cache"] == pytest.approx(p["kv_tokens"] * rows["kv_bytes_per_token"], rel=0.01)
    assert p["fits"] is True


@pytest.mark.parametrize("dtype", KV_BYTES)
def test_bytes_of_a_cached_token(pelton, dtype):
    for model in (RUNNEL, GOLDEN / "llama", GOLDEN / "qwen3"):
        config = json.loads((model / "config.json").read_text())
        _, rows = plan(pelton, model, "--kv-cache-dtype", dtype)
        assert rows["kv_bytes_per_token"] == kv_bytes_per_token(config, dtype)


def test_cache_grows_with_users_and_context(pelton):
    _, one = plan(pelton, RUNNEL, "--max-num-seqs", 1, "--ctx-size", 256)
    _, four = plan(pelton, RUNNEL, "--max-num-seqs", 4, "--ctx-size", 256)
    _, longer = plan(pelton, RUNNEL, "--max-num-seqs", 1, "--ctx-size", 1024)
    assert four["kv_cache"] == 4 * one["kv_cache"] == longer["kv_cache"]


def test_plan_keeps_to_the_bound(pelton):
    for limit in (14 << 20, 20 << 20, 64 << 20):
        _, rows = plan(pelton, RUNNEL, "--memory", limit)
        assert rows["anonymous"] <= limit


def test_bound_that_is_too_small_says_by_how_much(pelton):
    error = pelton("plan", RUNNEL, "--memory", "1MiB")
    refused(error, "--memory", "missing")
    missing = int(error.err.split(";")[-1].split()[0])
    # With what is missing added it fits, with a little less it does not.
    plan(pelton, RUNNEL, "--memory", (1 << 20) + missing)
    refused(pelton("plan", RUNNEL, "--memory", (1 << 20) + missing - 1), "missing")


def test_plan_reads_no_weights(pelton, tmp_path):
    """A file with its data cut off is still refused; a plan of a good one needs no more than a moment."""
    answer, rows = plan(pelton, RUNNEL)
    assert answer["plan"]["parameters"] * 2 == pytest.approx(rows["weights_read_per_token"], rel=0.01)


@pytest.mark.parametrize("arguments", [("--memory", "24MiB"), ("--memory", "64MiB", "--max-num-seqs", 8), ("--n", 6),
                                       ("--beams", 4), ("--kv-cache-dtype", "int8"), ("--activations", "f32")])
def test_memory_stays_within_the_plan(pelton, arguments):
    a = pelton("run", RUNNEL, "--raw", "-p", "The river is a wheel. " * 60, "-n", 48, "--ignore-eos", "--json",
               "--seed", 1, *arguments)
    assert a.code == 0, a.err
    memory = a.json()["memory"]
    assert 0 < memory["peak_anonymous_bytes"] <= memory["planned_anonymous_bytes"]
    if arguments[0] == "--memory":
        assert memory["planned_anonymous_bytes"] <= int(arguments[1][:2]) << 20


@pytest.mark.parametrize("limit", [192, 512])
def test_memory_of_a_real_model_stays_within_the_plan(pelton, smollm, limit):
    a = pelton("run", smollm, "--raw", "-p", "The river is a wheel. " * 40, "-n", 8, "--greedy", "--ignore-eos", "--json",
               "--memory", f"{limit}MiB", timeout=300)
    assert a.code == 0, a.err
    memory = a.json()["memory"]
    assert 0 < memory["peak_anonymous_bytes"] <= memory["planned_anonymous_bytes"] <= limit << 20


def weight_bytes(rows, columns, weights):
    """Of one matrix on a device, as docs say: codes, then scales."""
    if weights == "bf16":
        return 2 * rows * columns
    if weights == "int4":
        return rows * columns // 2 + rows * columns // 128 * 2
    return -(-rows * columns // 64) * 64 + 4 * rows


@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8", "int4"])
def test_weights_of_a_shape_are_counted_to_the_byte(pelton, weights):
    """Llama 3.1 8B: the layers' products in the format asked for, table and head BF16, vectors float32."""
    outcome = pelton("plan", "--shape", "llama-3.1-8b", "--device", "cuda", "--weights", weights, "--json")
    assert outcome.code == 0, outcome.err
    rows = {row["name"]: row["value"] for row in outcome.json()["rows"]}
    layer = sum(weight_bytes(r, c, weights) for r, c in [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)])
    head = weight_bytes(128256, 4096, "bf16")
    vectors = 4 * (65 * 4096 + 64)
    assert rows["weights"] == 32 * layer + 2 * head + vectors
    assert rows["weights_read_per_token"] == 32 * layer + head


def test_formats_of_a_shape_that_cannot_be(pelton):
    refused(pelton("plan", "--shape", "llama-3.1-8b", "--weights", "fp8"), "--device cuda")
    refused(pelton("plan", "--shape", "llama-3.1-8b", "--device", "cuda", "--weights", "fp4"), "--weights", "int4")
    refused(pelton("plan", RUNNEL, "--device", "cuda", "--weights", "fp8"), "--shape")
    refused(pelton("plan", RUNNEL, "--quantization", "fp8"), "--device cuda")
    refused(pelton("plan", RUNNEL, "--device", "cuda", "--quantization", "nf4"), "--quantization")
    refused(pelton("plan", "--shape", "llama-3.1-8b", "--device", "cuda", "--weights", "fp8", "--quantization", "fp8"),
            "one of them")
    refused(pelton("plan", RUNNEL, "--device", "cuda", "--quantization", "fp8", "--activations", "f32"), "f32")


def test_text_answers_end_in_a_sentence(pelton):
    outcome = pelton("plan", RUNNEL)
    assert outcome.code == 0 and "It fits" in outcome.out and "KV cache" in outcome.out


@pytest.mark.parametrize("model", [GOLDEN / "qwen3", GOLDEN / "qwen3/model.gguf"], ids=["folder", "gguf"])
def test_inspect_shows_the_model(pelton, model):
    outcome = pelton("inspect", model, "--json")
    assert outcome.code == 0 and outcome.err == ""
    a = outcome.json()
    config = json.loads((GOLDEN / "qwen3/config.json").read_text())
    assert a["schema"] == "pelton.inspect.1"
    m = a["model"]
    assert m["runnable"] is True and m["architecture"] == "qwen3"
    assert m["layers"] == config["num_hidden_layers"] and m["hidden_size"] == config["hidden_size"]
    assert m["num_key_value_heads"] == config["num_key_value_heads"] and m["head_dim"] == config["head_dim"]
    assert m["tensor_bytes"] == sum(t["bytes"] for t in a["tensors"]) == sum(r["value"] for r in a["rows"])
    assert sum(r["percent"] for r in a["rows"]) == pytest.approx(100)
    assert a["tokenizer"]["vocab_size"] and a["chat_template"]["bytes"]


def test_inspect_as_text(pelton):
    outcome = pelton("inspect", RUNNEL)
    assert outcome.code == 0 and "llama" in outcome.out and "model.embed_tokens.weight" in outcome.out


def test_inspect_shows_what_cannot_run(pelton, tmp_path):
    from support import copy_folder, replace

    folder = copy_folder(GOLDEN / "qwen3", tmp_path / "strange")
    config = json.loads((GOLDEN / "qwen3/config.json").read_text()) | {"model_type": "mystery", "architectures": ["X"]}
    replace(folder / "config.json", json.dumps(config))
    outcome = pelton("inspect", folder, "--json")
    assert outcome.code == 0
    assert outcome.json()["model"]["runnable"] is False and "mystery" in outcome.json()["model"]["error"]
    refused(pelton("run", folder, "-p", "hi"), "mystery")
