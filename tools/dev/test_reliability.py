"""docs/reliability.md names tests and files: each of them exists."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = re.findall(r"`([^`\n]+)`", (ROOT / "docs/reliability.md").read_text())
FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
PLACES = {str(pathlib.PurePath(name).with_suffix("")) for name in FILES} | {str(pathlib.PurePath(name).parent) for name in FILES}


def words():
    """Names of test functions, of suites and of cases: `file: First, Suite.Second`."""
    for text in CODE:
        for word in re.split(r"[,.]? |[.,…]", text.rpartition(": ")[2]):
            if re.fullmatch(r"test_\w+|[A-Z][A-Za-z]*[a-z][A-Z]\w*", word):
                yield word


def test_tests_exist():
    sources = "\n".join((ROOT / name).read_text(errors="replace") for name in FILES
                        if re.search(r"(test\.cc|test_\w+\.py|\.h|fuzz/\w+\.cc)$|^tests/.*\.cc$", name))
    known = set(re.findall(r"\w+", sources)) | {pathlib.PurePath(name).stem for name in FILES}
    found = set(words())
    assert len(found) > 150
    assert found <= known, found - known


def test_files_exist():
    named = {text.partition(":")[0] for text in CODE if re.match(r"[a-z0-9_]+/[a-z0-9_/]+(:|$)", text)}
    assert len(named) > 40
    for name in named:
        assert any(place == name or place.endswith("/" + name) for place in PLACES), name
