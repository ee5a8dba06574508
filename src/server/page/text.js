// What the page says, in English and Simplified Chinese.
const TEXTS = {
  en: {
    skip: "Skip to the prompt", views: "Views", chat: "Chat", dashboard: "Dashboard", model: "Model",
    key: "API key", key_hint: "This server asks for a key. It is kept until this tab is closed.",
    key_save: "Use it", key_wrong: "The server does not accept this key.", cancel: "Cancel",
    theme: "Theme: {0}", theme_auto: "as the system", theme_light: "light", theme_dark: "dark",
    settings: "Settings", hello: "What shall we talk about?", facts: "{0} · context of {1} tokens",
    conversation: "Conversation", prompt: "Ask anything", send: "Send", stop: "Stop", new: "New chat",
    system: "System prompt", system_hint: "How the model should behave",
    temperature: "Temperature", top_p: "Top-p", top_k: "Top-k", min_p: "Min-p",
    repetition_penalty: "Repetition penalty", presence_penalty: "Presence penalty",
    frequency_penalty: "Frequency penalty", max_tokens: "Answer tokens at most", seed: "Seed",
    unset: "model’s own", stops: "Stop strings, one a line", probabilities: "Token probabilities",
    probabilities_hint: "Shows answers token by token: hover, tap or use the arrow keys to see what else was likely.",
    reset: "Back to the model’s own",
    you: "You", assistant: "Model", copy: "Copy", copied: "Copied", edit: "Edit", regenerate: "Regenerate",
    save: "Send again", thinking: "Thinking", waiting: "Waiting for the first token …",
    stopped: "stopped", cut: "cut at the token limit", tokens_in: "{0} in", tokens_out: "{0} out", speed: "{0} tokens/s",
    cached: "{0} cached", retry: "Try again", done: "The answer is complete.",
    e_network: "The server cannot be reached.", e_key: "The server asks for an API key.",
    e_busy: "The server is busy. It says to come again in {0} s.", e_broken: "The answer broke off.",
    suggestions: ["Explain a KV cache in two sentences", "Write a haiku about turbines", "Sort a list in Python without sort()"],
    d_running: "Running", d_waiting: "Waiting", d_speed: "Tokens/s", d_kv: "KV cache in use", d_ttft: "First token",
    d_itl: "Per token", d_busy: "Engine busy", d_batch: "Batch and queue", d_throughput: "Tokens per second",
    d_kv_chart: "KV cache", d_latency_first: "Time to first token", d_latency_token: "Time per output token",
    d_latency_all: "Whole request", d_use: "Utilisation", d_prefix: "Prefix cache hits", hits: "of prompt tokens", generated: "generated", prompt_tokens: "prompt",
    used: "in use", kept: "kept prefixes", median: "median", p95: "95 %", busy: "engine", efficiency: "batch filled",
    running: "running", queued: "waiting", of: "of {0}", seconds_ago: "{0} s ago", now: "now",
    waterfalls: "Requests that ended last", w_tokenize: "tokenize", w_queue: "queue", w_budget: "place in a batch", w_prefill: "prefill", w_decode: "decode",
    w_number: "#", w_in: "in", w_out: "out", w_end: "end", w_total: "total", w_time: "where the time went", none_yet: "None yet.",
    end_stop: "stop", end_length: "length", end_cancelled: "cancelled", end_error: "error", end_refused: "refused",
    totals: "Up {0} · {1} finished, {2} cancelled, {3} failed · {4} preemptions, {5} tokens computed again · {6} connections",
    d_lost: "The server does not answer; trying again.", d_draining: "The server is shutting down: no new requests.",
    probability: "{0}: {1}", table_of: "Values now: {0}",
  },
  zh: {
    skip: "跳到输入框", views: "视图", chat: "对话", dashboard: "仪表盘", model: "模型",
    key: "API 密钥", key_hint: "此服务器需要密钥。密钥只保留到关闭本标签页为止。",
    key_save: "使用", key_wrong: "服务器不接受此密钥。", cancel: "取消",
    theme: "主题：{0}", theme_auto: "跟随系统", theme_light: "浅色", theme_dark: "深色",
    settings: "设置", hello: "聊点什么？", facts: "{0} · 上下文 {1} 个词元",
    conversation: "对话", prompt: "输入问题", send: "发送", stop: "停止", new: "新对话",
    system: "系统提示词", system_hint: "希望模型如何表现",
    temperature: "温度", top_p: "Top-p", top_k: "Top-k", min_p: "Min-p",
    repetition_penalty: "重复惩罚", presence_penalty: "存在惩罚", frequency_penalty: "频率惩罚",
    max_tokens: "回答的最大词元数", seed: "随机种子",
    unset: "模型默认", stops: "停止字符串，每行一个", probabilities: "词元概率",
    probabilities_hint: "逐个词元显示回答：悬停、点按或用方向键查看其他候选词元。",
    reset: "恢复模型默认值",
    you: "你", assistant: "模型", copy: "复制", copied: "已复制", edit: "编辑", regenerate: "重新生成",
    save: "重新发送", thinking: "思考过程", waiting: "等待首个词元……",
    stopped: "已停止", cut: "达到词元上限", tokens_in: "输入 {0}", tokens_out: "输出 {0}", speed: "{0} 词元/秒",
    cached: "缓存命中 {0}", retry: "重试", done: "回答完成。",
    e_network: "无法连接服务器。", e_key: "服务器需要 API 密钥。",
    e_busy: "服务器繁忙，请在 {0} 秒后重试。", e_broken: "回答中断。",
    suggestions: ["用两句话解释 KV 缓存", "写一首关于水轮机的俳句", "不用 sort() 在 Python 中排序列表"],
    d_running: "运行中", d_waiting: "排队", d_speed: "词元/秒", d_kv: "KV 缓存占用", d_ttft: "首词元延迟",
    d_itl: "每词元延迟", d_busy: "引擎忙碌", d_batch: "批处理与队列", d_throughput: "吞吐量（词元/秒）",
    d_kv_chart: "KV 缓存", d_latency_first: "首词元延迟", d_latency_token: "每个输出词元的延迟",
    d_latency_all: "整个请求的延迟", d_use: "利用率", d_prefix: "前缀缓存命中率", hits: "占提示词元", generated: "生成", prompt_tokens: "提示",
    used: "占用", kept: "保留的前缀", median: "中位数", p95: "95 %", busy: "引擎忙碌", efficiency: "批填充率",
    running: "运行中", queued: "排队", of: "共 {0}", seconds_ago: "{0} 秒前", now: "现在",
    waterfalls: "最近结束的请求", w_tokenize: "分词", w_queue: "排队", w_budget: "等待入批", w_prefill: "预填充", w_decode: "解码",
    w_number: "#", w_in: "输入", w_out: "输出", w_end: "结束", w_total: "总时间", w_time: "时间分布", none_yet: "暂无。",
    end_stop: "自然结束", end_length: "达到上限", end_cancelled: "取消", end_error: "出错", end_refused: "拒绝",
    totals: "已运行 {0} · 完成 {1}，取消 {2}，失败 {3} · 抢占 {4}，重算词元 {5} · 连接 {6}",
    d_lost: "服务器没有响应，正在重试。", d_draining: "服务器正在关闭，不再接受新请求。",
    probability: "{0}：{1}", table_of: "当前值：{0}",
  },
};

