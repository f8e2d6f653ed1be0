// What came of calls: those that are decided, and one's own requests, each folded until it is opened.

import * as calls from "./calls.js";
import { commentsOf, factsList, headingOf } from "./facts.js";
import { told } from "./fate.js";
import { problem } from "./service.js";
import { changesOf, previewOf } from "./preview.js";
import { block, inputOf } from "./proposal.js";
import { announce, byId, button, el, visible } from "./text.js";
import { clock, STATES } from "./words.js";

let wanted = {};
let next = null;
let looks = 0;

export async function showDecided(asked) {
  wanted = asked;
  byId("decided-list").replaceChildren();
  next = null;
  await read();
}

async function read() {
  const look = (looks += 1);
  const more = byId("decided-more");
  more.hidden = true;
  let note = "";
  try {
    const { response, calls: found, next: behind } = await calls.history({ ...wanted, after: next });
    if (look !== looks) return;
    next = behind;
    if (!response.ok) note = (await problem(response)).message;
    byId("decided-list").append(...found.map(row));
    more.hidden = !next;
    if (response.ok && !byId("decided-list").children.length) note = next ? "Nothing among the newest; look further back." : "There is nothing here.";
  } catch {
    note = "The service could not be reached.";
  }
  byId("decided-none").textContent = note;
}

byId("decided-more").addEventListener("click", read);

// What has changed since; what is open or in use stays as it is.
export async function refreshDecided() {
  if (byId("inbox").hidden || byId("inbox-decided-list").hidden) return;
  const look = looks;
  const { response, calls: found } = await calls.history(wanted).catch(() => ({}));
  if (look !== looks || !response?.ok) return;
  const list = byId("decided-list");
  const rows = new Map([...list.children].map((one) => [one.dataset.id, one]));
  let place = list.firstElementChild;
  for (const item of found) {
    const there = rows.get(item.id);
    if (there && there.dataset.state !== item.state) show(there, item);
    if (there) place = there.nextElementSibling;
    else list.insertBefore(row(item), place);
  }
  if (list.children.length) byId("decided-none").textContent = "";
}

function row(item) {
  const inside = el("div", { class: "inside" });
  const fold = el("details", { class: "fold", "data-id": item.id }, el("summary"), inside);
  fold.addEventListener("toggle", () => {
    if (fold.open && !inside.children.length) fill(inside, item.id);
  });
  show(fold, item);
  return fold;
}

function show(fold, item) {
  const [summary, inside] = fold.children;
  fold.dataset.state = item.state;
  summary.replaceChildren(el("span", { class: "what-it-is" }, ...headingOf({ ...item, input: item.input ?? {} })), " ",
    el("span", { class: `badge state ${item.state.toLowerCase()}` }, STATES[item.state] ?? item.state),
    el("span", { class: "note by" }, visible(byWhom(item), "line")));
  if (inside.children.length && !inside.contains(document.activeElement)) fill(inside, item.id);
}

function byWhom({ decision, finished, created }) {
  if (!decision) return ` asked ${clock.format(new Date(created))}`;
  const who = decision.who ? ` by ${decision.who}${decision.claimed ? " (claimed)" : ""}` : "";
  return ` ${decision.approved ? "approved" : "rejected"}${who}, ${clock.format(new Date(finished ?? decision.at))}`;
}

async function fill(inside, id) {
  const call = await calls.whole(id);
  if (call) inside.replaceChildren(...detailsOf(call));
  else inside.textContent = "The call could not be read.";
}

export function detailsOf(call) {
  const proposal = { ...call, input: call.edited ?? call.input, about: call.input_description };
  const fate = told(call);
  const changes = call.edited ? changesOf(call.input, call.edited) : undefined;
  return [
    call.description ? el("p", { class: "about", dir: "auto" }, visible(call.description)) : undefined,
    call.intent ? el("p", { class: "intent", dir: "auto" }, "The agent says: ", el("bdi", {}, visible(call.intent))) : undefined,
    fate ? el("p", {}, el("bdi", {}, visible(`${fate.said}. ${fate.approved === undefined ? "" : fate.why}`))) : undefined,
    ...(call.voted?.length ? [el("p", { class: "note" }, `Approved by ${call.voted.map((vote) => vote.person ?? `${vote.who}${vote.claimed ? " (claimed)" : ""}`).join(", ")}`)] : []),
    ...previewOf(call), changes ? el("p", { class: "label" }, "What was changed") : undefined, changes, inputOf(proposal),
    factsList({ ...call, expires: undefined }),
    ...(call.output ? [el("p", { class: "label" }, "Output"), block(call.output, "text", "Output")] : []),
    ...commentsOf(call), call.own && /^(PENDING|APPROVED)$/.test(call.state) ? withdrawal(call) : undefined,
  ].filter(Boolean);
}

function withdrawal(call) {
  const press = button("Withdraw", async () => {
    press.disabled = true;
    const { failed } = await calls.withdraw(call.id);
    announce(failed ? failed.message : "Withdrawn.");
    press.replaceWith(el("p", { class: "note", role: "status" }, visible(failed ? failed.message : "You have withdrawn it.")));
    refreshDecided();
  }, "danger");
  return press;
}
