"""gpu_table.py on a stand-in for pelton: what it keeps, skips, converts and reports."""

import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gpu_table  # noqa: E402

HEAD = {"schema": "pelton.bench.1", "machine": {"gpu": "none"}, "rows": [], "roofline": {"read_bytes_per_second": 2e12}}


def stand_in(folder, rows, status=0):
    """A program that answers `bench` with these rows and counts its calls."""
    program = folder / "pelton"
    lines = folder / "lines"
    lines.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *rows)))
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\ncat {lines}\nexit {status}\n")
    program.chmod(0o755)
    return program


def run(folder, program, *options):
    return subprocess.run([sys.executable, gpu_table.__file__, "--pelton", str(program), "--out", str(folder / "rows"), *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def kept(folder, name):
    return json.loads((folder / "rows" / f"{name}.json").read_text())


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def test_a_step_is_batch_over_speed(tmp_path):
    program = stand_in(tmp_path, [{"name": "tg32_b64@d1024", "value": 10000.0, "unit": "tok/s", "percent": 80.0}])
    done = run(tmp_path, program, "--rows", "step 8b bf16 b64")
    assert kept(tmp_path, "step_8b_bf16_b64")["value"] == pytest.approx(6.4)
    assert kept(tmp_path, "step_8b_bf16_b64")["unit"] == "ms" and kept(tmp_path, "step_8b_bf16_b64")["verdict"] == "pass"
    assert done.returncode == 1, "the longer context and the invariant step have no row"
    assert "--weights bf16" in calls(tmp_path)[0] and "--rows tg32_b64@d1024 " in calls(tmp_path)[0]


def test_one_load_serves_all_rows_of_a_model(tmp_path):
    rows = [{"name": f"tg32_b{batch}@d1024", "value": 1000.0 * batch} for batch in gpu_table.DECODE_BATCHES]
    program = stand_in(tmp_path, [{"name": "tg128", "value": 240.0}, *rows])
    wanted = ",".join(["decode 8b fp8", *(f"step 8b fp8 b{batch}" for batch in (8, 32, 128, 256))])
    assert run(tmp_path, program, "--rows", wanted).returncode == 0
    assert len(calls(tmp_path)) == 1
    assert kept(tmp_path, "step_8b_fp8_b256")["value"] == pytest.approx(1.0)


def test_what_is_there_is_not_measured_again(tmp_path):
    program = stand_in(tmp_path, [{"name": "tg128", "value": 115.0, "unit": "tok/s"}])
    for options in ((), (), ("--again",)):
        assert run(tmp_path, program, "--rows", "decode 8b bf16 b1", *options).returncode == 0
    assert len(calls(tmp_path)) == 2
    assert kept(tmp_path, "decode_8b_bf16_b1")["verdict"] == "50% of pass"


def test_rows_before_a_failure_are_kept(tmp_path):
    program = stand_in(tmp_path, [{"name": "tg128", "value": 240.0}], status=3)
    assert run(tmp_path, program, "--rows", "decode 8b bf16,step 8b bf16 b8").returncode == 1
    assert kept(tmp_path, "decode_8b_bf16_b1")["verdict"] == "pass"
    stand_in(tmp_path, [{"name": "tg32_b8@d1024", "value": 2000.0}])
    assert run(tmp_path, program, "--rows", "decode 8b bf16,step 8b bf16 b8").returncode == 0
    assert "tg128" not in calls(tmp_path)[1]


@pytest.mark.parametrize("rows, status", [([{"name": "other", "value": 1.0, "unit": "tok/s"}], 0), ([], 3)], ids=["row", "rc"])
def test_a_row_that_cannot_be_measured_is_no_result(tmp_path, rows, status):
    done = run(tmp_path, stand_in(tmp_path, rows, status), "--rows", "decode 1b")
    assert done.returncode == 1 and "failed" in done.stderr and "not measured" in done.stdout
    assert [file.name for file in (tmp_path / "rows").iterdir()] == ["table.json"]


def test_unknown_rows_are_refused(tmp_path):
    done = run(tmp_path, stand_in(tmp_path, []), "--rows", "decode 8b,nothing")
    assert done.returncode == 1 and "no row begins with nothing" in done.stderr


def test_rows_of_rows(tmp_path):
    rows = [{"name": "tg32_b64@d1024", "value": 10000.0}, {"name": "tg32_b64@d4096", "value": 5000.0}]
    program = stand_in(tmp_path, rows)
    assert run(tmp_path, program, "--rows", "context slope").returncode == 1, "made of rows that are not there"
    assert run(tmp_path, program, "--rows", "step 8b bf16 b64 at,step 8b bf16 fp8kv b64 at,context slope").returncode == 0
    assert kept(tmp_path, "context_slope_fp8kv")["value"] == pytest.approx(1.0)


def kernels_file(folder):
    def product(form, variant, tflops):
        return {"group": "gemm", "name": f"{form} 8192^3", "variant": variant, "us": 1.0, "tflops": tflops, "gbs": 1.0}

    one = [{"group": "small_m", "name": f"int4 {p} m64", "variant": "pelton", "us": 20.0} for p in ("qkv", "o", "gate_up", "down")]
    rows = [product("bf16", "pelton", 700.0), product("bf16", "cublaslt", 800.0), product("fp8", "cublaslt, fast", 1400.0),
            {"group": "small_m", "name": "bf16 layer m1", "variant": "pelton", "us": 109.05}, *one]
    file = folder / "kernels.json"
    file.write_text(json.dumps({"copy_gbs": 4000.0, "read_gbs": 4400.0, "rows": rows}))
    return file


def test_kernels_beside_the_ceilings_of_their_run(tmp_path):
    program = stand_in(tmp_path, [{"name": "tg128", "value": 240.0, "percent": 160.0}])
    file = kernels_file(tmp_path)
    rows = "ceiling,layer products bf16 m1,product bf16 8k,decode 8b bf16"
    done = run(tmp_path, program, "--rows", rows, "--kernels", str(file))
    assert kept(tmp_path, "ceiling_bf16_product")["value"] == 800
    assert kept(tmp_path, "product_bf16_8k")["value"] == pytest.approx(0.875)
    assert kept(tmp_path, "layer_products_bf16_m1")["value"] == pytest.approx(100, rel=0.01)
    assert kept(tmp_path, "decode_8b_bf16_b1")["percent_of_limit"] == pytest.approx(80.0)
    assert "layer products bf16 m16" in done.stdout.splitlines()[-1], "a row whose parts were not timed is told"


def test_a_layer_of_single_products(tmp_path):
    kernels = gpu_table.Kernels(json.loads(kernels_file(tmp_path).read_text()))
    assert kernels.layer_us("int4", 64) == pytest.approx(80.0)
    with pytest.raises(ValueError):
        kernels.layer_us("int4", 128)


def test_names_are_their_own_files():
    rows = gpu_table.table()
    assert len({gpu_table.kept_file(pathlib.Path(), r.name) for r in rows}) == len(rows)
    assert not any("," in r.name for r in rows), "names are separated by commas"
    assert {r.session for r in rows if r.session} == set(gpu_table.SESSIONS)


@pytest.mark.parametrize("value, better, wanted, goal, text", [
    (240, "large", 230, 258, "pass"), (260, "large", 230, 258, "goal"), (115, "large", 230, 258, "50% of pass"),
    (5.0, "small", 5.16, None, "pass"), (10.0, "small", 5.0, None, "50% of pass"), (1.0, "small", None, None, "-"),
    (0.0, "small", 5, 1, "goal")], ids=["pass", "goal", "short", "step", "slow", "none", "idle"])
def test_verdicts(value, better, wanted, goal, text):
    assert gpu_table.verdict(value, gpu_table.Row("r", better=better, wanted=wanted, goal=goal)) == text


def test_a_goal_as_a_share_of_the_ceiling():
    row = gpu_table.Row("r", better="small", wanted=5.0, goal_percent=85)
    assert gpu_table.verdict(4.0, row, 86) == "goal" and gpu_table.verdict(4.0, row, 80) == "pass"
    assert gpu_table.verdict(6.0, row, 90) == "83% of pass"
