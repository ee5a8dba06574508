#!/usr/bin/env python3
"""Goldens of chat templates, rendered by jinja2 as transformers configures it.

  template_goldens.py                        writes tests/golden/templates/{contexts,expected}.json
  template_goldens.py --live BIN FILE...     renders the given templates with BIN (pelton_render_templates)
                                             and with jinja2 over the same contexts, and compares

Needs transformers and jinja2 (tools/dev/requirements.txt). expected.json holds, for each template and
context, an FNV-1a hash of the rendered text, the text itself for one context in ten, or the error.
"""
import copy
import itertools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/templates"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a <city> & its 'region' in é 안",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. \"São Paulo\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "default": 3},
            },
            "required": ["city"],
        },
        "return": {"type": "string"},
    },
}
SUM = {
    "type": "function",
    "function": {
        "name": "sum",
        "description": "Adds numbers",
        "parameters": {
            "type": "object",
            "properties": {"numbers": {"type": "array", "items": {"type": "number"}}},
            "required": ["numbers"],
        },
    },
}
NO_PARAMETERS = {"type": "function", "function": {"name": "now", "description": "Time", "parameters": {
    "type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **extra):
    return {"role": "assistant", "content": text, **extra}


def call(name, arguments, identifier="abcdefghi"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    system = {"role": "system", "content": "You are terse.\n"}
    yield [user("Hi")]
    yield [system, user("Hi there,  what's up? ")]
    yield [user("one"), assistant("two"), user("three")]
    yield [system, user("one"), assistant(" two \n"), user("three"), assistant("four")]
    yield [user("2+2?"), assistant("<think>\nadd them\n</think>\n\n4"), user("again")]
    yield [user("2+2?"), assistant("4", reasoning_content="add them\n"), user("and 3+3?"),
           assistant("6", reasoning_content="easy", thinking="easy")]
    yield [user("naïve café 你好 안녕 👩‍👩‍👧 <|im_end|> </s> [INST] \u00a0x\u2003"), assistant("ﬀ ß İ Σας")]
    yield [user("Weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Paris", "days": 2})]),
           {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"t\": 21.5}"}]
    yield [system, user("Weather?"),
           assistant(None, tool_calls=[call("get_weather", {"city": "Zürich <&>'\""}, "callid001"),
                                       call("sum", {"numbers": [1, 2.5, -3e-7, 1e22]}, "callid002")]),
           {"role": "tool", "name": "get_weather", "tool_call_id": "callid001", "content": "sunny"},
           {"role": "tool", "name": "sum", "tool_call_id": "callid002", "content": "0.5"},
           assistant("Sunny and 0.5."), user("Thanks")]
    yield [user("Use it"), assistant("Let me see.", reasoning_content="I need the tool.",
                                     tool_calls=[call("now", {})]),
           {"role": "tool", "name": "now", "tool_call_id": "abcdefghi", "content": "12:00"}, assistant("Noon")]
    yield [user([{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}])]
    yield [system, user("a"), user("b")]
    yield [assistant("I start"), user("why")]
    yield [user("")]
    yield [{"role": "developer", "content": "Be kind"}, user("x")]
    yield [user("multi\n\nline\n  indented\n"), assistant("a\tb\r\nc"), user("'quotes' \"double\" \\ back")]
    yield [system]


def contexts():
    tool_sets = [None, [WEATHER], [SUM, WEATHER, NO_PARAMETERS]]
    extras = [
        {},
        {"enable_thinking": False, "date_string": "01 Jan 2025"},
        {"enable_thinking": True, "thinking": True, "reasoning_effort": "high", "keep_cot": True,
         "documents": [{"title": "T1", "text": "doc one"}, {"title": "T2", "text": "doc two"}]},
    ]
    out = []
    for index, (messages, tools, extra) in enumerate(itertools.product(conversations(), tool_sets, extras)):
        for generation in (True, False):
            if generation != (index % 3 != 0) and index % 2:
                continue
            context = {"messages": copy.deepcopy(messages), "bos_token": "<s>", "eos_token": "</s>",
                       "pad_token": "<pad>", "unk_token": "<unk>", "add_generation_prompt": generation,
                       "date_string": "26 Jul 2024", **extra}
            if tools is not None or index % 2:
                context["tools"] = copy.deepcopy(tools)
            out.append(context)
    return out


def render_all(source, many):
    """One {"text"} or {"error"} for each context; "raised" marks the template's own refusals."""
    import jinja2
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        template = _compile_jinja_template(source)
    except Exception as error:  # the template itself is refused
        return [{"error": f"compile: {error}"}] * len(many)
    results = []
    for context in many:
        try:
            results.append({"text": template.render(**copy.deepcopy(context))})
        except jinja2.exceptions.TemplateError as error:
            raised = type(error) is jinja2.exceptions.TemplateError
            results.append({"error": str(error), "raised": raised})
        except Exception as error:  # TypeError and its like, from inside an expression
            results.append({"error": f"{type(error).__name__}: {error}", "raised": False})
    return results


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def write_goldens():
    many = contexts()
    expected = {}
    for path in sorted(GOLDEN.glob("*.jinja")):
        results = render_all(path.read_text(encoding="utf-8"), many)
        rows = []
        for index, result in enumerate(results):
            if "text" in result:
                row = {"hash": fnv1a(result["text"])}
                if index % 10 == 0:
                    row["text"] = result["text"]
            elif result.get("raised"):
                row = {"raised": result["error"]}
            else:
                row = {"error": result["error"]}
            rows.append(row)
        good = sum("text" in r for r in results)
        print(f"{path.name}: {good} rendered, {len(results) - good} refused")
        expected[path.name] = rows
    for name, value in (("contexts", many), ("expected", expected)):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("},{\"messages\"", "},\n{\"messages\"")
        (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")


SNIPPET_CONTEXT = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "<hi>"}], "bos_token": "<s>"}


