// A card: one proposal with its buttons, until it is decided.

import { fold } from "./fold.js";
import { firstLine, inputOf } from "./proposal.js";
import { button, el, visible } from "./text.js";

const SETTLE = 300; // a button that has just appeared under the pointer takes no click yet

export class Card {
  constructor(proposal, decide, origin) {
    this.proposal = proposal;
    this.decide = decide;
    this.origin = origin;
    this.enabled = true;
    this.ready = false;
    this.element = el("div", { class: "holder", "data-id": proposal.id });
    setTimeout(() => {
      this.ready = true;
      this.update();
    }, SETTLE);
    this.open();
  }

  get label() {
    return this.proposal.type === "command" ? "command" : "tool call";
  }

  open(problem) {
    this.kind = el("p", { class: "kind" }, `This ${this.label} waits for your decision`);
    this.controls = el("div", { class: "buttons" });
    this.card = el("section", { class: "card", "aria-label": `Proposed ${this.label}` }, this.kind,
      this.title(), ...this.context(), inputOf(this.proposal), this.controls);
    if (problem) this.card.append(el("p", { class: "error", role: "alert" }, visible(problem)));
    this.element.replaceChildren(this.card);
    this.ask();
  }

  title() {
    const name = this.proposal.type === "command" ? "Terminal command" : visible(this.proposal.name, "line");
    return el("h2", { class: "name", dir: "auto" }, name);
  }

  context() {
    const { intent, description } = this.proposal;
    return [
      intent ? el("p", { class: "intent", dir: "auto" }, "Why: ", visible(intent)) : undefined,
      description ? el("p", { class: "about", dir: "auto" }, visible(description)) : undefined,
      this.origin ? el("p", { class: "origin" }, visible(this.origin)) : undefined,
    ].filter(Boolean);
  }

  ask(focus = false) {
    const approve = button("Approve", () => this.decided({ execute: true }), "primary");
    const reject = button("Reject\u2026", () => this.askReason(), "danger");
    this.controls.replaceChildren(approve, reject);
    this.update();
    if (focus) reject.focus();
  }

  askReason() {
    const id = `reason-${this.proposal.id}`;
    const field = el("input", { id, maxlength: "4000", autocomplete: "off", dir: "auto" });
    const form = el("form", { class: "reason" },
      el("label", { for: id }, "Why not? The agent is told (may be empty)."), field,
      el("button", { type: "submit", class: "danger" }, "Reject"),
      button("Cancel", () => this.ask(true), "quiet"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.decided({ rejection_reason: field.value.trim() || "no reason given" });
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.ask(true);
    });
    this.controls.replaceChildren(form);
    this.update();
    field.focus();
  }

  decided(decision) {
    if (this.enabled && this.ready) this.decide(this, decision);
  }

  // Decided, not sent yet; `undo` opens it again.
  draft(decision, undo) {
    const approved = decision.execute === true;
    this.card.className = `card ${approved ? "approved" : "rejected"}`;
    this.kind.textContent = approved ? "You approve, not sent yet" : "You reject, not sent yet";
    const verdict = approved ? "Approve" : el("span", {}, "Reject: ", visible(decision.rejection_reason));
    const change = button("Undo", undo);
    this.controls.replaceChildren(el("span", { class: "verdict" }, verdict), change);
    change.focus();
  }

  // Decided and sent: folded to one line.
  sent(decision) {
    const approved = decision.execute === true;
    const word = el("span", { class: `decision ${approved ? "approved" : "rejected"}` },
      approved ? "Approved " : "Rejected ", this.line(),
      ...(approved ? [] : [": ", visible(decision.rejection_reason)]));
    this.fold(word);
  }

  // Somebody else has decided before, and otherwise.
  before(decision) {
    const word = decision.execute === true ? "Approved elsewhere: " : "Rejected elsewhere: ";
    this.fold(el("span", { class: "decision" }, word, this.line()));
  }

  // Cannot be decided any more, for `why`.
  close(why, word = "Not decided") {
    this.fold(el("span", { class: "decision" }, `${word}: `, this.line(), ". ", visible(why)));
  }

  line() {
    const { type, name, input } = this.proposal;
    const shown = type === "command" ? firstLine(input.command) : name;
    return el("span", { class: "name" }, visible(shown, "line"));
  }

  fold(summary) {
    this.element.replaceChildren(fold(summary, "quiet", ...this.context(), inputOf(this.proposal)));
  }

  enable(enabled) {
    this.enabled = enabled;
    this.update();
  }

  update() {
    const off = !(this.enabled && this.ready);
    for (const control of this.controls.querySelectorAll("button")) control.disabled = off;
  }
}
