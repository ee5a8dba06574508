"""What hostile, careless and unlucky clients do to a server, drawn from a seed. Each action is one connection or a few; it
returns when the server's part is over and raises AssertionError when that part was wrong."""

import json
import random
import socket
import struct
import time

TIMEOUT = 120  # a watchdog: nobody waits longer for an answer
# What a server may answer to anything at all. 500 is not among them.
STATUSES = {200, 204, 400, 401, 403, 404, 405, 408, 413, 414, 415, 429, 431, 503, 505}

WORDS = ["river", "naïve", "東京", "😀🎉", "\u0000", "<|im_end|>", "\\n", "a" * 40, "\u202e", "{}", "\r\n"]


def body(rng, **fixed):
    """A valid request for text with a random handful of parameters."""
    request = {"prompt": " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8))), "max_tokens": rng.randint(0, 40),
               "temperature": rng.choice([0, 0.7, 1, 2]), "seed": rng.randint(0, 9)}
    extras = {"n": rng.randint(1, 4), "stop": rng.choice(["e", ["the", "\n"], " "]), "ignore_eos": True,
              "logprobs": rng.choice([0, 1, 5, 20]), "echo": rng.random() < 0.5, "top_k": rng.randint(1, 50),
              "min_p": 0.1, "top_p": 0.5, "frequency_penalty": rng.uniform(-2, 2), "repetition_penalty": 1.3,
              "logit_bias": {str(rng.randint(0, 100)): rng.randint(-100, 100)}, "priority": rng.randint(-3, 3),
              "cache_salt": rng.choice(["", "a", "b"]), "timings": True}
    for key in rng.sample(sorted(extras), rng.randint(0, 5)):
        request[key] = extras[key]
    return {**request, **fixed}


def encode(request, path="/v1/completions", extra=""):
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


def end_sending(connection):
    """The socket's own call: that of a TLS socket would forget the keys, and what still comes be read as it travels."""
    socket.socket.shutdown(connection, socket.SHUT_WR)


