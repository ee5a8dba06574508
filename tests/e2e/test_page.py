"""The web page in a browser: everything that a person can do with it, and what it must never do."""

import json
import re
import threading

import pytest
from browser import Browser, Page, find_browser
from conftest import ROOT
from server_support import Server

PAGE = ROOT / "src/server/page"
SHOWN = "document.querySelectorAll('.message').length"
IDLE = "document.querySelector('#stop').hidden"
ANSWER = ".message.assistant:last-child"


@pytest.fixture(scope="module")
def server():
    with Server("--max-num-seqs", 4) as running:
        yield running
        running.settle()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if find_browser() is None:
        pytest.skip("no chromium")
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(chromium, server):
    with Page(chromium, address(server)) as tab:
        yield tab
        assert tab.problems == []
        assert all(url.startswith(address(server)) for url in tab.requests)


def address(server):
    return f"http://127.0.0.1:{server.port}/"


def set_field(tab, selector, value):
    tab.evaluate(f"""(() => {{
        const field = document.querySelector({json.dumps(selector)});
        field.value = {json.dumps(str(value))};
        field.dispatchEvent(new Event("input"));
    }})()""")


def settle_fields(tab, tokens=12):
    set_field(tab, "#p-temperature", 0)
    set_field(tab, "#p-max_tokens", tokens)


def ask(tab, text, messages=2):
    tab.click("#prompt")
    tab.type(text)
    tab.key("Enter")
    tab.wait(f"{SHOWN} === {messages} && {IDLE}")


# ---- Without a browser


def test_files_and_their_headers(server):
    for path in ["/"] + [f"/page/{file.name}" for file in PAGE.iterdir() if file.name != "index.html"]:
        status, headers, _ = server.call("GET", path)
        assert status == 200, path
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert server.call("HEAD", path)[0] == 200
        assert server.call("POST", path, "{}")[0] == 405
    for path in ("/page/", "/page/index.html", "/page/../status", "/page/nothing.js"):
        assert server.call("GET", path)[0] == 404, path


def test_the_page_can_be_switched_off():
    with Server("--disable-page") as running:
        assert running.call("GET", "/")[0] == 404
        assert running.call("GET", "/page/main.js")[0] == 404
        assert running.call("GET", "/status")[0] == 200


def test_status_tells_what_ended(server):
    before = server.call("GET", "/status")[2]
    known = max([r["id"] for r in before["requests"]], default=0)
    answer = server.post("/v1/completions", {"prompt": "The river", "max_tokens": 5, "temperature": 0, "ignore_eos": True})
    server.settle()
    after = server.call("GET", f"/status?since={known}")[2]
    [request] = after["requests"]
    assert request["id"] == known + 1
    assert request["completion_tokens"] == 5 and request["end"] == "length"
    assert request["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert 0 <= request["tokenized_s"] <= request["admitted_s"] <= request["scheduled_s"] <= request["first_token_s"] <= request["ended_s"]
    assert request["arrival_s"] + request["ended_s"] <= after["uptime_s"]
    assert after["generated_tokens"] == before["generated_tokens"] + 5
    assert after["kv_blocks_free"] == after["kv_blocks"] and after["running"] == after["waiting"] == 0
    assert server.call("GET", f"/status?since={known + 1}")[2]["requests"] == []
    # A number of another server's, and what is none: everything.
    for query in ("since=999999999", "since=-1", "since=x", "since=", "other"):
        assert len(server.call("GET", f"/status?{query}")[2]["requests"]) >= 1, query


def test_both_languages_say_the_same():
    text = (PAGE / "text.js").read_text()
    english, chinese = re.search(r"\ben: \{(.*?)\n  \},\n  zh: \{(.*?)\n  \},\n\};", text, re.S).groups()
    entry = re.compile(r'\b(\w+): (?:"((?:[^"\\]|\\.)*)"|\[)')
    english, chinese = dict(entry.findall(english)), dict(entry.findall(chinese))
    assert english.keys() == chinese.keys() and len(english) > 60
    for key, value in english.items():
        assert sorted(re.findall(r"\{\d\}", value)) == sorted(re.findall(r"\{\d\}", chinese[key])), key
    used = set()
    for file in PAGE.iterdir():
        used |= set(re.findall(r'data-(?:text|label|placeholder)="(\w+)"', file.read_text()))
        used |= set(re.findall(r'\bt\("(\w+)"', file.read_text()))
    assert used <= english.keys()


# ---- Chat


def test_a_chat_shows_what_the_api_answers(page, server):
    settle_fields(page)
    ask(page, "Hello")
    wanted = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0})
    text = wanted["choices"][0]["message"]["content"]
    assert page.text(".message.user .text") == "Hello"
    assert page.text(f"{ANSWER} .text").split() == text.split()
    facts = page.text(f"{ANSWER} .facts")
    assert f"{wanted['usage']['completion_tokens']} out" in facts and f"{wanted['usage']['prompt_tokens']} in" in facts
    assert page.evaluate(f"document.querySelectorAll('{ANSWER} .mini-fall span').length") >= 2
    # A reload of the tab keeps the conversation; a new chat empties it.
    page.go(address(server))
    assert page.text(f"{ANSWER} .text").split() == text.split()
    page.click("#new")
    assert page.evaluate(SHOWN) == 0 and not page.evaluate("document.querySelector('#empty').hidden")


