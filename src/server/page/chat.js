// The conversation: messages, the answer that streams in, editing and answering again.
import { ApiFailure, stream } from "./api.js";
import { byId, copyText, make } from "./dom.js";
import { markdown } from "./markdown.js";
import { requestFields, systemPrompt, wantsProbabilities } from "./settings.js";
import { duration, number, t } from "./text.js";
import { appendTokens, hideTip, moveTip, tokenRow } from "./tokens.js";

const STORE = "pelton.conversation";

// {role, content}, and of answers: reasoning, tokens (with log-probabilities), finish, usage, timings, error, element
let messages = [];
let running = null; // of the answer that streams: {controller, message}
let onKeyNeeded = () => {};

const model = () => byId("model").value;

// ---- Keeping it over a reload of the tab

function save() {
  const kept = messages.map(({ role, content, reasoning, finish, usage, timings }) =>
    ({ role, content, reasoning, finish, usage, timings }));
  try {
    sessionStorage.setItem(STORE, JSON.stringify(kept));
  } catch {
    // Too long for the store: it lives as long as the page.
  }
}

function load() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE) ?? "[]");
    messages = kept.filter((m) => (m.role === "user" || m.role === "assistant") && typeof m.content === "string");
  } catch {
    messages = [];
  }
}

// ---- Showing

function button(label, onclick) {
  return make("button", { type: "button", onclick, "data-text": label }, t(label));
}

function copyButton(message) {
  const element = button("copy", async () => {
    if (!(await copyText(message.content))) return;
    element.textContent = t("copied");
    setTimeout(() => { element.textContent = t("copy"); }, 1500);
  });
  return element;
}

function timingBar(timings) {
  const parts = [["tokenize", timings.tokenize_ms], ["queue", timings.queue_ms], ["budget", timings.budget_wait_ms], ["prefill", timings.prefill_ms], ["decode", timings.decode_ms]]
    .filter(([, ms]) => ms > 0);
  const label = parts.map(([name, ms]) => `${t(`w_${name}`)} ${duration(ms / 1e3)}`).join(", ");
  const bar = make("span", { class: "mini-fall", role: "img", "aria-label": label, title: label });
  for (const [name, ms] of parts) {
    const piece = make("span", { class: name });
    piece.style.flexGrow = String(ms);
    bar.append(piece);
  }
  return bar;
}

function facts({ finish, usage, timings }) {
  const out = [];
  if (finish === "length") out.push(t("cut"));
  if (finish === "stopped") out.push(t("stopped"));
  if (usage) {
    out.push(t("tokens_in", number(usage.prompt_tokens)));
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    if (cached > 0) out.push(t("cached", number(cached)));
    out.push(t("tokens_out", number(usage.completion_tokens)));
    if (timings?.decode_ms > 0 && usage.completion_tokens > 1)
      out.push(t("speed", number((usage.completion_tokens - 1) / (timings.decode_ms / 1e3), 1)));
  }
  return out.join(" · ");
}

function errorText(failure) {
  if (failure.status === 0) return failure.message === "" ? t("e_broken") : t("e_network");
  if (failure.status === 401) return t("e_key");
  if ((failure.status === 429 || failure.status === 503) && failure.retryAfter > 0) return t("e_busy", failure.retryAfter);
  return failure.message;
}

function body(message) {
  if (message.role === "user") return make("div", { class: "text plain" }, message.content);
  if (wantsProbabilities() && message.tokens?.length) return tokenRow(message.tokens);
  return make("div", { class: "text" }, ...markdown(message.content));
}

function footer(message, index) {
  const last = index === messages.length - 1;
  const busy = running !== null;
  const row = make("div", { class: "foot" });
  if (message.role === "user") {
    if (!busy) row.append(button("edit", () => edit(index)), copyButton(message));
    return row;
  }
  if (running?.message === message) return row;
  if (message.content) row.append(copyButton(message));
  if (last && !busy) row.append(button(message.error ? "retry" : "regenerate", () => answerAgain(index)));
  const text = facts(message);
  if (text) row.append(make("span", { class: "facts" }, text));
  if (message.timings) row.append(timingBar(message.timings));
  return row;
}

function reasoningBlock(message, open) {
  return make("details", { class: "reasoning", open }, make("summary", { "data-text": "thinking" }, t("thinking")),
    make("div", { class: "text plain" }, message.reasoning));
}

function draw(message, index) {
  const article = make("article", { class: `message ${message.role}`, "aria-label": t(message.role === "user" ? "you" : "assistant") });
  if (message.reasoning) article.append(reasoningBlock(message, false));
  const waits = running?.message === message && !message.content;
  if (waits) article.append(make("p", { class: "waits" }, make("span", { class: "dots", "aria-hidden": "true" }), t("waiting")));
  else if (message.content) article.append(body(message));
  if (message.error) article.append(make("p", { class: "error", role: "alert" }, errorText(message.error)));
  article.append(footer(message, index));
  message.element?.replaceWith(article);
  message.element = article;
  return article;
}

