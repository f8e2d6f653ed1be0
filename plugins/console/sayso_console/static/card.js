// A card: one proposal with its buttons, until it is decided.

import { toolOf } from "./agent.js";
import { fieldsOf, jsonField } from "./edit.js";
import { commentsOf, factsList, headingOf, marksOf, objectIn } from "./facts.js";
import { fold } from "./fold.js";
import { objectOf, sourceOf } from "./json.js";
import { changesOf, previewOf } from "./preview.js";
import { block, firstLine, inputOf } from "./proposal.js";
import { button, el, escaped, visible } from "./text.js";

const OPEN = ["principal", "person", "user", "protocol", "client", "address", "created", "expires", "votes", "voted", "rule", "preview", "barred", "seen", "comments"];

export class Card {
  constructor(proposal, decide) {
    this.proposal = proposal;
    this.decide = decide;
    this.enabled = true;
    this.more = el("span", { class: "more" });
    this.element = el("div", { class: "holder", "data-id": proposal.id });
    this.open();
    const { editable } = proposal.type === "command" ? {} : toolOf(proposal.name);
    this.allow(editable);
  }

  get label() {
    return this.proposal.type === "command" ? "command" : "tool call";
  }

  // A call of one's own that waits in the inbox; in a conversation it is rejected with a message.
  get own() {
    return Boolean(this.proposal.listed && this.proposal.own);
  }

  get id() {
    return `call-${this.proposal.id.replaceAll(/\W/g, "-")}`;
  }

  open(problem) {
    this.kind = el("p", { class: "kind" }, `This ${this.label} waits for a decision`);
    this.controls = el("div", { class: "buttons" });
    this.input = this.inputBox(this.proposal.input);
    this.facts = el("div", {}, factsList(this.proposal) ?? "");
    this.preview = el("div", { class: "previews" }, ...previewOf(this.proposal));
    this.comments = el("div", { class: "comments" }, ...commentsOf(this.proposal));
    const object = this.proposal.type === "command" ? undefined : objectIn(this.proposal.name, this.proposal.input);
    const name = [`Proposed ${this.label}: ${this.line().textContent}`, object].filter(Boolean).join(" ");
    this.card = el("section", { class: "card", "aria-label": name },
      el("div", { class: "top" }, this.kind, marksOf(this.proposal)), this.title(), ...this.context(),
      this.preview, this.input, this.facts, this.comments, this.controls);
    if (problem) this.card.append(el("p", { class: "error", role: "alert" }, visible(problem)));
    this.element.replaceChildren(this.card, ...this.keptTexts());
    this.fate = undefined;
    if (this.earlier) this.showEarlier();
    this.ask();
  }

  // The input scrolls inside the card, so that the buttons stay in sight.
  inputBox(input) {
    return el("div", { class: "scroll" }, inputOf({ ...this.proposal, input }));
  }

  title() {
    const { type, name } = this.proposal;
    const exact = type === "command" ? undefined : el("code", { class: "tool", dir: "ltr" }, visible(name, "line"));
    return el("h2", { id: this.id, class: "name", dir: "auto" }, ...headingOf(this.proposal), exact ? " " : undefined, exact);
  }

  context() {
    const { intent, description } = this.proposal;
    return [
      description ? el("p", { class: "about", dir: "auto" }, visible(description)) : undefined,
      intent ? el("p", { class: "intent", dir: "auto" }, "The agent says: ", el("bdi", {}, visible(intent))) : undefined,
    ].filter(Boolean);
  }

  isOtherThan({ revision }) {
    return revision !== undefined && revision !== (this.proposal.revision ?? 1);
  }

  // Its input was changed: nobody decides on the earlier one any more, and nobody on this one unseen.
  revise(call) {
    const { proposal } = this;
    const input = call.edited ?? call.input;
    this.earlier = proposal.input;
    this.typed = undefined;
    this.proposal = { ...proposal, input, revision: call.revision, raw: { ...proposal.raw, input }, barred: undefined };
    this.open();
    this.learn(call);
  }

  showEarlier() {
    this.kind.textContent = `The input of this ${this.label} was changed; it waits for a decision`;
    this.show(this.proposal.input, this.earlier);
  }

