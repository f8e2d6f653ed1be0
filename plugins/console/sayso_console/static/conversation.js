// The conversation: what was said and answered, and the calls in it that wait for a decision.

import { whole } from "./calls.js";
import { Card } from "./card.js";
import { drawDeveloper } from "./developer.js";
import { fateOf } from "./fate.js";
import { outgoing } from "./history.js";
import { proposalsOf } from "./proposal.js";
import { Reply } from "./reply.js";
import * as talks from "./talks.js";
import { announce, button, byId, el, visible } from "./text.js";
import { receive } from "./turn.js";
import { grow, lookAt, scroll } from "./view.js";

const REFUSED = /^(APPROVAL_\w+|APPROVALS_PENDING|NOTHING_TO_ANSWER)$/;

// What the page does then; app.js sets it.
export const on = { begun() {}, ended() {}, tokenNeeded() {} };

let entries = []; // what was said and answered, in order; kept in this browser
export const cards = new Map(); // id -> Card, of each call of this conversation
let waiting = new Map(); // id -> Card, of calls of this conversation without a decision
let drafts = new Map(); // id -> decision, not sent yet
let running = null; // the AbortController of the turn that runs
let last = null; // the Reply on the page whose entry is the last one

export const isRunning = () => running !== null;
export const waitsHere = (id) => waiting.has(id);
// Decided and not sent counts, too: nobody has got that decision.
export const pendingHere = () => [...waiting.values()].filter((card) => !card.fate).length;

export function stop() {
  running?.abort();
}

function save() {
  byId("unkept").textContent = talks.keep(entries) ? ""
    : "The browser does not keep all of this conversation over a reload: it has no room, or may not.";
}

export function restore() {
  try {
    entries = talks.read();
    entries.forEach(show);
  } catch {
    talks.remove(talks.current());
    location.reload();
    return;
  }
  refresh();
  scroll(true);
  // The connection is also lost where a page goes away in the middle of a reply.
  const said = entries.at(entries.at(-1)?.lost ? -2 : -1);
  if (said?.role !== "user") return;
  if (said === entries.at(-1)) showUnanswered();
  // A decision may be sent again at any time: its call runs once, and its outcome comes.
  if (!said.message.content && Object.keys(said.decided ?? {}).length) again();
}

function show(entry, place) {
  if (entry.role === "user") showSaid(entry);
  else last = showReply(entry, place);
}

function showSaid(entry) {
  if (entry.message.content) {
    const text = el("div", { class: "text", dir: "auto" }, visible(entry.message.content));
    byId("conversation").append(el("div", { class: "said" }, text));
  }
  if (entry.refused) return;
  for (const [id, decision] of Object.entries(entry.decided ?? {})) settle(id, decision);
  if (entry.message.content) leaveBehind();
}

// A text goes past calls that others have decided, and past nothing else that waits.
function leaveBehind() {
  for (const [id, card] of waiting) {
    if (card.proposal.type !== "tool_call") continue;
    waiting.delete(id);
    if (card.fate) card.close(card.fate);
  }
}

function settle(id, decision) {
  waiting.get(id)?.sent(decision);
  waiting.delete(id);
  drafts.delete(id);
}

function showReply(entry, place) {
  const reply = new Reply();
  byId("conversation").append(reply.element);
  reply.executed(entry.data);
  compare(entry.data);
  if (entry.counts) propose(reply, entry.data, place);
  reply.finish(entry, place === entries.length - 1 ? actionsFor(entry) : []);
  return reply;
}

const flat = (text) => text.replaceAll(/\s+/g, " ").trim();

function propose(reply, data, place) {
  const said = flat(entries[place]?.content ?? "");
  for (const proposal of proposalsOf(data, place)) {
    // What the agent has just said stands above its card already.
    if (proposal.intent && said.includes(flat(proposal.intent))) proposal.intent = undefined;
    // Stated again, it goes on further down, with what is being written into it.
    const card = waiting.get(proposal.id) ?? new Card(proposal, decide);
    if (card.fate || drafts.has(proposal.id)) card.open();
    cards.set(proposal.id, card);
    waiting.set(proposal.id, card);
    drafts.delete(proposal.id);
    reply.cards.append(card.element);
  }
  reply.tidy();
}

function compare(data) {
  for (const { id, input } of data.executed_tool_calls ?? []) cards.get(id)?.ran(input);
}

