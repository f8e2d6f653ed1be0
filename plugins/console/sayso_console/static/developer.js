// The developer's panel: the last turn's request and events, the session, the tools and the prompt, as
// written and as sent.

import { agent } from "./agent.js";
import { parse, sourceOf } from "./json.js";
import { block } from "./proposal.js";
import { request } from "./service.js";
import { byId, button, el, visible } from "./text.js";

const MOST = 2000;
const turn = { body: undefined, path: "", events: [], begun: 0, more: 0 };

export function turnBegins(path, body) {
  Object.assign(turn, { path, body, events: [], begun: performance.now(), more: 0 });
}

export function cameEvent(event) {
  if (turn.events.length < MOST) turn.events.push([performance.now() - turn.begun, event]);
  else turn.more += 1;
}

export function drawDeveloper(session) {
  const { developer } = agent;
  if (!developer) return;
  const { model, system_prompt: prompt, system_context: context, tools } = developer;
  const sent = el("div", {}, note("No turn has run."));
  if (turn.body) showSent(sent);
  byId("developer-parts").replaceChildren(
    part("Events of the last turn", turn.events.length ? eventsList() : note("No turn has run in this tab.")),
    part("The last request", turn.body ? curl() : note("Nothing was sent from this tab.")),
    part("Session", session ? block(session, "exact", "Session") : note("The conversation has no session.")),
    part(`Tools (${tools.length})`, ...tools.map((tool) => el("details", { class: "fold" }, el("summary", {}, el("code", {}, visible(tool.name)), tool.requires_approval ? " needs approval" : ""),
      el("div", { class: "inside" }, el("p", {}, visible(tool.description)), block(tool.input_schema, "exact", "Input schema"))))),
    part("Prompt", el("p", { class: "note" }, visible(`Model: ${model}`)),
      prompt ? block(prompt, "text", "System prompt") : note("There is no system prompt."),
      context === "computed" ? note("A system context is computed for each request and follows it.") : context ? block(context, "text", "System context") : "",
      el("p", { class: "label" }, "As sent in the last turn"), sent),
  );
}

const note = (text) => el("p", { class: "note" }, text);

function part(title, ...inside) {
  return el("section", { class: "panel" }, el("h3", {}, title), ...inside);
}

// What the model got: the service keeps it in memory for the newest turn of each caller.
async function showSent(place) {
  const response = await request("console/prompt").catch(() => undefined);
  if (!response?.ok) return;
  const { calls } = parse(await response.text());
  if (calls.length) place.replaceChildren(...calls.map(sentCall));
}

function sentCall({ model, system, context, turns, tools, config }, n) {
  return el("details", { class: "fold" }, el("summary", {}, visible(`Model call ${n + 1}: ${model}`)),
    el("div", { class: "inside" },
      system ? block(system, "text", "System prompt as sent") : "", context ? block(context, "text", "Context as sent") : "",
      block(turns, "exact", "Turns as sent"), note(visible(`Tools: ${tools.join(", ") || "none"}. Options: ${sourceOf(config)}`))));
}

function eventsList() {
  const lines = turn.events.map(([at, event]) => `${(at / 1000).toFixed(2)} s  ${JSON.stringify(event)}`);
  if (turn.more) lines.push(`and ${turn.more} more`);
  return block(lines.join("\n"), "text", "Events");
}

// Ready for a shell; the token is left for its reader to fill in.
function curl() {
  const quoted = JSON.stringify(turn.body).replaceAll("'", "'\\''");
  const text = `curl -N ${new URL(turn.path, location.href.split("#")[0])} \\\n  -H 'Content-Type: application/json' \\\n  -H "Authorization: Bearer $TOKEN" \\\n  -d '${quoted}'`;
  const copy = button("Copy", () => navigator.clipboard?.writeText(text), "quiet");
  return el("div", {}, block(text, "text", "Request as curl"), copy, " ", el("span", { class: "note" }, `${sourceOf(turn.body).length} characters`));
}
