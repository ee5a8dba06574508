"""gpu_table.py on a stand-in for pelton: what it keeps, skips, converts and reports."""

import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gpu_table  # noqa: E402


def stand_in(folder, rows, status=0):
    """A program that answers `bench` with these rows and counts its calls."""
    program = folder / "pelton"
    answer = json.dumps({"schema": "pelton.bench.1", "machine": {"gpu": "none"}, "rows": rows})
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\necho '{answer}'\nexit {status}\n")
    program.chmod(0o755)
    return program


def run(folder, program, *options):
    return subprocess.run([sys.executable, gpu_table.__file__, "--pelton", str(program), "--out", str(folder / "rows"), *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def test_a_step_is_batch_over_speed(tmp_path):
    program = stand_in(tmp_path, [{"name": "tg32_b64@d1024", "value": 10000.0, "unit": "tok/s", "percent": 80.0}])
    done = run(tmp_path, program, "--rows", "step 8b bf16 b64")
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "rows" / "step_8b_bf16_b64.json").read_text())
    assert kept["value"] == pytest.approx(6.4) and kept["unit"] == "ms" and kept["verdict"] == "pass"
    assert "--weights bf16" in (tmp_path / "calls").read_text()


def test_what_is_there_is_not_measured_again(tmp_path):
    program = stand_in(tmp_path, [{"name": "tg128", "value": 115.0, "unit": "tok/s"}])
    for options in ((), (), ("--again",)):
        assert run(tmp_path, program, "--rows", "decode 8b bf16 b1", *options).returncode == 0
    assert len((tmp_path / "calls").read_text().splitlines()) == 2
    assert json.loads((tmp_path / "rows" / "decode_8b_bf16_b1.json").read_text())["verdict"] == "50% of pass"


@pytest.mark.parametrize("rows, status", [([{"name": "other", "value": 1.0, "unit": "tok/s"}], 0), ([], 3)], ids=["row", "rc"])
def test_a_row_that_cannot_be_measured_is_no_result(tmp_path, rows, status):
    done = run(tmp_path, stand_in(tmp_path, rows, status), "--rows", "decode 1b")
    assert done.returncode == 1 and "failed" in done.stderr
    assert not list((tmp_path / "rows").iterdir())


def test_unknown_rows_are_refused(tmp_path):
    done = run(tmp_path, stand_in(tmp_path, []), "--rows", "decode 8b,nothing")
    assert done.returncode == 1 and "no row begins with nothing" in done.stderr


def test_names_are_their_own_files():
    rows = gpu_table.table()
    assert len({gpu_table.kept_file(pathlib.Path(), r["name"]) for r in rows}) == len(rows)


@pytest.mark.parametrize("value, unit, wanted, goal, text", [
    (240, "tok/s", 230, 258, "pass"), (260, "tok/s", 230, 258, "goal"), (115, "tok/s", 230, 258, "50% of pass"),
    (5.0, "ms", 5.16, None, "pass"), (10.0, "ms", 5.0, None, "50% of pass"), (1.0, "ms", None, None, "-")],
    ids=["pass", "goal", "short", "step", "slow", "none"])
def test_verdicts(value, unit, wanted, goal, text):
    assert gpu_table.verdict(value, unit, wanted, goal) == text
