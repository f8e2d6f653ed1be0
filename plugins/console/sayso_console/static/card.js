// A card: one proposal with its buttons, until it is decided.

import { fold } from "./fold.js";
import { objectOf, sourceOf } from "./json.js";
import { block, boundOf, firstLine, inputOf } from "./proposal.js";
import { button, el, escaped, visible } from "./text.js";

export class Card {
  constructor(proposal, decide, origin) {
    this.proposal = proposal;
    this.decide = decide;
    this.origin = origin;
    this.enabled = true;
    this.more = el("span", { class: "more" });
    this.element = el("div", { class: "holder", "data-id": proposal.id });
    this.open();
  }

  get label() {
    return this.proposal.type === "command" ? "command" : "tool call";
  }

  open(problem) {
    this.kind = el("p", { class: "kind" }, `This ${this.label} waits for your decision`);
    this.controls = el("div", { class: "buttons" });
    this.input = inputOf(this.proposal);
    const name = `Proposed ${this.label}: ${this.line().textContent}`;
    this.card = el("section", { class: "card", "aria-label": name }, this.kind, this.title(),
      ...this.context(), this.input, this.controls);
    if (problem) this.card.append(el("p", { class: "error", role: "alert" }, visible(problem)));
    this.element.replaceChildren(this.card, ...this.keptTexts());
    this.fate = undefined;
    this.ask();
  }

  title() {
    const name = this.proposal.type === "command" ? "Terminal command" : visible(this.proposal.name, "line");
    return el("h2", { class: "name", dir: "auto" }, name);
  }

  context() {
    const { intent, description } = this.proposal;
    return [
      intent ? el("p", { class: "intent", dir: "auto" }, "Why: ", el("bdi", {}, visible(intent))) : undefined,
      description ? el("p", { class: "about", dir: "auto" }, visible(description)) : undefined,
      ...boundOf(this.proposal),
      this.origin ? el("p", { class: "origin" }, visible(this.origin)) : undefined,
    ].filter(Boolean);
  }

  ask(focus = false) {
    const approve = button("Approve", () => this.decided({ execute: true }), "primary");
    const reject = button("Reject\u2026", () => this.askReason(), "danger");
    this.controls.replaceChildren(approve, reject, this.more);
    this.update();
    if (focus) reject.focus();
  }

  // Whether somebody writes an answer into it.
  get answering() {
    return this.controls.querySelector("form") !== null;
  }

  // Its input may be changed: all of it (true), or the parameters that are named.
  allow(editable) {
    if (!editable || this.editable) return;
    this.editable = editable;
    this.more.append(button("Edit\u2026", () => this.askInput()));
    this.update();
  }

  askReason() {
    const field = el("input", { maxlength: "4000", autocomplete: "off", dir: "auto" });
    field.value = this.reason ?? "";
    this.fill("Why not? The agent is told (may be empty).", field,
      el("button", { type: "submit", class: "danger" }, "Reject"),
      () => ({ rejection_reason: (this.reason = field.value.trim()) || "no reason given" }));
  }

  askInput() {
    const field = el("textarea", { rows: "6", spellcheck: "false", autocomplete: "off" });
    const named = Array.isArray(this.editable) ? this.editable : undefined;
    const part = (keep) => Object.fromEntries(
      Object.entries(this.proposal.input).filter(([name]) => keep === (named?.includes(name) ?? true)));
    field.defaultValue = escaped(sourceOf(part(true)));
    if (this.typed !== undefined) field.value = this.typed;
    field.addEventListener("input", () => {
      field.setCustomValidity(objectOf(field.value) ? "" : "This is no JSON object.");
    });
    const what = named ? `What may change of the input (${named.join(", ")})` : "The input that will run";
    this.fill(`${what}, as JSON:`, field,
      el("button", { type: "submit", class: "primary" }, "Approve as edited"),
      () => ({ execute: true, input: { ...part(false), ...objectOf((this.typed = field.value)) } }));
  }

  fill(label, field, submit, decision) {
    field.id = `answer-${this.proposal.id}`;
    const form = el("form", { class: "answer" }, el("label", { for: field.id }, visible(label)), field,
      submit, button("Cancel", () => this.ask(true), "quiet"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.written = field.value === field.defaultValue ? undefined : field.value;
      this.decided(decision());
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.ask(true);
    });
    this.controls.replaceChildren(form);
    this.update();
    field.focus();
  }