function actionsFor(entry) {
  if (entry.again === "pending") return [button("Show what is waiting", () => say("", {}, true))];
  return entry.counts || entry.again === "none" ? [] : [button("Try again", again)];
}

function showUnanswered() {
  const entry = { content: "", data: {}, error: { message: "There is no reply to this yet." } };
  last = new Reply();
  byId("conversation").append(last.element);
  last.finish(entry, [button("Try again", again)]);
}

export function again() {
  if (running) return;
  last?.element.remove();
  if (entries.at(-1)?.role !== "user") entries.pop();
  if (entries.length) answer();
}

function say(content, decided, empty = false) {
  const ids = Object.keys(decided);
  if (running || (!content && !ids.length && !empty)) return;
  const message = { role: "user", content };
  if (ids.length) message.data = deciding(decided);
  const entry = { role: "user", message, decided };
  clearActions();
  entries.push(entry);
  showSaid(entry);
  save();
  answer();
}

function deciding(decided) {
  const data = {};
  for (const [id, decision] of Object.entries(decided)) {
    const { type, raw } = cards.get(id).proposal;
    const name = type === "command" ? "cmds" : "tool_calls";
    (data[name] ??= []).push({ ...raw, execute: false, ...decision });
  }
  return data;
}

function clearActions() {
  for (const old of last?.end.querySelectorAll("button") ?? []) old.remove();
}

async function answer() {
  on.begun();
  const reply = (last = new Reply());
  byId("conversation").append(reply.element);
  const turn = (running = new AbortController());
  const begun = Date.now();
  const clock = setInterval(() => reply.elapsed(Date.now() - begun), 1000);
  // The button that began the turn goes away, and must not take the focus along.
  toField();
  refresh();
  scroll(true);
  const entry = { role: "assistant", content: "", breaks: [], data: {}, counts: false };
  try {
    await turnOf(reply, entry, turn.signal);
  } catch {
    if (turn.signal.aborted) entry.stopped = true;
    else if (!entry.error) Object.assign(entry, { lost: true, error: { message: "The connection to the service was lost." } });
  }
  clearInterval(clock);
  entry.took = Date.now() - begun;
  if (running !== turn) return; // a new conversation has begun
  running = null;
  ended(reply, entry);
}

const turnOf = (reply, entry, signal) => receive(outgoing(entries), reply, entry, signal, {
  session: () => entries.forEach((old) => delete old.data?.session), tokenNeeded: on.tokenNeeded,
});

function ended(reply, entry) {
  // Before the cards are there: behind them a reader of the end would not be at the end any more.
  scroll();
  delete entry.pause;
  const said = entries.filter((e) => e.role === "user" && !e.refused).at(-1);
  const decided = Object.keys(said?.decided ?? {});
  const something = entry.content || proposalsOf(entry.data, 0).length;
  entry.counts = !entry.error && (!entry.stopped || Boolean(something && !decided.length));
  entries.push(entry);
  compare(entry.data);
  if (entry.counts) propose(reply, entry.data, entries.length - 1);
  if (entry.error && (entry.refusedByStatus || REFUSED.test(entry.error.code ?? ""))) refused(entry);
  else entry.unsure = !entry.counts && !entry.untaken && approvedBy(said) > outcomesIn(entry.data);
  delete entry.refusedByStatus;
  delete entry.untaken;
  reply.finish(entry, actionsFor(entry));
  save();
  if (document.activeElement === byId("stop")) toField();
  refresh();
  lookAt(reply.cards.firstElementChild);
  tell(entry);
  drawDeveloper(sessionNow());
  on.ended();
}

const approvedBy = (said) => Object.values(said?.decided ?? {}).filter((decision) => decision.execute).length;
const outcomesIn = ({ executed_tool_calls: calls = [], executed_cmds: commands = [] }) => calls.length + commands.length;

const sessionNow = () => entries.findLast((entry) => entry.data?.session)?.data.session;

export const showDeveloper = () => drawDeveloper(sessionNow());

// The service took nothing of this message: it is taken back, and its decisions are open again.
function refused(entry) {
  entry.again = entry.error.code === "APPROVALS_PENDING" ? "pending" : "none";
  const texts = [];
  const decided = {};
  for (let n = entries.length - 2; n >= 0 && !entries[n].counts; n -= 1) {
    if (entries[n].role !== "user" || entries[n].refused) continue;
    entries[n].refused = true;
    texts.unshift(entries[n].message.content);
    Object.assign(decided, entries[n].decided);
  }
  Object.keys(decided).forEach(reopen);
  const field = byId("text");
  if (!field.value) field.value = texts.filter(Boolean).join("\n\n");
  grow();
}

