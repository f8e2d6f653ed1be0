// The preview that a tool's author makes of a call, and the difference of two inputs.

import { sourceOf } from "./json.js";
import { el, visible } from "./text.js";

const SIGNS = { "+": ["added", "added: "], "-": ["removed", "removed: "] };

// A text that is a unified diff has its lines marked, by sign, colour and word.
export function previewOf({ preview }) {
  if (!preview) return [];
  const isDiff = /^(?:diff |--- )/.test(preview);
  const shown = isDiff ? preview.split("\n").map((line) => lineOf(line)) : [visible(preview)];
  return [el("details", { class: "preview", open: "" },
    el("summary", {}, "Preview by the tool, from when the call was proposed"),
    el("pre", { dir: "ltr", tabindex: "0", role: "group", "aria-label": "Preview" }, ...shown))];
}

function lineOf(line) {
  const heads = /^(?:diff |index |---|\+\+\+|@@)/.test(line);
  const [kind, word] = (!heads && SIGNS[line[0]]) || [heads ? "head" : "same", ""];
  return el("span", { class: `line ${kind}` }, word ? el("span", { class: "hidden" }, word) : undefined, visible(line, "exact"), "\n");
}

// What an edit changes: each parameter with the value before and after.
export function changesOf(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const lines = names.flatMap((name) => {
    const [one, other] = [before, after].map((input) => (Object.hasOwn(input, name) ? sourceOf(input[name]) : undefined));
    if (one === other) return [];
    return [`@@ ${name}`, ...(one ?? "").split("\n").filter(Boolean).map((line) => `-${line}`),
      ...(other ?? "").split("\n").filter(Boolean).map((line) => `+${line}`)];
  });
  return lines.length ? el("pre", { class: "changes", dir: "ltr", "aria-label": "Changes" }, ...lines.map(lineOf)) : undefined;
}