  decided(decision) {
    if (this.enabled) this.decide(this, decision);
  }

  // Decided, not sent yet; `undo` opens it again.
  draft(decision, undo) {
    const approved = decision.execute === true;
    this.card.className = `card ${approved ? "approved" : "rejected"}`;
    this.kind.textContent = approved ? "You approve, not sent yet" : "You reject, not sent yet";
    const { input, rejection_reason } = decision;
    if (input) this.show(input);
    const verdict = approved ? [input ? "Approve as edited" : "Approve"] : ["Reject: ", el("bdi", {}, visible(rejection_reason))];
    const change = button("Undo", undo);
    this.controls.replaceChildren(el("span", { class: "verdict" }, ...verdict), change);
    change.focus();
  }

  show(input) {
    const shown = inputOf({ ...this.proposal, input });
    this.input.replaceWith(shown);
    this.input = shown;
  }

  // Decided and sent: folded to one line.
  sent(decision) {
    this.decision = decision;
    const approved = decision.execute === true;
    const { input = this.proposal.input } = decision;
    const word = el("span", { class: `decision ${approved ? "approved" : "rejected"}` },
      approved ? "Approved " : "Rejected ", this.line(), decision.input ? ", edited" : "",
      ...(approved ? [] : [": ", el("bdi", {}, visible(decision.rejection_reason))]));
    this.fold(word, input);
  }

  // It ran with `input`: another's, where that one has edited it and was the first to approve.
  ran(input) {
    if (!this.decision?.execute || this.decision.input) return;
    if (sourceOf(input) === sourceOf(this.proposal.input)) return;
    const word = el("span", { class: "decision" }, "Approved, but it ran with another input: ", this.line());
    this.fold(word, input, "unknown");
  }

  // Cannot be decided here any more: somebody else has, or it has expired.
  close({ word, why, input }) {
    this.keep();
    this.fold(el("span", { class: "decision" }, visible(word, "line"), ": ", this.line(), ". ", el("bdi", {}, visible(why))), input);
  }

  // Somebody else has decided it, and the conversation goes on when that is passed on.
  overtaken(fate) {
    const { approved, reason, input, word, why } = (this.fate = fate);
    this.keep();
    this.element.replaceChildren(this.card, ...this.keptTexts());
    this.card.className = "card closed";
    this.kind.replaceChildren(visible(word, "line"), why ? ". " : "", el("bdi", {}, visible(why)));
    if (input) this.show(input);
    const decision = approved ? { execute: true, ...(input && { input }) } : { rejection_reason: reason ?? "it was rejected before" };
    const pass = button(approved ? "Approve it, too" : "Reject it, too", () => this.decided(decision));
    this.controls.replaceChildren(pass);
    this.update();
  }

  // What somebody was writing into it, or has sent in vain, for them to copy.
  keep() {
    const field = this.controls.querySelector("input, textarea");
    const text = field && field.value !== field.defaultValue ? field.value : this.written;
    this.written = undefined;
    if (!text) return;
    const dismiss = button("Dismiss", () => {
      this.kept.remove();
      this.kept = undefined;
    }, "quiet");
    this.kept = el("div", { class: "kept" }, el("p", { class: "label" }, "You had written"),
      block(text, "text", "You had written"), dismiss);
  }

  keptTexts() {
    return this.kept ? [this.kept] : [];
  }

  line() {
    const { type, name, input } = this.proposal;
    const shown = type === "command" ? firstLine(input.command) : name;
    return el("span", { class: "name" }, visible(shown, "line"));
  }

  fold(summary, input = this.proposal.input, kind = "quiet") {
    const shown = inputOf({ ...this.proposal, input });
    this.element.replaceChildren(fold(summary, kind, ...this.context(), shown), ...this.keptTexts());
  }

  enable(enabled) {
    this.enabled = enabled;
    this.update();
  }

  update() {
    for (const control of this.controls.querySelectorAll("button")) control.disabled = !this.enabled;
  }
}
