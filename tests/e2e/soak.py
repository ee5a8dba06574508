"""Hours of chaos on one server, with a summary: soak.py SECONDS [SEED] [SERVE OPTIONS...]. PELTON_BINARY names the program."""

import statistics
import sys
import time

from chaos import run_chaos
from server_support import Server


def p99(values):
    return sorted(values)[len(values) * 99 // 100]


def quarters(values):
    """The second and the last: what comes first warms up."""
    quarter = max(1, len(values) // 4)
    return values[quarter:2 * quarter] or values, values[-quarter:]


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 7200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    started, samples = time.monotonic(), []

    def progress(rss):
        samples.append(rss)
        if len(samples) % 60 == 1:
            print(f"[{time.monotonic() - started:6.0f} s] RSS {rss:.0f} MB", flush=True)

    with Server(*(sys.argv[3:] or ("--max-num-seqs", 8))) as server:
        summary = run_chaos(server, seed, seconds, progress=progress)
    print(summary.text())
    second, last = (statistics.mean(part) for part in quarters(samples))
    print(f"RSS of the second quarter {second:.1f} MB, of the last {last:.1f} MB")
    slow, slower = (p99(part) for part in quarters(summary.gaps))
    print(f"P99 between two events of the control stream in the second quarter {1e3 * slow:.1f} ms, in the last {1e3 * slower:.1f} ms")
    if last > second * 1.1 + 10:
        print("soak: memory grows")
        return 1
    if slower > 2 * slow + 0.1:
        print("soak: answers become slower")
        return 1
    print("soak: requests in = ended, KV blocks, descriptors and threads are back, the control's text never changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
