// System prompt and sampling. A field left empty is not sent: the model's own value holds.
import { byId, make } from "./dom.js";

const STORE = "pelton.settings";

// Ranges are what a hand wants; the server's own, in /openapi.json, are wider.
const PARAMETERS = [
  { name: "temperature", min: 0, max: 2, step: 0.05, slider: 1 },
  { name: "top_p", min: 0, max: 1, step: 0.01, slider: 1 },
  { name: "min_p", min: 0, max: 1, step: 0.01, slider: 0 },
  { name: "top_k", min: 0, max: 1000, step: 1 },
  { name: "repetition_penalty", min: 0.5, max: 2, step: 0.05 },
  { name: "presence_penalty", min: -2, max: 2, step: 0.1 },
  { name: "frequency_penalty", min: -2, max: 2, step: 0.1 },
  { name: "max_tokens", min: 1, max: 1000000, step: 1 },
  { name: "seed", min: 0, max: 2147483647, step: 1 },
];

let values = {};

function save() {
  try {
    localStorage.setItem(STORE, JSON.stringify(values));
  } catch {
    // Storage is forbidden or full: the settings last as long as the page.
  }
}

function set(name, value) {
  if (value === "" || value === undefined || value === null || value === false) delete values[name];
  else values[name] = value;
  save();
}

function parameterRow(parameter) {
  const { name, min, max, step, slider } = parameter;
  const field = make("input", { type: "number", id: `p-${name}`, min, max, step, inputmode: "decimal", "data-placeholder": "unset" });
  field.value = values[name] ?? "";
  const range = slider === undefined ? null
    : make("input", { type: "range", min, max, step, "data-label": name, class: values[name] === undefined ? "unset" : null });
  if (range) range.value = values[name] ?? slider;
  field.addEventListener("input", () => {
    const valid = field.value !== "" && field.checkValidity();
    set(name, valid ? Number(field.value) : "");
    if (range) {
      range.value = values[name] ?? slider;
      range.classList.toggle("unset", values[name] === undefined);
    }
  });
  range?.addEventListener("input", () => {
    field.value = range.value;
    set(name, Number(range.value));
    range.classList.remove("unset");
  });
  return make("div", { class: range ? "parameter slid" : "parameter" }, make("label", { for: `p-${name}`, "data-text": name }, name), field, range);
}

function show() {
  byId("parameters").replaceChildren(...PARAMETERS.map(parameterRow));
  byId("system").value = values.system ?? "";
  byId("stops").value = values.stops ?? "";
  byId("probabilities").checked = values.probabilities === true;
}

export function startSettings({ changed, translate }) {
  try {
    const stored = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    if (stored !== null && typeof stored === "object") values = stored;
  } catch {
    values = {};
  }
  show();
  byId("system").addEventListener("input", (event) => set("system", event.target.value));
  byId("stops").addEventListener("input", (event) => set("stops", event.target.value));
  byId("probabilities").addEventListener("change", (event) => {
    set("probabilities", event.target.checked);
    changed();
  });
  byId("reset").addEventListener("click", () => {
    values = values.system ? { system: values.system } : {};
    save();
    show();
    translate(byId("settings"));
    changed();
  });
}

export function wantsProbabilities() {
  return values.probabilities === true;
}

export function systemPrompt() {
  return values.system ?? "";
}

// What a request says beside its messages.
export function requestFields() {
  const fields = {};
  for (const { name, min, max } of PARAMETERS) {
    const value = values[name];
    if (typeof value === "number" && value >= min && value <= max) fields[name] = value;
  }
  const stops = (values.stops ?? "").split("\n").filter((line) => line !== "").slice(0, 16);
  if (stops.length) fields.stop = stops;
  if (wantsProbabilities()) Object.assign(fields, { logprobs: true, top_logprobs: 5 });
  return fields;
}

