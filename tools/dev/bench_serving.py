#!/usr/bin/env python3
"""Measures Pelton's server with `pelton bench-serve` as its client; tools/bench_serving.sh tells what for.

Pairs alternate their order, so that a busy neighbour or a slow minute falls on both sides; reported is the median over the pairs
of each side and of their ratio, with the spread of the ratios.
"""

import argparse
import contextlib
import csv
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from bench_peers import summarise

ROWS = ("overhead", "ttft", "idle", "prefix", "batching", "mix", "peers")
IDS = "1000-40000"  # token ids that every vocabulary here has


def alternate(first, second, pairs):
    """Runs both `pairs` times, in alternating order; [(first, second), ...]."""
    results = []
    for pair in range(pairs):
        if pair % 2 == 0:
            a = first()
            results.append((a, second()))
        else:
            b = second()
            results.append((first(), b))
    return results


class Bench:
    def __init__(self, options):
        self.options = options
        self.pelton = os.environ["PELTON_BIN"]
        self.llama = os.environ.get("PELTON_LLAMA_SERVER", "")
        self.rows = []
        self.machine = None

    def add(self, name, value, unit, limit=None, spread=None, **more):
        row = {"name": name, "value": value, "unit": unit, "limit": limit, "percent": None, "spread": spread, **more}
        if limit:
            row["percent"] = 100 * value / limit
        self.rows.append(row)
        extra = "".join(f", {key} {item:.4g}" if isinstance(item, float) else f", {key} {item}" for key, item in more.items())
        noise = "" if spread is None else f" (spread {100 * spread:.1f} %)"
        print(f"{name}: {value:.4g} {unit}{noise}{extra}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def serve(self, model, *arguments):
        """`pelton serve` on a port of its own; its URL and process."""
        process = subprocess.Popen(
            [self.pelton, "serve", str(model), "--port", "0", "--threads", str(self.options.threads), "--max-queue", "4096",
             "--queue-timeout", "86400", "--served-model-name", "m", *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        try:
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not found:
                sys.exit(f"pelton serve: {line}{process.stderr.read()}")
            yield f"http://127.0.0.1:{found.group(1)}", process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)

    @contextlib.contextmanager
    def serve_llama(self, model, slots, context):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [self.llama, "-m", str(model), "--port", str(port), "--host", "127.0.0.1", "-c", str(slots * context), "--parallel",
             str(slots), "-t", str(self.options.threads), "-tb", str(self.options.threads)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while not healthy(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("llama-server does not start")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()
            process.wait(timeout=60)

    def load(self, url, *arguments):
        """One run of bench-serve; its answer. All requests must succeed."""
        done = subprocess.run([self.pelton, "bench-serve", "--url", url, "--json", "--timeout", "7200", *map(str, arguments)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench-serve: {done.stderr}")
        answer = json.loads(done.stdout)
        if answer["requests"]["failed"]:
            sys.exit(f"bench-serve: {answer['requests']}")
        self.machine = self.machine or answer["machine"]
        return answer

    # ---- rows

    def overhead(self):
        """Prompt and generated tokens a second of 128 requests at 64 streams, through HTTP and without."""
        model, length, prompts = self.options.model, 32, 128
        words = make_prompts(prompts, 48)
        with tempfile.TemporaryDirectory() as folder:
            lines = pathlib.Path(folder, "prompts.txt")
            lines.write_text("".join(text + "\n" for text in words))
            data = pathlib.Path(folder, "prompts.jsonl")
            data.write_text("".join(json.dumps({"prompt": text, "output_len": length}) + "\n" for text in words))
            shared = ("--max-num-seqs", 64, "--max-model-len", 256, "--no-enable-prefix-caching")

            def offline():
                command = (self.pelton, "bench", model, "--rows", "offline", "--prompts", lines, "-n", length, "-r", 1, "--json",
                           "--threads", self.options.threads, *shared)
                done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
                return json.loads(done.stdout)["rows"][0]["value"]

            shares = []

            def served():
                with self.serve(model, *shared) as (url, process):
                    before, client = thread_seconds(process.pid), child_seconds()
                    answer = self.load(url, "--dataset", data, "--num-prompts", prompts, "--max-concurrency", 64, "--ignore-eos")
                    client = child_seconds() - client
                    after = thread_seconds(process.pid)
                # The engine's threads are those that compute most.
                spent = sorted((after[t] - before.get(t, 0.0) for t in after), reverse=True)
                beside = sum(spent[self.options.threads:]) + client
                shares.append(100 * beside / (sum(spent) + client))
                return value(answer, "total_token_throughput")

            s = summarise(alternate(served, offline, self.options.pairs))
        # What HTTP takes of all processor time, client included: neighbours change it little.
        self.add("http_throughput_64", s["ours"], "tok/s", limit=s["theirs"], spread=s["spread"], ratio=s["ratio"], wanted=0.97,
                 http_cpu_percent=statistics.median(shares))

    def ttft(self):
        """What is between the client and the model's own work: HTTP, template, tokenizer, queues, one request at a time."""
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            table = pathlib.Path(folder, "csv")
            with self.serve(self.options.small, "--request-log", log, "--no-enable-prefix-caching") as (url, _):
                self.load(url, "--endpoint", "chat", "--num-prompts", 60, "--max-concurrency", 1, "--input-len", 32, "--output-len", 2,
                          "--csv", table)
            seen = [float(line["ttft_ms"]) for line in csv.DictReader(table.open())]
            lines = [json.loads(line)["timings"] for line in log.read_text().splitlines()]
        added = [ttft - line["prefill_ms"] for ttft, line in zip(seen, lines, strict=True)]
        added = sorted(added[5:])
        self.add("ttft_added_p50", statistics.median(added), "ms", p90=added[int(0.9 * len(added))], wanted=2.0)

    def idle(self):
        """Memory of 2,000 connections, each kept open after one request."""
        count = 2000
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
                                                    resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with self.serve(self.options.small, "--max-connections", 4000) as (url, process):
            port = int(url.rsplit(":", 1)[1])
            before = resident(process.pid)
            with contextlib.ExitStack() as stack:
                for _ in range(count):
                    one = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)))
                    one.request("GET", "/health")
                    one.getresponse().read()
                after = resident(process.pid)
        self.add("idle_connections_2000", (after - before) / 1e6, "MB", wanted=50.0)

    def prefix(self):
        """Cost of the prefix cache where nothing is found in it, and what a hit of 90 % saves."""
        miss = ("--num-prompts", 48, "--max-concurrency", 8, "--input-len", 128, "--output-len", 8, "--token-ids", IDS, "--ignore-eos")

        def throughput(*arguments):
            def run():
                with self.serve(self.options.small, *arguments) as (url, _):
                    return value(self.load(url, *miss), "total_token_throughput")
            return run

        s = summarise(alternate(throughput(), throughput("--no-enable-prefix-caching"), self.options.pairs))
        self.add("prefix_cache_0_hits", s["ours"], "tok/s", limit=s["theirs"], spread=s["spread"], ratio=s["ratio"], wanted=0.99)
        with tempfile.TemporaryDirectory() as folder, self.serve(self.options.small) as (url, _):
            table = pathlib.Path(folder, "csv")
            self.load(url, "--num-prompts", 40, "--max-concurrency", 1, "--input-len", 96, "--prefix-len", 928, "--prefix-share", 0.5,
                      "--output-len", 4, "--ignore-eos", "--token-ids", IDS, "--csv", table)
            lines = list(csv.DictReader(table.open()))
        hits = [float(line["ttft_ms"]) for line in lines if int(line["cached_tokens"]) >= 900]
        misses = [float(line["ttft_ms"]) for line in lines if int(line["cached_tokens"]) < 100]
        self.add("prefix_cache_90_hit_ttft", statistics.median(hits), "ms", miss_ms=statistics.median(misses),
                 ratio=statistics.median(hits) / statistics.median(misses), wanted=0.15)

    def batching(self):
        """Continuous against static batching with the same KV memory: 32 whole reservations of 1,792 tokens."""
        requests = ("--num-prompts", self.options.requests, "--dataset", "exponential", "--input-len", 64, "--output-len", 256,
                    "--output-cap", 1536, "--token-ids", IDS, "--ignore-eos", "--seed", 1)
        self.compare_batching("batching_exponential", requests, wanted=2.5)

    def mix(self):
        """The same with lengths as in chats, and one request at a time."""
        few = max(8, self.options.requests // 2)
        self.compare_batching("batching_sharegpt", (
            "--num-prompts", few, "--dataset", "sharegpt", "--input-len", 200, "--output-len", 180, "--output-cap", 768, "--token-ids",
            IDS, "--ignore-eos", "--seed", 1))
        with self.serve(self.options.small, "--max-model-len", 1792) as (url, _):
            answer = self.load(url, "--num-prompts", 8, "--max-concurrency", 1, "--input-len", 64, "--output-len", 128, "--token-ids",
                               IDS, "--ignore-eos", "--seed", 1)
        self.add("one_at_a_time", value(answer, "output_throughput"), "tok/s")

    def compare_batching(self, name, requests, **more):
        kv = ("--max-model-len", 1792, "--num-kv-blocks", 32 * 1792 // 32, "--no-enable-prefix-caching")

        def run(*arguments):
            with self.serve(self.options.small, *kv, *arguments) as (url, _):
                return self.load(url, *requests)

        static = run("--batching", "static", "--max-num-seqs", 32)
        continuous = run("--batching", "continuous", "--max-num-seqs", 256)
        a, b = value(continuous, "output_throughput"), value(static, "output_throughput")
        self.add(name, a, "tok/s", static=b, ratio=a / b, most_at_once_static=32,
                 ttft_p50_ms=value(continuous, "ttft_p50"), ttft_p50_static_ms=value(static, "ttft_p50"), **more)

    def peers(self):
        """llama-server beside Pelton: the same file, threads, prompts and KV memory of 16 contexts of 1,024 tokens."""
        for clients in self.options.clients:
            requests = ("--num-prompts", max(6, 2 * clients), "--max-concurrency", clients, "--input-len", 64, "--output-len", 48,
                        "--temperature", 0, "--ignore-eos", "--num-warmups", 1)

            def ours(requests=requests):
                with self.serve(self.options.small, "--max-num-seqs", 64, "--max-model-len", 1024, "--num-kv-blocks", 16 * 32) as (url, _):
                    return self.load(url, *requests)

            def theirs(requests=requests):
                with self.serve_llama(self.options.small, 16, 1024) as (url, _):
                    return self.load(url, *requests)

            answers = alternate(ours, theirs, self.options.pairs)
            s = summarise([(value(a, "output_throughput"), value(b, "output_throughput")) for a, b in answers])
            itl = summarise([(value(a, "itl_p99"), value(b, "itl_p99")) for a, b in answers])
            self.add(f"llama_server_{clients}", s["ours"], "tok/s", spread=s["spread"], llama_server=s["theirs"], ratio=s["ratio"],
                     itl_p99_ms=itl["ours"], itl_p99_llama_server_ms=itl["theirs"], wanted=1.1 if clients == 1 else 1.5)


def healthy(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def resident(pid):
    """Bytes of anonymous memory: mapped weights come and go."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no RssAnon")


def thread_seconds(pid):
    """Processor time of each thread of a process so far."""
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def child_seconds():
    """Processor time of the processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def value(answer, name):
    return next(row["value"] for row in answer["rows"] if row["name"] == name)


def make_prompts(count, words):
    """The same ones everywhere, none the beginning of another."""
    import random
    rng = random.Random(7)
    vocabulary = "time people way water day man thing woman life child world school state family student group".split()
    return [" ".join(rng.choice(vocabulary) for _ in range(words)) for _ in range(count)]


def find_model(name):
    path = pathlib.Path(name)
    for folder in os.environ.get("PELTON_MODELS", "models").split(":"):
        if path.is_file():
            break
        path = pathlib.Path(folder) / name
    if not path.is_file():
        sys.exit(f"{name} is in no folder of PELTON_MODELS")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--requests", type=int, default=200, help="of the row batching")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16, 64])
    parser.add_argument("--small", default="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct-Q4_K_M.gguf", help="of the row overhead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.small, options.model = find_model(options.small), find_model(options.model)
    bench = Bench(options)
    rows = options.rows.split(",")
    for row in rows:
        if row not in ROWS:
            parser.error(f"--rows: {row} is not one of {', '.join(ROWS)}")
    for row in rows:
        getattr(bench, row)()
    if options.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        machine = {**(bench.machine or {}), "threads": options.threads}
        print(json.dumps({"schema": "pelton.bench-serving.1", "model": {"small": options.small.name, "overhead": options.model.name},
                          "machine": machine, "commit": commit, "rows": bench.rows}, indent=1))


if __name__ == "__main__":
    main()
