"""A translated page holds what the original holds: the same figures, the same code, the same sections and rows."""

import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [page.relative_to(ROOT) for folder in (".", "docs") for page in sorted((ROOT / folder).glob("*.zh-CN.md"))]
KINDS = {"figures": r"\d[\d,.]*\d|\d", "code": r"`[^`\n]+`", "commands": r"^\$ .*", "sections": r"^#+ ", "rows": r"^\|"}


def found(kind, text):
    return collections.Counter(re.findall(KINDS[kind], text, re.MULTILINE))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_translation_is_whole(page, kind):
    original = found(kind, (ROOT / str(page).replace(".zh-CN", "")).read_text())
    translated = found(kind, (ROOT / page).read_text())
    assert translated == original, f"missing: {original - translated}; too much: {translated - original}"


def test_there_are_translations():
    assert {str(page) for page in PAGES} == {"README.zh-CN.md", "docs/serving.zh-CN.md"}