function reopen(id) {
  const card = cards.get(id);
  if (!card) return;
  card.open();
  card.tracked = true;
  waiting.set(id, card);
}

// Look after the calls of this conversation that the list of what waits does not hold any more.
export function lookAfter(listed, more) {
  if (running) return;
  scroll();
  for (const [id, card] of waiting) {
    if (listed.has(id)) {
      card.tracked = true;
      if (card.isOtherThan(listed.get(id))) revise(id, card);
      else card.learn(listed.get(id));
    }
    // Where more wait than are listed, it may just not have come up yet.
    else if (!card.fate && card.proposal.raw.id && (!more || card.tracked)) overtake(id, card);
  }
}

// A decision on the earlier input would be refused.
async function revise(id, card) {
  const call = await whole(id);
  if (call?.state !== "PENDING" || running || card.fate || waiting.get(id) !== card || !card.isOtherThan(call)) return;
  card.keep();
  drafts.delete(id);
  card.revise(call);
  announce(`The input was changed: ${card.line().textContent}`);
  refresh();
}

async function overtake(id, card) {
  const fate = await fateOf(id);
  if (!fate || running || card.fate || waiting.get(id) !== card) return;
  drafts.delete(id);
  if (fate.approved === undefined) {
    waiting.delete(id);
    card.close(fate);
  } else {
    card.overtaken(fate, fate.waits && entries.some((entry) => entry.decided?.[id]?.execute && !entry.refused));
  }
  announce(`${fate.word}: ${card.line().textContent}. ${fate.why}`);
  refresh();
}

function tell(entry) {
  const names = proposalsOf(entry.data, 0).map((p) => (p.type === "command" ? "a command" : p.name));
  if (entry.error) announce(`Error: ${entry.error.message}`);
  else if (names.length && entry.counts) announce(`${entry.content} Needs your decision: ${names.join(", ")}`);
  else announce(entry.stopped ? "Stopped." : entry.content);
}

function decide(card, decision) {
  const id = card.proposal.id;
  drafts.set(id, decision);
  if (waiting.size === 1) return sendDecisions();
  card.draft(decision, () => {
    drafts.delete(id);
    card.open();
    card.enable(!running);
    card.controls.querySelector("button")?.focus();
    refresh();
  });
  refresh();
  if (undecided().length === 0) byId("send-decisions").focus();
}

const toField = () => byId("text").focus({ preventScroll: true });

const undecided = () => [...waiting.values()].filter((card) => !card.fate && !drafts.has(card.proposal.id));

export function decideAll(decision) {
  for (const card of undecided()) if (!card.answering) card.decided(decision);
}

export function sendDecisions(content = "") {
  say(content, Object.fromEntries(drafts));
}

function refresh() {
  const open = undecided();
  for (const card of waiting.values()) card.enable(!running);
  const several = waiting.size > 1;
  byId("decisions").hidden = !several || Boolean(running);
  byId("decided").textContent = `${drafts.size} of ${waiting.size} decided`;
  byId("send-decisions").disabled = !drafts.size;
  byId("approve-all").disabled = byId("reject-all").disabled = !open.length;
  byId("empty").hidden = entries.length > 0 || Boolean(running);
  byId("stop").hidden = !running;
  byId("send").hidden = Boolean(running);
  const blocked = open.some((card) => card.proposal.type === "tool_call");
  byId("send").disabled = blocked;
  byId("hint").textContent = blocked
    ? "Decide the calls above first."
    : "Enter sends, Shift+Enter starts a new line.";
}

function clear() {
  running?.abort();
  running = null;
  entries = [];
  waiting = new Map();
  drafts = new Map();
  cards.clear();
  last = null;
  byId("conversation").replaceChildren();
}

// Another conversation of those that are kept, or a new one.
export function turnTo(id) {
  clear();
  talks.choose(id);
  restore();
  talks.draw();
  on.ended();
  toField();
}

// Another tab has gone on with this one.
export function reread() {
  if (running || [...waiting.values()].some((card) => card.answering) || drafts.size) return;
  clear();
  restore();
}

// What the agent's tools are is known now: titles, marks, and which inputs may be changed.
export function refreshCards() {
  for (const [id, card] of waiting) if (!card.fate && !card.answering && !drafts.has(id)) card.refresh();
  refresh();
}
