#!/usr/bin/env python3
"""The speed table of the CUDA backend: measures each row with `pelton bench --shape`, beside what others reach on the
same chip, what is asked for and what is hoped for. Every row is kept in a file of its own, so that a broken run goes
on where it stopped.

    tools/dev/gpu_table.py --pelton BIN --out FOLDER [--rows LIST] [--again]

LIST names rows or beginnings of names, separated by commas. Exit status 1 where a row could not be measured; a goal
missed is shown, not an error."""

import argparse
import json
import pathlib
import subprocess
import sys

# Anchors: vLLM 0.26.0 on the same chip, shapes and random weights; for 1B, where vLLM is bound by its host.
DECODE_BATCHES = (8, 32, 64, 128, 256)
VLLM_STEP_MS = {
    "bf16": (5.16, 6.25, 7.50, 10.33, 17.31),
    "fp8": (3.77, 5.11, 5.56, 7.98, 13.01),
    "int4": (3.65, 5.01, 7.31, 9.94, None),
}
STEP_FACTOR = {"bf16": 1.0, "fp8": 0.85, "int4": 0.9}
KV_TYPE = {"bf16": "bf16", "fp8": "fp8", "int4": "bf16"}
SECONDS = 480  # bound on one row
SHORT = ("--rows", "pp", "-p", "16")  # bench's own rows, as few as it allows


def row(name, arguments, source, unit="tok/s", anchor=None, wanted=None, goal=None, scale=None):
    """One line of the table: `source` is the name of bench's row; scale(value) turns its figure into `unit`."""
    return {"name": name, "arguments": arguments, "source": source, "unit": unit, "anchor": anchor, "wanted": wanted,
            "goal": goal, "scale": scale or (lambda value: value)}


def shape(name, weights="bf16", kv=None):
    return ["--shape", name, "--weights", weights, "--kv-cache-dtype", kv or KV_TYPE[weights]]


def single_rows():
    one = ["--rows", "tg", "-n", "128"]
    yield row("decode 8b bf16 b1", [*shape("llama-3.1-8b"), *one], "tg128", anchor=203, wanted=230, goal=258)
    yield row("decode 8b fp8 b1", [*shape("llama-3.1-8b", "fp8", "bf16"), *one], "tg128", anchor=290, wanted=400, goal=470)
    yield row("decode 8b int4 b1", [*shape("llama-3.1-8b", "int4"), *one], "tg128", anchor=300, wanted=500, goal=700)
    yield row("decode 1b bf16 b1", [*shape("llama-3.2-1b"), *one], "tg128", anchor=520, wanted=1050, goal=1500)


def step_rows():
    for weights, times in VLLM_STEP_MS.items():
        for batch, anchor in zip(DECODE_BATCHES, times):
            arguments = [*shape("llama-3.1-8b", weights), "--rows", "batch", "--batch", str(batch), "--depth", "1024", "-n", "32"]
            wanted = anchor * STEP_FACTOR[weights] if anchor else None
            yield row(f"step 8b {weights} b{batch}", arguments, f"tg32_b{batch}@d1024", "ms", anchor, wanted,
                      scale=lambda value, batch=batch: 1000 * batch / value)


def prompt_rows():
    for weights, anchors in (("bf16", (42300, 38400)), ("fp8", (66400, 56600))):
        better = {"bf16": 1.05, "fp8": 1.2}[weights]
        for (count, length), anchor in zip(((8, 2048), (2, 8192)), anchors):
            arguments = [*shape("llama-3.1-8b", weights), *SHORT, "--prefill", f"{count}x{length}"]
            yield row(f"prefill 8b {weights} {count}x{length}", arguments, f"pp{count}x{length}", anchor=anchor, wanted=anchor,
                      goal=better * anchor)


def offline_rows():
    for lengths, anchor, goal in (("128/128", 22500, 27900), ("128/2048", None, 26200), ("1000/1000", 14100, 17700),
                                  ("2048/128", 3100, 3540)):
        arguments = [*shape("llama-3.1-8b", "fp8"), *SHORT, "--offline", lengths]
        yield row(f"offline 8b fp8 {lengths}", arguments, f"offline_{lengths}", anchor=anchor, wanted=anchor, goal=goal)


def table():
    return [*single_rows(), *step_rows(), *prompt_rows(), *offline_rows()]


def chosen(rows, names):
    if not names:
        return rows
    starts = [name.strip() for name in names.split(",")]
    found = [r for r in rows if any(r["name"].startswith(start) for start in starts)]
    missing = [s for s in starts if not any(r["name"].startswith(s) for r in rows)]
    if missing:
        raise SystemExit(f"no row begins with {', '.join(missing)}; rows: {', '.join(r['name'] for r in rows)}")
    return found


def verdict(value, unit, wanted, goal):
    """'goal', 'pass' or the shortfall of a measured value; times are better small, speeds large."""
    if wanted is None:
        return "-"
    share = wanted / value if unit == "ms" else value / wanted
    if goal is not None and (goal / value if unit == "ms" else value / goal) >= 1:
        return "goal"
    return "pass" if share >= 1 else f"{share:.0%} of pass"


def measure(pelton, spec):
    command = [pelton, "bench", "--device", "cuda", "--json", "--repeat", "3", *spec["arguments"]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise ValueError(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    answer = json.loads(done.stdout)
    for measured in answer["rows"]:
        if measured["name"] == spec["source"]:
            return {**measured, "value": spec["scale"](measured["value"]), "unit": spec["unit"], "machine": answer["machine"]}
    raise ValueError(f"bench gave no row {spec['source']}, but {[r['name'] for r in answer['rows']]}")


def kept_file(folder, name):
    return folder / (name.replace(" ", "_").replace("/", "-") + ".json")


def run_rows(arguments, rows):
    results, failed = [], 0
    for spec in rows:
        file = kept_file(arguments.out, spec["name"])
        if file.exists() and not arguments.again:
            results.append(json.loads(file.read_text()))
            continue
        print(spec["name"], end=" ", file=sys.stderr, flush=True)
        try:
            measured = measure(arguments.pelton, spec)
        except (ValueError, KeyError, subprocess.TimeoutExpired) as error:
            print(f"failed: {error}", file=sys.stderr)
            failed += 1
            continue
        result = {"name": spec["name"], "value": measured["value"], "unit": spec["unit"], "percent_of_limit": measured.get("percent"),
                  "spread": measured.get("spread"), "anchor": spec["anchor"], "wanted": spec["wanted"], "goal": spec["goal"],
                  "verdict": verdict(measured["value"], spec["unit"], spec["wanted"], spec["goal"]), "machine": measured["machine"]}
        print(f"{result['value']:.5g} {result['unit']}: {result['verdict']}", file=sys.stderr, flush=True)
        file.write_text(json.dumps(result, indent=1) + "\n")
        results.append(result)
    return results, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pelton", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rows", default="")
    parser.add_argument("--again", action="store_true", help="measure rows that are there already, too")
    arguments = parser.parse_args()
    rows = chosen(table(), arguments.rows)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results, failed = run_rows(arguments, rows)
    text = lambda value: "-" if value is None else f"{value:.5g}"
    print(f"{'row':<28} {'value':>9} {'unit':<6} {'anchor':>8} {'pass':>8} {'goal':>8}  verdict")
    for r in results:
        print(f"{r['name']:<28} {text(r['value']):>9} {r['unit']:<6} {text(r['anchor']):>8} {text(r['wanted']):>8} {text(r['goal']):>8}  {r['verdict']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
