#!/usr/bin/env python3
"""The speed table of the CUDA backend: each figure beside what others reach on the same chip, what is asked for and
what is hoped for.

    tools/dev/gpu_table.py --pelton BIN --out FOLDER [--kernels FILE] [--rows LIST] [--again]

A model is loaded once for all rows that it serves. Every row is kept in a file of its own as soon as it is there, so
that a broken run goes on where it stopped. Kernel rows and the ceilings come from FILE, which `runner --bench --json`
of bench/cuda wrote in the same run. LIST names rows or beginnings of names, separated by commas. FOLDER/table.json
holds all of it. Exit status 1 where a row could not be measured; a goal missed is shown, not an error."""

import argparse
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading

SECONDS = 480  # bound on one load of a model and its rows
SMALL, LARGE = "small", "large"  # which values are the better ones

# Anchors: vLLM 0.26.0 on the same chip, shapes and random weights; for 1B, where vLLM is bound by its host.
DECODE_BATCHES = (8, 32, 64, 128, 256)
VLLM_STEP_MS = {
    "bf16": (5.16, 6.25, 7.50, 10.33, 17.31),
    "fp8": (3.77, 5.11, 5.56, 7.98, 13.01),
    "int4": (3.65, 5.01, 7.31, 9.94, None),
}
STEP_FACTOR = {"bf16": 1.0, "fp8": 0.85, "int4": 0.9}
STEP_GOAL_PERCENT = {"bf16": 85, "fp8": 85, "int4": 75}
KV_TYPE = {"bf16": "bf16", "fp8": "fp8", "int4": "bf16"}
PREFILL_REFERENCE = {1024: 436, 2048: 521, 4096: 579, 8192: 625, 16384: 616, 32768: 586}  # TFLOP/s, better of FA3 and cuDNN
DECODE_REFERENCE = {1024: 60, 2048: 73, 4096: 82, 8192: 88}  # FlashInfer, % of the data sheet's bandwidth
DATA_SHEET_GBS = 4800
LAYER_ELEMENTS = 6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336


def shape(name, weights="bf16", kv=None, *more):
    return ("--shape", name, "--weights", weights, "--kv-cache-dtype", kv or KV_TYPE[weights], *more)


EIGHT = "llama-3.1-8b"
# What one process loads, in the order in which they run: the cheap and important ones first.
SESSIONS = {
    "8b bf16": shape(EIGHT),
    "8b fp8": shape(EIGHT, "fp8"),
    "8b int4": shape(EIGHT, "int4"),
    "1b bf16": shape("llama-3.2-1b"),
    "8b bf16 prompts": shape(EIGHT),
    "8b fp8 prompts": shape(EIGHT, "fp8"),
    "135m bf16": shape("smollm2-135m"),
    "8b of 2 layers": shape(EIGHT, "bf16", None, "--layers", "2"),
    "8b bf16 fp8kv": shape(EIGHT, "bf16", "fp8"),
    "8b bf16 invariant": shape(EIGHT, "bf16", None, "--invariant"),
    "8b fp8 invariant": shape(EIGHT, "fp8", None, "--invariant"),
    "8b int4 invariant": shape(EIGHT, "int4", None, "--invariant"),
    "8b batching": shape(EIGHT),
    "8b fp8 offline": (*shape(EIGHT, "fp8"), "--repeat", "1"),
    "8b static": shape(EIGHT),
}


class Row:
    """One line of the table. Measured: `source` names bench's row of `session`, `field` what is taken of it and
    scale(value) turns it into `unit`. Else compute(value, kernels) gives it from other rows and from kernels, or
    measure(pelton) in a way of its own."""

    def __init__(self, name, unit="tok/s", *, session=None, source=None, field="value", scale=None, compute=None, measure=None,
                 better=LARGE, anchor=None, wanted=None, goal=None, goal_percent=None):
        self.name, self.unit, self.session, self.source, self.field, self.measure = name, unit, session, source, field, measure
        self.scale, self.compute, self.better = scale or (lambda value: value), compute, better
        self.anchor, self.wanted, self.goal, self.goal_percent = anchor, wanted, goal, goal_percent


def single_rows():
    for what, anchor, wanted, goal in (("8b bf16", 203, 230, 258), ("8b fp8", 290, 400, 470), ("8b int4", 300, 500, 700),
                                       ("1b bf16", 520, 1050, 1500)):
        yield Row(f"decode {what} b1", session=what, source="tg128", anchor=anchor, wanted=wanted, goal=goal)


