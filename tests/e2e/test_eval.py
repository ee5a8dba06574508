"""`pelton eval`: the loss of our own text, divergence, proof."""

import json
import math
import os
import pathlib

import pytest
from conftest import ROOT
from support import GOLDEN, RUNNEL, copy_folder, golden, refused, replace

TEXT = ROOT / "tests/data/text.txt"
LOSS = json.loads((ROOT / "tests/data/text.loss.json").read_text())


def evaluate(pelton, *arguments):
    outcome = pelton("eval", *arguments, "--json", timeout=300)
    assert outcome.code == 0 and outcome.err == "", outcome.err
    assert outcome.out.count("\n") == 1
    return outcome.json()


def rows(answer):
    return {row["name"]: row["value"] for row in answer["rows"]}


def test_perplexity_is_that_of_the_reference(pelton):
    a = evaluate(pelton, RUNNEL, "--perplexity", TEXT)
    assert a["schema"] == "pelton.eval.1"
    assert len(a["window_losses"]) == LOSS["windows"]
    assert a["tokens"] == 1024 * LOSS["windows"]
    assert abs(a["loss"] - LOSS["mean"]) < 1e-3
    assert max(abs(x - y) for x, y in zip(a["window_losses"], LOSS["per_window"], strict=True)) < 1e-3
    assert a["perplexity"] == pytest.approx(math.exp(a["loss"]))
    assert rows(a)["top1_accuracy"] == pytest.approx(100 * LOSS["top1_accuracy"], abs=0.3)
    assert a["loss"] == pytest.approx(sum(a["window_losses"]) / len(a["window_losses"]))


@pytest.mark.parametrize("name", ["runnel-2m", "runnel-15m"])
def test_windows_of_held_out_text_cost_what_the_reference_says(pelton, name):
    folders = [pathlib.Path(f) for f in os.environ.get("PELTON_MODELS", str(ROOT / "models")).split(":")]
    texts = [f / "text" for f in folders if (f / "text/held_out.loss.json").is_file()]
    if not texts:
        pytest.skip("text/held_out.loss.json is not in PELTON_MODELS")
    expected = json.loads((texts[0] / "held_out.loss.json").read_text())[name]["per_window"]
    windows = 8
    a = pelton("eval", texts[0].parent / name, "--perplexity", texts[0] / "held_out.txt", "--limit", windows, "--json").json()
    assert len(a["window_losses"]) == windows
    assert max(abs(x - y) for x, y in zip(a["window_losses"], expected[:windows], strict=True)) < 1e-3


def test_exact_activations_are_closer_still(pelton):
    a = evaluate(pelton, RUNNEL, "--perplexity", TEXT, "--activations", "f32", "--limit", 3)
    assert len(a["window_losses"]) == 3
    assert max(abs(x - y) for x, y in zip(a["window_losses"], LOSS["per_window"], strict=False)) < 2e-5


def test_divergence_from_itself_is_nothing(pelton):
    a = evaluate(pelton, RUNNEL, "--kl", RUNNEL, "--kl-activations", "f32", "--activations", "f32", "--text", TEXT,
                 "--limit", 2)
    assert abs(a["mean_kl"]) < 1e-9
    assert rows(a)["top1_agreement"] == 100


@pytest.mark.parametrize("cache", ["f16", "int8", "fp8"])
def test_divergence_of_smaller_caches_is_small(pelton, cache):
    a = evaluate(pelton, RUNNEL, "--kl", RUNNEL, "--text", TEXT, "--limit", 2, "--kv-cache-dtype", cache)
    assert 0 <= a["mean_kl"] < {"f16": 1e-3, "int8": 5e-3, "fp8": 5e-2}[cache]


def test_proof_of_invariance(pelton):
    outcome = pelton("eval", RUNNEL, "--prove", timeout=300)
    assert outcome.code == 0, outcome.out
    lines = outcome.out.splitlines()
    assert len(lines) >= 8
    assert all(line.endswith("equal, bit for bit") for line in lines)


