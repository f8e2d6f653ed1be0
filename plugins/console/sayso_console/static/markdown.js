// Markdown as DOM nodes: headings, paragraphs, lists, quotes, code, tables, emphasis, links. HTML and
// images stay the text that they are. The time is linear in the length: no expression backtracks over
// the text, and no text is looked at again for each of its characters. Each paragraph gets its
// direction by the style sheet: the browser finds the one of `dir=auto` in quadratic time.

import { inline } from "./inline.js";
import { button, el, visible } from "./text.js";

const DEEPEST = 6; // quotes and lists within each other; what is deeper stays text
const BULLET = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4})(?=\S)/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const QUOTE = /^ {0,3}> ?/;
const LONG = 20_000; // a last block of so many characters is made anew only once a second

export function markdown(text) {
  return fragment(blocks(text.split("\n"), 0));
}

// A text that comes in parts: whatever cannot change any more is made once, only the last block anew.
export class Growing {
  constructor(element, drawn) {
    this.element = element;
    this.drawn = drawn;
    this.rest = "";
    this.last = [];
    this.due = false;
  }

  add(text) {
    this.rest += text;
    if (this.due) return;
    this.due = true;
    const draw = () => {
      this.due = false;
      if (!this.ended) this.draw();
    };
    if (this.rest.length > LONG) setTimeout(draw, 1000);
    else requestAnimationFrame(draw);
  }

  draw() {
    const lines = this.rest.split("\n");
    const made = blocks(lines, 0);
    this.last.forEach((node) => node.remove());
    this.last = [];
    const from = made.at(-1)?.from ?? 0;
    for (const block of made) {
      const node = block.node();
      this.element.append(node);
      if (block.from === from) this.last.push(node);
    }
    this.rest = lines.slice(from).join("\n");
    this.drawn();
  }

  // The whole text, as it was in the end.
  finish(text) {
    this.ended = true;
    this.element.replaceChildren(markdown(text));
  }
}

function fragment(made) {
  const found = document.createDocumentFragment();
  for (const { node } of made) found.append(node());
  return found;
}

// Each block with the number of its first line.
function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [node, next] = blockAt(lines, at, depth);
    found.push({ from: at, node });
    at = next;
  }
  return found;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return codeAt(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [() => headingOf(line, heading[1].length), at + 1];
  if (isRule(line)) return [() => el("hr"), at + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quoteAt(lines, at, depth);
  if (depth < DEEPEST && BULLET.test(line)) return listAt(lines, at, depth);
  if (isTable(lines, at)) return tableAt(lines, at);
  let next = at + 1;
  while (next < lines.length && lines[next].trim() && !begins(lines, next, depth)) next += 1;
  const text = lines.slice(at, next).map((one) => one.replace(/^ {1,3}/, "")).join("\n").trimEnd();
  return [() => el("p", {}, inline(text)), next];
}

function begins(lines, at, depth) {
  const line = lines[at];
  const nests = depth < DEEPEST && (QUOTE.test(line) || BULLET.test(line));
  return nests || FENCE.test(line) || HEADING.test(line) || isRule(line);
}

function headingOf(line, level) {
  const text = line.trim().replace(/^#+/, "").trim();
  const end = text.length - (/ #{1,6}$/.exec(text.slice(-8))?.[0].length ?? 0);
  return el(`h${Math.min(6, level + 1)}`, {}, inline(text.slice(0, end)));
}

function isRule(line) {
  const marks = line.trim().replaceAll(" ", "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && marks === marks[0].repeat(marks.length);
}

function codeAt(lines, at, [, indent, fence, info]) {
  const closes = (line) => {
    const text = line.trim();
    return text.length >= fence.length && text === fence[0].repeat(text.length);
  };
  let next = at + 1;
  while (next < lines.length && !closes(lines[next])) next += 1;
  const text = lines.slice(at + 1, next).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line)).join("\n");
  return [() => codeOf(text, info.trim().split(" ")[0]), Math.min(next + 1, lines.length)];
}

function codeOf(text, language) {
  const label = language ? `Code, ${language}` : "Code";
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  }, "quiet");
  const head = el("div", { class: "code-head" }, el("span", {}, visible(language, "line")),
    navigator.clipboard ? copy : undefined);
  return el("div", { class: "code" }, head,
    el("pre", { dir: "ltr", tabindex: "0", role: "group", "aria-label": label }, visible(text)));
}

