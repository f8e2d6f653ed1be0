// What is folded to one line until somebody wants to see it.

import { block, inputOf } from "./proposal.js";
import { el, visible } from "./text.js";

export function fold(summary, kind, ...inside) {
  return el("details", { class: `fold ${kind}` }, el("summary", {}, summary),
    el("div", { class: "inside" }, ...inside));
}

export function outcome(name, proposal, output, ran) {
  const failed = output.startsWith("Error:");
  const unknown = output.startsWith("Outcome unknown:");
  const rejected = !ran && output.startsWith("Rejected:");
  const word = failed ? "Failed: " : unknown ? "Outcome unknown: " : rejected ? "Rejected: " : "Ran ";
  const shown = el("span", { class: "name" }, visible(name, "line"));
  const found = fold(el("span", {}, word, shown), failed ? "failed" : unknown ? "unknown" : "",
    inputOf(proposal), el("p", { class: "label" }, "Output"), block(output, "text", "Output"));
  found.open = unknown;
  return found;
}