def step_rows():
    for weights, times in VLLM_STEP_MS.items():
        for batch, anchor in zip(DECODE_BATCHES, times):
            yield Row(f"step 8b {weights} b{batch}", "ms", session=f"8b {weights}", source=f"tg32_b{batch}@d1024", better=SMALL,
                      anchor=anchor, wanted=anchor * STEP_FACTOR[weights] if anchor else None,
                      goal_percent=STEP_GOAL_PERCENT[weights], scale=lambda value, batch=batch: 1000 * batch / value)


def prompt_rows():
    for weights, anchors in (("bf16", (42300, 38400)), ("fp8", (66400, 56600))):
        better = {"bf16": 1.05, "fp8": 1.2}[weights]
        for (count, length), anchor in zip(((8, 2048), (2, 8192)), anchors):
            yield Row(f"prefill 8b {weights} {count}x{length}", session=f"8b {weights} prompts", source=f"pp{count}x{length}",
                      anchor=anchor, wanted=anchor, goal=better * anchor)


def offline_rows():
    # As many requests as a run of a minute or less takes, all of which may run at once.
    for lengths, requests, anchor, goal in (("128/128", 2048, 22500, 27900), ("2048/128", 512, 3100, 3540),
                                            ("1000/1000", 1024, 14100, 17700), ("128/2048", 768, None, 26200)):
        yield Row(f"offline 8b fp8 {lengths}", session="8b fp8 offline", source=f"offline_{lengths}_r{requests}", anchor=anchor,
                  wanted=anchor, goal=goal)


def host_rows():
    for session, batches in (("1b bf16", (1, 64, 512)), ("135m bf16", (1, 64, 512)), ("8b of 2 layers", (1,))):
        for batch in batches:
            source = f"tg{128 if batch == 1 else 32}" + (f"_b{batch}" if batch > 1 else "")
            yield Row(f"idle {session} b{batch}", "%", session=session, source=source, field="gpu_idle_percent", better=SMALL,
                      wanted=5, goal=1)
            yield Row(f"host {session} b{batch}", "us", session=session, source=source, field="host_us_per_step", better=SMALL,
                      wanted=20 if batch == 1 else None)


def slope(value):
    """What a longer context costs with pages of FP8, in times of what it costs with BF16."""
    def growth(kind):
        return value(f"step 8b bf16{kind} b64 at 4k") - value(f"step 8b bf16{kind} b64 at 1k")
    return growth(" fp8kv") / growth("")


def slope_rows():
    for session, kind in (("8b bf16 prompts", ""), ("8b bf16 fp8kv", " fp8kv")):
        for words, depth in (("1k", 1024), ("4k", 4096)):
            yield Row(f"step 8b bf16{kind} b64 at {words}", "ms", session=session, source=f"tg32_b64@d{depth}", better=SMALL,
                      scale=lambda value: 64000 / value)
    yield Row("context slope fp8kv", "x", compute=lambda value, kernels: slope(value), better=SMALL, anchor=0.78, wanted=0.60,
              goal=0.54)


def invariant_rows():
    for weights in VLLM_STEP_MS:
        for batch, source in ((1, "tg128"), (64, "tg32_b64@d1024")):
            plain = f"decode 8b {weights} b1" if batch == 1 else f"step 8b {weights} b64"
            name = f"step 8b {weights} b{batch} invariant"
            yield Row(name, "ms", session=f"8b {weights} invariant", source=source, better=SMALL,
                      scale=lambda value, batch=batch: 1000 * batch / value)
            yield Row(f"cost of invariance 8b {weights} b{batch}", "%", better=SMALL, compute=lambda value, kernels, n=name, p=plain: 100 * (
                value(n) / (1000 / value(p) if p.startswith("decode") else value(p)) - 1))


def batching_rows():
    """1,000 requests by continuous batching, and by static batching all of them, which takes three minutes, and the first
    160: whole batches, each of which is as good as another."""
    lengths = "256/256"
    yield Row("batching 8b bf16 continuous", session="8b batching", source=f"continuous_{lengths}_r1000")
    for words, session, requests in (("first 160 static", "8b batching", 160), ("static", "8b static", 1000)):
        name = f"batching 8b bf16 {words}"
        yield Row(name, session=session, source=f"static_{lengths}_r{requests}")
        yield Row(f"gain of batching 8b bf16 over {words}", "x", wanted=6, goal=8, compute=lambda value, kernels, name=name: (
            value("batching 8b bf16 continuous") / value(name)))


