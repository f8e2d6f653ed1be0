// The form that changes an input: a field for each parameter, by the tool's schema, or all as JSON.

import { objectOf, parse, sourceOf } from "./json.js";
import { el, escaped, visible } from "./text.js";

const LONG = 60;

// The parts of the input that may change, as fields: `{element, first, read}`; `read()` gives them as
// they were written, or undefined after it has marked a wrong one.
export function fieldsOf(input, names, schema, id) {
  const fields = names.map((name, n) => fieldOf(name, input[name], partOf(schema, name), `${id}-${n}`, Object.hasOwn(input, name)));
  const element = el("div", { class: "fields" }, ...fields.map((field) => field.element));
  const read = () => {
    const found = {};
    for (const field of fields) {
      const value = field.read();
      if (value === WRONG) return undefined;
      if (value !== ABSENT) found[field.name] = value;
    }
    return found;
  };
  return { element, first: fields[0]?.field, read };
}

const WRONG = Symbol("wrong");
const ABSENT = Symbol("absent");

function partOf(schema, name) {
  let part = schema?.properties?.[name] ?? {};
  if (part.$ref) part = { ...schema.$defs?.[part.$ref.split("/").at(-1)], ...part };
  const choices = part.anyOf?.filter((one) => one.type !== "null");
  return choices?.length === 1 ? { ...part, ...choices[0], optional: true } : part;
}

function fieldOf(name, value, part, id, present) {
  const { field, take } = controlOf(value, part, id, present);
  const about = part.description ? el("span", { class: "what", id: `${id}-about` }, visible(part.description)) : undefined;
  if (about) field.setAttribute("aria-describedby", about.id);
  const before = valueOf(field);
  const read = () => {
    // A field that nobody has touched keeps its value, digit for digit.
    if (valueOf(field) === before) return present ? value : ABSENT;
    const found = take(field);
    field.setCustomValidity(found === WRONG ? "This does not fit the parameter." : "");
    if (found === WRONG) field.reportValidity();
    return found;
  };
  field.addEventListener("input", () => field.setCustomValidity(""));
  return { name, field, read, element: el("div", { class: "field" }, el("label", { for: id, dir: "ltr" }, visible(name, "line")), about, field) };
}

const valueOf = (field) => (field.type === "checkbox" ? field.checked : field.value);

function controlOf(value, part, id, present) {
  const isText = typeof value === "string" || (value === undefined && part.type === "string");
  if (Array.isArray(part.enum) && part.enum.every((one) => typeof one === "string") && (!present || part.enum.includes(value))) {
    const options = part.enum.map((one) => el("option", { value: one, selected: one === value ? "" : undefined }, visible(one, "line")));
    return { field: el("select", { id }, ...(present ? [] : [el("option", { value: "" }, "")]), ...options), take: (field) => field.value };
  }
  if (part.type === "boolean" && (typeof value === "boolean" || !present)) {
    return { field: el("input", { id, type: "checkbox", checked: value ? "" : undefined }), take: (field) => field.checked };
  }
  // A text with characters that are not seen is edited in its JSON form, where they are.
  if (isText && escaped(sourceOf(value ?? "")) === sourceOf(value ?? "")) return textOf(value ?? "", id);
  const numeric = part.type === "integer" || part.type === "number";
  const shown = value === undefined ? "" : escaped(sourceOf(value));
  const field = numeric ? el("input", { id, inputmode: "decimal", autocomplete: "off" })
    : el("textarea", { id, rows: "3", spellcheck: "false", class: "mono" });
  field.defaultValue = shown;
  return { field, take: ({ value: text }) => (text.trim() ? jsonOf(text) : ABSENT) };
}

function textOf(value, id) {
  const long = value.length > LONG || value.includes("\n");
  const field = long ? el("textarea", { id, rows: String(Math.min(12, value.split("\n").length + 1)), spellcheck: "false", class: "mono" })
    : el("input", { id, autocomplete: "off", spellcheck: "false" });
  field.defaultValue = value;
  return { field, take: ({ value: text }) => text };
}

function jsonOf(text) {
  try {
    return parse(text);
  } catch {
    return WRONG;
  }
}

// All of it as JSON, for whoever prefers that.
export function jsonField(part, typed, id) {
  const field = el("textarea", { id, rows: "6", spellcheck: "false", autocomplete: "off", class: "mono" });
  field.defaultValue = escaped(sourceOf(part));
  if (typed !== undefined) field.value = typed;
  field.addEventListener("input", () => {
    field.setCustomValidity(objectOf(field.value) ? "" : "This is no JSON object.");
  });
  return field;
}