def reset(connection):
    """Closes by RST: what a killed client or a middle box does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Answer:
    """One parsed response; None as status when the connection ended without one."""

    def __init__(self, status, headers, data):
        self.status, self.headers, self.data = status, headers, data

    def json(self):
        return json.loads(self.data.decode("utf-8"))


class Reader:
    """Reads responses one after another from a connection."""

    def __init__(self, connection):
        self.connection = connection
        self.buffered = b""

    def more(self):
        try:
            got = self.connection.recv(65536)
        except ConnectionError:
            got = b""
        self.buffered += got
        return got != b""

    def until(self, mark):
        while mark not in self.buffered:
            if not self.more():
                return None
        out, self.buffered = self.buffered.split(mark, 1)
        return out

    def exactly(self, count):
        while len(self.buffered) < count:
            if not self.more():
                return None
        out, self.buffered = self.buffered[:count], self.buffered[count:]
        return out

    def answer(self, head_only=False):
        head = self.until(b"\r\n\r\n")
        if head is None:
            assert self.buffered == b"", self.buffered[:100]
            return Answer(None, {}, b"")
        lines = head.split(b"\r\n")
        version, status, _ = lines[0].split(b" ", 2)
        assert version == b"HTTP/1.1" and int(status) in STATUSES | {100}, lines[0]
        headers = {name.lower().decode(): value.strip().decode() for name, value in (line.split(b":", 1) for line in lines[1:])}
        if int(status) == 100:
            return self.answer(head_only)
        data = b""
        if headers.get("transfer-encoding") == "chunked":
            while True:
                size = self.until(b"\r\n")
                assert size is not None, "a stream ends before its last chunk"
                chunk = self.exactly(int(size, 16) + 2)
                assert chunk is not None and chunk.endswith(b"\r\n"), "a stream ends inside a chunk"
                data += chunk[:-2]
                if int(size, 16) == 0:
                    break
        elif not head_only and int(status) != 204:
            data = self.exactly(int(headers["content-length"]))
            assert data is not None, "an answer is shorter than its Content-Length"
        answer = Answer(int(status), headers, data)
        check_answer(answer)
        return answer


def check_answer(answer):
    if answer.status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    kind = answer.headers.get("content-type", "")
    if kind.startswith("application/json") and answer.data:
        value = answer.json()
        if answer.status >= 400:
            assert value["error"]["message"], value
    elif kind.startswith("text/event-stream"):
        blocks = answer.data.decode("utf-8").split("\n\n")
        assert blocks[-1] == "" and blocks[-2] == "data: [DONE]", blocks[-3:]
        for block in blocks[:-2]:
            json.loads(block.removeprefix("data: "))


class ChaosClient:
    """Actions against one server. `connect` makes a connected socket: plain or TLS."""

    def __init__(self, connect, seed):
        self.connect = connect
        self.rng = random.Random(seed)
        self.sent = {}  # actions by name
        self.statuses = {}
        self.resets_at = 0

    def open(self, **options):
        connection = self.connect(**options)
        connection.settimeout(TIMEOUT)
        return connection

    def once(self, data, head_only=False):
        with self.open() as connection:
            try:
                connection.sendall(data)
            except ConnectionError:
                pass  # refused before it was read: the answer may still be there
            answer = Reader(connection).answer(head_only)
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        return answer

    def step(self):
        """One action, the next of this seed."""
        name = self.rng.choice(sorted(ACTIONS))
        self.sent[name] = self.sent.get(name, 0) + 1
        ACTIONS[name](self)

    # ---- Well-meant

    def normal(self):
        answer = self.once(encode(body(self.rng)))
        assert answer.status in (200, 429, 503), (answer.status, answer.data)

    def stream(self):
        answer = self.once(encode(body(self.rng, stream=True)))
        assert answer.status in (200, 429, 503), (answer.status, answer.data)

    def chat(self):
        messages = [{"role": "user", "content": self.rng.choice(WORDS)}]
        request = {"messages": messages, "max_tokens": self.rng.randint(0, 30), "stream": self.rng.random() < 0.5}
        assert self.once(encode(request, "/v1/chat/completions")).status in (200, 429, 503)

    def texts(self):
        assert self.once(encode({"prompt": self.rng.choice(WORDS) * self.rng.randint(1, 3000)}, "/tokenize")).status == 200
        ids = [self.rng.randint(0, 400) for _ in range(self.rng.randint(0, 200))]
        assert self.once(encode({"tokens": ids}, "/detokenize")).status == 200

    def look(self):
        method = self.rng.choice(["GET", "HEAD"])
        path = self.rng.choice(["/health", "/metrics", "/version", "/v1/models", "/openapi.json", "/ready"])
        answer = self.once(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), method == "HEAD")
        assert answer.status == 200, (path, answer.status, answer.data)

    def deadline(self):
        answer = self.once(encode(body(self.rng, max_tokens=400, ignore_eos=True, timeout=self.rng.choice([0.001, 0.05]))))
        assert answer.status in (200, 429, 503), answer.status

    # ---- Careless

    def slow_reader(self):
        request = body(self.rng, stream=True, max_tokens=200, ignore_eos=True, n=4, logprobs=20)
        with self.open(receive_buffer=2048) as connection:
            connection.sendall(encode(request, extra="Connection: close\r\n"))  # a refusal is short
            try:
                for _ in range(self.rng.randint(1, 12)):
                    if not connection.recv(self.rng.randint(1, 64)):
                        break
                    time.sleep(0.05)
            except ConnectionError:
                pass

    def slow_sender(self):
        data = encode(body(self.rng, max_tokens=2))
        with self.open() as connection:
            at = 0
            while at < len(data):
                size = self.rng.randint(1, 1 + len(data) // 6)
                connection.sendall(data[at:at + size])
                at += size
                time.sleep(0.01)
            assert Reader(connection).answer().status in (200, 429, 503)

    def half_open(self):
        data = encode(body(self.rng))
        with self.open() as connection:
            connection.sendall(data[:self.rng.randint(0, len(data) - 1)])
            time.sleep(self.rng.choice([0, 0.05, 0.3]))
            if self.rng.random() < 0.5:
                reset(connection)

    def half_close(self):
        with self.open() as connection:
            connection.sendall(encode(body(self.rng, stream=self.rng.random() < 0.5)))
            end_sending(connection)
            try:
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass

    def reset_at_every_byte(self):
        """A request that is cut one byte later each time it comes to it."""
        data = encode(body(random.Random(5), stream=True, max_tokens=30))
        for _ in range(10):
            self.resets_at = (self.resets_at + 1) % (len(data) + 1)
            with self.open() as connection:
                connection.sendall(data[:self.resets_at])
                reset(connection)

    def aborted_stream(self):
        with self.open() as connection:
            # Where the queue is full, the answer may be shorter than what is waited for.
            connection.sendall(encode(body(self.rng, stream=True, max_tokens=400, ignore_eos=True, n=3), extra="Connection: close\r\n"))
            wanted = self.rng.randint(0, 2000)
            try:
                while wanted > 0 and (got := connection.recv(min(wanted, 512))):
                    wanted -= len(got)
            except ConnectionError:
                pass
            if self.rng.random() < 0.5:
                reset(connection)

    def aborted_whole(self):
        with self.open() as connection:
            connection.sendall(encode(body(self.rng, max_tokens=400, ignore_eos=True, n=2)))
            time.sleep(self.rng.choice([0, 0.002, 0.02]))
            if self.rng.random() < 0.5:
                reset(connection)

    # ---- Hostile

    def flood(self):
        """Many at once; everybody hears something."""
        connections = []
        try:
            for _ in range(self.rng.randint(10, 60)):
                connections.append(self.open())
                connections[-1].sendall(encode(body(self.rng, max_tokens=self.rng.randint(0, 3))))
            for connection in connections:
                answer = Reader(connection).answer()
                assert answer.status in (200, 429, 503), answer.status
        finally:
            for connection in connections:
                connection.close()

    def pipeline(self):
        count = self.rng.randint(2, 12)
        texts = ["a " * self.rng.randint(1, 30) for _ in range(count)]
        with self.open() as connection:
            connection.sendall(b"".join(encode({"prompt": text}, "/tokenize") for text in texts))
            reader = Reader(connection)
            for text in texts:
                answer = reader.answer()
                assert answer.status == 200 and answer.json()["count"] >= text.count("a")

    def garbage(self):
        data = self.rng.randbytes(self.rng.randint(1, 4000))
        if self.rng.random() < 0.5:
            data = b"POST /v1/completions HTTP/1.1\r\n" + data
        with self.open() as connection:
            try:
                connection.sendall(data + b"\r\n\r\n")
                if self.rng.random() < 0.5:
                    end_sending(connection)
            except ConnectionError:
                pass
            assert Reader(connection).answer().status in (400, 413, 414, 431, 505, None)

    def huge_head(self):
        kind = self.rng.randint(0, 2)
        if kind == 0:
            assert self.once(b"GET /" + b"a" * self.rng.randint(8193, 30000) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 414
        elif kind == 1:
            many = b"".join(b"x%d: 1\r\n" % i for i in range(self.rng.randint(101, 2000)))
            assert self.once(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n").status == 431
        else:
            data = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * self.rng.randint(40_000, 400_000)
            assert self.once(data + b"\r\n\r\n").status in (431, None)

    def huge_body(self):
        length = self.rng.choice([9 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
        data = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()
        assert self.once(data + b"x" * self.rng.randint(0, 10000)).status == 413

    def chunks(self):
        data = json.dumps({"prompt": "one two"}).encode()
        cut, pieces = 0, b""
        while cut < len(data):
            size = self.rng.randint(1, len(data) - cut)
            pieces += b"%x\r\n%s\r\n" % (size, data[cut:cut + size])
            cut += size
        good = pieces + b"0\r\n\r\n"
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert self.once(head + good).status == 200
        broken = bytearray(good)
        broken[self.rng.randrange(len(broken))] = self.rng.randrange(256)
        with self.open() as connection:
            connection.sendall(head + broken)
            end_sending(connection)
            assert Reader(connection).answer().status in (200, 400, 413, None)

    def broken_json(self):
        data = bytearray(json.dumps(body(self.rng)).encode())
        for _ in range(self.rng.randint(1, 4)):
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        for _ in range(2):  # the second time counts too
            assert self.once(encode(bytes(data))).status in (200, 400, 404, 429, 503)

    def deep_json(self):
        depth = self.rng.choice([65, 1000, 100_000])
        opening, closing = self.rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
        data = b'{"prompt":"a","metadata":' + opening * depth + b"1" + closing * depth + b"}"
        assert self.once(encode(data)).status == 400

    def odd_fields(self):
        field = self.rng.choice(["n", "max_tokens", "temperature", "top_p", "stop", "logit_bias", "logprobs", "prompt", "stream",
                                 "seed", "best_of", "suffix", "no_such_field", "stop_token_ids", "timeout"])
        value = self.rng.choice([-1, 0, 2**31, 2**63, 2**64, 1e308, None, "x", [], {}, [[]], [None], {"x": 1}, {"-1": 1},
                                 ["a"] * 10_000, "", True, [2**31], [-1]])
        for _ in range(2):
            request = {"prompt": "a", "max_tokens": 2, field: value}
            status = self.once(encode(request)).status
            assert status in (200, 400, 429, 503), (request, status)


# Names of the methods above that are actions, and their code.
ACTIONS = {name: method for name, method in vars(ChaosClient).items()
           if callable(method) and not name.startswith("_") and name not in ("open", "once", "step")}