export function drawAll() {
  hideTip();
  for (const message of messages) message.element = null;
  byId("log").replaceChildren(...messages.map(draw));
  byId("empty").hidden = messages.length > 0;
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
}

function atEnd() {
  const scroll = byId("scroll");
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
}

function toEnd() {
  const scroll = byId("scroll");
  scroll.scrollTop = scroll.scrollHeight;
}

// ---- The stream

// Draws what has come at most once a frame, and long answers less often.
class Painter {
  constructor(message) {
    this.message = message;
    this.waiting = false;
    this.tokensShown = 0;
  }

  request() {
    if (this.waiting) return;
    this.waiting = true;
    const wait = Math.min(250, this.message.content.length / 200);
    setTimeout(() => requestAnimationFrame(() => this.paint()), wait);
  }

  paint() {
    this.waiting = false;
    if (running?.message !== this.message) return;
    const stick = atEnd();
    const row = this.message.element.querySelector(".token-row");
    if (row && wantsProbabilities()) {
      appendTokens(row, this.message.tokens.slice(this.tokensShown));
    } else {
      draw(this.message, messages.indexOf(this.message));
    }
    this.tokensShown = this.message.tokens.length;
    if (stick) toEnd();
  }
}

function take(message, event) {
  if (event.usage) message.usage = event.usage;
  if (event.timings) message.timings = event.timings;
  const choice = event.choices?.[0];
  if (!choice) return;
  message.content += choice.delta?.content ?? "";
  message.reasoning += choice.delta?.reasoning_content ?? "";
  message.tokens.push(...(choice.logprobs?.content ?? []));
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

function conversation(before) {
  const system = systemPrompt();
  const out = system ? [{ role: "system", content: system }] : [];
  for (const { role, content } of messages.slice(0, before)) out.push({ role, content });
  return out;
}

async function answer() {
  const message = { role: "assistant", content: "", reasoning: "", tokens: [] };
  const request = { model: model(), messages: conversation(messages.length), stream: true,
    stream_options: { include_usage: true }, timings: true, ...requestFields() };
  messages.push(message);
  const controller = new AbortController();
  running = { controller, message };
  drawAll();
  toEnd();
  const painter = new Painter(message);
  try {
    for await (const event of stream("/v1/chat/completions", request, controller.signal)) {
      take(message, event);
      painter.request();
    }
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.error = error instanceof ApiFailure ? error : new ApiFailure(500, String(error.message));
  }
  if (running?.message !== message) return; // a new chat was begun
  running = null;
  const stick = atEnd();
  drawAll();
  if (stick) toEnd();
  save();
  byId("announce").textContent = message.error ? errorText(message.error) : t("done");
  if (message.error?.status === 401) onKeyNeeded();
}

function answerAgain(index) {
  if (running) return;
  messages.length = index;
  answer();
}

// ---- What the user does

function ask(text) {
  if (running || !text.trim()) return false;
  messages.push({ role: "user", content: text });
  save();
  answer();
  return true;
}

function edit(index) {
  const message = messages[index];
  const area = make("textarea", { class: "edit", "aria-label": t("edit") });
  area.value = message.content;
  const close = () => {
    draw(message, index);
    byId("prompt").focus();
  };
  const sendAgain = () => {
    if (running || !area.value.trim()) return;
    messages.length = index;
    ask(area.value);
    byId("prompt").focus();
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (isSend(event)) {
      event.preventDefault();
      sendAgain();
    }
  });
  const form = make("div", { class: "editing" }, area,
    make("p", { class: "row" }, make("button", { type: "button", class: "strong", onclick: sendAgain }, t("save")), button("cancel", close)));
  message.element.replaceChildren(form);
  grow(area);
  area.focus();
}

// Enter, unless a line is wanted or an input method is still composing.
function isSend(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;
}

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight * 0.4)}px`;
}

function stop() {
  running?.controller.abort();
}

function send() {
  const prompt = byId("prompt");
  if (!ask(prompt.value)) return;
  prompt.value = "";
  grow(prompt);
}

function startNew() {
  stop();
  running = null;
  messages = [];
  save();
  drawAll();
  byId("prompt").focus();
}

export function drawSuggestions() {
  byId("suggestions").replaceChildren(...t("suggestions").map((text) =>
    make("button", { type: "button", onclick: () => ask(text) }, text)));
}

export function startChat({ keyNeeded }) {
  onKeyNeeded = keyNeeded;
  load();
  drawSuggestions();
  drawAll();
  toEnd();
  const prompt = byId("prompt");
  prompt.addEventListener("input", () => grow(prompt));
  prompt.addEventListener("keydown", (event) => {
    if (isSend(event)) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && !prompt.value && !running) {
      const last = messages.findLastIndex((message) => message.role === "user");
      if (last < 0) return;
      event.preventDefault();
      edit(last);
    }
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => {
    stop();
    prompt.focus();
  });
  byId("new").addEventListener("click", startNew);
  byId("scroll").addEventListener("scroll", moveTip, { passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && byId("tip").hidden && !document.querySelector("dialog[open]")) stop();
  });
}
