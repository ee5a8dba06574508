// The dashboard: /status once a second while somebody looks.
import { get } from "./api.js";
import { Chart, SPANS } from "./chart.js";
import { byId, make } from "./dom.js";
import { duration, number, t } from "./text.js";

const PERIOD_MS = 1000;
const WINDOW = 30; // seconds of ended requests that a latency figure looks at
const ROWS = 24;

const percent = (share) => `${number(100 * share)} %`;
const whole = (value) => (value >= 1e4 ? `${number(value / 1e3)}k` : number(value, value > 0 && value < 10 && !Number.isInteger(value) ? 1 : 0));

const CHARTS = [
  { title: "d_batch", series: [{ name: "running", text: "running" }, { name: "waiting", text: "queued" }], format: whole },
  { title: "d_throughput", series: [{ name: "generated", text: "generated" }, { name: "prompt", text: "prompt_tokens" }], format: whole },
  { title: "d_kv_chart", series: [{ name: "kv", text: "used" }, { name: "kept", text: "kept" }], format: percent, top: 1 },
  { title: "d_latency_first", series: [{ name: "first50", text: "median" }, { name: "first95", text: "p95" }], format: duration },
  { title: "d_latency_token", series: [{ name: "token50", text: "median" }, { name: "token95", text: "p95" }], format: duration },
  { title: "d_latency_all", series: [{ name: "all50", text: "median" }, { name: "all95", text: "p95" }], format: duration },
  { title: "d_use", series: [{ name: "busy", text: "busy" }, { name: "filled", text: "efficiency" }], format: percent, top: 1 },
  { title: "d_prefix", series: [{ name: "hits", text: "hits" }], format: percent, top: 1 },
];

let charts = [];
let points = [];
let requests = [];
let before = null; // the status of the last time
let watching = false; // a question is under way or planned
let keyNeeded = () => {};

