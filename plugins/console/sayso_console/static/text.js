// Text that came over the wire, as text nodes: it never becomes HTML.

export const byId = (id) => document.getElementById(id);
const MARKS = 2000;

const UNSEEN = "\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}\\p{Zl}\\p{Zp}\\p{DI}\\u2800";
const PATTERNS = {
  // A reply or an output: line breaks and tabs are ordinary.
  text: new RegExp(`(?![\\n\\t])[${UNSEEN}]`, "gu"),
  // What will run: every character counts, odd spaces too.
  exact: new RegExp(`(?![\\n ])[${UNSEEN}\\p{Zs}]`, "gu"),
  // A name on one line.
  line: new RegExp(`(?! )[${UNSEEN}\\p{Zs}]`, "gu"),
};
const RTL = "\\u0590-\\u08FF\\uFB1D-\\uFDFF\\uFE70-\\uFEFC\\u{10800}-\\u{10FFF}\\u{1E800}-\\u{1EFFF}";
const LEFTWARD = new RegExp(`[${RTL}]+(?: +[${RTL}]+)*`, "gu");
const BEFORE_JOINER = /[\p{ExtPict}\p{EMod}]\uFE0F?$/u;

export function visible(value, mode = "text") {
  const text = String(value);
  const found = document.createDocumentFragment();
  let from = 0;
  let marks = 0;
  for (const { 0: char, index } of text.matchAll(PATTERNS[mode])) {
    if (isOrdinary(char, text, index, mode)) continue;
    if (index > from) found.append(...pieces(text.slice(from, index), mode));
    found.append(marks < MARKS ? mark(char) : "\u25AF");
    marks += 1;
    from = index + char.length;
  }
  if (from < text.length) found.append(...pieces(text.slice(from), mode));
  return found;
}

// Between two runs of right-to-left letters a screen would show `3 > 9` as `9 < 3`: each is isolated.
function pieces(text, mode) {
  if (mode === "text") return [text];
  const found = [];
  let from = 0;
  for (const { 0: run, index } of text.matchAll(LEFTWARD)) {
    if (index > from) found.push(text.slice(from, index));
    found.push(el("bdi", {}, run));
    from = index + run.length;
  }
  if (from < text.length) found.push(text.slice(from));
  return found;
}

// JSON text in which no character is unseen.
export function escaped(json) {
  return json.replace(PATTERNS.exact, (char) => Array.from({ length: char.length },
    (_, n) => `\\u${char.charCodeAt(n).toString(16).padStart(4, "0")}`).join(""));
}

function isOrdinary(char, text, index, mode) {
  if (char === "\r") return mode === "text" && text[index + 1] === "\n";
  const joins = char === "\uFE0F" || char === "\u200D";
  return joins && BEFORE_JOINER.test(text.slice(Math.max(0, index - 4), index));
}

function mark(char) {
  const code = char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return el("span", { class: "mark", title: "a character that is not seen" }, `U+${code}`);
}

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

export const button = (label, onclick, kind = "") => el("button", { type: "button", class: kind, onclick }, label);

export function announce(text) {
  byId("announcer").textContent = text.slice(0, 600);
}