  // What the record has of the call beside what its caller was sent.
  learn(call) {
    if (this.isOtherThan(call)) return;
    const known = Object.fromEntries(OPEN.filter((name) => call[name] !== undefined).map((name) => [name, call[name]]));
    const before = this.proposal;
    this.proposal = { ...before, ...known };
    this.facts.replaceChildren(factsList(this.proposal) ?? "");
    this.comments.replaceChildren(...commentsOf(this.proposal));
    if (known.preview && !before.preview) this.preview.replaceChildren(...previewOf(this.proposal));
    if (!this.answering && !this.fate && known.barred !== before.barred && this.controls.querySelector("button.danger")) this.ask();
  }

  ask(focus = false) {
    const { barred, rule, comments } = this.proposal;
    const approve = button("Approve", () => (rule?.reason || this.reasonNeeded ? this.askWhy() : this.decided({ execute: true })), "primary");
    const reject = button(this.own ? "Withdraw\u2026" : "Reject\u2026", () => this.askReason(), "danger");
    const comment = this.proposal.listed && Array.isArray(comments) ? button("Comment\u2026", () => this.askComment(), "quiet") : "";
    for (const one of [approve, reject]) one.setAttribute("aria-describedby", this.id);
    const first = barred ? el("span", { class: "note" }, BARRED[barred] ?? "Somebody else has to approve this.") : approve;
    this.controls.replaceChildren(first, reject, barred ? "" : this.more, comment);
    this.update();
    if (focus) reject.focus();
  }

  // Whether somebody writes an answer into it.
  get answering() {
    return this.controls.querySelector("form") !== null;
  }

  // As it is now known what its tool is.
  refresh() {
    this.allow(this.proposal.type === "command" ? undefined : toolOf(this.proposal.name).editable);
    this.open();
  }

  // Its input may be changed: all of it (true), or the parameters that are named.
  allow(editable) {
    if (!editable || this.editable) return;
    this.editable = editable;
    this.more.append(button("Edit\u2026", () => (this.typed === undefined ? this.askFields() : this.askInput())));
    this.update();
  }

  askReason() {
    const field = this.textField(this.reason);
    const { own } = this;
    this.fill(own ? "Why do you withdraw it? The agent is told (may be empty)." : "Why not? The agent is told (may be empty).", field,
      el("button", { type: "submit", class: "danger" }, own ? "Withdraw" : "Reject"),
      () => ({ rejection_reason: (this.reason = field.value.trim()) || (own ? "withdrawn" : "no reason given"), ...(own && { withdraw: true }) }));
  }

  askComment() {
    const field = this.textField();
    field.required = true;
    this.fill("A comment for the others who decide; the agent does not get it.", field,
      el("button", { type: "submit" }, "Keep the comment"), () => ({ comment: field.value.trim() }));
  }

  // The rule of the call demands a reason.
  askWhy() {
    const field = this.textField();
    field.required = true;
    this.fill("Why may it run? The reason is kept with the decision.", field,
      el("button", { type: "submit", class: "primary" }, "Approve"), () => ({ execute: true, reason: field.value.trim() }));
  }

  textField(value = "") {
    const field = el("input", { maxlength: "4000", autocomplete: "off", dir: "auto" });
    field.value = value;
    return field;
  }

  get named() {
    return Array.isArray(this.editable) ? this.editable : undefined;
  }

  part(keep) {
    return Object.fromEntries(Object.entries(this.proposal.input).filter(([name]) => keep === (this.named?.includes(name) ?? true)));
  }

  askFields() {
    const { input, name } = this.proposal;
    const { schema } = toolOf(name);
    const names = this.named ?? [...new Set([...Object.keys(input), ...Object.keys(schema?.properties ?? {})])];
    const { element, first, read } = fieldsOf(input, names, schema, `edit-${this.id}`);
    if (!first) return this.askInput();
    const json = button("Edit as JSON", () => this.askInput(), "quiet");
    this.fill(undefined, first, el("button", { type: "submit", class: "primary" }, "Approve as edited"), () => {
      const found = read();
      if (found === undefined) return undefined;
      const edited = { ...this.part(false), ...found };
      this.typed = escaped(sourceOf(found));
      return { execute: true, input: edited };
    }, element, json);
  }

