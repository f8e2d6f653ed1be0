// A proposed call or command: what it is, and its exact input.

import { isDefault } from "./agent.js";
import { Exact } from "./json.js";
import { el, visible } from "./text.js";
import { isObject, plain } from "./words.js";

function typeOf(value) {
  if (value === null) return "null";
  if (value instanceof Exact) return "number";
  if (Array.isArray(value)) return "list";
  return typeof value === "string" ? "text" : typeof value;
}

const isShort = (value) => !isObject(value) && String(value).length <= 80 && !String(value).includes("\n");

export function block(value, mode, label) {
  const text = plain(value);
  const lines = text.split("\n").length;
  if (text.length <= 500 && lines <= 14) return el("pre", { dir: "ltr" }, visible(text, mode));
  // It may be scrolled, and its end out of sight.
  const size = `In all: ${lines === 1 ? "1 line" : `${lines} lines`}, ${text.length} characters`;
  return el("div", {}, el("pre", { dir: "ltr", tabindex: "0", role: "group", "aria-label": label }, visible(text, mode)),
    el("p", { class: "note" }, size));
}

export function inputOf(proposal) {
  const input = proposal.input;
  if (proposal.type === "command") return commandOf(input);
  if (!isObject(input)) return block(input, "exact", "Input");
  const names = Object.keys(input);
  const others = othersOf(proposal.about ?? {}, input);
  if (!names.length && !others.length) return el("p", { class: "note" }, "No input.");
  const rows = names.map((name) => {
    const value = input[name];
    const { description: about, read_by: reader } = proposal.about?.[name] ?? {};
    const term = el("dt", {}, el("code", { dir: "ltr" }, visible(name, "line")),
      el("span", { class: "type" }, `  ${typeOf(value)}${value === "" ? ", empty" : ""}`),
      isDefault(proposal.name, name, value) ? el("span", { class: "badge" }, "default") : undefined,
      about ? el("span", { class: "what", dir: "auto" }, visible(about)) : undefined,
      reader ? el("span", { class: "what" }, "as it was sent: the tool makes something else of it") : undefined);
    return el("div", { class: isShort(value) ? "short" : undefined }, term, el("dd", {}, block(value, "exact", "Value")));
  });
  return el("dl", { class: "input" }, ...rows, ...others);
}

// The parameters that no input states, with what the tool gets, as far as that may be shown.
function othersOf(about, input) {
  const names = Object.keys(about).filter((name) => !Object.hasOwn(input, name)
    && (about[name]?.set_by || Object.hasOwn(about[name] ?? {}, "default")));
  return names.map((name) => {
    const stated = about[name];
    const term = el("dt", {}, el("code", { dir: "ltr" }, visible(name, "line")),
      el("span", { class: "type" }, "  set by the service"));
    const value = Object.hasOwn(stated, "default") ? block(stated.default, "exact", "Value")
      : el("p", { class: "note" }, "Not shown.");
    return el("div", {}, term, el("dd", {}, value));
  });
}

function commandOf(input) {
  const parts = [block(input.command ?? "", "exact", "Command")];
  for (const file of input.files ?? []) {
    const path = el("code", { dir: "ltr" }, visible(file.file_path, "line"));
    parts.push(el("p", { class: "label" }, "First writes the file ", path),
      block(file.file_content ?? "", "exact", "File content"));
  }
  return el("div", { class: "input" }, ...parts);
}

// One line of a command, for where there is room for no more.
export function firstLine(command) {
  const text = String(command ?? "");
  const line = text.split("\n", 1)[0].slice(0, 80);
  return line === text ? line : `${line} \u2026`;
}

const ofCall = (raw) => ({
  id: raw.id, type: "tool_call", name: raw.name, input: raw.input, raw, intent: raw.intent,
  description: raw.tool_description, about: raw.input_description,
});

const ofCommand = (raw, place) => ({
  id: raw.id ?? `command ${place}`, type: "command", name: "Command", raw, intent: raw.intent,
  input: { command: raw.command, files: raw.files },
});

export function proposalsOf(data, place) {
  const commands = (data.cmds ?? []).map((raw, n) => ofCommand(raw, `${place}.${n}`));
  const more = new Map((data.approvals ?? []).map(({ id, bound, votes, preview, revision }) => [id, { bound, votes, preview, revision }]));
  return [...(data.tool_calls ?? []).map(ofCall), ...commands].filter((p) => !p.raw.execute)
    .map((p) => ({ ...p, ...more.get(p.id) }));
}