def write_snippets():
    """One template a line in template_snippets.txt, where \\n outside of an expression is a line end."""
    out = []
    for line in (ROOT / "tools/dev/template_snippets.txt").read_text(encoding="utf-8").splitlines():
        # Literal "\\n" between tags stands for a newline; inside of tags it is the string's own escape.
        parts = re.split(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})", line)
        source = "".join(part if i % 2 else part.replace("\\n", "\n") for i, part in enumerate(parts))
        result = render_all(source, [SNIPPET_CONTEXT])[0]
        out.append({"template": source, **result})
    text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in out)
    (GOLDEN / "snippets.json").write_text("[" + text + "]\n", encoding="utf-8")
    print(f"{len(out)} snippets, {sum('error' in row for row in out)} of them errors")


def compare_live(binary, paths):
    many = contexts()
    failures = 0
    with subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for path in paths:
            source = pathlib.Path(path).read_text(encoding="utf-8")
            theirs = render_all(source, many)
            process.stdin.write(json.dumps({"template": source, "contexts": many}) + "\n")
            process.stdin.flush()
            ours = json.loads(process.stdout.readline())
            bad = [i for i, (a, b) in enumerate(zip(theirs, ours)) if not same(a, b)]
            good = sum("text" in r for r in theirs)
            print(f"{pathlib.Path(path).name}: {good} rendered, {len(many) - good} refused, {len(bad)} differ")
            for i in bad[:2]:
                print(f"  context {i}: theirs {show(theirs[i], ours[i])}\n            ours   {show(ours[i], theirs[i])}")
            failures += bool(bad)
        process.stdin.close()
    print(f"{len(paths) - failures} templates agree, {failures} differ")
    return failures


def same(theirs, ours):
    if "text" in theirs or "text" in ours:
        return theirs.get("text") == ours.get("text")
    return not theirs.get("raised") or theirs["error"] == ours["error"]


def show(one, other):
    if "text" in one and "text" in other:
        at = next((i for i, (a, b) in enumerate(zip(one["text"], other["text"])) if a != b),
                  min(len(one["text"]), len(other["text"])))
        return repr(one["text"][max(0, at - 60):at + 60])
    return repr(one)[:300]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--live":
        sys.exit(1 if compare_live(sys.argv[2], sys.argv[3:]) else 0)
    write_goldens()
    write_snippets()
