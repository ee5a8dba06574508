// Starts the page: what is served, language, theme, key, the two views.
import { get, storedKey, storeKey } from "./api.js";
import { drawAll, drawSuggestions, startChat } from "./chat.js";
import { redrawDashboard, startDashboard, watchServer } from "./dashboard.js";
import { byId, make } from "./dom.js";
import { startSettings } from "./settings.js";
import { currentLanguage, number, setLanguage, t, translate } from "./text.js";
import { hideTip } from "./tokens.js";

let served = [];

function remember(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch {
    // Storage is forbidden: chosen again next time.
  }
}

function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

// ---- Language and theme

function drawTexts() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  byId("theme").dataset.values = t(`theme_${theme}`);
  translate();
  const other = currentLanguage() === "zh" ? { name: "EN", lang: "en", label: "Switch to English" } : { name: "中文", lang: "zh-CN", label: "切换到中文" };
  const button = byId("language");
  button.textContent = other.name;
  button.lang = other.lang;
  button.setAttribute("aria-label", other.label);
  button.title = other.label;
  drawServed();
}

function switchLanguage() {
  setLanguage(currentLanguage() === "zh" ? "en" : "zh");
  remember("pelton.language", currentLanguage());
  drawTexts();
  drawSuggestions();
  drawAll();
  redrawDashboard();
}

function switchTheme() {
  const order = ["auto", "light", "dark"];
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = order[(order.indexOf(now) + 1) % order.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("pelton.theme", next === "auto" ? "" : next);
  drawTexts();
}

// ---- What is served, and the key

function drawServed() {
  const [first] = served;
  const select = byId("model");
  select.hidden = served.length < 2;
  byId("model-name").textContent = served.length === 1 ? first.id : "";
  byId("facts").textContent = first?.max_model_len ? t("facts", first.id, number(first.max_model_len)) : "";
}

async function askServer() {
  try {
    served = (await get("/v1/models")).data;
  } catch (error) {
    if (error.status === 401) askKey(storedKey() !== "");
    return;
  }
  byId("key").hidden = storedKey() === "";
  byId("model").replaceChildren(...served.map(({ id }) => make("option", { value: id }, id)));
  drawServed();
}

function askKey(wrong = false) {
  byId("key").hidden = false;
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  byId("key-error").textContent = wrong ? t("key_wrong") : "";
  byId("key-error").hidden = !wrong;
  byId("key-input").value = "";
  dialog.showModal();
  byId("key-input").focus();
}

function startKey() {
  byId("key").addEventListener("click", () => askKey());
  byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
  byId("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    storeKey(byId("key-input").value.trim());
    byId("key-dialog").close();
    await askServer();
    watchServer();
  });
}

const keyNeeded = () => askKey(storedKey() !== "");

// ---- Views

function show(view) {
  hideTip();
  for (const name of ["chat", "dashboard"]) {
    const chosen = name === view;
    byId(`view-${name}`).hidden = !chosen;
    byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  byId("toggle-settings").hidden = view !== "chat";
  history.replaceState(null, "", view === "dashboard" ? "#dashboard" : location.pathname);
  redrawDashboard();
  watchServer();
}

function startTabs() {
  for (const name of ["chat", "dashboard"]) {
    const tab = byId(`tab-${name}`);
    const other = name === "chat" ? "dashboard" : "chat";
    tab.addEventListener("click", () => show(name));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      show(other);
      byId(`tab-${other}`).focus();
    });
  }
  show(location.hash === "#dashboard" ? "dashboard" : "chat");
}

// Beside the chat where there is room; over it on a phone.
function startSettingsPanel() {
  const panel = byId("settings");
  const button = byId("toggle-settings");
  const set = (open) => {
    panel.classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
  };
  set(matchMedia("(min-width: 60rem)").matches && recall("pelton.panel") !== "closed");
  button.addEventListener("click", () => {
    const open = !panel.classList.contains("open");
    set(open);
    remember("pelton.panel", open ? "" : "closed");
    if (open) byId("system").focus();
  });
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    set(false);
    button.focus();
  });
}

setLanguage(recall("pelton.language") ?? (navigator.language.startsWith("zh") ? "zh" : "en"));
startSettings({ changed: drawAll, translate });
drawTexts();
startChat({ keyNeeded });
startDashboard({ keyNeeded });
startSettingsPanel();
startKey();
startTabs();
byId("language").addEventListener("click", switchLanguage);
byId("theme").addEventListener("click", switchTheme);
await askServer();
document.documentElement.dataset.started = "yes";