function quantile(values, share) {
  if (values.length === 0) return undefined;
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

// What a point of the charts holds, from two statuses and the requests that ended of late.
function pointOf(now) {
  const seconds = before && now.uptime_s > before.uptime_s ? now.uptime_s - before.uptime_s : 0;
  const rate = (name) => (seconds > 0 ? (now[name] - before[name]) / seconds : undefined);
  const possible = before ? now.possible_tokens - before.possible_tokens : 0;
  const looked = before ? now.prefix_query_tokens - before.prefix_query_tokens : 0;
  const recent = requests.filter((r) => r.arrival_s + r.ended_s > now.uptime_s - WINDOW && r.first_token_s > 0);
  const first = recent.map((r) => r.first_token_s);
  const token = recent.filter((r) => r.completion_tokens > 1).map((r) => (r.ended_s - r.first_token_s) / (r.completion_tokens - 1));
  const all = recent.map((r) => r.ended_s);
  return {
    time: now.uptime_s, running: now.running, waiting: now.waiting,
    generated: rate("generated_tokens"), prompt: rate("prompt_tokens"),
    kv: now.kv_blocks > 0 ? 1 - now.kv_blocks_free / now.kv_blocks : 0,
    kept: now.kv_blocks > 0 ? now.kv_blocks_cached / now.kv_blocks : 0,
    first50: quantile(first, 0.5), first95: quantile(first, 0.95),
    token50: quantile(token, 0.5), token95: quantile(token, 0.95),
    all50: quantile(all, 0.5), all95: quantile(all, 0.95),
    busy: seconds > 0 ? Math.min(1, Math.max(0, rate("busy_s"))) : undefined,
    filled: possible > 0 ? (now.scheduled_tokens - before.scheduled_tokens) / possible : undefined,
    hits: looked > 0 ? (now.prefix_hit_tokens - before.prefix_hit_tokens) / looked : undefined,
  };
}

function tile(name, value, more) {
  return make("div", { class: "tile" }, make("dt", null, t(name)), make("dd", null, value, more ? make("small", null, ` ${more}`) : null));
}

// Of all prompt tokens so far, those that were in the cache.
function prefixHits(now) {
  return now.prefix_query_tokens > 0 ? now.prefix_hit_tokens / now.prefix_query_tokens : 0;
}

function drawTiles(now, point) {
  const time = (value) => (value === undefined ? "–" : duration(value));
  byId("tiles").replaceChildren(
    tile("d_running", number(now.running), t("of", number(now.max_num_seqs))),
    tile("d_waiting", number(now.waiting), t("of", number(now.max_queue))),
    tile("d_speed", point.generated === undefined ? "–" : number(point.generated)),
    tile("d_kv", percent(point.kv)), tile("d_ttft", time(point.first50)), tile("d_itl", time(point.token50)),
    tile("d_busy", point.busy === undefined ? "–" : percent(point.busy)), tile("d_prefix", percent(prefixHits(now))));
}

// The parts of a request's time, in seconds since it arrived.
function phases(r) {
  const admitted = r.admitted_s > 0 ? r.admitted_s : r.ended_s;
  const first = r.first_token_s > 0 ? r.first_token_s : r.ended_s;
  const scheduled = r.scheduled_s > 0 ? r.scheduled_s : admitted;
  return [["tokenize", 0, r.tokenized_s], ["queue", r.tokenized_s, admitted], ["budget", admitted, scheduled],
    ["prefill", scheduled, first], ["decode", first, r.ended_s]]
    .filter(([, from, to]) => to > from);
}

function waterfallRow(r, longest) {
  const parts = phases(r);
  const label = parts.map(([name, from, to]) => `${t(`w_${name}`)} ${duration(to - from)}`).join(", ");
  const bar = make("div", { class: "fall", role: "img", "aria-label": label, title: label });
  for (const [name, from, to] of parts) {
    const piece = make("span", { class: name });
    piece.style.left = `${(100 * from) / longest}%`;
    piece.style.width = `${(100 * (to - from)) / longest}%`;
    bar.append(piece);
  }
  const input = r.cached_tokens > 0 ? `${number(r.prompt_tokens)} (${t("cached", number(r.cached_tokens))})` : number(r.prompt_tokens);
  return make("tr", null, make("td", null, number(r.id)), make("td", null, input), make("td", null, number(r.completion_tokens)),
    make("td", null, make("span", { class: `end ${r.end}` }, t(`end_${r.end}`))), make("td", null, duration(r.ended_s)), make("td", { class: "time" }, bar));
}

function drawWaterfalls() {
  const shown = requests.slice(-ROWS).reverse();
  const longest = Math.max(1e-6, ...shown.map((r) => r.ended_s));
  byId("waterfalls").replaceChildren(...(shown.length ? shown.map((r) => waterfallRow(r, longest))
    : [make("tr", null, make("td", { colspan: 6, class: "none" }, t("none_yet")))]));
}

function drawTotals(now) {
  byId("totals").textContent = t("totals", duration(now.uptime_s), number(now.finished), number(now.cancelled), number(now.failed),
    number(now.preemptions), number(now.recomputed_tokens), number(now.connections));
}

function notice(text) {
  byId("dashboard-notice").textContent = text;
  byId("dashboard-notice").hidden = text === "";
}

function draw() {
  for (const chart of charts) chart.update(points);
  drawWaterfalls();
  if (!before) return;
  drawTiles(before, points.at(-1));
  drawTotals(before);
}

function take(now) {
  if (before && now.uptime_s < before.uptime_s) { // another server answers now
    points = [];
    requests = [];
    before = null;
  }
  const known = requests.at(-1)?.id ?? 0;
  requests = [...requests, ...now.requests.filter((r) => r.id > known)].slice(-256);
  points = [...points, pointOf(now)].filter((point) => point.time > now.uptime_s - SPANS.at(-1));
  before = now;
  notice(now.ready ? "" : t("d_draining"));
  draw();
}

function looking() {
  return !byId("view-dashboard").hidden && document.visibilityState === "visible";
}

async function poll() {
  let wait = PERIOD_MS;
  try {
    take(await get(`/status?since=${requests.at(-1)?.id ?? 0}`));
  } catch (error) {
    notice(t(error.status === 401 ? "e_key" : "d_lost"));
    if (error.status === 401) {
      wait = null;
      keyNeeded();
    }
  }
  watching = wait !== null && looking();
  if (watching) setTimeout(poll, wait);
}

// Begins or goes on to watch, when the dashboard is in view.
export function watchServer() {
  if (watching || !looking()) return;
  watching = true;
  poll();
}

export function redrawDashboard() {
  if (charts.length) draw();
}

export function startDashboard(options) {
  keyNeeded = options.keyNeeded;
  charts = CHARTS.map((chart) => new Chart(chart));
  byId("charts").replaceChildren(...charts.map((chart) => chart.element));
  document.addEventListener("visibilitychange", watchServer);
  addEventListener("resize", redrawDashboard);
  draw();
}
