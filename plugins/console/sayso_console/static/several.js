// Several calls of one tool, selected one by one and approved at once.

import { byId, el, visible } from "./text.js";
import { agent } from "./agent.js";

const MOST = 100; // that the service takes
const selected = new Set(); // of Cards

export const chosen = () => [...selected];

// A card of a tool of which others wait, too, can be selected.
export function offerChoice(cards) {
  const open = agent.inbox ? cards.filter((card) => card.card.isConnected && !card.fate && card.until === undefined && card.proposal.mine) : [];
  const times = new Map();
  for (const { proposal } of open) times.set(proposal.name, (times.get(proposal.name) ?? 0) + 1);
  for (const card of cards) {
    const offered = open.includes(card) && times.get(card.proposal.name) > 1;
    if (!offered) {
      selected.delete(card);
      card.card.querySelector(".select")?.remove();
    } else if (!card.card.querySelector(".select")) {
      const box = el("input", { type: "checkbox", "aria-describedby": card.id });
      box.addEventListener("change", () => select(card, box.checked));
      card.card.querySelector(".top").append(el("label", { class: "select" }, box, " Select"));
    }
  }
  for (const card of selected) if (!cards.includes(card)) selected.delete(card);
  show();
}

function select(card, yes) {
  if (!yes) selected.delete(card);
  for (const other of yes ? selected : []) if (other.proposal.name !== card.proposal.name) deselect(other);
  if (yes) selected.add(card);
  show();
}

function deselect(card) {
  selected.delete(card);
  const box = card.card.querySelector(".select input");
  if (box) box.checked = false;
}

export function dropChoice() {
  for (const card of [...selected]) deselect(card);
  show();
}

function show() {
  const [first] = selected;
  byId("several").hidden = selected.size < 2;
  const tooMany = selected.size > MOST;
  byId("several-approve").disabled = tooMany;
  const most = tooMany ? `; ${MOST} at most can be approved at once` : "";
  if (first) byId("several-count").replaceChildren(`${selected.size} calls of `, visible(first.proposal.name, "line"), ` selected${most}`);
}
