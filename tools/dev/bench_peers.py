#!/usr/bin/env python3
"""Measures Pelton beside llama.cpp (through llama-cpp-python) on the same GGUF files.

Each pair starts one process of either engine, in alternating order, so that a busy neighbour or a slow minute
falls on both. Reported is the median over the pairs of each engine and of their ratio, with its spread.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time


def summarise(pairs):
    """[(ours, theirs), ...] -> medians, median of the pairs' ratios, (max - min) / median of the ratios."""
    if not pairs or any(ours <= 0 or theirs <= 0 for ours, theirs in pairs):
        raise ValueError("speeds must be positive and there must be at least one pair")
    ratios = [ours / theirs for ours, theirs in pairs]
    middle = statistics.median(ratios)
    return {
        "ours": statistics.median(ours for ours, _ in pairs),
        "theirs": statistics.median(theirs for _, theirs in pairs),
        "ratio": middle,
        "spread": (max(ratios) - min(ratios)) / middle,
    }


def parse_pelton(text):
    """The JSON answer of `pelton bench` -> {row name: tokens a second}, its machine."""
    answer = json.loads(text)
    if not answer.get("schema", "").startswith("pelton.bench."):
        raise ValueError(f"not an answer of pelton bench: {text[:200]}")
    rows = {row["name"]: row["value"] for row in answer["rows"] if row["unit"] == "tok/s"}
    if len(rows) != len(answer["rows"]):
        raise ValueError("unexpected rows in the answer of pelton bench")
    return rows, answer["machine"]


def order_of(pair):
    return ("ours", "theirs") if pair % 2 == 0 else ("theirs", "ours")


def decode_name(tokens, batch, depth):
    return f"tg{tokens}" + (f"_b{batch}" if batch > 1 else "") + (f"@d{depth}" if depth else "")


def prompt_name(tokens, depth):
    return f"pp{tokens}" + (f"@d{depth}" if depth else "")