@pytest.mark.parametrize("name", ["gemma3", "mistral", "gpt2", "phi3-longrope"])
def test_proof_as_an_object(pelton, name):
    a = evaluate(pelton, GOLDEN / name, "--prove")
    assert a["proved"] is True
    for row in a["rows"]:
        assert row["value"] == 0 and row["exercised"] and row["rows"] > 0


def test_dumped_logits_are_those_of_the_reference(pelton, tmp_path):
    import array

    expected = golden("llama")
    case = expected["cases"][0]
    ids, out = tmp_path / "ids", tmp_path / "logits"
    ids.write_text(" ".join(map(str, case["ids"])))
    outcome = pelton("eval", GOLDEN / "llama", "--dump-logits", out, "--ids", ids, "--activations", "f32")
    assert outcome.code == 0 and outcome.out == "", outcome.err
    ours, reference = array.array("f", out.read_bytes()), array.array("f")
    with (GOLDEN / "llama/golden.bin").open("rb") as file:
        file.seek(4 * case["logits"]["offset"])
        reference.frombytes(file.read(4 * math.prod(case["logits"]["shape"])))
    largest = max(map(abs, reference))
    assert max(abs(x - y) for x, y in zip(ours, reference, strict=True)) < 1e-4 * largest


@pytest.mark.parametrize(("arguments", "word"), [
    ((), "--perplexity"),
    (("--perplexity", "no-such-text"), "no-such-text"),
    (("--kl", RUNNEL), "--text"),
    (("--kl", "no-such-model", "--text", TEXT), "no-such-model"),
    (("--perplexity", TEXT, "--window", -1), "--window"),
    (("--perplexity", TEXT, "--window", 4096), "1024"),
    (("--perplexity", "/dev/null"), "/dev/null"),
    (("--dump-logits", "out", "--ids", "no-such-ids"), "no-such-ids"),
    (("--prove", "--perplexity", TEXT), "one of"), (("--prove", "--window", 64), "--window"),
    (("--perplexity", TEXT, "--max-model-len", 64), "--window"), (("--perplexity", TEXT, "--text", TEXT), "--kl"),
    (("--perplexity", TEXT, "--kl-activations", "int8"), "--kl"), (("--dump-logits", "out"), "--ids"),
    (("--perplexity", TEXT, "--ids", TEXT), "--dump-logits"),
])  # fmt: skip
def test_what_cannot_be_evaluated_is_refused(pelton, arguments, word):
    refused(pelton("eval", RUNNEL, *arguments), word)


@pytest.mark.parametrize("window", [2, 128, 129, 130, 257])
def test_windows_of_any_length(pelton, window):
    """Also of lengths whose last step holds one row."""
    assert evaluate(pelton, RUNNEL, "--perplexity", TEXT, "--window", window, "--limit", 2)["tokens"] == 2 * window


def test_one_id_has_its_row_of_logits(pelton, tmp_path):
    for count in (1, 3, 129):
        ids, out = tmp_path / "ids", tmp_path / "logits"
        ids.write_text(" ".join(str(i % 50) for i in range(count)))
        outcome = pelton("eval", RUNNEL, "--dump-logits", out, "--ids", ids)
        assert outcome.code == 0 and outcome.out == "", outcome.err
        assert out.stat().st_size == 4 * 8192 * count
    refused(pelton("eval", RUNNEL, "--dump-logits", ids, "--ids", ids), "--ids")
    assert ids.read_text().startswith("0 1 2")


def test_models_of_short_contexts(pelton, tmp_path):
    """Nobody asked for a length, so none is too long."""
    short = copy_folder(RUNNEL, tmp_path / "short")
    replace(short / "config.json", json.dumps(json.loads((RUNNEL / "config.json").read_text()) | {"max_position_embeddings": 64}))
    assert abs(evaluate(pelton, short, "--kl", RUNNEL, "--kl-activations", "int8", "--text", TEXT, "--limit", 2)["mean_kl"]) < 1e-9
    assert evaluate(pelton, short, "--perplexity", TEXT, "--limit", 2)["tokens"] == 128
    refused(pelton("eval", short, "--prove"), "64")
