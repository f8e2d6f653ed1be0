// One turn: its events become the reply on the page, and the entry that is kept.

import { cameEvent, turnBegins } from "./developer.js";
import { eventsOf, post, problem } from "./service.js";
import { scroll } from "./view.js";

const PLACE = /^body[\w.]*: /;

// Receive the reply to `messages`; `first` has what happens before a session is kept, and where a token
// is needed.
export async function receive(messages, reply, entry, signal, first) {
  const response = await post(messages, signal, turnBegins);
  if (!response.ok) {
    entry.error = await problem(response, "This service has no chat endpoint.");
    entry.refusedByStatus = response.status >= 400 && response.status < 500 && response.status !== 401;
    entry.untaken = response.status < 500 || entry.error.code === "BUSY";
    if (response.status === 401) first.tokenNeeded();
    return;
  }
  for await (const event of eventsOf(response)) take(event, reply, entry, first);
  if (!entry.error && entry.stop_reason === undefined) {
    Object.assign(entry, { lost: true, error: { message: "The connection ended before the reply did." } });
  }
}

function take(event, reply, entry, first) {
  cameEvent(event);
  switch (event.type) {
    case "text_delta": {
      if (entry.pause && entry.content && !/\s$/.test(entry.content)) {
        entry.breaks.push(entry.content.length);
        reply.add("\n\n");
      }
      entry.pause = false;
      entry.content += event.text;
      reply.add(event.text);
      break;
    }
    case "intermittent_update":
      // Without text it says that the turn lives, and nothing else.
      if (event.text) {
        entry.pause = true;
        reply.status(event.text);
      }
      break;
    case "tool_calls":
      entry.data.tool_calls = event.tool_calls;
      break;
    case "commands":
      entry.data.cmds = event.commands;
      break;
    case "approvals":
      entry.data.approvals = event.approvals;
      break;
    case "executed_tool_calls":
    case "executed_commands":
    case "executed_approvals":
      Object.assign(entry.data, kept(event));
      reply.executed(entry.data);
      break;
    case "done":
      entry.stop_reason = event.stop_reason ?? "end_turn";
      Object.assign(entry.data, event.data);
      entry.usage = event.meta_data?.usage;
      if (event.session) {
        first.session();
        entry.data.session = event.session;
      }
      break;
    case "error":
      entry.error = { message: event.error.replace(PLACE, ""), code: event.code, incident: event.incident };
  }
  scroll();
}

const kept = ({ type, ...fields }) => fields;