let language = "en";

export function t(key, ...values) {
  const text = TEXTS[language][key] ?? TEXTS.en[key] ?? key;
  if (typeof text !== "string") return text;
  return text.replace(/\{(\d)\}/g, (_, index) => String(values[Number(index)] ?? ""));
}

export function currentLanguage() {
  return language;
}

export function setLanguage(name) {
  language = name === "zh" ? "zh" : "en";
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

// Fills in elements that name their texts: data-text, data-label (its name and tool tip), data-placeholder.
export function translate(root = document) {
  for (const element of root.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of root.querySelectorAll("[data-label]")) {
    const label = t(element.dataset.label, ...(element.dataset.values ?? "").split("|").filter(Boolean));
    element.setAttribute("aria-label", label);
    if (element.tagName === "BUTTON") element.title = label;
  }
  for (const element of root.querySelectorAll("[data-placeholder]")) element.placeholder = t(element.dataset.placeholder);
}

export function number(value, digits = 0) {
  return value.toLocaleString(document.documentElement.lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// A time in the unit that reads best.
export function duration(seconds) {
  if (!(seconds > 0)) return "0 ms";
  if (seconds < 0.01) return `${number(seconds * 1e3, 1)} ms`;
  if (seconds < 1) return `${number(seconds * 1e3)} ms`;
  if (seconds < 100) return `${number(seconds, seconds < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${number(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
