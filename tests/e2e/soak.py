"""Hours of chaos on one server, with a summary: soak.py SECONDS [SEED] [SERVE OPTIONS...]. PELTON_BINARY names the program."""

import statistics
import sys
import time

from chaos import run_chaos
from server_support import Server


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 7200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    started, samples = time.monotonic(), []

    def progress(rss):
        samples.append(rss)
        if len(samples) % 60 == 1:
            print(f"[{time.monotonic() - started:6.0f} s] RSS {rss:.0f} MB", flush=True)

    with Server("--max-num-seqs", 8, *sys.argv[3:]) as server:
        summary = run_chaos(server, seed, seconds, progress=progress)
    print(summary.text())
    quarter = max(1, len(samples) // 4)
    second, last = statistics.mean(samples[quarter:2 * quarter] or samples), statistics.mean(samples[-quarter:])
    print(f"RSS of the second quarter {second:.1f} MB, of the last {last:.1f} MB")
    if last > second * 1.1 + 10:
        print("soak: memory grows")
        return 1
    print("soak: requests in = ended, KV blocks, descriptors and threads are back, the control's text never changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