  askInput() {
    const field = jsonField(this.part(true), this.typed, `answer-${this.proposal.id}`);
    const what = this.named ? `What may change of the input (${this.named.join(", ")})` : "The input that will run";
    this.fill(`${what}, as JSON:`, field,
      el("button", { type: "submit", class: "primary" }, "Approve as edited"),
      () => ({ execute: true, input: { ...this.part(false), ...objectOf((this.typed = field.value)) } }));
  }

  fill(label, field, submit, decision, element = field, more = undefined) {
    if (label) field.id = `answer-${this.proposal.id}`;
    const form = el("form", { class: "answer" }, label ? el("label", { for: field.id }, visible(label)) : undefined, element,
      submit, more, button("Cancel", () => this.ask(true), "quiet"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const made = decision();
      if (!made) return;
      this.written = this.typed ?? (field.value === field.defaultValue ? undefined : field.value);
      this.decided(made);
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

  show(input, before = this.proposal.input) {
    const changes = changesOf(before, input);
    const shown = el("div", {}, changes ? el("p", { class: "label" }, "What was changed") : undefined, changes, this.inputBox(input));
    this.input.replaceWith(shown);
    this.input = shown;
  }

  // Decided and sent: folded to one line. Somebody who has decided before stays named in it.
  sent(decision, others = this.fate) {
    this.decision = decision;
    const approved = decision.execute === true;
    const { input = this.proposal.input } = decision;
    const word = el("span", { class: `decision ${approved ? "approved" : "rejected"}` },
      approved ? "Approved " : decision.withdraw ? "Withdrawn " : "Rejected ", this.line(), decision.input && !others ? ", edited" : "",
      ...(approved ? [] : [": ", el("bdi", {}, visible(decision.rejection_reason))]),
      others ? el("span", { class: "before" }, ". ", visible(others.word, "line"), ".") : undefined);
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

  // Somebody else has decided it, and the conversation goes on when that is passed on; or it was
  // approved here (`own`) and something else keeps it from starting.
  overtaken(given, own = false) {
    const fate = (this.fate = own ? { ...given, word: "You have approved it; it has not started" } : given);
    const { approved, reason, input, word, why } = fate;
    this.keep();
    this.element.replaceChildren(this.card, ...this.keptTexts());
    this.card.className = "card closed";
    this.kind.replaceChildren(visible(word, "line"), why ? ". " : "", el("bdi", {}, visible(why)));
    if (input) this.show(input);
    const decision = approved ? { execute: true, ...(input && { input }) } : { rejection_reason: reason ?? "it was rejected before" };
    const pass = button(own ? "Start it now" : approved ? "Approve it, too" : "Reject it, too", () => this.decided(decision));
    this.controls.replaceChildren(pass);
    this.update();
  }

  // Approved by this person, and short of the number that its rule demands.
  voted(call) {
    if (this.isOtherThan(call)) this.revise(call);
    this.learn({ ...call, barred: undefined });
    this.card.className = "card approved";
    this.kind.textContent = `You have approved it; ${call.votes.given} of ${call.votes.needed} approvals`;
    this.controls.replaceChildren(el("span", { class: "note" }, "It waits for others now."));
  }

  // What somebody was writing into it, or has sent in vain, for them to copy.
  keep() {
    const changed = [...this.controls.querySelectorAll("input:not([type=checkbox]), textarea")].filter((field) => field.value !== field.defaultValue);
    const named = (field) => `${field.labels[0]?.textContent}: ${field.value}`;
    const text = changed.length > 1 ? changed.map(named).join("\n") : changed[0]?.value ?? this.written;
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
    const facts = factsList(this.proposal);
    this.element.replaceChildren(fold(summary, kind, ...this.context(), ...previewOf(this.proposal), this.inputBox(input), facts ?? ""),
      ...this.keptTexts());
  }

  enable(enabled) {
    this.enabled = enabled;
    this.update();
  }

  update() {
    for (const control of this.controls.querySelectorAll("button")) control.disabled = !this.enabled;
  }
}

const BARRED = {
  OWN_REQUEST: "You asked for it yourself: somebody else has to approve it.",
  NOT_AN_APPROVER: "Its rule names others who may approve it.",
  AGENT: "An agent approves nothing; a person has to.",
};
