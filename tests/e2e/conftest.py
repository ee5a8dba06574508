"""The program as its users see it: started as a process, judged by output, errors and exit code."""
import dataclasses
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("PELTON_BINARY", ROOT / "build/dev/bin/pelton"))


@dataclasses.dataclass
class Outcome:
    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def pelton():
    """Runs the program: pelton("run", model, "-p", "hi", stdin="", timeout=60) -> Outcome."""
    assert BINARY.is_file(), f"{BINARY} is not built"

    def run(*arguments, stdin="", timeout=120, env=None):
        done = subprocess.run([str(BINARY), *map(str, arguments)], input=stdin, capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})}, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def find_model(name, fetched=True):
    """`fetched`: whether the test run fetches it, so that missing it may count as a failure."""
    for folder in os.environ.get("PELTON_MODELS", str(ROOT / "models")).split(":"):
        path = pathlib.Path(folder) / name
        if path.exists():
            return path
    message = f"{name} is not in PELTON_MODELS"
    if fetched and os.environ.get("PELTON_REQUIRE_MODELS") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def smollm():
    return find_model("SmolLM2-135M-Instruct.Q4_1.gguf")


def one_line_error(outcome):
    """A refusal: non-zero exit by the program's own will, nothing on stdout, one line on stderr."""
    assert outcome.code > 0, f"exit {outcome.code}: {outcome.err}"
    assert outcome.out == ""
    lines = outcome.err.strip().splitlines()
    assert len(lines) == 1, outcome.err
    return lines[0]
