// The conversations that this browser keeps: a list, and the entries of each. They belong to a
// principal: somebody else's are not listed.

import { parse } from "./json.js";
import { byId, button, el, visible } from "./text.js";
import { clock } from "./words.js";

const LIST = "sayso.talks";
const OPEN = "sayso.talk"; // of this tab
const DRAFT = "sayso.draft"; // of this tab
const MOST = 100;
const TITLE = 60;

export const on = { open() {}, gone() {}, changed() {} };
let owner = "";

const keyOf = (id) => `sayso.talk.${id}`;

function list() {
  try {
    return parse(localStorage.getItem(LIST) ?? "[]");
  } catch {
    return [];
  }
}

export function current() {
  let id = sessionStorage.getItem(OPEN);
  if (!id) sessionStorage.setItem(OPEN, (id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`));
  return id;
}

export function choose(id) {
  if (id) sessionStorage.setItem(OPEN, id);
  else sessionStorage.removeItem(OPEN);
}

export function read() {
  return parse(localStorage.getItem(keyOf(current())) ?? "[]");
}

// False where the browser has no room for it.
export function keep(entries) {
  const id = current();
  try {
    if (!entries.length) return true;
    localStorage.setItem(keyOf(id), JSON.stringify(entries));
    const known = list();
    const before = known.find((one) => one.id === id);
    const first = entries.find((entry) => entry.message?.content)?.message.content ?? "Decisions";
    const now = { id, title: first.split("\n", 1)[0].slice(0, TITLE), at: Date.now(), owner: before?.owner ?? owner };
    const kept = [now, ...known.filter((one) => one.id !== id)];
    for (const old of kept.slice(MOST)) localStorage.removeItem(keyOf(old.id));
    localStorage.setItem(LIST, JSON.stringify(kept.slice(0, MOST)));
    draw();
    return true;
  } catch {
    return false;
  }
}

export function remove(id) {
  localStorage.removeItem(keyOf(id));
  localStorage.setItem(LIST, JSON.stringify(list().filter((one) => one.id !== id)));
  if (id === current()) on.gone();
  draw();
}

function removeAll() {
  for (const { id, owner: whose } of list()) if (whose === owner) remove(id);
}

export function belongTo(name) {
  owner = name;
  draw();
}

export function draw() {
  const mine = list().filter((one) => one.owner === owner);
  const rows = mine.map(({ id, title, at }) => {
    const open = el("button", { type: "button", class: "quiet talk", onclick: () => on.open(id) },
      el("span", { dir: "auto" }, visible(title || "Without words", "line")), el("span", { class: "note" }, clock.format(new Date(at))));
    if (id === sessionStorage.getItem(OPEN)) open.setAttribute("aria-current", "true");
    const drop = el("button", { type: "button", class: "quiet", "aria-label": `Delete the conversation ${title}`, onclick: () => remove(id) }, "\u2715");
    return el("li", {}, open, drop);
  });
  byId("talks-list").replaceChildren(...rows);
  byId("talks-none").hidden = rows.length > 0;
  byId("talks-clear").replaceChildren(rows.length > 1 ? button("Delete all", removeAll, "quiet danger") : "");
}

// What was typed and not sent outlives a reload of the tab.
export function keepDraft(text) {
  try {
    if (text) sessionStorage.setItem(DRAFT, text);
    else sessionStorage.removeItem(DRAFT);
  } catch {
    // Too long to be kept; it is still in its field.
  }
}

export const draft = () => sessionStorage.getItem(DRAFT) ?? "";

// Another tab has gone on with a conversation.
window.addEventListener("storage", ({ key }) => {
  if (key === LIST) draw();
  if (key === keyOf(current())) on.changed();
});
