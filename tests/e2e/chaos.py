"""A chaos run: clients that misbehave, a control stream beside them, an accountant behind them."""

import dataclasses
import http.client
import json
import pathlib
import random
import threading
import time

from chaos_client import ChaosClient

CONTROLS = [
    {"prompt": "The river is", "max_tokens": 24, "temperature": 0, "ignore_eos": True},
    {"prompt": "The river is long and", "max_tokens": 16, "temperature": 1, "seed": 11, "n": 2},
    {"prompt": "名前は", "max_tokens": 12, "temperature": 0, "logprobs": 3, "ignore_eos": True},
]


class Accountant:
    """What a server holds: the same at rest after any run as at its start."""

    def __init__(self, server):
        self.server = server
        self.process = pathlib.Path(f"/proc/{server.process.pid}")
        self.warm_up()
        self.start = self.at_rest()

    def warm_up(self):
        """Pools, caches and lazily made threads have their size from here on."""
        for control in CONTROLS:
            for stream in (False, True):
                self.server.call("POST", "/v1/completions", {**control, "stream": stream})

    def descriptors(self):
        return len(list((self.process / "fd").iterdir()))

    def field(self, name):
        for line in (self.process / "status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise AssertionError(f"no {name} in the process's status")

    def rss_mb(self):
        return self.field("VmRSS") / 1024

    def at_rest(self):
        """Once nothing is open: descriptors and threads. Requests and KV blocks are settle()'s."""
        deadline = time.monotonic() + 60
        while True:
            metrics = self.server.settle()
            if metrics["pelton_connections_open"] <= 1:
                break
            assert time.monotonic() < deadline, f"{metrics['pelton_connections_open']} connections stay open"
            time.sleep(0.05)
        # The connection that asked is closed by now, or will be.
        while (held := self.descriptors()) > getattr(self, "start", (held, 0))[0] and time.monotonic() < deadline:
            time.sleep(0.05)
        return held, self.field("Threads")

    def check(self):
        metrics = self.server.settle()
        ended = sum(metrics[f"pelton_engine_{how}_total"] for how in ("finished", "cancelled", "failed"))
        assert metrics["pelton_engine_requests_total"] == ended
        assert metrics["pelton_engine_failed_total"] == 0
        assert metrics["pelton_kv_blocks_free"] == metrics["pelton_kv_blocks"]
        descriptors, threads = self.at_rest()
        assert descriptors <= self.start[0] and threads == self.start[1], (self.start, descriptors, threads)
        return metrics


class ControlStream:
    """The same requests again and again, streamed and whole: their texts never change, and they always come."""

    def __init__(self, server, connect):
        self.server = server
        self.connect = connect
        self.expected = [self.ask(control) for control in CONTROLS]
        self.served = 0
        self.gaps = []  # seconds between two events of a stream, in order
        self.healthy = 0

    def ask(self, control):
        return [(c["text"], c["finish_reason"]) for c in self.server.post("/v1/completions", control)["choices"]]

    def ask_streamed(self, control):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        connection.sock = self.connect()
        connection.sock.settimeout(120)
        connection.request("POST", "/v1/completions", json.dumps({**control, "stream": True}))
        response = connection.getresponse()
        if response.status != 200:
            connection.close()
            assert response.status in (429, 503), response.status
            return None
        texts, ends, last = {}, {}, None
        while line := response.readline():
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            if last is not None:
                self.gaps.append(now - last)
            last = now
            for choice in json.loads(line[6:])["choices"]:
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                if choice["finish_reason"] is not None:
                    ends[choice["index"]] = choice["finish_reason"]
        connection.close()
        return [(texts[i], ends[i]) for i in sorted(texts)]

    def step(self, which):
        status = self.server.call("GET", "/health", timeout=120)[0]
        assert status == 200, f"/health says {status} while the engine works"
        self.healthy += 1
        control, expected = CONTROLS[which % len(CONTROLS)], self.expected[which % len(CONTROLS)]
        if which % 2:
            answer = self.ask_streamed(control)
        else:
            status, _, whole = self.server.call("POST", "/v1/completions", control, timeout=120)
            assert status in (200, 429, 503), whole
            answer = [(c["text"], c["finish_reason"]) for c in whole["choices"]] if status == 200 else None
        if answer is None:
            return  # the queue was full: told so at once, and tried again
        assert answer == expected, f"the control's text changed: {answer} is not {expected}"
        self.served += 1


@dataclasses.dataclass
class Summary:
    seed: int
    seconds: float
    actions: dict
    statuses: dict
    controls: int
    gaps: list
    rss_mb: list
    metrics: dict

    def text(self):
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.actions.items()))
        return (f"seed {self.seed}, {self.seconds:.0f} s: {sum(self.actions.values())} actions ({done}); statuses {self.statuses}; "
                f"{self.controls} controls, worst gap {max(self.gaps):.2f} s; RSS {self.rss_mb[0]:.0f} -> {self.rss_mb[-1]:.0f} MB")


def connector(server):
    """Connected sockets to a server, plain."""
    import socket

    def connect(receive_buffer=None):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", server.port))
        return connection

    return connect


def run_chaos(server, seed, seconds, clients=6, connect=None, progress=None):
    """Misbehaves for a while; everything is checked while it runs and once more at rest."""
    print(f"chaos: seed {seed}")
    connect = connect or connector(server)
    accountant = Accountant(server)
    control = ControlStream(server, connect)
    faults, end = [], time.monotonic() + seconds
    chaos = [ChaosClient(connect, random.Random(f"{seed}/{i}").getrandbits(64)) for i in range(clients)]

    def until_the_end(step):
        which = 0
        while time.monotonic() < end and not faults:
            try:
                step(which)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the run's result
                faults.append(error)
            which += 1

    threads = [threading.Thread(target=until_the_end, args=(lambda _, c=c: c.step(),)) for c in chaos]
    threads.append(threading.Thread(target=until_the_end, args=(control.step,)))
    for thread in threads:
        thread.start()
    rss = [accountant.rss_mb()]
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 4))
        if server.process.poll() is None:
            rss.append(accountant.rss_mb())
            if progress:
                progress(rss[-1])
    for thread in threads:
        thread.join()
    if faults:
        raise AssertionError(f"seed {seed}: {faults[0]!r}") from faults[0]
    metrics = accountant.check()
    assert control.served > 0 and max(control.gaps, default=0) < 30
    for which in range(2 * len(CONTROLS)):
        control.step(which)

    def total(field):
        out = {}
        for client in chaos:
            for key, value in getattr(client, field).items():
                out[key] = out.get(key, 0) + value
        return out

    return Summary(seed, seconds, total("sent"), total("statuses"), control.served, control.gaps or [0.0],
                   [*rss, accountant.rss_mb()], metrics)
