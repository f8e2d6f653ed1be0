// The inbox: what waits for a decision outside this conversation, as cards.

import { agent, forgetAgent, meet } from "./agent.js";
import * as calls from "./calls.js";
import { Card } from "./card.js";
import { cards, isRunning, lookAfter } from "./conversation.js";
import { fateOf, told } from "./fate.js";
import { follow } from "./follow.js";
import { sourceOf } from "./json.js";
import { badge } from "./notice.js";
import { chosen, dropChoice, offerChoice } from "./several.js";
import { announce, byId, el, visible } from "./text.js";
import { askToken, signedIn, untried } from "./token.js";

const POLL = 4000;
const FOLLOWED = 20_000; // where events tell of changes at once
const HIDDEN = 15_000; // for the number in the title
const TOLD = 6000; // how long at least a decided call stays in sight
const listed = new Map(); // id -> Card
const coming = new Set(); // ids whose whole call is being read
let polling = 0;
let looks = 0;
let next; // where the page behind those that were looked at begins
let deeper = false; // whether there was more than one
let filter = { mine: false, text: "", tool: "" };
export const on = { looked() {} };
const GONE = { word: "No longer waits", why: "It was decided elsewhere, or has expired." };

export async function poll() {
  clearTimeout(polling);
  const turn = (looks += 1);
  try {
    const status = await meet();
    if (status === 401) {
      refusedToken();
    } else {
      const { response, calls: found, next: behind } = await calls.pending();
      // An earlier look may be answered later, and would call gone what has come since.
      if (turn !== looks) return;
      if (response.status === 401) refusedToken();
      reached(response.ok || response.status === 401 || response.status === 403);
      if (response.ok) {
        signedIn();
        list(found, behind);
        follow(poll);
        on.looked();
      }
    }
  } catch {
    if (turn !== looks) return;
    // A service that was replaced may have another agent.
    forgetAgent();
    untried();
    reached(false);
  }
  const pause = document.hidden ? HIDDEN : follow.isOn ? FOLLOWED : POLL;
  if (byId("sign-in").hidden) polling = setTimeout(poll, pause);
}

function refusedToken() {
  forgetAgent();
  reached(true);
  askToken(false);
}

function reached(yes) {
  const text = yes ? "" : "The service is out of reach: what waits may have changed. This page goes on trying.";
  if (byId("reach").textContent !== text) byId("reach").textContent = text;
}

// A call of the turn that runs is listed a moment before its event comes.
function isOurs(item) {
  return cards.has(item.id) || (isRunning() && /^v[12]$/.test(item.protocol) && !listed.has(item.id));
}

function list(items, behind) {
  const more = Boolean(behind);
  if (!more) deeper = false;
  if (!deeper) next = behind;
  byId("inbox-more").hidden = !next;
  lookAfter(new Map(items.map((item) => [item.id, item])), more);
  const others = items.filter((item) => !isOurs(item));
  const ids = new Set(others.map((item) => item.id));
  for (const [id, card] of listed) if (!ids.has(id)) leave(id, card, more);
  for (const item of others) see(item);
  count(items, others.length, more);
  arrange();
}

function count(items, others, more) {
  const mine = items.filter((item) => item.mine !== false).length;
  const before = Number(byId("inbox-count").dataset.count ?? 0);
  if (others > before) announce(others === 1 ? "1 call waits in the inbox" : `${others} calls wait in the inbox`);
  byId("inbox-count").dataset.count = others;
  byId("inbox-count").hidden = mine === 0;
  byId("inbox-count").replaceChildren(more ? `${mine}+` : `${mine}`, el("span", { class: "hidden" }, " waiting"));
  const here = items.length - others;
  byId("inbox-here").hidden = here === 0;
  byId("inbox-here").textContent = here === 1 ? "1 call of this conversation waits in the chat." : `${here} calls of this conversation wait in the chat.`;
  badge(mine, more);
}

function see(item) {
  const card = listed.get(item.id);
  if (!card) {
    add(item);
  } else if (card.isOtherThan(item)) {
    revise(card);
  } else if (agent.inbox && (item.votes.given !== card.proposal.votes?.given || item.comments !== card.proposal.comments?.length)) {
    calls.whole(item.id).then((call) => call && card.learn(call));
  }
}

async function revise(card) {
  const call = await calls.whole(card.proposal.id);
  if (call?.state !== "PENDING" || card.until !== undefined || !card.isOtherThan(call)) return;
  card.keep();
  card.revise(call);
  announce(`The input was changed: ${card.line().textContent}`);
}

// A list of the inbox has beginnings; a card has the whole call.
async function add(item) {
  if (!agent.inbox) return put(item);
  if (coming.has(item.id)) return;
  coming.add(item.id);
  const call = await calls.whole(item.id);
  coming.delete(item.id);
  if (call && call.state === "PENDING" && !isOurs(call) && !listed.has(item.id)) put({ ...call, input: call.edited ?? call.input });
}

function put(item) {
  const proposal = { ...item, about: item.input_description, raw: item, listed: agent.inbox };
  const card = new Card(proposal, decideOne);
  listed.set(item.id, card);
  byId("inbox-list").append(card.element);
  arrange();
}

byId("inbox-more").addEventListener("click", async () => {
  const more = byId("inbox-more");
  more.disabled = true;
  try {
    const { response, calls: found, next: behind } = await calls.pending(next);
    if (!response.ok) return;
    deeper = true;
    next = behind;
    more.hidden = !next;
    for (const item of found) if (!isOurs(item) && !listed.has(item.id)) add(item);
  } catch {
    // The next look says that the service is out of reach.
  } finally {
    more.disabled = false;
  }
});

