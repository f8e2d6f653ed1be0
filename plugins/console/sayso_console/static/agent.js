// The agent as the service introduces it, and who this page is to the service.

import { parse, sourceOf } from "./json.js";
import { problem, request } from "./service.js";
import { byId, visible } from "./text.js";

const NOBODY = { name: "", description: "", examples: [], tools: {}, inbox: false, grants: false, login: false, you: null, developer: null };

export let agent = NOBODY;
let known = false;

export const on = { known() {} };

// Ask for it, unless it is known. A service that has none answers 404, and the page goes on.
export async function meet() {
  if (known) return 200;
  const response = await request("console/agent", { signal: AbortSignal.timeout(15000) });
  if (response.ok) {
    agent = { ...NOBODY, ...parse(await response.text()) };
    known = true;
    introduce();
    on.known();
  } else {
    await problem(response);
  }
  return response.status;
}

export function forgetAgent() {
  known = false;
}

export const toolOf = (name) => (Object.hasOwn(agent.tools, name) ? agent.tools[name] : {});

// Whether a value is the one that the tool would take if nothing were said.
export function isDefault(tool, name, value) {
  const { defaults = {} } = toolOf(tool);
  return Object.hasOwn(defaults, name) && sourceOf(defaults[name]) === sourceOf(value);
}

function introduce() {
  const { name, description, you } = agent;
  byId("agent").replaceChildren(visible(name || "Sayso", "line"));
  byId("about").replaceChildren(visible(description || "", "line"));
  byId("about").hidden = !description;
  byId("you").hidden = !you;
  const said = you ? [you.person ?? you.name, ...(you.groups.length ? [` (${you.groups.join(", ")})`] : [])].join("") : "";
  byId("you").replaceChildren(visible(said, "line"));
}
