// Standing grants: what was approved in advance, and for how long; and the stop of all starts.

import { agent } from "./agent.js";
import * as calls from "./calls.js";
import { block } from "./proposal.js";
import { announce, byId, button, el, visible } from "./text.js";
import { clock } from "./words.js";

export async function showGrants() {
  const found = await calls.grants();
  byId("grants-list").replaceChildren(...(found ?? []).map(row));
  byId("grants-none").textContent = !found ? "The service could not be reached." : found.length ? "" : "There is no standing grant.";
}

function row(grant) {
  const { id, state, tool, arguments: input, match, holder, uses, used, ends, reason, who, context } = grant;
  const press = state === "open" ? button("Revoke", async () => {
    press.disabled = true;
    const { failed } = await calls.revoke(id);
    announce(failed ? failed.message : "Revoked.");
    if (failed) press.replaceWith(el("p", { class: "error", role: "alert" }, visible(failed.message)));
    else await showGrants();
  }, "danger") : undefined;
  const where = Object.entries(context ?? {}).map(([name, value]) => `, ${name} ${value}`).join("");
  const title = el("h3", { id: `grant-${id}` }, visible(tool, "line"), " ", el("span", { class: `badge ${state === "open" ? "approved" : ""}` }, state));
  press?.setAttribute("aria-describedby", title.id);
  return el("article", { class: "panel details" }, title,
    el("p", { class: "note", dir: "auto" }, visible(`For ${holder}${where}; ${used} of ${uses} used; until ${clock.format(new Date(ends))}. Given by ${who ?? "somebody"}: ${reason}`)),
    block(input, "exact", match === "pattern" ? "Input, with wildcards" : "Input"), press);
}

let looked = 0;

// At most every ten seconds, and only for those who see it.
export async function lookFrozen(now = false) {
  if (!agent.inbox || byId("inbox").hidden || (!now && Date.now() - looked < 10_000)) return;
  looked = Date.now();
  const stop = await calls.frozen();
  if (stop === undefined) return;
  byId("frozen").hidden = !stop;
  byId("freeze").hidden = Boolean(stop);
  if (stop) byId("frozen-why").replaceChildren(visible(`No approved call starts: stopped${stop.who ? ` by ${stop.who}` : ""}, ${clock.format(new Date(stop.at))}. ${stop.reason}`, "line"));
}

byId("freeze").addEventListener("click", () => {
  byId("freeze-why").value = byId("freeze-problem").textContent = "";
  byId("freeze-dialog").showModal();
});
byId("freeze-no").addEventListener("click", () => byId("freeze-dialog").close());
byId("freeze-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { failed } = await calls.freeze(true, byId("freeze-why").value.trim());
  byId("freeze-problem").replaceChildren(visible(failed?.message ?? ""));
  if (failed) return;
  byId("freeze-dialog").close();
  announce("No approved call starts any more.");
  await lookFrozen(true);
  byId("thaw").focus();
});
byId("thaw").addEventListener("click", async () => {
  const { failed } = await calls.freeze(false);
  announce(failed ? failed.message : "Approved calls start again.");
  if (failed) byId("frozen-why").replaceChildren(visible(failed.message));
  else await lookFrozen(true);
});