function quoteAt(lines, at, depth) {
  let next = at;
  const inside = [];
  while (next < lines.length && lines[next].trim() && (QUOTE.test(lines[next]) || !begins(lines, next, depth))) {
    inside.push(lines[next].replace(QUOTE, ""));
    next += 1;
  }
  return [() => el("blockquote", {}, fragment(blocks(inside, depth + 1))), next];
}

// Items go on with lines that are indented as their text is, and with lines that begin nothing else.
function listAt(lines, at, depth) {
  const kind = (mark) => (/\d/.test(mark) ? mark.at(-1) : mark);
  const first = BULLET.exec(lines[at]);
  const items = [];
  let next = at;
  while (next < lines.length) {
    const found = BULLET.exec(lines[next]);
    if (!found || kind(found[2]) !== kind(first[2]) || isRule(lines[next])) break;
    const width = found[0].length;
    const item = [lines[next].slice(width)];
    next += 1;
    let blank = 0;
    for (; next < lines.length; next += 1) {
      const line = lines[next];
      if (!line.trim()) {
        blank += 1;
        continue;
      }
      const indented = line.startsWith(" ".repeat(width)) || (width > 2 && /^(?: {2,}|\t)\S/.test(line));
      if (!indented && (blank || begins(lines, next, depth))) break;
      item.push(...Array(blank).fill(""), indented ? line.slice(Math.min(width, line.search(/\S/))) : line);
      blank = 0;
    }
    items.push(item);
  }
  const start = /^\d/.test(first[2]) ? Number.parseInt(first[2], 10) : undefined;
  const made = () => {
    const children = items.map((item) => itemOf(item, depth));
    return start === undefined ? el("ul", {}, ...children)
      : el("ol", { start: start === 1 ? undefined : String(start) }, ...children);
  };
  return [made, next];
}

function itemOf(lines, depth) {
  const inside = blocks(lines, depth + 1);
  const item = el("li", {}, fragment(inside));
  // A single paragraph is the item itself.
  if (item.children.length === 1 && item.firstChild.localName === "p") item.replaceChildren(...item.firstChild.childNodes);
  return item;
}

function cellsOf(line) {
  const cells = [];
  let text = "";
  let code = false;
  const row = line.trim();
  for (let n = row.startsWith("|") ? 1 : 0; n < row.length; n += 1) {
    if (row[n] === "`") code = !code;
    if (row[n] === "\\" && row[n + 1] === "|") {
      text += "|";
      n += 1;
    } else if (row[n] === "|" && !code) {
      cells.push(text.trim());
      text = "";
    } else {
      text += row[n];
    }
  }
  if (text.trim()) cells.push(text.trim());
  return cells;
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return false;
  const cells = cellsOf(lines[at + 1]);
  return cells.length === cellsOf(lines[at]).length && cells.every((cell) => /^:?-+:?$/.test(cell));
}

function tableAt(lines, at) {
  const head = cellsOf(lines[at]);
  const sides = cellsOf(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "middle" : "end") : undefined));
  let next = at + 2;
  while (next < lines.length && lines[next].includes("|")) next += 1;
  const rows = lines.slice(at + 2, next).map(cellsOf);
  const cell = (tag) => (text, n) => el(tag, { class: sides[n] }, inline(text ?? ""));
  const made = () => el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, el("table", {},
    el("thead", {}, el("tr", {}, ...head.map(cell("th")))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...head.map((_, n) => cell("td")(row[n], n)))))));
  return [made, next];
}