def test_what_is_set_is_sent_and_nothing_else(page):
    settle_fields(page)
    set_field(page, "#system", "Be short.")
    set_field(page, "#p-top_k", 7)
    set_field(page, "#p-seed", 1.5)  # not whole: not sent
    set_field(page, "#p-top_p", 3)  # out of range: not sent
    set_field(page, "#stops", "END\n\nSTOP")
    ask(page, "One")
    ask(page, "Two", 4)
    assert page.bodies[0].items() >= {"model": "runnel", "temperature": 0, "max_tokens": 12, "top_k": 7, "stop": ["END", "STOP"], "stream": True}.items()
    assert not {"seed", "top_p", "min_p", "logprobs"} & page.bodies[0].keys()
    assert [m["role"] for m in page.bodies[1]["messages"]] == ["system", "user", "assistant", "user"]
    page.click("#reset")
    ask(page, "Three", 6)
    assert not {"temperature", "top_k", "stop"} & page.bodies[2].keys()


def test_stop_cancels_and_keeps_what_came(page, server):
    before = server.metrics()["pelton_engine_cancelled_total"]
    page.evaluate("""(() => {
        const real = window.fetch;  // an answer without an end, so that only the button ends it
        window.fetch = (path, options) => real(path, options?.body ? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true, n: 1})} : options);
    })()""")
    page.click("#prompt")
    page.type("Tell me everything")
    page.key("Enter")
    page.wait(f"document.querySelector('{ANSWER} .text')?.textContent.length > 10")
    assert not page.evaluate(IDLE)
    page.click("#stop")
    page.wait(IDLE)
    assert "stopped" in page.text(f"{ANSWER} .facts") and page.text(f"{ANSWER} .text") != ""
    assert server.settle()["pelton_engine_cancelled_total"] == before + 1
    page.problems[:] = [p for p in page.problems if "ERR_ABORTED" not in p]


def test_regenerate_and_edit(page):
    settle_fields(page, 6)
    ask(page, "First")
    first = page.text(f"{ANSWER} .text")
    page.click(f"{ANSWER} .foot button:nth-of-type(2)")
    page.wait(f"{SHOWN} === 2 && {IDLE}")
    assert page.text(f"{ANSWER} .text") == first  # greedy
    assert page.bodies[1]["messages"] == page.bodies[0]["messages"]
    ask(page, "Second", 4)
    # The arrow key brings the last question back; Escape leaves it as it was.
    page.key("ArrowUp")
    assert page.evaluate("document.activeElement.className") == "edit"
    page.key("Escape")
    assert page.evaluate(SHOWN) == 4
    # Editing the first question drops what followed.
    page.click(".message.user:first-child .foot button")
    page.type("ly, what?")
    page.key("Enter")
    page.wait(f"{SHOWN} === 2 && {IDLE}")
    assert page.bodies[-1]["messages"] == [{"role": "user", "content": "Firstly, what?"}]


