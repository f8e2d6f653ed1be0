// Emphasis, code and links within a line of Markdown, as DOM nodes.

import { el, visible } from "./text.js";

const TAGS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };
const DEEPEST = 20;
const LONGEST = 2000; // characters of an address
const WORD = /[\p{L}\p{N}_]/u;
const SPACE = /\s/;
const PUNCTUATION = /[!-/:-@[-`{-~]/;

// One pass makes the tokens, another the nodes. A mark is opened once and closed or given up once.
export function inline(text) {
  return nodesOf(tokensOf(text));
}

function tokensOf(text) {
  const tokens = [];
  const open = []; // places of tokens that may still be closed
  const count = {}; // how many of each kind are open
  const codeEnds = new Map(); // length of a run of backticks -> a place behind which there is none
  let plain = "";
  const push = (token) => {
    if (plain) tokens.push({ text: plain });
    plain = "";
    tokens.push(token);
  };
  const giveUp = () => {
    const token = tokens[open.pop()];
    count[token.open] -= 1;
  };
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === "\\" && PUNCTUATION.test(text[at + 1] ?? "")) {
      at += 1;
      plain += text[at];
    } else if (char === "`") {
      const length = runAt(text, at);
      const end = (codeEnds.get(length) ?? Infinity) <= at ? -1 : closing(text, at + length, length);
      if (end < 0) {
        codeEnds.set(length, at);
        plain += text.slice(at, at + length);
        at += length - 1;
      } else {
        const code = text.slice(at + length, end);
        push({ code: /^ .*[^ ].* $/s.test(code) ? code.slice(1, -1) : code });
        at = end + length - 1;
      }
    } else if (char === "*" || char === "_" || char === "~") {
      const double = text[at + 1] === char;
      // Of three, the one that was opened last is closed first.
      const single = text[at + 2] === char && tokens[open.at(-1)]?.open === char;
      const kind = double && !single ? char + char : char;
      const before = text[at - 1] ?? " ";
      const after = text[at + kind.length] ?? " ";
      const within = char === "_" && WORD.test(before) && WORD.test(after);
      if (!(kind in TAGS) || within) {
        plain += kind;
      } else if (count[kind] && !SPACE.test(before)) {
        while (tokens[open.at(-1)].open !== kind) giveUp();
        tokens[open.at(-1)].tag = TAGS[kind];
        giveUp();
        push({ close: true });
      } else if (!SPACE.test(after)) {
        push({ open: kind, text: kind });
        open.push(tokens.length - 1);
        count[kind] = (count[kind] ?? 0) + 1;
      } else {
        plain += kind;
      }
      at += kind.length - 1;
    } else if (char === "[") {
      push({ open: "[", text: "[" });
      open.push(tokens.length - 1);
      count["["] = (count["["] ?? 0) + 1;
    } else if (char === "]" && count["["]) {
      const target = text[at + 1] === "(" ? targetAt(text, at + 2) : undefined;
      while (tokens[open.at(-1)].open !== "[") giveUp();
      const begin = tokens[open.at(-1)];
      giveUp();
      if (target && isSafe(target.url)) {
        begin.link = target.url;
        push({ close: true, link: target.url });
        at = target.end;
      } else {
        plain += char;
      }
    } else if (char === "h" && !WORD.test(text[at - 1] ?? " ") && /^https?:\/\/[^\s<>]/.test(text.slice(at, at + 9))) {
      const url = bareAt(text, at);
      push({ url });
      at += url.length - 1;
    } else {
      plain += char;
    }
  }
  if (plain) tokens.push({ text: plain });
  return tokens;
}

function runAt(text, at) {
  let length = 1;
  while (text[at + length] === "`") length += 1;
  return length;
}

function closing(text, from, length) {
  for (let at = text.indexOf("`", from); at >= 0; at = text.indexOf("`", at)) {
    const run = runAt(text, at);
    if (run === length) return at;
    at += run;
  }
  return -1;
}

// `url "title")`: the title is not shown.
function targetAt(text, from) {
  let depth = 0;
  for (let at = from; at < Math.min(text.length, from + LONGEST); at += 1) {
    if (text[at] === "\n" || text[at] === "[") return undefined;
    if (text[at] === "(") depth += 1;
    if (text[at] === ")" && depth > 0) depth -= 1;
    else if (text[at] === ")") return { url: text.slice(from, at).trim().split(/\s/, 1)[0].replace(/^<|>$/g, ""), end: at };
  }
  return undefined;
}

function bareAt(text, at) {
  let end = at;
  while (end < text.length && end < at + LONGEST && !/[\s<>"`]/.test(text[end])) end += 1;
  while (/[.,;:!?'*_~\])]/.test(text[end - 1])) end -= 1;
  return text.slice(at, end);
}

export const isSafe = (url) => /^(?:https?:\/\/|mailto:)[^\s]/i.test(url);

function linkTo(url, ...children) {
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

function nodesOf(tokens) {
  const found = document.createDocumentFragment();
  const inside = [found];
  let links = 0;
  for (const token of tokens) {
    const here = inside.at(-1);
    if (token.close) {
      const ended = inside.length > 1 ? inside.pop() : here;
      if (token.link) links -= 1;
      // A text that differs from its target does not hide it.
      if (token.link && ended.textContent !== token.link && ended.localName === "a") {
        ended.after(el("span", { class: "target", dir: "ltr" }, " (", visible(token.link, "line"), ")"));
      }
    } else if (token.link || token.tag) {
      const flat = inside.length > DEEPEST || (token.link && links > 0);
      const made = flat ? el("span") : token.link ? linkTo(token.link) : el(token.tag);
      if (token.link) links += 1;
      here.append(made);
      inside.push(made);
    } else if (token.code !== undefined) {
      here.append(el("code", { dir: "ltr" }, visible(token.code)));
    } else if (token.url) {
      const shown = visible(token.url, "line");
      here.append(links ? el("span", {}, shown) : linkTo(token.url, shown));
    } else {
      here.append(visible(token.text));
    }
  }
  return found;
}
