// Which view stands on the page: `#chat`, `#inbox` with its lists, `#developer`, or `#ID` of a call.

import { agent } from "./agent.js";
import * as calls from "./calls.js";
import { waitsHere } from "./conversation.js";
import { detailsOf, showDecided } from "./decided.js";
import { headingOf } from "./facts.js";
import { lookFrozen, showGrants } from "./grants.js";
import { cardOf, filterBy } from "./inbox.js";
import { look } from "./still.js";
import { byId, el, visible } from "./text.js";
import { STATES } from "./words.js";

const LISTS = { inbox: "mine", "inbox-all": "all", "inbox-own": "own", "inbox-decided": "decided", "inbox-grants": "grants" };
const TITLES = { mine: "Waits for me", all: "All that waits", own: "My requests", decided: "Decided", grants: "Standing grants" };
let list = "mine";

export function go() {
  const name = location.hash.slice(1);
  if (name.startsWith("token=")) return;
  const isCall = /^[0-9a-f]{16,}$/i.test(name);
  const view = name in LISTS || isCall ? "inbox" : name === "developer" && agent.developer ? "developer" : "chat";
  for (const other of ["inbox", "developer", "chat"]) byId(other === "chat" ? "talk" : other).hidden = other !== view;
  byId("foot").hidden = view !== "chat";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("inbox-one").replaceChildren();
  if (name in LISTS) showList(LISTS[name]);
  if (isCall) showCall(name);
  look(true);
}

function showList(wanted) {
  list = agent.inbox ? wanted : "all";
  const isPending = list === "mine" || list === "all";
  byId("inbox-title").textContent = agent.inbox ? TITLES[list] : "What waits";
  byId("inbox-lists").hidden = !agent.inbox;
  byId("inbox-fallback").hidden = agent.inbox;
  byId("inbox-filters").hidden = list === "grants";
  byId("inbox-pending").hidden = !isPending;
  byId("inbox-decided-list").hidden = isPending || list === "grants";
  byId("inbox-grants-list").hidden = list !== "grants";
  byId("grants-link").hidden = !agent.grants;
  lookFrozen(true);
  for (const link of byId("inbox-lists").children) {
    if (LISTS[link.hash.slice(1)] === list) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  search();
}

function search() {
  const text = byId("inbox-search").value.trim();
  const tool = byId("inbox-tool").value;
  if (list === "mine" || list === "all") filterBy({ mine: list === "mine", text, tool });
  else if (list === "grants") showGrants();
  else showDecided({ own: list === "own", text, tool });
}

let typing = 0;
byId("inbox-search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, 250);
});
byId("inbox-tool").addEventListener("change", search);
byId("inbox-filters").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});

// A link from elsewhere: to a call that waits, here or in the list, or to what came of it.
async function showCall(id) {
  if (waitsHere(id)) {
    location.hash = "chat";
    document.querySelector(`#conversation [data-id="${CSS.escape(id)}"]`)?.scrollIntoView({ block: "center" });
    return;
  }
  showList("all");
  byId("inbox-search").value = byId("inbox-tool").value = "";
  filterBy({ text: "", tool: "", mine: false });
  const card = await cardOf(id);
  if (location.hash.slice(1) !== id) return;
  if (card) {
    card.element.hidden = false;
    byId("inbox-list").prepend(card.element);
    focusOn(card.element.querySelector("h2, summary"));
    return;
  }
  byId("inbox-pending").hidden = byId("inbox-filters").hidden = true;
  byId("inbox-title").textContent = "A call";
  const call = await calls.whole(id);
  if (location.hash.slice(1) !== id) return;
  byId("inbox-one").replaceChildren(...(call ? one(call) : [
    el("p", { class: "note" }, "There is no such call for you. It may have been removed, or belong to somebody else; or this page needs a token to read it."),
  ]));
}

function one(call) {
  const proposal = { ...call, input: call.edited ?? call.input };
  const title = el("h3", { tabindex: "-1" }, ...headingOf(proposal));
  const state = el("p", { class: `badge state ${call.state.toLowerCase()}` }, visible(STATES[call.state] ?? call.state));
  setTimeout(() => focusOn(title));
  return [el("article", { class: "panel details" }, title, state, ...detailsOf(call))];
}

function focusOn(heading) {
  if (!heading) return;
  if (heading.localName !== "summary") heading.tabIndex = -1;
  heading.focus();
  look(true);
}

window.addEventListener("hashchange", go);