def test_token_probabilities(page):
    settle_fields(page)
    page.click("#probabilities")
    ask(page, "Hello")
    tokens = page.evaluate(f"[...document.querySelectorAll('{ANSWER} .token')].map((t) => t.textContent)")
    assert len(tokens) >= 2 and page.bodies[0]["top_logprobs"] == 5
    page.evaluate(f"document.querySelector('{ANSWER} .token').focus()")
    for _ in range(2):
        page.key("ArrowRight")
    assert page.evaluate(f"[...document.querySelectorAll('{ANSWER} .token')].indexOf(document.activeElement)") == min(2, len(tokens) - 1)
    shares = [float(share.strip("<% ")) for share in page.text("#tip").split("\n") if "%" in share]
    assert len(shares) == 5 and shares == sorted(shares, reverse=True) and sum(shares) <= 100.5
    box = page.evaluate("(() => { const b = document.querySelector('#tip').getBoundingClientRect(); return [b.left, b.top, innerWidth - b.right, innerHeight - b.bottom]; })()")
    assert min(box) >= 0
    page.key("Escape")
    assert page.evaluate("document.querySelector('#tip').hidden")
    page.click("#probabilities")  # the same answer as a text again
    assert page.text(f"{ANSWER} .text").split() == "".join(tokens).split()


def test_composing_does_not_send(page):
    page.click("#prompt")
    page.type("你好")
    page.evaluate("""document.querySelector('#prompt').dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true}))""")
    page.key("Enter", shift=True)
    assert page.evaluate(SHOWN) == 0


# ---- Markdown

CASES = [
    ("plain", "<p>plain</p>"),
    ("**a** *b* `c` ~~d~~ __e__", "<p><strong>a</strong> <em>b</em> <code>c</code> <del>d</del> <strong>e</strong></p>"),
    ("snake_case_name 2 * 3 * 4", "<p>snake_case_name 2 * 3 * 4</p>"),
    ("**bold *and em***", "<p><strong>bold *and em</strong>*</p>"),
    ("# One\n## Two ##", "<h3>One</h3><h4>Two</h4>"),
    ("- a\n- b\n  - c\n\n1. x\n2. y", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start=\"1\"><li>x</li><li>y</li></ol>"),
    ("> q\n> r", "<blockquote><p>q\nr</p></blockquote>"),
    ("a  \nb", "<p>a<br>b</p>"),
    ("---", "<hr>"),
    ("``a ` b``", "<p><code>a ` b</code></p>"),
    ("\\*no\\*", "<p>*no*</p>"),
    ("**open", "<p>**open</p>"),
    ("<b>x</b> & <script>alert(1)</script>", "<p>&lt;b&gt;x&lt;/b&gt; &amp; &lt;script&gt;alert(1)&lt;/script&gt;</p>"),
    ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
    ("[x](data:text/html,y)", "<p>[x](data:text/html,y)</p>"),
    ("[**x**](https://a.b/c)", "<p><a href=\"https://a.b/c\" target=\"_blank\" rel=\"noopener noreferrer\">**x**</a></p>"),
    ("https://a.b/c.", "<p><a href=\"https://a.b/c\" target=\"_blank\" rel=\"noopener noreferrer\">https://a.b/c</a>.</p>"),
]


def render(tab, text):
    return tab.evaluate(f"""import("/page/markdown.js").then(({{markdown}}) => {{
        const box = document.createElement("div");
        box.append(...markdown({json.dumps(text)}));
        return box.innerHTML;
    }})""")


def test_markdown(page):
    for text, wanted in CASES:
        assert render(page, text) == wanted, text
    code = render(page, "```python\nx = '<i>'\n```\nafter")
    assert "<pre tabindex=\"0\"><code>x = '&lt;i&gt;'</code></pre>" in code and code.endswith("<p>after</p>") and ">python<" in code
    assert "<code>half" in render(page, "```\nhalf")  # while it streams
    table = render(page, "| a | b |\n|---|--:|\n| 1 | `x` |\n\nend")
    assert "<th>a</th><th class=\"right\">b</th>" in table and "<td class=\"right\"><code>x</code></td>" in table


