"""HTTPS: the same answers, limits and faults as over plain connections, and start errors in one line."""

import json
import shutil
import socket
import ssl
import subprocess
import time

import pytest
from chaos import Accountant, run_chaos
from chaos_client import Reader, encode
from conftest import BINARY
from server_support import Server
from support import RUNNEL, refused

SHORT = {"prompt": "The river is", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


def openssl(*arguments):
    if shutil.which("openssl") is None:
        pytest.fail("the openssl command is missing")
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    for name in ("own", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2, "-subj",
                "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / f"{name}.key",
                "-out", folder / f"{name}.pem")
    openssl("pkey", "-in", folder / "own.key", "-aes256", "-passout", "pass:secret", "-out", folder / "locked.key")
    (folder / "both.pem").write_text((folder / "own.pem").read_text() + (folder / "own.key").read_text())
    return folder


def connector(port, files):
    context = ssl.create_default_context(cafile=str(files / "own.pem"))

    def connect(receive_buffer=None):
        plain = socket.socket()
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(60)
        plain.connect(("127.0.0.1", port))
        return context.wrap_socket(plain, server_hostname="localhost")

    return connect


class TlsServer(Server):
    """Its own questions go through TLS too."""

    def __init__(self, files, *arguments):
        super().__init__("--ssl-certfile", files / "own.pem", "--ssl-keyfile", files / "own.key", *arguments)
        self.connect = connector(self.port, files)

    def call(self, method, path, body=None, headers=None, timeout=60):
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        with self.connect() as connection:
            connection.settimeout(timeout)
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            answer = Reader(connection).answer(method == "HEAD")
        kind = answer.headers.get("content-type", "")
        text = answer.data.decode()
        return answer.status, answer.headers, json.loads(text) if kind.startswith("application/json") and text else text


@pytest.fixture(scope="module")
def server(files):
    with TlsServer(files) as running:
        yield running
        running.settle()


def test_answers_are_those_of_plain_connections(server):
    with Server() as plain:
        for request in (SHORT, {**SHORT, "n": 3, "temperature": 1, "seed": 4}):
            assert server.post("/v1/completions", request)["choices"] == plain.post("/v1/completions", request)["choices"]
    with server.connect() as connection:
        connection.sendall(encode({**SHORT, "stream": True}) * 3)
        reader = Reader(connection)
        streams = [reader.answer().data.count(b'"finish_reason":"length"') for _ in range(3)]
    assert streams == [1, 1, 1]
    # A body and an answer of many records.
    text = "a river " * 40_000
    assert server.post("/tokenize", {"prompt": text})["count"] > 40_000


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_only_modern_versions(server, files):
    for version, good in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True), (ssl.TLSVersion.TLSv1_1, False)):
        context = ssl.create_default_context(cafile=str(files / "own.pem"))
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
            if good:
                with context.wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert Reader(connection).answer().status == 200
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    context.wrap_socket(plain, server_hostname="localhost")


def test_what_is_not_tls_is_closed(server):
    for data in (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70_000), b"\x00" * 100):
        out = b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            try:
                connection.sendall(data)
                while chunk := connection.recv(4096):
                    out += chunk
            except ConnectionError:
                pass
        assert b"HTTP/" not in out
    assert server.call("GET", "/health")[0] == 200


def test_a_handshake_has_its_time(files):
    with TlsServer(files, "--header-timeout", 0.2) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            assert connection.recv(100) == b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00")
            assert connection.recv(100) == b""
        with server.connect() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: ")
            assert Reader(connection).answer().status == 408


def test_clients_that_leave_cancel_their_work(server):
    before = server.settle()
    for i in range(10):
        connection = server.connect()
        connection.sendall(encode({**SHORT, "max_tokens": 900, "stream": i % 2 == 0}))
        time.sleep(0.002 * i)
        connection.close()
    assert server.settle()["pelton_engine_cancelled_total"] > before["pelton_engine_cancelled_total"]


def test_idle_connections_take_as_little_as_plain_ones(files):
    """A quarter of the plain test's number, a quarter of its memory."""
    with TlsServer(files, "--max-connections", 700) as server:
        accountant = Accountant(server)
        before, idle = accountant.rss_mb(), []
        try:
            for i in range(500):
                idle.append(server.connect())
                if i % 4 == 0:
                    idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert Reader(idle[-1]).answer().status == 200
            taken = accountant.rss_mb() - before
        finally:
            for connection in idle:
                connection.close()
        if "asan" not in str(BINARY):
            assert taken < 12.5, f"{taken:.1f} MB"
        accountant.check()


def test_the_load_generator_speaks_https(server, files, pelton):
    url = f"https://localhost:{server.port}"
    few = ("--num-prompts", 4, "--input-len", 5, "--output-len", 4, "--ignore-eos", "--max-concurrency", 2, "--json")
    for trust in (("--cacert", files / "own.pem"), ("--insecure",)):
        outcome = pelton("bench-serve", "--url", url, *few, *trust)
        assert outcome.code == 0 and json.loads(outcome.out)["requests"]["completed"] == 4, outcome.err
    # A certificate of somebody else, and one that nobody vouches for.
    for trust in (("--cacert", files / "other.pem"), ()):
        outcome = pelton("bench-serve", "--url", url, *few, "--model", "m", *trust)
        assert outcome.code == 1 and json.loads(outcome.out)["requests"]["errors"] == {"connect": 4}, outcome.err
        assert "certificate" in outcome.err
    # The name counts too.
    outcome = pelton("bench-serve", "--url", f"https://127.0.0.2:{server.port}", *few, "--cacert", files / "own.pem")
    assert outcome.code == 1
    outcome = pelton("bench-serve", "--url", f"http://localhost:{server.port}", *few, "--model", "m")
    assert outcome.code == 1


def test_chaos_over_tls(files):
    with TlsServer(files, "--max-num-seqs", 8) as server:
        print(run_chaos(server, seed=29, seconds=10, connect=server.connect).text())


def test_files_that_cannot_be_used_are_one_line(pelton, files, tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 8)
    own, key = files / "own.pem", files / "own.key"
    for arguments, words in (
            (("--ssl-certfile", tmp_path / "missing.pem", "--ssl-keyfile", key), ("--ssl-certfile", "missing.pem")),
            (("--ssl-certfile", own, "--ssl-keyfile", tmp_path / "missing.key"), ("--ssl-keyfile", "missing.key")),
            (("--ssl-certfile", tmp_path / "empty", "--ssl-keyfile", key), ("--ssl-certfile", "empty")),
            (("--ssl-certfile", tmp_path / "noise", "--ssl-keyfile", key), ("--ssl-certfile", "noise")),
            (("--ssl-certfile", tmp_path, "--ssl-keyfile", key), ("--ssl-certfile",)),
            (("--ssl-certfile", own, "--ssl-keyfile", tmp_path / "noise"), ("--ssl-keyfile", "noise")),
            (("--ssl-certfile", own, "--ssl-keyfile", files / "other.key"), ("--ssl-keyfile", "other.key")),
            (("--ssl-certfile", own, "--ssl-keyfile", files / "locked.key"), ("--ssl-keyfile", "locked.key")),
            (("--ssl-certfile", own), ("--ssl-keyfile", "own.pem")),
            (("--ssl-keyfile", key), ("--ssl-keyfile", "--ssl-certfile"))):
        refused(pelton("serve", RUNNEL, "--port", 0, *arguments), *words)