// What is filtered away is hidden, and stays as it is.
export function filterBy(wanted) {
  filter = { ...filter, ...wanted };
  arrange();
}

function fits({ proposal }) {
  const { mine, name, input, intent, description, state } = proposal;
  if (filter.mine && mine === false && state === "PENDING") return false;
  if (filter.tool && filter.tool !== name) return false;
  const text = [name, JSON.stringify(input), intent, description].join("\n").toLowerCase();
  return !filter.text || text.includes(filter.text.toLowerCase());
}

function arrange() {
  let shown = 0;
  const tools = new Set();
  for (const card of listed.values()) {
    tools.add(card.proposal.name);
    card.element.hidden = !fits(card);
    if (!card.element.hidden) shown += 1;
  }
  byId("inbox-none").hidden = shown > 0 || coming.size > 0 || byId("inbox-pending").hidden;
  offerTools(tools);
  offerChoice([...listed.values()].filter((card) => !card.element.hidden));
}

function offerTools(tools) {
  const select = byId("inbox-tool");
  const known = new Set([...select.options].map((option) => option.value));
  for (const name of tools) if (!known.has(name)) select.append(el("option", { value: name }, visible(name, "line")));
}

// The card of a call that waits; read by its id where the list has not come to it.
export async function cardOf(id) {
  if (!listed.has(id)) {
    const call = await calls.whole(id);
    if (call?.state === "PENDING" && !listed.has(id)) put({ ...call, input: call.edited ?? call.input });
  }
  return listed.get(id);
}

// What waits no longer says so, and stays until nobody can be aiming at this list, and until what was
// written into it is dismissed.
function leave(id, card, more) {
  const aimedAt = byId("inbox").matches(":hover, :focus-within");
  const over = card.until < Date.now() && !aimedAt;
  if (cards.has(id) || (over && !card.kept)) {
    card.element.remove();
    listed.delete(id);
  } else if (over) {
    card.element.style.minHeight = "";
  } else if (card.until === undefined) {
    goes(id, card, more);
  }
}

async function goes(id, card, more) {
  // Where more wait than are listed, it may only stand on a later page.
  const known = more ? await fateOf(id) : undefined;
  if ((more && !known) || card.until !== undefined) return;
  card.until = Infinity;
  card.enable(false);
  hold(card);
  const fate = known ?? await fateOf(id) ?? GONE;
  if (card.element.contains(document.activeElement)) announce(`${fate.word}. ${fate.why}`);
  card.close(fate);
  card.until = Date.now() + TOLD;
}

// Folded, it takes the room that it had: no other call moves up to where this one's buttons were.
function hold(card) {
  card.element.style.minHeight = `${card.element.getBoundingClientRect().height}px`;
}

async function decideOne(card, decision) {
  if (decision.comment) return commentOn(card, decision.comment);
  card.enable(false);
  card.until = Infinity;
  hold(card);
  const { id } = card.proposal;
  const { status, failed, call } = await (decision.withdraw ? calls.withdraw(id, decision.rejection_reason) : calls.decide(card.proposal, decision));
  if (status === 401) askToken(false);
  if (failed) await refused(card, failed);
  else settled(card, decision, call);
  poll();
}

async function commentOn(card, text) {
  card.enable(false);
  const { status, failed, call } = await calls.comment(card.proposal.id, text);
  card.enable(true);
  if (status === 401) askToken(false);
  announce(failed ? failed.message : "Your comment is kept.");
  if (failed) return;
  card.learn(call);
  card.ask();
  if (card.isOtherThan(call)) revise(card);
  else card.controls.lastElementChild.focus();
}

function settledWithOthers(card, { comments, ...call }) {
  hold(card);
  settled(card, { execute: true }, call);
}

// Who was the first to decide alike may have edited the input, or given another reason.
function settled(card, decision, call) {
  card.until = Date.now() + TOLD;
  const fate = told(call);
  if (!fate) {
    card.until = undefined;
    card.voted(call);
    announce("Your approval is recorded. It needs more.");
    return;
  }
  const { execute, input, rejection_reason } = decision;
  const asSeen = !fate.input || sourceOf(fate.input) === sourceOf(card.proposal.input);
  const taken = execute ? fate.approved && (input || asSeen) : fate.reason === rejection_reason;
  if (!taken) return close(card, fate);
  card.sent(decision);
  announce(execute ? "Approved." : "Rejected.");
}

function close(card, fate) {
  card.close(fate);
  announce(`${fate.word}. ${fate.why}`);
}

async function refused(card, { code, message }) {
  const fate = /^(APPROVAL_\w+|NOT_FOUND)$/.test(code) ? await fateOf(card.proposal.id) : undefined;
  if (fate) {
    card.until = Date.now() + TOLD;
    return close(card, fate);
  }
  announce(message);
  card.until = undefined;
  card.element.style.minHeight = "";
  card.reasonNeeded = code === "APPROVAL_REASON_REQUIRED";
  card.open(message);
  card.enable(true);
}

// Those that were selected, in one transaction: all of them, or none.
byId("several-approve").addEventListener("click", async () => {
  const several = chosen();
  for (const card of several) card.enable(false);
  const { failed, results } = await calls.approveAll(several.map((card) => card.proposal));
  for (const card of several) card.enable(true);
  dropChoice();
  if (failed) announce(failed.message);
  else several.forEach((card, n) => settledWithOthers(card, results[n].approval));
  byId("several-problem").textContent = failed ? `${failed.lost ? "" : "None was approved: "}${failed.message}` : "";
  poll();
});

export function clearInbox() {
  listed.clear();
  deeper = false;
  byId("inbox-list").replaceChildren();
  byId("inbox-count").hidden = true;
  badge(0);
}
