// The inbox's events: they say that something has changed, and the list is read again.

import { agent } from "./agent.js";
import { request } from "./service.js";

let stream = null;

export async function follow(changed) {
  if (stream || !agent.inbox || document.hidden) return;
  const mine = (stream = new AbortController());
  try {
    const response = await request("approvals/events", { signal: mine.signal });
    if (!response.ok) return;
    follow.isOn = true;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      if (/^event: (?:approval|call)\./m.test(value)) changed();
    }
  } catch {
    // The list is read every few seconds then.
  } finally {
    if (stream === mine) {
      follow.isOn = false;
      stream = null;
    }
  }
}

follow.isOn = false;

// Another principal, or a tab that nobody sees: each stream takes a place at the service.
export function unfollow() {
  stream?.abort();
  stream = null;
  follow.isOn = false;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) unfollow();
});
