// Markdown to elements. Nothing is ever parsed as HTML: tags in the text are text. Images become links, so that
// showing an answer fetches nothing. Scans forward with bounds on nesting and on how far a closing mark is sought,
// so that no text takes longer than in proportion to its length.
import { copyText, make } from "./dom.js";
import { t } from "./text.js";

const MAX_DEPTH = 6;
const MAX_TRIES = 64;
const MAX_LINK = 2000;

// ---- Within a line

function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(url, ...children) {
  return make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function isSpace(c) {
  return c === undefined || c === " " || c === "\n" || c === "\t";
}

function isWord(c) {
  return c !== undefined && /[\p{L}\p{N}]/u.test(c);
}

// Where `mark`, opened before `from`, closes; -1 when it does not.
function closing(text, mark, from) {
  let at = from;
  for (let tries = 0; tries < MAX_TRIES; ++tries) {
    at = text.indexOf(mark, at);
    if (at < 0) return -1;
    const after = at + mark.length;
    const single = mark.length > 1 || (text[after] !== mark && text[at - 1] !== mark);
    const bounded = mark[0] !== "_" || !isWord(text[after]);
    if (at > from && !isSpace(text[at - 1]) && text[at - 1] !== "\\" && single && bounded) return at;
    at = after;
  }
  return -1;
}

const EMPHASIS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

class Inline {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    this.out = [];
    this.plain = "";
    this.missing = new Set(); // marks that are known not to close any more
  }

  run() {
    while (this.at < this.text.length) {
      const c = this.text[this.at];
      const read = (c === "\\" && this.escape()) || (c === "`" && this.code()) ||
        ("*_~".includes(c) && this.emphasis()) || ((c === "[" || c === "!") && this.bracket()) ||
        (c === "h" && this.address()) || (c === "\n" && this.lineBreak());
      if (!read) {
        this.plain += c;
        ++this.at;
      }
    }
    this.flush();
    return this.out;
  }

  flush() {
    if (this.plain) this.out.push(this.plain);
    this.plain = "";
  }

  push(node, next) {
    this.flush();
    this.out.push(node);
    this.at = next;
    return true;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === undefined || !"\\`*_{}[]()#+-.!~|<>".includes(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  code() {
    let end = this.at;
    while (this.text[end] === "`") ++end;
    const mark = this.text.slice(this.at, end);
    if (!this.missing.has(mark)) {
      let close = end;
      for (let tries = 0; tries < MAX_TRIES; ++tries) {
        close = this.text.indexOf(mark, close);
        if (close < 0) break;
        let after = close;
        while (this.text[after] === "`") ++after;
        if (after - close === mark.length) {
          const inside = this.text.slice(end, close);
          const padded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
          return this.push(make("code", null, padded ? inside.slice(1, -1) : inside), after);
        }
        close = after;
      }
      this.missing.add(mark);
    }
    this.plain += mark;
    this.at = end;
    return true;
  }

  emphasis() {
    if (this.depth >= MAX_DEPTH) return false;
    for (const [mark, tag] of EMPHASIS) {
      if (!this.text.startsWith(mark, this.at) || this.missing.has(mark)) continue;
      const from = this.at + mark.length;
      if (isSpace(this.text[from]) || (mark[0] === "_" && isWord(this.text[this.at - 1]))) continue;
      const close = closing(this.text, mark, from);
      if (close < 0) {
        this.missing.add(mark);
        continue;
      }
      const inside = new Inline(this.text.slice(from, close), this.depth + 1).run();
      return this.push(make(tag, null, ...inside), close + mark.length);
    }
    return false;
  }

  // [text](url), and ![text](url), which is shown as a link.
  bracket() {
    const from = this.text[this.at] === "!" ? this.at + 2 : this.at + 1;
    if (this.text[from - 1] !== "[" || this.depth >= MAX_DEPTH) return false;
    const near = this.text.slice(from, from + MAX_LINK);
    const middle = near.indexOf("](");
    const end = middle < 0 ? -1 : near.indexOf(")", middle);
    if (end < 0) return false;
    const url = safeUrl(near.slice(middle + 2, end).trim().split(/\s/, 1)[0]);
    if (url === null) return false;
    const inside = new Inline(near.slice(0, middle), MAX_DEPTH).run();
    return this.push(link(url, ...(inside.length ? inside : [url])), from + end + 1);
  }

  address() {
    if (isWord(this.text[this.at - 1]) || !/^https?:\/\//.test(this.text.slice(this.at, this.at + 8))) return false;
    if (this.depth >= MAX_DEPTH) return false;
    const found = /^[^\s<>"'`*，。、；：！？（）]+/.exec(this.text.slice(this.at, this.at + MAX_LINK))[0].replace(/[.,;:!?)\]]+$/, "");
    const url = safeUrl(found);
    return url !== null && this.push(link(url, found), this.at + found.length);
  }

  lineBreak() {
    const hard = this.plain.endsWith("  ") || this.plain.endsWith("\\");
    if (!hard) return false;
    this.plain = this.plain.endsWith("\\") ? this.plain.slice(0, -1) : this.plain.trimEnd();
    return this.push(make("br"), this.at + 1);
  }
}

export function inline(text) {
  return new Inline(text, 0).run();
}

// ---- Blocks

const FENCE = /^( {0,3})(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE_RULE = /^ {0,3}\|?( *:?-+:? *\|)* *:?-+:? *\|? *$/;

// Indentation, mark and language of a line that opens a block of code.
function openFence(line) {
  const found = FENCE.exec(line);
  if (!found) return null;
  const rest = line.slice(found[0].length);
  if (found[2][0] === "`" && rest.includes("`")) return null;
  return { indent: found[1], mark: found[2], info: rest.trim().split(" ", 1)[0] };
}

function startsBlock(line) {
  return openFence(line) !== null || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);
}

function codeBlock(lines, info) {
  const text = lines.join("\n");
  const copy = make("button", { type: "button", class: "copy", onclick: async () => {
    if (await copyText(text)) copy.textContent = t("copied");
    setTimeout(() => { copy.textContent = t("copy"); }, 1500);
  } }, t("copy"));
  return make("div", { class: "code" }, make("div", { class: "code-bar" }, make("span", null, info.slice(0, 30)), copy),
    make("pre", { tabindex: 0 }, make("code", null, text)));
}

function cells(line) {
  const trimmed = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

class Blocks {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
    this.at = 0;
  }

  run() {
    const out = [];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (!line.trim()) ++this.at;
      else out.push(this.fence(line) ?? this.heading(line) ?? this.rule(line) ?? this.quote(line) ?? this.list(line) ??
        this.table(line) ?? this.paragraph());
    }
    return out;
  }

  fence(line) {
    const found = openFence(line);
    if (!found) return null;
    const { indent, mark, info } = found;
    const inside = [];
    for (++this.at; this.at < this.lines.length; ++this.at) {
      const text = this.lines[this.at];
      const bare = text.trim();
      if (bare.length >= mark.length && bare === mark[0].repeat(bare.length)) {
        ++this.at;
        break;
      }
      inside.push(text.startsWith(indent) ? text.slice(indent.length) : text.trimStart());
    }
    return codeBlock(inside, info);
  }

  heading(line) {
    const found = HEADING.exec(line);
    if (!found) return null;
    ++this.at;
    let text = found[2].trimEnd();
    let end = text.length;
    while (text[end - 1] === "#") --end;
    if (end === 0 || text[end - 1] === " ") text = text.slice(0, end).trimEnd();
    // The page's own headings are h1 and h2.
    return make(`h${Math.min(6, found[1].length + 2)}`, null, ...inline(text));
  }

  rule(line) {
    if (!RULE.test(line)) return null;
    ++this.at;
    return make("hr");
  }

  quote(line) {
    if (this.depth >= MAX_DEPTH || !QUOTE.test(line)) return null;
    const inside = [];
    for (; this.at < this.lines.length; ++this.at) {
      const found = QUOTE.exec(this.lines[this.at]);
      if (!found && (!this.lines[this.at].trim() || startsBlock(this.lines[this.at]))) break;
      inside.push(found ? found[1] : this.lines[this.at]);
    }
    return make("blockquote", null, ...new Blocks(inside, this.depth + 1).run());
  }

  list(line) {
    const first = ITEM.exec(line);
    if (this.depth >= MAX_DEPTH || !first) return null;
    const ordered = /\d/.test(first[2]);
    const indent = first[1].length;
    const list = ordered ? make("ol", { start: Number.parseInt(first[2], 10) }) : make("ul");
    while (this.at < this.lines.length) {
      const found = ITEM.exec(this.lines[this.at]);
      if (!found || found[1].length > indent + 3 || found[1].length < indent || /\d/.test(found[2]) !== ordered ||
        RULE.test(this.lines[this.at])) break;
      list.append(this.item(found));
    }
    return list;
  }

  item(found) {
    const width = found[1].length + found[2].length + 1;
    const inside = [found[4]];
    let blank = false;
    for (++this.at; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at];
      const leading = line.length - line.trimStart().length;
      if (!line.trim()) {
        blank = true;
        inside.push("");
        continue;
      }
      const nested = leading >= Math.min(width, found[1].length + 2);
      if (!nested && (blank || startsBlock(line))) break;
      inside.push(line.slice(Math.min(leading, width)));
    }
    const children = new Blocks(inside, this.depth + 1).run();
    // An item's first paragraph is its text.
    if (children[0]?.tagName === "P") children.splice(0, 1, ...children[0].childNodes);
    return make("li", null, ...children);
  }

  table(line) {
    const rule = this.lines[this.at + 1];
    if (!line.includes("|") || rule === undefined || !rule.includes("-") || !TABLE_RULE.test(rule)) return null;
    const head = cells(line);
    const sides = cells(rule).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
    if (sides.length !== head.length) return null;
    const row = (tag, texts) => make("tr", null,
      ...head.map((_, i) => make(tag, { class: sides[i] }, ...inline(texts[i] ?? ""))));
    const body = make("tbody");
    const table = make("table", null, make("thead", null, row("th", head)), body);
    for (this.at += 2; this.at < this.lines.length; ++this.at) {
      const text = this.lines[this.at];
      if (!text.trim() || startsBlock(text)) break;
      body.append(row("td", cells(text)));
    }
    return make("div", { class: "wide-table", tabindex: 0 }, table);
  }

  paragraph() {
    const inside = [this.lines[this.at]];
    for (++this.at; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at];
      if (!line.trim() || startsBlock(line)) break;
      inside.push(line);
    }
    return make("p", null, ...inline(inside.map((line) => line.trimStart()).join("\n")));
  }
}

// The elements of a text.
export function markdown(text) {
  return new Blocks(text.replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n"), 0).run();
}
