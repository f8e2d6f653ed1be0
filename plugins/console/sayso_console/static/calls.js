// Recorded calls: a client of the inbox where the service has one, else of the console's own list.

import { agent } from "./agent.js";
import { parse } from "./json.js";
import { problem, request } from "./service.js";

const SOON = 15000;

export const pathOf = (id) => `${agent.inbox ? "approvals" : "console/approvals"}/${encodeURIComponent(id)}`;

// `{response, calls, next}`: a page of pending calls, `next` the place of the following one.
export async function pending(after) {
  const query = agent.inbox
    ? `approvals?limit=100${after ? `&cursor=${encodeURIComponent(after)}` : ""}`
    : `console/approvals${after ? `?after=${encodeURIComponent(after)}` : ""}`;
  return listed(query);
}

// A page of decided calls, or of one's own requests; only the inbox has them.
export async function history({ own, text, tool, after }) {
  const query = new URLSearchParams({ state: own ? "ALL" : "DECIDED", limit: "50" });
  if (own) query.set("own", "true");
  if (text) query.set("q", text);
  if (tool) query.set("tool", tool);
  if (after) query.set("cursor", after);
  return listed(`approvals?${query}`);
}

async function listed(path) {
  const response = await request(path, { signal: AbortSignal.timeout(SOON) });
  if (!response.ok) return { response, calls: [], next: null };
  const { approvals, next } = parse(await response.text());
  return { response, calls: approvals, next };
}

// The whole call; undefined where the service does not say.
export const whole = (id) => got(pathOf(id));

async function got(path) {
  try {
    const response = await request(path, { signal: AbortSignal.timeout(SOON) });
    return response.ok ? parse(await response.text()) : undefined;
  } catch {
    return undefined;
  }
}

// Record a decision: `{call}` in its new state, or `{failed}`.
export async function decide({ id, seen }, { execute, rejection_reason, input, reason }) {
  const approve = execute === true;
  const body = { approve, reason: rejection_reason ?? reason, input, seen };
  const path = agent.inbox ? `${pathOf(id)}/decision` : pathOf(id);
  return answered(path, body, (call) => ({ call }));
}

// The requester takes it back; the others who decide get a comment, and the model does not.
export const withdraw = (id, reason) => answered(`${pathOf(id)}/withdraw`, reason ? { reason } : {}, (call) => ({ call }));
export const comment = (id, text) => answered(`${pathOf(id)}/comments`, { text }, (call) => ({ call }));

// The stop of all starts: `{who, at, reason}`, null without one, undefined where the service does not say.
export async function frozen() {
  return (await got("approvals/summary"))?.frozen;
}

export const freeze = (yes, reason) => answered("approvals/freeze", yes ? { frozen: true, reason } : { frozen: false }, () => ({}));

export async function grants() {
  return (await got("approvals/grants"))?.grants;
}

export const revoke = (id) => answered(`approvals/grants/${encodeURIComponent(id)}`, undefined, (grant) => ({ grant }), "DELETE");

// Approve several calls in one transaction: all of them are recorded, or none.
export async function approveAll(proposals) {
  const decisions = proposals.map(({ id, seen }) => ({ id, approve: true, seen }));
  return answered("approvals/decisions", { mode: "all", decisions }, ({ results }) => ({ results }));
}

async function answered(path, body, made, method = "POST") {
  try {
    const response = await request(path, { method, body: body && JSON.stringify(body), signal: AbortSignal.timeout(30000) });
    if (!response.ok) return { status: response.status, failed: await problem(response) };
    return made(parse(await response.text()));
  } catch {
    // Only the answer may have been lost.
    return { failed: { lost: true, message: "The service did not answer: this may have been recorded, or not." } };
  }
}
