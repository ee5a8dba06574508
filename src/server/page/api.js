// The server, as this page talks to it. The key lives in this tab only.
const KEY = "pelton.key";

export function storedKey() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function storeKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

export class ApiFailure extends Error {
  // status 0: nothing came back.
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function failure(response) {
  let message = `HTTP ${response.status}`;
  try {
    message = (await response.json()).error.message ?? message;
  } catch {
    // A proxy's page, or nothing: the status says enough.
  }
  return new ApiFailure(response.status, message, Number(response.headers.get("Retry-After")) || 0);
}

async function call(path, options) {
  const headers = { ...options.headers };
  if (storedKey()) headers.Authorization = `Bearer ${storedKey()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure(0, String(error.message));
  }
  if (!response.ok) throw await failure(response);
  return response;
}

export async function get(path, signal) {
  return (await call(path, { signal })).json();
}

// The JSON objects of a stream of server-sent events, up to its [DONE].
export async function* stream(path, body, signal) {
  const response = await call(path, {
    method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiFailure(0, String(error.message));
    }
    if (piece.done) throw new ApiFailure(0, "");
    const blocks = (rest + piece.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (!data) continue;
      const event = JSON.parse(data);
      if (event.error) throw new ApiFailure(event.error.code ?? 500, event.error.message);
      yield event;
    }
  }
}
