// The service's endpoints, and the token that they may ask for.

import { parse } from "./json.js";
import { ofTab } from "./store.js";

export const TOKEN = "token";
let chat = ["api/chat-stream", "api/sendMessageStream"];

// The streamed reply to `messages`; V1's endpoint where V2 is not installed. A gateway may answer
// 404 while the service is away, so only an endpoint that is there is settled on.
export async function post(messages, signal, begins) {
  const body = JSON.stringify({ messages });
  let response;
  for (const path of chat) {
    begins(path, { messages });
    response = await request(path, { method: "POST", body, signal });
    if (response.status === 404) continue;
    chat = [path];
    break;
  }
  return response;
}

const UNTOLD = 60_000; // by so much two clocks may differ
let ahead = 0; // milliseconds of the service's clock before this one's

// The time by the service's clock: an expiry is its own, and this one may be wrong by hours.
export const now = () => Date.now() + ahead;

export async function request(path, options = {}) {
  const headers = {};
  const token = ofTab.get(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options, headers });
  const differs = Date.parse(response.headers.get("Date")) - Date.now();
  if (!Number.isNaN(differs)) ahead = Math.abs(differs) > UNTOLD ? differs : 0;
  return response;
}

export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.trim()) yield parse(line);
    if (done) return;
  }
}

export async function problem(response, notFound) {
  let body = {};
  try {
    body = parse(await response.text());
  } catch {
    // A proxy's page, not ours; its status says enough.
  }
  const items = Array.isArray(body.detail) ? body.detail : [];
  const message = body.error ?? (items.map((item) => item.msg).join("; ") || body.detail);
  const missing = response.status === 404 ? notFound : undefined;
  const code = body.code ?? items[0]?.type?.toUpperCase() ?? `HTTP ${response.status}`;
  return { message: missing ?? message ?? "The service refused the request.", code, incident: body.incident };
}
