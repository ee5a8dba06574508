"""Models of the repository, the processes that tests stop half-way, and what every refusal has in common."""

import json
import os
import pathlib
import re
import subprocess

from conftest import BINARY, ROOT

RUNNEL = ROOT / "tests/data/runnel-2m"  # small, trained, with a chat template
GOLDEN = ROOT / "tests/golden/models"  # random weights and what transformers computes from them

ANSWER_KEYS = {"prompt_ids", "ids", "text", "finish_reason", "usage", "timings", "memory", "seed"}


def golden(name):
    return json.loads((GOLDEN / name / "golden.json").read_text())


def refused(outcome, *words):
    """One line on stderr that begins with the program's name and holds `words`; nothing on stdout, no crash."""
    assert 0 < outcome.code < 128, f"exit {outcome.code}: {outcome.err}"
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("pelton: "), lines[0]
    for word in words:
        assert word in lines[0], lines[0]


def start(*arguments, **popen):
    """The program as a running process with binary pipes."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | popen
    return subprocess.Popen([str(BINARY), *map(str, arguments)], env=os.environ.copy(), **pipes)


def copy_folder(source: pathlib.Path, target: pathlib.Path):
    """A folder of links to another's files: the ones that a test changes are replaced."""
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).symlink_to(file)
    return target


def replace(path: pathlib.Path, content):
    path.unlink(missing_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content)


def documented(answer):
    """(names that must be there, names that may be) of a row of the table in docs/commands.md."""
    page = (ROOT / "docs/commands.md").read_text()
    row, = (line for line in page.splitlines() if line.startswith(f"| {answer} | ") or line.startswith(f"| {answer}, and the first row | "))
    names = re.findall(r"`([a-z0-9_]+(?:\[\])?(?:\.[a-z0-9_]+(?:\[\])?)*\??)`", row.split("|", 2)[2])
    names = [name for name in names if name not in ("null", "stop", "length", "cancelled", "memory", "compute", "value")]
    must, may = {n for n in names if n[-1] != "?"}, {n[:-1] for n in names if n[-1] == "?"}
    if ", and the first row |" in row:
        first = documented("most commands")
        must, may = must | first[0], may | first[1]
    return must, may


def members(value, path=""):
    """Full names of what an answer holds at its leaves; lists of numbers or of text are leaves."""
    if isinstance(value, dict):
        return set().union(*(members(v, f"{path}.{k}" if path else k) for k, v in value.items()))
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return set().union(*(members(v, path + "[]") for v in value))
    return {path}