def test_markdown_makes_nothing_that_acts(page):
    evil = ["<img src=x onerror=alert(1)>", "![x](https://evil.example/p.png)", "![](/page/icon.svg)", "[a](vbscript:x)", "<svg onload=alert(1)>",
            "[a](  java\nscript:alert(1))", "[x](https://a.b/\"onmouseover=alert(1))", "| <script> |\n|---|\n| <iframe src=x> |",
            "```\"><img src=x onerror=alert(1)>\nx\n```", "# <a href=javascript:x>", "&lt;script&gt;", "<style>*{display:none}</style>"]
    html = [render(page, text) for text in evil]
    allowed = set("a abbr p em strong code del br hr ul ol li blockquote pre div span button table thead tbody tr th td h3 h4 h5 h6".split())
    for text, out in zip(evil, html):
        assert set(re.findall(r"<([a-z0-9]+)", out)) <= allowed, (text, out)
        assert all(link.startswith("https://") for link in re.findall(r'href="([^"]*)"', out)), out
        assert not re.search(r"<[^>]*\s(on\w+|style|src)=", re.sub(r'"[^"]*"', '""', out)), out


def test_markdown_ends_for_every_text(page):
    many = 20000
    for piece in ("*", "**a ", "`", "`a``", "[", "[a](", "> ", "- ", "~", "_a", "|", "# ", "\\", "  ", "*a _b ", "http://", "1. ", "~~~`", "!["):
        render(page, piece * many)
        render(page, "\n".join([piece * 40] * 400))
    render(page, "\n".join(" " * i + "- x" for i in range(300)))
    assert page.evaluate("1") == 1


# ---- Keys, languages, themes, phones


