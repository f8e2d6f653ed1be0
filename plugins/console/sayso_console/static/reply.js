// One reply on the page, while it comes and when it has ended.

import { fold, outcome } from "./fold.js";
import { isSafe } from "./inline.js";
import { Growing } from "./markdown.js";
import { firstLine } from "./proposal.js";
import { el, visible } from "./text.js";

export class Reply {
  constructor() {
    this.outcomes = el("div", { class: "reply" });
    this.thinking = el("p", { class: "thinking" }, "Working\u2026");
    this.steps = el("ul", { class: "status" });
    this.text = el("div", { class: "markdown" });
    this.growing = new Growing(this.text, () => this.tidy());
    this.cards = el("div", { class: "reply" });
    this.end = el("div", { class: "reply" });
    this.parts = [this.outcomes, this.thinking, this.steps, this.text, this.cards, this.end];
    this.element = el("article", { class: "reply running", "aria-label": "Reply" });
    this.tidy();
  }

  // Only what holds something is on the page, so that gaps are even.
  tidy() {
    const running = this.element.classList.contains("running");
    const shown = this.parts.filter((part) => part.childNodes.length
      && (part !== this.thinking || (running && !this.steps.childNodes.length && !this.text.childNodes.length)));
    if (shown.some((part, n) => this.element.children[n] !== part) || this.element.children.length !== shown.length) {
      this.element.replaceChildren(...shown);
    }
  }

  add(text) {
    this.growing.add(text);
  }

  // The same words again at once, as with response interceptors, are counted in their line.
  status(text) {
    if (text === this.step?.text) {
      this.step.times.textContent = ` \u00d7 ${this.step.count += 1}`;
      return;
    }
    const times = el("span");
    this.step = { text, times, count: 1 };
    this.steps.append(el("li", {}, el("span", { dir: "auto" }, visible(text), times)));
    while (this.steps.children.length > 100) this.steps.firstChild.remove();
    this.tidy();
  }

  elapsed(time) {
    if (time >= 3000) this.thinking.textContent = `Working\u2026 ${secondsOf(time)}`;
  }

  executed(data) {
    const calls = data.executed_tool_calls ?? [];
    const known = new Set(calls.map((call) => call.id));
    const others = (data.executed_approvals ?? []).filter((item) => !known.has(item.id) && item.type !== "command");
    // Whatever a tool says of itself, a call among the first has run.
    const made = [...calls, ...others].map((call, n) => outcome(call.name, { ...call, type: "tool_call" }, String(call.output), n < calls.length));
    for (const { command, output } of data.executed_cmds ?? []) {
      made.push(outcome(firstLine(command), { type: "command", input: { command } }, String(output), true));
    }
    this.outcomes.replaceChildren(...made);
    this.tidy();
  }

  finish(entry, actions = []) {
    this.element.classList.remove("running");
    this.growing.finish(withBreaks(entry));
    if (this.steps.children.length) {
      const count = this.steps.children.length;
      const steps = fold(count === 1 ? "1 step" : `${count} steps`, "quiet", this.steps.cloneNode(true));
      this.parts.splice(this.parts.indexOf(this.steps), 1, el("div", {}, steps));
    }
    this.end.replaceChildren(...links(entry.data), ...ending(entry, actions), ...costs(entry));
    this.tidy();
  }
}

const secondsOf = (time) => (time < 60_000 ? `${Math.round(time / 1000)} s` : `${Math.floor(time / 60_000)} min ${Math.round(time / 1000) % 60} s`);

// How long it took, if that is worth a word, and the tokens where the model tells them.
function costs({ took = 0, usage }) {
  const said = [];
  if (took >= 3000) said.push(secondsOf(took));
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0);
  if (tokens) said.push(`${tokens.toLocaleString()} tokens`);
  return said.length ? [el("p", { class: "note costs" }, said.join(" \u00b7 "))] : [];
}

function withBreaks({ content, breaks = [] }) {
  const cuts = [0, ...breaks, content.length];
  return cuts.slice(1).map((to, n) => content.slice(cuts[n], to)).filter(Boolean).join("\n\n");
}

function links(data) {
  return (data.url_configs ?? []).map(({ url, description }) => {
    const text = el("span", {}, visible(url, "line"));
    const safe = isSafe(url);
    const link = safe ? el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text) : text;
    return el("p", {}, description ? el("span", {}, visible(description), " ") : undefined, link);
  });
}

const STOPS = {
  silent: "The agent has nothing to say to this.",
  blocked: "This was blocked before it reached the agent.",
  max_tokens: "The reply was cut: it reached its length limit.",
  max_steps: "The turn was cut: it reached its limit of steps.",
  refusal: "The model declined to answer.",
};

const UNSURE = "What you have approved may have run, or still run. Try again to see what came of it: nothing runs twice.";

function ending(entry, actions) {
  const unsure = entry.unsure ? [el("p", {}, UNSURE)] : [];
  if (entry.error) {
    const { message, code, incident } = entry.error;
    const told = [code, incident && `incident ${incident}`].filter(Boolean).join(", ");
    const parts = [el("bdi", {}, visible(message))];
    if (told) parts.push(el("span", { class: "code" }, visible(told, "line")));
    return [el("div", { class: "error", role: "alert" }, ...parts, ...unsure, ...actions)];
  }
  if (entry.stopped) return [el("p", { class: "note" }, "Stopped. "), ...unsure, ...actions];
  return entry.stop_reason in STOPS ? [el("p", { class: "note" }, STOPS[entry.stop_reason])] : [];
}
