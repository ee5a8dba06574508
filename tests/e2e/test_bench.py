"""`pelton bench`: which rows it gives and what stands in them; never how fast."""

import json

import pytest
from support import RUNNEL, refused

QUICK = ("-p", 16, "-n", 4, "--repeat", 2)
ROW_KEYS = {"name", "value", "unit", "limit", "percent", "spread"}


def rows_of(pelton, model, *arguments):
    outcome = pelton("bench", model, *arguments, "--json")
    assert outcome.code == 0, outcome.err
    assert len(outcome.out.splitlines()) == 1
    answer = outcome.json()
    assert answer["schema"] == "pelton.bench.1"
    assert {"cpu", "isa", "threads", "gpu"} <= answer["machine"].keys()
    assert answer["model"]["architecture"] == "llama"
    assert answer["roofline"]["read_bytes_per_second"] > 0
    assert answer["roofline"]["int8_ops_per_second"] > 0
    for row in answer["rows"]:
        assert ROW_KEYS <= row.keys()
        assert row["unit"] == "tok/s" and row["value"] > 0 and row["spread"] >= 0
    return {row["name"]: row for row in answer["rows"]}


def test_rows_beside_their_limits(pelton):
    rows = rows_of(pelton, RUNNEL, *QUICK, "--batch", "2,3")
    assert list(rows) == ["pp16", "tg4", "tg4_b2", "tg4_b3"]
    for row in rows.values():
        assert row["limit"] > 0 and row["bound"] in ("memory", "compute")
        assert row["percent"] == pytest.approx(100 * row["value"] / row["limit"])


def test_no_row_is_faster_than_the_machine(pelton, smollm):
    """On a model that is larger than the nearer caches."""
    rows = rows_of(pelton, smollm, "-p", 32, "-n", 8, "--repeat", 3, "--rows", "pp,tg")
    assert list(rows) == ["pp32", "tg8"]
    for row in rows.values():
        assert 0 < row["percent"] <= 120, row


def test_prompts_run_together(pelton, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The river is\n\nA wheel turns\n")
    rows = rows_of(pelton, RUNNEL, *QUICK, "--rows", "offline", "--prompts", prompts, "--max-model-len", 512)
    assert list(rows_of(pelton, RUNNEL, *QUICK, "--rows", "offline", "--prompts", prompts)) == list(rows)
    assert len(rows) == 1
    (name, row), = rows.items()
    assert name.startswith("offline") and row["limit"] is None and row["percent"] is None


def test_depth_is_part_of_the_name(pelton):
    assert list(rows_of(pelton, RUNNEL, *QUICK, "--rows", "tg", "--depth", 64)) == ["tg4@d64"]


def test_table_has_a_line_a_row(pelton):
    outcome = pelton("bench", RUNNEL, *QUICK, "--rows", "pp,tg")
    assert outcome.code == 0, outcome.err
    lines = [line for line in outcome.out.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert "pp16" in lines[2] and "%" in lines[2]


def test_rows_are_asked_for_by_the_names_they_have(pelton):
    names = ["tg4", "pp16@d16", "tg2_b3@d64", "pp2x24", "offline_8/3_r5", "pp12"]
    rows = rows_of(pelton, RUNNEL, "--repeat", 2, "--rows", ",".join(names))
    assert list(rows) == names


def test_continuous_against_static_batching(pelton):
    """Lengths, cache and requests are the same, so static batching takes more steps; how much time is not asked here."""
    rows = rows_of(pelton, RUNNEL, "--rows", "batching_8/12_r70", "--repeat", 1)
    assert list(rows) == ["continuous_8/12_r70", "static_8/12_r70"]
    continuous, static = rows.values()
    assert continuous["gain"] == pytest.approx(continuous["value"] / static["value"])
    assert "gain" not in static
    assert list(rows_of(pelton, RUNNEL, "--rows", "static_8/12_r9", "--repeat", 1)) == ["static_8/12_r9"]


def test_a_line_of_json_for_each_row(pelton):
    outcome = pelton("bench", RUNNEL, "--json-lines", "--repeat", 1, "--rows", "tg4,pp16")
    assert outcome.code == 0, outcome.err
    head, *rows = (json.loads(line) for line in outcome.out.splitlines())
    assert head["schema"] == "pelton.bench.1" and head["rows"] == [] and head["roofline"]["read_bytes_per_second"] > 0
    assert [row["name"] for row in rows] == ["tg4", "pp16"]


@pytest.mark.parametrize(("arguments", "word"), [
    (("--rows", "speed"), "--rows"), (("--rows", "tg128_b8@"), "tg128_b8@"), (("--rows", "tg0"), "tg0"),
    (("--rows", "batching_8"), "batching_8"), (("--prefill", "8"), "--prefill"), (("--offline", "8x8"), "--offline"), (("--rows", "offline"), "--prompts"), (("-p", 0), "-p"), (("-n", -1), "-n"),
    (("--depth", 1000), "1024"), (("--batch", "0"), "--batch"), (("--repeat", 0), "--repeat"), (("--depth", -1), "--depth"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused(pelton, arguments, word):
    refused(pelton("bench", RUNNEL, *arguments), word)
