// An answer token by token: how likely each was, and what else was.
import { byId, make } from "./dom.js";
import { number } from "./text.js";

function shown(text) {
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
}

function percent(logprob) {
  const share = 100 * Math.exp(logprob);
  if (share < 0.01) return "< 0.01 %";
  return `${number(share, share < 10 ? 2 : 1)} %`;
}

// 0 (sure) to 4 (a surprise)
function surprise(logprob) {
  return [0.9, 0.6, 0.3, 0.1].filter((limit) => Math.exp(logprob) < limit).length;
}

let owner = null;

export function hideTip() {
  byId("tip").hidden = true;
  owner?.removeAttribute("aria-describedby");
  owner = null;
}

function tipRow(token, chosen) {
  const bar = make("span", { class: "bar-fill" });
  bar.style.width = `${100 * Math.exp(token.logprob)}%`;
  return make("div", { class: chosen ? "tip-row chosen" : "tip-row" }, make("code", null, shown(token.token)),
    make("span", { class: "bar-room" }, bar), make("span", { class: "tip-share" }, percent(token.logprob)));
}

// Beside its token, within the window.
function placeTip() {
  const tip = byId("tip");
  const at = owner.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8));
  const below = at.bottom + 6 + tip.offsetHeight < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - 6 - tip.offsetHeight)}px`;
}

// After scrolling: what the keyboard chose stays, what lay under the pointer does not.
export function moveTip() {
  if (owner !== null && owner === document.activeElement) placeTip();
  else hideTip();
}

function showTip(element, token) {
  hideTip();
  owner = element;
  const tip = byId("tip");
  const rows = token.top_logprobs.map((other) => tipRow(other, other.token === token.token && other.logprob === token.logprob));
  if (!token.top_logprobs.some((other) => other.token === token.token)) rows.unshift(tipRow(token, true));
  tip.replaceChildren(...rows);
  tip.hidden = false;
  element.setAttribute("aria-describedby", "tip");
  placeTip();
}

export function tokenSpan(token) {
  const element = make("span", {
    class: `token s${surprise(token.logprob)}`, tabindex: -1,
    onmouseenter: () => showTip(element, token), onmouseleave: hideTip,
    onfocus: () => showTip(element, token), onblur: hideTip,
    onclick: () => element.focus(),
  }, token.token);
  return element;
}

// Arrow keys go from token to token; Tab enters and leaves the row as a whole.
export function tokenRow(tokens) {
  const row = make("div", { class: "token-row" }, ...tokens.map(tokenSpan));
  if (row.firstElementChild) row.firstElementChild.tabIndex = 0;
  row.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
    if (event.key === "Escape") hideTip();
    if (step === undefined) return;
    event.preventDefault();
    const all = [...row.children];
    const now = all.indexOf(document.activeElement);
    const next = all[Math.max(0, Math.min(all.length - 1, now + step))];
    if (!next) return;
    if (all[now]) all[now].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return row;
}

export function appendTokens(row, tokens) {
  row.append(...tokens.map(tokenSpan));
  if (row.firstElementChild && !row.querySelector('[tabindex="0"]')) row.firstElementChild.tabIndex = 0;
}