def llama_worker(arguments):
    """Runs inside a fresh process: loads the model once and prints {row name: tokens a second}."""
    import ctypes

    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda *_: None)  # held: the library keeps only a pointer
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(arguments.models[0].encode(), model_params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {arguments.models[0]}")
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batches = sorted({1, *arguments.batch})
    widest = batches[-1]
    per_sequence = arguments.depth + max(arguments.prompt, arguments.decode + 8)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = (per_sequence + 256) // 256 * 256 * widest
    params.n_batch = params.n_ubatch = 512
    params.n_seq_max = widest
    params.n_threads = params.n_threads_batch = arguments.threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("llama.cpp cannot make a context")
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(tokens, positions, sequences, wants_logits):
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = positions[i]
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequences[i]
            batch.logits[i] = wants_logits[i]
        if llama_cpp.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp failed in decode")
        llama_cpp.llama_synchronize(context)

    def token_at(i):
        return (i * 7919 + 13) % vocab_size

    def fill(first, count, sequence):
        for begin in range(first, first + count, 512):
            end = min(begin + 512, first + count)
            positions = list(range(begin, end))
            decode([token_at(p) for p in positions], positions, [sequence] * len(positions),
                   [p == first + count - 1 for p in positions])

    rows = {}
    clear = lambda: llama_cpp.llama_memory_clear(memory, True)
    fill(0, 64, 0)  # warms up the threads and the file's pages
    for _ in range(2):  # the first repetition is not counted
        clear()
        if arguments.depth:
            fill(0, arguments.depth, 0)
        start = time.perf_counter()
        fill(arguments.depth, arguments.prompt, 0)
        elapsed = time.perf_counter() - start
    rows[prompt_name(arguments.prompt, arguments.depth)] = arguments.prompt / elapsed
    for width in batches:
        if width not in arguments.batch:
            continue
        clear()
        begin = max(arguments.depth, 1)
        for sequence in range(width):
            fill(0, begin, sequence)
        sequences = list(range(width))

        def steps(first, count):
            for position in range(first, first + count):
                decode([token_at(position + s) for s in sequences], [position] * width, sequences, [True] * width)

        steps(begin, 1)
        start = time.perf_counter()
        steps(begin + 1, arguments.decode)
        elapsed = time.perf_counter() - start
        rows[decode_name(arguments.decode, width, arguments.depth)] = width * arguments.decode / elapsed
    print(json.dumps(rows))


def shared_flags(arguments):
    return ["--threads", str(arguments.threads)]


def run_theirs(arguments, model):
    command = [sys.executable, __file__, "--llama-worker", "--prompt", str(arguments.prompt), "--decode", str(arguments.decode),
               "--batch", ",".join(map(str, arguments.batch)), "--depth", str(arguments.depth), *shared_flags(arguments), model]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def run_ours(arguments, model):
    wide = [b for b in arguments.batch if b > 1]
    rows = "pp" + (",tg" if 1 in arguments.batch else "") + (",batch" if wide else "")
    command = [arguments.pelton, "bench", model, "-p", str(arguments.prompt), "-n", str(arguments.decode), "--repeat", "1",
               "--rows", rows, *shared_flags(arguments), "--json"]
    if wide:
        command += ["--batch", ",".join(map(str, wide))]
    if arguments.depth:
        command += ["--depth", str(arguments.depth)]
    return parse_pelton(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(arguments, model, note):
    """Interleaved runs of one model -> one result for each row that both engines have, and the machine."""
    runs = {"ours": [], "theirs": []}
    machine = None
    for pair in range(arguments.pairs):
        for side in order_of(pair):
            if side == "ours":
                rows, machine = run_ours(arguments, model)
            else:
                rows = run_theirs(arguments, model)
            runs[side].append(rows)
        note(f"  pair {pair + 1}/{arguments.pairs}: " + ", ".join(
            f"{name} {runs['ours'][-1][name]:.1f} / {runs['theirs'][-1][name]:.1f}"
            for name in runs["ours"][-1] if name in runs["theirs"][-1]))
    stem = pathlib.Path(model).name.removesuffix(".gguf")
    names = [name for name in runs["ours"][0] if name in runs["theirs"][0]]
    return [row_of(f"{stem} {name}", [(o[name], t[name]) for o, t in zip(runs["ours"], runs["theirs"])]) for name in names], machine


def row_of(name, pairs):
    try:
        return {"name": name, **summarise(pairs)}
    except ValueError as error:
        raise SystemExit(f"{name}: {error}: {pairs}") from error


def baseline(arguments, results, machine):
    """What bench/baselines keeps: the rows, where and from what they were measured."""
    import llama_cpp

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return {"schema": "pelton.bench_peers.1", "commit": commit, "machine": machine, "peer": f"llama-cpp-python {llama_cpp.__version__}",
            "pairs": arguments.pairs, "unit": "tok/s", "rows": results}


def find_models():
    folders = os.environ.get("PELTON_MODELS", "models").split(":")
    return sorted(str(p) for folder in folders if folder for p in pathlib.Path(folder).glob("*.gguf"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(x) for x in text.split(",")]
    parser.add_argument("models", nargs="*")
    parser.add_argument("--pelton", default="build/release/bin/pelton")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--batch", type=numbers, default=[1], help="sequences that decode together, e.g. 1,4,16")
    parser.add_argument("--depth", type=int, default=0, help="tokens already in the context, e.g. 4096")
    parser.add_argument("--json", action="store_true", help="print a list of name, ours, theirs, ratio, spread")
    parser.add_argument("--save", metavar="FILE", help="also write the rows with machine and commit, as bench/baselines keeps them")
    parser.add_argument("--llama-worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.llama_worker:
        return llama_worker(arguments)
    models = arguments.models or find_models()
    if not models:
        parser.error("no models: name GGUF files or set PELTON_MODELS")
    note = lambda text: print(text, file=sys.stderr, flush=True)
    results = []
    for model in models:
        note(f"{model} (tokens a second, ours / theirs)")
        rows, machine = compare(arguments, model, note)
        results += rows
    if arguments.save:
        pathlib.Path(arguments.save).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(arguments.save).write_text(json.dumps(baseline(arguments, results, machine), indent=1) + "\n")
    if arguments.json:
        print(json.dumps(results, indent=1))
        return None
    print(f"{'row':<52} {'ours':>10} {'llama.cpp':>10} {'ratio':>7} {'spread':>7}")
    for row in results:
        print(f"{row['name']:<52} {row['ours']:>10.1f} {row['theirs']:>10.1f} {row['ratio']:>7.3f} {row['spread']:>6.1%}")
    return None


if __name__ == "__main__":
    sys.exit(main())