def test_a_key_is_asked_for_and_used(chromium, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("right-key\n")
    with Server("--api-key-file", keys) as running:
        assert running.call("GET", "/")[0] == 200
        assert running.call("GET", "/status")[0] == 401
        with Page(chromium, address(running)) as tab:
            tab.wait("document.querySelector('#key-dialog').open")
            tab.type("wrong-key")
            tab.key("Enter")
            tab.wait("!document.querySelector('#key-error').hidden")
            tab.type("right-key")
            tab.key("Enter")
            tab.wait("!document.querySelector('#key-dialog').open && document.querySelector('#model-name').textContent === 'runnel'")
            settle_fields(tab)
            ask(tab, "Hello")
            assert tab.text(f"{ANSWER} .text") != ""
            assert tab.evaluate("JSON.stringify(localStorage)").find("right-key") < 0
            assert all("401" in problem for problem in tab.problems), tab.problems


def test_languages(page, server):
    assert page.evaluate("document.documentElement.lang") == "en"
    page.click("#language")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert page.text("#tab-dashboard") == "仪表盘" and page.text("#settings h2") == "设置"
    assert page.evaluate("document.querySelector('#prompt').placeholder") == "输入问题"
    page.go(address(server))  # chosen is chosen, also after a reload
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.click("#language")
    assert page.text("#tab-dashboard") == "Dashboard"


CONTRAST = """(() => {
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        const [r, g, b] = style.getPropertyValue(name).match(/[0-9a-f]{2}/g).map((h) => parseInt(h, 16) / 255)
            .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
    return [["--text", "--back"], ["--text", "--panel"], ["--soft", "--back"], ["--soft", "--panel"], ["--soft", "--raised"],
        ["--text", "--accent-soft"], ["--accent-text", "--accent"], ["--accent", "--panel"], ["--error", "--error-soft"],
        ["--text", "--s1"], ["--text", "--s2"], ["--text", "--s3"], ["--text", "--s4"]].map(([a, b]) => [a, b, ratio(a, b)]);
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_read(chromium, server, dark):
    with Page(chromium, address(server), dark=dark) as tab:
        for first, second, ratio in tab.evaluate(CONTRAST):
            assert ratio >= 4.5, (first, second, ratio)
        back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        for _ in range(2 if dark else 3):  # as the system, light, dark: the button goes round
            tab.click("#theme")
        assert tab.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else None)
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == back


def test_phone(chromium, server):
    with Page(chromium, address(server), width=360, height=740, phone=True) as tab:
        assert not tab.evaluate("document.querySelector('#settings').classList.contains('open')")
        tab.click("#toggle-settings")
        settle_fields(tab)
        tab.click("#toggle-settings")
        ask(tab, "Hello")
        for view in ("chat", "dashboard"):
            tab.click(f"#tab-{view}")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
            small = tab.evaluate("""[...document.querySelectorAll("header button, .composer button")].filter((b) => b.offsetParent)
                .map((b) => [b.id, b.getBoundingClientRect()]).filter(([, box]) => box.height < 30 || box.width < 30 || box.right > innerWidth + 1).map(([id]) => id)""")
            assert small == [], view
        assert tab.problems == []


def test_everything_has_a_name_and_can_be_reached(page):
    for view in ("chat", "dashboard"):
        page.click(f"#tab-{view}")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "textbox", "spinbutton", "slider", "checkbox", "combobox", "tab", "link", "image", "img", "dialog", "tabpanel", "log"}
        for node in nodes:
            if not node["ignored"] and node["role"]["value"] in roles:
                assert node.get("name", {}).get("value"), node
    page.click("#tab-chat")
    page.evaluate("document.body.focus()")
    reached = set()
    for _ in range(60):
        page.key("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"tab-chat", "theme", "language", "toggle-settings", "prompt", "send", "new", "system", "p-temperature", "stops", "probabilities", "reset"} <= reached


# ---- Dashboard, and when things go wrong


def test_dashboard_under_load(page, server):
    body = {"prompt": "The river is", "max_tokens": 60, "ignore_eos": True, "n": 2}
    threads = [threading.Thread(target=server.post, args=("/v1/completions", body)) for _ in range(8)]
    page.click("#tab-dashboard")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page.wait("document.querySelectorAll('#waterfalls .fall').length >= 8 && document.querySelectorAll('#tiles .tile').length === 8")
    page.wait("document.querySelector('.plot path').getAttribute('d').includes('L')")
    status = server.call("GET", "/status")[2]
    newest = status["requests"][-1]
    row = page.text("#waterfalls tr").split()
    assert row[0].replace(",", "") == str(newest["id"]) and newest["end"] in row
    assert page.evaluate("document.querySelectorAll('.plot').length") == 8
    assert "of 4" in page.text("#tiles")
    widths = page.evaluate("[...document.querySelectorAll('#waterfalls tr:first-child .fall span')].map((s) => parseFloat(s.style.left) + parseFloat(s.style.width))")
    assert widths == sorted(widths) and widths[-1] <= 100.01
    # Somebody who looks elsewhere asks nothing.
    page.click("#tab-chat")
    page.browser.pump(1.5)
    asked = len(page.requests)
    page.browser.pump(2.5)
    assert len(page.requests) == asked


def test_errors_are_shown(chromium):
    with Server("--max-model-len", 64) as running, Page(chromium, address(running)) as tab:
        ask(tab, "word " * 200)
        assert "leave no room" in tab.text(f"{ANSWER} .error")
        tab.click("#new")
        tab.click("#tab-dashboard")
        tab.wait("document.querySelectorAll('#tiles .tile').length === 8")
        running.process.terminate()
        running.process.wait(timeout=40)
        tab.wait("!document.querySelector('#dashboard-notice').hidden")
        tab.click("#tab-chat")
        ask(tab, "Anybody?")
        assert tab.text(f"{ANSWER} .error") == "The server cannot be reached."
        assert tab.text(f"{ANSWER} .foot button") == "Try again"


def test_a_busy_server_says_when_to_come_again(page):
    page.evaluate("""window.fetch = async () => new Response('{"error":{"message":"busy"}}', {status: 429, headers: {"Retry-After": "7"}})""")
    ask(page, "Hello")
    assert "in 7 s" in page.text(f"{ANSWER} .error")


def test_an_answer_that_breaks_off_is_kept(page):
    page.evaluate("""window.fetch = async () => new Response('data: {"choices":[{"index":0,"delta":{"content":"Half an"}}]}\\n\\n', {status: 200})""")
    ask(page, "Hello")
    assert page.text(f"{ANSWER} .text") == "Half an" and page.text(f"{ANSWER} .error") == "The answer broke off."