@contextlib.contextmanager
def serving(pelton, *arguments):
    """The URL of `pelton serve` on a port of its own."""
    process = subprocess.Popen([pelton, "serve", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(SECONDS, process.kill)
    killer.start()
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield found.group()
                return
        raise ValueError(f"pelton serve: {''.join(lines)[-300:]}")
    finally:
        killer.cancel()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def over_http(pelton):
    """Generated tokens a second of 64 streams through HTTP, over those of as many without it."""
    requests, streams, tokens = 192, "64", 256
    model = ("--shape", EIGHT, "--device", "cuda", "--max-num-seqs", streams, "--max-model-len", "1024")
    with serving(pelton, *model, "--no-enable-prefix-caching") as url:
        command = [pelton, "bench-serve", "--url", url, "--json", "--num-prompts", str(requests), "--max-concurrency", streams,
                   "--input-len", str(tokens), "--output-len", str(tokens), "--token-ids", "1000-40000", "--ignore-eos",
                   "--temperature", "0", "--num-warmups", "8"]
        served = json.loads("".join(lines_of(command, SECONDS)))
    if served["requests"]["failed"]:
        raise ValueError(f"bench-serve: {served['requests']}")
    through = next(row["value"] for row in served["rows"] if row["name"] == "output_throughput")
    command = [pelton, "bench", *model, "--json", "--repeat", "2", "--rows", f"offline_{tokens}/{tokens}_r{requests}"]
    return through / json.loads("".join(lines_of(command, SECONDS)))["rows"][0]["value"]


def http_rows():
    yield Row("http over offline 8b bf16 64 streams", "x", measure=over_http, wanted=0.97)


class Kernels:
    """Rows of the kernels' runner."""

    def __init__(self, document):
        self.copy_gbs = document["copy_gbs"]
        self.read_gbs = document["read_gbs"]
        self.rows = {(row["group"], row["name"], row["variant"]): row for row in document["rows"]}

    def row(self, group, name, variant="pelton"):
        return self.rows[(group, name, variant)]

    def peak_tflops(self, form):
        """The fastest large product of these rows, whoever computed it."""
        return max(row["tflops"] for (group, name, _), row in self.rows.items()
                   if group == "gemm" and "^3" in name and name.startswith(form))

    def fastest_us(self, name):
        """Of our own kernels; ValueError where none was timed."""
        return min(row["us"] for (group, timed, variant), row in self.rows.items()
                   if timed == name and variant.startswith("pelton") and "serial" not in variant)

    def layer_us(self, form, m):
        """The four products of a layer: in a chain where that was timed, else one by one."""
        if any(name == f"{form} layer m{m}" for _, name, _ in self.rows):
            return self.fastest_us(f"{form} layer m{m}")
        return sum(self.fastest_us(f"{form} {product} m{m}") for product in ("qkv", "o", "gate_up", "down"))

    def layer_percent(self, form, m):
        bytes_ = LAYER_ELEMENTS * {"bf16": 2, "fp8": 1, "int4": 1056 / 2048}[form]  # int4: with scales
        bandwidth = bytes_ / (self.copy_gbs * 1e3)
        arithmetic = 2 * m * LAYER_ELEMENTS / (self.peak_tflops("bf16" if form == "int4" else form) * 1e6)
        return 100 * max(bandwidth, arithmetic) / self.layer_us(form, m)


def kernel_rows():
    def of(compute):
        return lambda value, kernels: compute(kernels)

    yield Row("ceiling copy", "GB/s", compute=of(lambda k: k.copy_gbs))
    yield Row("ceiling read", "GB/s", compute=of(lambda k: k.read_gbs))
    for form in ("bf16", "fp8"):
        yield Row(f"ceiling {form} product", "TFLOP/s", compute=of(lambda k, form=form: k.peak_tflops(form)))
    for length, reference in PREFILL_REFERENCE.items():
        name = f"bf16 {max(1, 16384 // length)}x{length} kv32 d128 page16"
        yield Row(f"attention prefill {length // 1024}k", "TFLOP/s", anchor=reference, wanted=0.8 * reference, goal=reference,
                  compute=of(lambda k, name=name: k.row("paged_prefill", name)["tflops"]))
    for length, reference in DECODE_REFERENCE.items():
        yield Row(f"attention decode b64 {length // 1024}k", "%", anchor=reference, wanted=reference, goal=reference + 5,
                  compute=of(lambda k, name=f"bf16 b64 c{length}": 100 * k.row("paged_decode", name)["gbs"] / DATA_SHEET_GBS))
    for form in ("bf16", "fp8", "int4"):
        for m in (1, 8, 16, 32, 64, 128, 256):
            yield Row(f"layer products {form} m{m}", "%", wanted=75, goal=85,
                      compute=of(lambda k, form=form, m=m: k.layer_percent(form, m)))
    for size in (4096, 8192, 16384):
        for form, ours, theirs, wanted in (("bf16", "bf16", "cublaslt", 0.97), ("fp8", "fp8", "cublaslt, fast", 0.97),
                                           ("fp8 promoted", "fp8 promoted", "cublaslt, fast", 0.9)):
            base = form.split()[0]
            yield Row(f"product {form} {size // 1024}k", "x", anchor=1, wanted=wanted, goal=1, compute=of(
                lambda k, ours=f"{ours} {size}^3", base=f"{base} {size}^3", theirs=theirs: k.row("gemm", ours)["tflops"] /
                k.row("gemm", base, theirs)["tflops"]))
        yield Row(f"product fp8 over bf16 {size // 1024}k", "x", compute=of(
            lambda k, size=size: k.row("gemm", f"fp8 {size}^3")["tflops"] / k.row("gemm", f"bf16 {size}^3")["tflops"]))
    # A read of 256 rows of logits takes 31 us.
    yield Row("sampling top-k top-p b256", "us", better=SMALL, anchor=31, wanted=93, goal=46.5,
              compute=of(lambda k: k.row("sampling", "top-k 50 top-p 0.9 b256")["us"]))
    yield Row("attention over products 1k", "x", anchor=3.2, wanted=3.2, goal=5,
              compute=of(lambda k: k.row("unfused", "bf16 1024", "cublaslt")["us"] / k.row("unfused", "bf16 1024")["us"]))


def table():
    return [*single_rows(), *step_rows(), *prompt_rows(), *offline_rows(), *host_rows(), *slope_rows(), *invariant_rows(),
            *http_rows(), *batching_rows(), *kernel_rows()]


def chosen(rows, names):
    if not names:
        return rows
    starts = [name.strip() for name in names.split(",")]
    found = [r for r in rows if any(r.name.startswith(start) for start in starts)]
    missing = [s for s in starts if not any(r.name.startswith(s) for r in rows)]
    if missing:
        raise SystemExit(f"no row begins with {', '.join(missing)}; rows: {', '.join(r.name for r in rows)}")
    return found


def share(value, bound, better):
    """1 where the value is the bound; more is better. A bound of 0 is never reached from above."""
    if better == LARGE:
        return value / bound
    return bound / value if value > 0 else 1.0


def verdict(value, row, percent=None):
    """'goal', 'pass' or the shortfall of a measured value. A goal may be a share of the ceiling instead."""
    reached = row.goal is not None and share(value, row.goal, row.better) >= 1
    reached = reached or (row.goal_percent is not None and percent is not None and percent >= row.goal_percent)
    if row.wanted is None:
        return "goal" if reached else "-"
    if share(value, row.wanted, row.better) < 1:
        return f"{share(value, row.wanted, row.better):.0%} of pass"
    return "goal" if reached else "pass"


def kept_file(folder, name):
    return folder / (name.replace(" ", "_").replace("/", "-") + ".json")


class Keeper:
    """Results, each in a file as soon as it is known."""

    def __init__(self, folder, again, kernels):
        self.folder, self.kernels = folder, kernels
        self.results = {}
        self.failed = []
        folder.mkdir(parents=True, exist_ok=True)
        for row in [] if again else table():
            file = kept_file(folder, row.name)
            if file.exists():
                self.results[row.name] = json.loads(file.read_text())

    def keep(self, row, value, percent=None, spread=None, machine=None):
        result = {"name": row.name, "value": value, "unit": row.unit, "percent_of_limit": percent, "spread": spread,
                  "anchor": row.anchor, "wanted": row.wanted, "goal": row.goal, "goal_percent": row.goal_percent,
                  "verdict": verdict(value, row, percent), "machine": machine}
        print(f"{row.name}: {value:.5g} {row.unit}, {result['verdict']}", file=sys.stderr, flush=True)
        kept_file(self.folder, row.name).write_text(json.dumps(result, indent=1) + "\n")
        self.results[row.name] = result
        self.write_table()

    def write_table(self):
        """All of it in one file, at any time: a run may be cut."""
        order = [row.name for row in table() if row.name in self.results]
        document = {"rows": [self.results[name] for name in order], "failed": self.failed}
        (self.folder / "table.json").write_text(json.dumps(document, indent=1) + "\n")

    def keep_measured(self, row, measured, head):
        percent = measured.get("percent")
        if percent is not None and self.kernels is not None:
            # Both copy; the better figure is the ceiling.
            percent *= min(1.0, head["roofline"]["read_bytes_per_second"] / (self.kernels.copy_gbs * 1e9))
        self.keep(row, row.scale(measured[row.field]), percent, measured.get("spread"), head["machine"])

    def fail(self, name, why):
        print(f"{name}: failed: {why}", file=sys.stderr, flush=True)
        self.failed.append(name)


def lines_of(command, seconds):
    """Lines of a command's output as they come; ValueError where it fails or takes too long."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        reader.start()
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        yield from process.stdout
        process.wait()
        reader.join()
        in_time = killer.is_alive()
        killer.cancel()
    if process.returncode != 0:
        late = "" if in_time else f"took more than {seconds} s; "
        raise ValueError(f"{late}exit status {process.returncode}: {''.join(errors).strip()[-300:]}")


def run_session(pelton, name, rows, keeper):
    """Measures all rows that one load of a model serves."""
    sources = list(dict.fromkeys(row.source for row in rows))
    command = [pelton, "bench", "--device", "cuda", "--json-lines", "--rows", ",".join(sources), *SESSIONS[name]]
    if "--repeat" not in command:
        command += ["--repeat", "3"]
    left = list(rows)
    try:
        head = None
        for line in lines_of(command, SECONDS):
            answer = json.loads(line)
            if head is None:
                head = answer
                continue
            for row in [row for row in left if row.source == answer["name"]]:
                keeper.keep_measured(row, answer, head)
                left.remove(row)
        why = "bench gave no such row"
    except (ValueError, KeyError) as error:
        why = error
    for row in left:
        keeper.fail(row.name, why)


def run_rows(pelton, rows, keeper):
    for session in SESSIONS:
        missing = [row for row in rows if row.session == session and row.name not in keeper.results]
        if missing:
            run_session(pelton, session, missing, keeper)
    for row in rows:
        if row.measure is None or row.name in keeper.results:
            continue
        try:
            keeper.keep(row, row.measure(pelton))
        except (KeyError, ValueError, StopIteration, subprocess.SubprocessError) as error:
            keeper.fail(row.name, error)
    for row in rows:
        if row.compute is None or row.name in keeper.results:
            continue
        try:
            keeper.keep(row, row.compute(lambda name: keeper.results[name]["value"], keeper.kernels))
        except (KeyError, ValueError, AttributeError) as error:  # what it is made of is not there
            keeper.fail(row.name, f"needs {error}" if keeper.kernels or row.unit == "x" else "needs --kernels")


def text(value):
    return "-" if value is None else f"{value:.5g}"


def print_table(rows, results):
    print(f"{'row':<34} {'value':>9} {'unit':<8} {'ceiling':>8} {'anchor':>8} {'pass':>8} {'goal':>8}  verdict")
    for name in (row.name for row in rows if row.name in results):
        r = results[name]
        percent = f"{r['percent_of_limit']:.0f} %" if r["percent_of_limit"] else "-"
        goal = f"{r['goal_percent']} %" if r["goal"] is None and r["goal_percent"] else text(r["goal"])
        print(f"{name:<34} {text(r['value']):>9} {r['unit']:<8} {percent:>8} {text(r['anchor']):>8} {text(r['wanted']):>8} "
              f"{goal:>8}  {r['verdict']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pelton", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--rows", default="")
    parser.add_argument("--again", action="store_true", help="measure rows that are there already, too")
    arguments = parser.parse_args()
    rows = chosen(table(), arguments.rows)
    kernels = None
    if arguments.kernels and arguments.kernels.exists():
        kernels = Kernels(json.loads(arguments.kernels.read_text()))
    keeper = Keeper(arguments.out, arguments.again, kernels)
    run_rows(arguments.pelton, rows, keeper)
    print_table(rows, keeper.results)
    keeper.write_table()
    if keeper.failed:
        print(f"not measured: {', '.join(keeper.failed)}")
    return 1 if keeper.failed else 0


if __name__ == "__main__":
    sys.exit(main())
