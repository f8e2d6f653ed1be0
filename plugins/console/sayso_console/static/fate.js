// What became of a call that somebody else has decided, or that has expired.

import { pathOf } from "./calls.js";
import { parse } from "./json.js";
import { request } from "./service.js";
import { clock, DECIDED_OVER } from "./words.js";

// Undefined while it waits, and where the service does not answer.
export async function fateOf(id) {
  try {
    const response = await request(pathOf(id), { signal: AbortSignal.timeout(15000) });
    if (response.status === 404) {
      const { code } = parse(await response.text());
      return code === "NOT_FOUND" ? { word: "No longer waits", why: "It is no longer there." } : undefined;
    }
    return response.ok ? told(parse(await response.text())) : undefined;
  } catch {
    return undefined;
  }
}

// `approved` is undefined where it cannot be decided any more; `input` is what it was edited to.
export function told({ state, edited, decision }) {
  if (state === "PENDING") return undefined;
  if (state === "EXPIRED" || !decision) return { word: "No longer waits", said: "Expired", why: "It has expired." };
  const { approved, who, claimed, protocol, reason, at } = decision;
  const by = `${who ? ` by ${who}${claimed ? " (claimed)" : ""}` : ""} over ${DECIDED_OVER[protocol] ?? protocol}, ${clock.format(new Date(at))}`;
  const rest = `${edited ? " with another input" : ""}${by}`;
  const word = `Already ${approved ? "approved" : "rejected"}${rest}`;
  const said = `${approved ? "Approved" : "Rejected"}${rest}`;
  return { approved, waits: state === "APPROVED", reason, input: edited ?? undefined, word, said, why: reason ? `Reason: ${reason}` : "" };
}
