// Words that several parts of the page use for values, times and protocols.

import { Exact, numeral } from "./json.js";

export const PROTOCOLS = { mcp: "MCP", a2a: "A2A", v1: "a chat", v2: "a chat" };
export const DECIDED_OVER = { ...PROTOCOLS, v1: "another chat", v2: "another chat", console: "a console", inbox: "the inbox", cli: "the command line" };
export const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const STATES = {
  PENDING: "waits", APPROVED: "approved, not started", REJECTED: "rejected", EXPIRED: "expired", EXECUTING: "runs",
  DONE: "done", FAILED: "failed", INDETERMINATE: "outcome unknown",
};

export const isObject = (value) => typeof value === "object" && value !== null && !(value instanceof Exact);

export function plain(value) {
  if (typeof value === "string") return value;
  if (value instanceof Exact) return value.source;
  if (typeof value === "number") return numeral(value);
  return isObject(value) ? JSON.stringify(value, null, 2) : String(value);
}
