// What waits for a decision outside this conversation.

import { Card } from "./card.js";
import { cards, isRunning, lookAfter } from "./conversation.js";
import { PROTOCOLS, clock, fateOf, pathOf, told } from "./fate.js";
import { parse } from "./json.js";
import { problem, request } from "./service.js";
import { announce, byId, el, visible } from "./text.js";
import { askToken, signedIn, untried } from "./token.js";

const POLL = 4000;
const TOLD = 6000; // how long at least a decided call stays in sight
const elsewhere = new Map(); // id -> Card
let editable = {}; // name of a tool -> true, or the names of its parameters
let polling = 0;
let looks = 0;
let next; // where the page behind those that were looked at begins
let deeper = false; // whether there was more than one
const GONE = { word: "No longer waits", why: "It was decided elsewhere, or has expired." };

export async function poll() {
  clearTimeout(polling);
  if (document.hidden) return;
  const turn = (looks += 1);
  try {
    const response = await request("console/approvals", { signal: AbortSignal.timeout(15000) });
    const text = await response.text();
    // An earlier look may be answered later, and would call gone what has come since.
    if (turn !== looks) return;
    if (response.status === 401) askToken(false);
    reached(response.ok || response.status === 401 || response.status === 403);
    if (response.ok) {
      signedIn();
      list(parse(text));
    }
  } catch {
    if (turn !== looks) return;
    untried();
    reached(false);
  }
  if (byId("sign-in").hidden) polling = setTimeout(poll, POLL);
}

function reached(yes) {
  const text = yes ? "" : "The service is out of reach: what waits may have changed. This page goes on trying.";
  if (byId("reach").textContent !== text) byId("reach").textContent = text;
}

// A call of the turn that runs is listed a moment before its event comes.
function isOurs(item) {
  return cards.has(item.id) || (isRunning() && /^v[12]$/.test(item.protocol) && !elsewhere.has(item.id));
}

function list(page) {
  const { agent, approvals } = page;
  const more = Boolean(page.next);
  introduce(agent);
  if (!more) deeper = false;
  if (!deeper) next = page.next;
  byId("elsewhere-more").hidden = !next;
  editable = agent.editable;
  for (const card of cards.values()) allow(card);
  lookAfter(new Set(approvals.map((item) => item.id)), more);
  const others = approvals.filter((item) => !isOurs(item));
  const ids = new Set(others.map((item) => item.id));
  for (const [id, card] of elsewhere) if (!ids.has(id)) leave(id, card, more);
  for (const item of others) {
    const card = elsewhere.get(item.id);
    if (card && card.proposal.revision === item.revision) continue;
    // Its input was changed: nobody decides on the earlier one any more.
    card?.element.remove();
    addElsewhere(item);
  }
  const count = others.length;
  if (count > Number(byId("elsewhere-count").dataset.count ?? 0)) {
    announce(count === 1 ? "1 call waits elsewhere" : `${count} calls wait elsewhere`);
  }
  byId("elsewhere-count").dataset.count = count;
  byId("elsewhere-count").textContent = more ? `${count}+` : count;
  byId("elsewhere").hidden = elsewhere.size === 0;
  byId("elsewhere-link").hidden = count === 0;
  byId("elsewhere-link").replaceChildren(`${count} waiting`, el("span", { class: "hidden" }, " elsewhere"));
}

byId("elsewhere-more").addEventListener("click", async () => {
  const button = byId("elsewhere-more");
  button.disabled = true;
  try {
    const response = await request(`console/approvals?after=${encodeURIComponent(next)}`, { signal: AbortSignal.timeout(15000) });
    if (!response.ok) return;
    const page = parse(await response.text());
    deeper = true;
    next = page.next;
    button.hidden = !next;
    for (const item of page.approvals) if (!isOurs(item) && !elsewhere.has(item.id)) addElsewhere(item);
  } catch {
    // The next look says that the service is out of reach.
  } finally {
    button.disabled = false;
  }
});

function allow(card) {
  const { type, name } = card.proposal;
  if (type === "tool_call" && Object.hasOwn(editable, name)) card.allow(editable[name]);
}

function introduce({ name, description }) {
  byId("agent").replaceChildren(visible(name || "Sayso", "line"));
  byId("about").replaceChildren(visible(description || "", "line"));
  byId("about").hidden = !description;
  document.title = `${byId("agent").textContent} \u2013 Sayso`;
}

function addElsewhere(item) {
  const from = [
    `From ${PROTOCOLS[item.protocol] ?? item.protocol}`, item.client, item.principal ?? item.user,
    item.address, `asked ${clock.format(new Date(item.created))}`,
    `expires ${clock.format(new Date(item.expires))}`,
  ].filter(Boolean).join(" \u00b7 ");
  const proposal = { ...item, about: item.input_description, raw: item };
  const card = new Card(proposal, decideElsewhere, from);
  allow(card);
  elsewhere.set(item.id, card);
  byId("elsewhere-list").append(card.element);
}

// What waits no longer says so, and stays until nobody can be aiming at this list, and until what was
// written into it is dismissed.
function leave(id, card, more) {
  const aimedAt = byId("elsewhere").matches(":hover, :focus-within");
  const over = card.until < Date.now() && !aimedAt;
  if (cards.has(id) || (over && !card.kept)) {
    card.element.remove();
    elsewhere.delete(id);
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

async function decideElsewhere(card, decision) {
  const approve = decision.execute === true;
  card.enable(false);
  card.until = Infinity;
  hold(card);
  let failed = { message: "The service could not be reached." };
  try {
    const { seen } = card.proposal;
    const body = JSON.stringify({ approve, reason: decision.rejection_reason, input: decision.input, seen });
    const signal = AbortSignal.timeout(30000);
    const response = await request(pathOf(card.proposal.id), { method: "POST", body, signal });
    if (response.status === 401) askToken(false);
    failed = response.ok ? undefined : await problem(response);
    if (response.ok) settled(card, decision, told(parse(await response.text())));
  } catch {
    // `failed` says so.
  }
  if (failed) await refused(card, failed);
  else card.until = Date.now() + TOLD;
  poll();
}

// Who was the first to decide alike may have edited the input, or given another reason.
function settled(card, decision, fate) {
  const { execute, input, rejection_reason } = decision;
  const taken = execute ? fate.approved && (input || !fate.input) : fate.reason === rejection_reason;
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
  card.open(message);
  card.enable(true);
}

export function clearElsewhere() {
  elsewhere.clear();
  deeper = false;
  byId("elsewhere-list").replaceChildren();
  byId("elsewhere").hidden = byId("elsewhere-link").hidden = true;
}
