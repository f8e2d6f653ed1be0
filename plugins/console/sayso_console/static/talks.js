// The conversations that this browser keeps: a list, and the entries of each. They belong to a
// principal: somebody else's are not listed.

import { parse } from "./json.js";
import { nameOf, ofBrowser, ofTab } from "./store.js";
import { byId, button, el, visible } from "./text.js";
import { clock } from "./words.js";

const LIST = "talks";
const OPEN = "talk"; // of this tab
const DRAFT = "draft"; // of this tab
const MOST = 100;
const TITLE = 60;

export const on = { open() {}, gone() {}, changed() {} };
let owner = "";

const keyOf = (id) => `talk.${id}`;

function list() {
  try {
    return parse(ofBrowser.get(LIST) ?? "[]");
  } catch {
    return [];
  }
}

export function current() {
  let id = ofTab.get(OPEN);
  if (!id) ofTab.set(OPEN, (id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`));
  return id;
}

export function choose(id) {
  if (id) ofTab.set(OPEN, id);
  else ofTab.remove(OPEN);
}

export function read() {
  return parse(ofBrowser.get(keyOf(current())) ?? "[]");
}

// False where the browser has no room for it.
export function keep(entries) {
  if (!entries.length) return true;
  const id = current();
  if (!ofBrowser.set(keyOf(id), JSON.stringify(entries))) return false;
  const known = list();
  const before = known.find((one) => one.id === id);
  const first = entries.find((entry) => entry.message?.content)?.message.content ?? "Decisions";
  const now = { id, title: first.split("\n", 1)[0].slice(0, TITLE), at: Date.now(), owner: before?.owner || owner };
  const kept = [now, ...known.filter((one) => one.id !== id)];
  for (const old of kept.slice(MOST)) ofBrowser.remove(keyOf(old.id));
  const isKept = ofBrowser.set(LIST, JSON.stringify(kept.slice(0, MOST)));
  draw();
  return isKept;
}

export function remove(id) {
  ofBrowser.remove(keyOf(id));
  ofBrowser.set(LIST, JSON.stringify(list().filter((one) => one.id !== id)));
  if (id === current()) on.gone();
  draw();
}

function removeAll() {
  for (const { id, owner: whose } of list()) if (whose === owner) remove(id);
}

// False where the conversation of this tab is somebody else's.
export function belongTo(name) {
  owner = name;
  draw();
  const whose = list().find((one) => one.id === ofTab.get(OPEN))?.owner;
  return !whose || whose === owner;
}

export function draw() {
  const mine = list().filter((one) => one.owner === owner);
  const rows = mine.map(({ id, title, at }) => {
    const open = el("button", { type: "button", class: "quiet talk", onclick: () => on.open(id) },
      el("span", { dir: "auto" }, visible(title || "Without words", "line")), el("span", { class: "note" }, clock.format(new Date(at))));
    if (id === ofTab.get(OPEN)) open.setAttribute("aria-current", "true");
    const drop = el("button", { type: "button", class: "quiet", "aria-label": `Delete the conversation ${title}`, onclick: () => remove(id) }, "\u2715");
    return el("li", {}, open, drop);
  });
  byId("talks-list").replaceChildren(...rows);
  byId("talks-none").hidden = rows.length > 0;
  byId("talks-clear").replaceChildren(rows.length > 1 ? button("Delete all", removeAll, "quiet danger") : "");
}

// What was typed and not sent outlives a reload of the tab.
export function keepDraft(text) {
  if (text) ofTab.set(DRAFT, text);
  else ofTab.remove(DRAFT);
}

export const draft = () => ofTab.get(DRAFT) ?? "";

// Another tab has gone on with a conversation.
window.addEventListener("storage", ({ key }) => {
  if (key === nameOf(LIST)) draw();
  if (key === nameOf(keyOf(current()))) on.changed();
});
